"""Consumers in archives of their stream: what is written of them, and what is made of it again.

Rules: what comes from an archive comes from outside: its configuration is checked like that of a request.
Consumers are made before the stream has its own configuration, so that it never has messages that only they
wait for, and nobody who waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.core.api_errors import ApiFailure
from edged.core.archive_parts import (
    ArchivedConsumer,
    ArchiveError,
    ConsumerPosition,
    PendingMessage,
    SeqPair,
)
from edged.core.commands import SEQS_MAX, PutConsumer
from edged.core.consumer_config import CONSUMER, ConsumerConfig, ConsumerRequest
from edged.core.consumer_machine import CREATED, ConsumerMachine
from edged.core.consumer_rules import ConsumerSubject, check_consumer_create
from edged.core.consumer_table import STATE
from edged.core.gojson import JsonError
from edged.core.gotext import quote
from edged.core.stream_machine import StreamMachine
from edged.server.jetstream.account_limits import consumer_bounds

if TYPE_CHECKING:
    from edged.core.stream_config import StreamConfig
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.consumers.consumer import Consumer


def archived(consumer: Consumer, last_seq: int) -> ArchivedConsumer:
    """A consumer as an archive holds it whose last message has this seq."""
    machine = consumer.machine
    delivered, ack_floor = machine.delivered, machine.ack_floor
    position = ConsumerPosition(
        SeqPair(delivered.consumer_seq, min(delivered.stream_seq, last_seq)),
        SeqPair(ack_floor.consumer_seq, min(ack_floor.stream_seq, last_seq)),
        {
            seq: PendingMessage(pending.consumer_seq, pending.ts_ns)
            for seq, pending in machine.pending.items()
            if seq <= last_seq
        },
        {seq: count - 1 for seq, count in machine.deliveries.items() if seq <= last_seq},
    )
    # Whoever reads it takes the name from here.
    config = {**consumer.config.document(), "name": machine.name}
    return ArchivedConsumer(machine.name, config, position, machine.created_ns)


def state_of(machine: ConsumerMachine) -> dict[str, Any]:
    """Where a consumer is, for a journal that did not know it. What does not fit counts as not delivered."""
    delivered, floor = SeqPair(*machine.delivered), SeqPair(*machine.ack_floor)
    if len(machine.pending) + len(machine.deliveries) > SEQS_MAX:
        return ConsumerPosition(floor, floor, {}, {}).document()
    pending = {seq: PendingMessage(one.consumer_seq, one.ts_ns) for seq, one in machine.pending.items()}
    redelivered = {seq: count - 1 for seq, count in machine.deliveries.items()}
    return ConsumerPosition(delivered, floor, pending, redelivered).document()


class ConsumerRestore:
    """Makes the consumers of one stream that comes from an archive."""

    def __init__(self, account: AccountStreams, stream: StreamConfig, group: int) -> None:
        self._jetstream = account.jetstream
        self._account = account
        self._stream = stream
        self._group = group
        self._made: dict[str, ConsumerConfig] = {}

    async def make(self, consumer: ArchivedConsumer, last_seq: int) -> None:
        """One of them. Raises ArchiveError, StoreError."""
        try:
            config = self._checked(consumer)
        except (ApiFailure, JsonError) as error:
            words = error.error.description if isinstance(error, ApiFailure) else str(error)
            raise ArchiveError(f"failed to add consumer {quote(consumer.name.encode())}: {words}") from None
        self._made[consumer.name] = config
        position = consumer.position
        if position.delivered.stream_seq > last_seq:
            raise ArchiveError("a consumer was given more than the stream has")
        if len(position.pending) > SEQS_MAX:
            raise ArchiveError(f"more than {SEQS_MAX} messages of a consumer wait")
        stored: dict[str, Any] = {
            **config.document(),
            CREATED: consumer.created_ns or self._jetstream.now_ns(),
            STATE: position.document(),
        }
        entry = self._jetstream.store.stream(self._group)
        machine = entry.group.machine
        assert isinstance(machine, StreamMachine)
        command = PutConsumer(machine.highest_consumer + 1, consumer.name, stored)
        if machine.is_volatile(config):
            machine.apply(command)
        else:
            await self._jetstream.commit(self._group, command)

    def _checked(self, consumer: ArchivedConsumer) -> ConsumerConfig:
        """Raises ApiFailure, JsonError."""
        config = ConsumerConfig.of(CONSUMER.read(dict(consumer.config), "ConsumerConfig", strict=False))
        checked = check_consumer_create(
            ConsumerRequest(self._stream.name, config),
            ConsumerSubject(self._stream.name, consumer.name),
            self._stream,
            consumer_bounds(self._account, self._stream.num_replicas),
            self._made,
            chance=b"",
            has_interest=lambda subject: False,
        )
        return checked.config
