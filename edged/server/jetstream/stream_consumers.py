"""The consumers of one stream: made, changed and removed by commands, and told what happens to its messages.

Rules: what a consumer is, is in the machine of the stream; here is only what serves it at run time. A number
is never given twice within a stream. One that is kept in memory, of a stream that is not, passes no
journal: its commands are applied at once. One that is about to be removed is not found any more, so that
nobody changes it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edged.core.api_errors import ApiFailure
from edged.core.commands import Purge, PutConsumer, RemoveConsumer, ResetConsumer
from edged.core.consumer_config import ConsumerConfig
from edged.core.consumer_machine import CREATED, ConsumerMachine
from edged.core.consumer_table import STATE
from edged.core.pull_statuses import CONSUMER_DELETED
from edged.core.stream_machine import Outcome, Refused
from edged.core.stream_update_rules import ConsumerUse
from edged.core.wire import Publish
from edged.server.jetstream.audience import Audience
from edged.server.jetstream.consumer_advisories import consumer_action, consumer_paused
from edged.server.jetstream.consumer_archives import state_of
from edged.server.jetstream.consumer_info import described
from edged.server.jetstream.consumers.consumer import Consumer
from edged.server.jetstream.inactivity import Inactivity
from edged.store.errors import NotLeader, StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream

Document = dict[str, Any]


class StreamConsumers:
    """The consumers of a stream by name."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._consumers: dict[str, Consumer] = {}
        # The highest number given out, be its consumer there yet or not.
        self._number = 0
        # The numbers of those that are on their way without anybody who waits for them, by name.
        self._placed: dict[str, int] = {}
        # Who is told of new messages, and who may be unused for too long.
        self._audience = Audience()
        self._inactivity = Inactivity()
        # Those that have something to tell the journal with the next tick.
        self._untold: dict[Consumer, None] = {}
        # How many seqs had no message when consumers were last told that some went.
        self._missing = 0

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._consumers.values()))

    def __len__(self) -> int:
        return len(self._consumers)

    def find(self, name: str) -> Consumer | None:
        """A consumer by name."""
        return self._consumers.get(name)

    def public(self) -> list[Consumer]:
        """Those that clients see, by name; others feed streams."""
        return [one for _, one in sorted(self._consumers.items()) if not one.config.direct]

    def direct(self) -> list[Consumer]:
        """Those that clients do not see."""
        return [one for _, one in sorted(self._consumers.items()) if one.config.direct]

    def configs(self) -> Mapping[str, ConsumerConfig]:
        """The configurations of all, as they are when they are asked for."""
        return _Configs(self._consumers)

    def uses(self) -> list[ConsumerUse]:
        """What they need of the limits that the stream has for them."""
        return [
            ConsumerUse(name, config.inactive_threshold, config.max_ack_pending)
            for name, config in self.configs().items()
        ]

    # --- life of the stream ---

    def start(self) -> None:
        """Serve those that the machine knows."""
        self._missing = self._missing_now()
        for machine in list(self._stream.machine.consumers.values()):
            self._serve(machine)

    def forget_earlier(self) -> None:
        """Remove those of an earlier life that were to be in memory only."""
        for consumer in self:
            if consumer.config.mem_storage:
                self.forsake(consumer)

    def stop(self, status: bytes | None = None) -> list[Consumer]:
        """The stream is not served any more, and its consumers with it; those that were."""
        stopped = list(self)
        self._stream.machine.table.keep_dropped(False)
        self._consumers.clear()
        self._audience.clear()
        self._inactivity = Inactivity()
        self._untold.clear()
        for consumer in stopped:
            consumer.stop(status)
        if self._stream.jetstream.cluster is not None:
            self._stream.machine.table.stop_runners()
        return stopped

    def stored(self, messages: Sequence[Publish] | None) -> None:
        """Messages were stored, and others may have gone for them; None when it is not known which."""
        if not self._consumers:
            return
        self._tell_dropped()
        for consumer in self._audience.of(messages):
            consumer.messages_stored()

    def removed(self) -> None:
        """Messages may have gone."""
        missing = self._missing_now()
        if missing == self._missing:
            return
        self._missing = missing
        self._tell_dropped()
        for consumer in self._consumers.values():
            consumer.messages_removed()

    def tick(self, now_ns: int) -> None:
        """Whatever is due by the clock."""
        if not self._consumers:
            return
        self.removed()
        if self._untold:
            untold, self._untold = self._untold, {}
            for consumer in untold:
                consumer.tick()
        for consumer in self._inactivity.take(now_ns):
            if self._consumers.get(consumer.machine.name) is consumer:
                self.forsake(consumer)

    def unused(self, consumer: Consumer) -> None:
        """Nobody listens to a consumer any more: it may go before the next tick."""
        threshold_ns = consumer.config.inactive_threshold
        if threshold_ns > 0 and self._consumers.get(consumer.machine.name) is consumer:
            now_ns = self._stream.jetstream.now_ns()
            self._inactivity.watch(consumer, now_ns)
            self._stream.alarm.set(now_ns + threshold_ns)

    def tell_later(self, consumer: Consumer) -> None:
        """A consumer has something to tell the journal, with the next tick at the latest."""
        self._untold[consumer] = None

    def _tell_dropped(self) -> None:
        """Messages that waited for their acknowledgement are gone: that settles them."""
        dropped = self._stream.machine.table.take_dropped()
        if not dropped:
            return
        now_ns = self._stream.jetstream.now_ns()
        by_number = {consumer.machine.number: consumer for consumer in self._consumers.values()}
        for number, one in dropped:
            consumer = by_number.get(number)
            if consumer is not None:
                consumer.machine.last_acked_ns = now_ns
                consumer.message_dropped(one)

    def _missing_now(self) -> int:
        log = self._stream.log
        return log.last_seq - log.message_count

    # --- changes ---

    async def put(self, name: str, config: ConsumerConfig) -> Document:
        """Make a consumer, or give one that is there another configuration; its description.

        That of a new one is from before any delivery. Raises StoreError, ApiFailure.
        """
        known = self._consumers.get(name)
        if known is None:
            return await self._create(name, config)
        if config != known.config:
            machine = known.machine
            stored = {**config.document(), CREATED: machine.created_ns}
            before_ns = known.config.pause_until
            await self._apply(PutConsumer(machine.number, name, stored), config)
            self._reconfigure(known)
            if config.pause_until != before_ns:
                consumer_paused(known)
        return described(known)

    async def _create(self, name: str, config: ConsumerConfig) -> Document:
        machine = self._stream.machine
        number = self._next_number()
        stored = {**config.document(), CREATED: self._stream.jetstream.now_ns()}
        await self._apply(PutConsumer(number, name, stored), config)
        if not self._stream.is_leading:
            # It is there, and who leads now serves it.
            raise NotLeader
        consumer = self._serve(machine.consumers[number])
        consumer_action(consumer, "CREATED", "create")
        # Its first turn to deliver comes with the next flush.
        return described(consumer)

    def place(self, name: str, config: ConsumerConfig) -> int:
        """Make or change a consumer without anybody who waits for it; its number, from now on."""
        stream, known = self._stream, self._consumers.get(name)
        if name in self._placed:
            return self._placed[name]
        number = self._next_number() if known is None else known.machine.number
        self._placed[name] = number
        created_ns = stream.jetstream.now_ns() if known is None else known.machine.created_ns

        def done(result: object) -> None:
            self._placed.pop(name, None)
            machine = stream.machine.consumers.get(number)
            if known is not None:
                self._reconfigure(known)
            elif machine is not None and stream.is_leading:
                consumer_action(self._serve(machine), "CREATED", "create")

        command = PutConsumer(number, name, {**config.document(), CREATED: created_ns})
        stream.jetstream.committer.submit(stream.group, command, done)
        return number

    def become_known(self) -> None:
        """The stream is about to keep messages for its consumers: let the journal know all of them before.

        What is acknowledged until then is not in the journal. It is kept for longer than it need be then, if
        the process ends: until the consumer, which is in memory, is removed after the next start.
        """
        stream = self._stream
        for consumer in self:
            if consumer.is_volatile:
                machine = consumer.machine
                stored = {**machine.config.document(), CREATED: machine.created_ns, STATE: state_of(machine)}
                command = PutConsumer(machine.number, machine.name, stored)
                stream.jetstream.committer.submit(stream.group, command, _nobody_waits)

    def _next_number(self) -> int:
        self._number = max(self._number, self._stream.machine.highest_consumer) + 1
        return self._number

    async def purge(self, command: Purge) -> Outcome:
        """Remove messages of the stream; what waited for an acknowledgement is settled by that."""
        stream = self._stream
        waiting = {consumer: len(consumer.machine.pending) for consumer in self._consumers.values()}
        outcome = await stream.jetstream.commit(stream.group, command)
        for consumer, count in waiting.items():
            if len(consumer.machine.pending) < count:
                consumer.machine.last_acked_ns = stream.jetstream.now_ns()
        self.removed()
        return outcome

    async def reset(self, consumer: Consumer, seq: int) -> int:
        """Let a consumer go on with the message of that seq, 0: behind the last one that it settled."""
        # Nothing that it hands out meanwhile may come behind the command.
        consumer.hold()
        try:
            return await self._apply(ResetConsumer(consumer.machine.number, seq), consumer.config)
        finally:
            self._reconfigure(consumer)

    def _reconfigure(self, consumer: Consumer) -> None:
        """Unless it was not used for too long just now, and is about to go."""
        if self._consumers.get(consumer.machine.name) is consumer:
            consumer.reconfigure()
            self._admit(consumer)

    async def remove(self, consumer: Consumer) -> None:
        """Remove a consumer. Raises StoreError."""
        # What clients have acknowledged counts, even if it was about to wait for more.
        consumer.acks.flush()
        self._dismiss(consumer)
        try:
            await self._apply(RemoveConsumer(consumer.machine.number), consumer.config)
        except StoreError:
            if self._stream.is_leading:
                self._admit(consumer)
            raise
        self._gone(consumer)

    def forsake(self, consumer: Consumer) -> None:
        """Remove a consumer without anybody who waits for it."""
        stream = self._stream
        command = RemoveConsumer(consumer.machine.number)
        self._dismiss(consumer)
        if self._is_volatile(consumer.config):
            stream.machine.apply(command)
            self._gone(consumer)
            return

        def done(result: object) -> None:
            if not isinstance(result, StoreError):
                self._gone(consumer)
            elif stream.is_leading:
                # It goes when it is looked at the next time.
                self._admit(consumer)

        stream.jetstream.committer.submit(stream.group, command, done)

    def _gone(self, consumer: Consumer) -> None:
        consumer_action(consumer, "DELETED", "delete")
        consumer.stop(CONSUMER_DELETED)
        self.removed()

    def _serve(self, machine: ConsumerMachine) -> Consumer:
        table = self._stream.machine.table
        if not table.keeps_dropped:
            table.keep_dropped(True)
        if self._stream.jetstream.cluster is not None and not self._is_volatile(machine.config):
            machine = table.run_ahead(machine.number)
        consumer = Consumer(self._stream, machine)
        self._admit(consumer)
        consumer.start()
        return consumer

    def _admit(self, consumer: Consumer) -> None:
        """A consumer is there, or is configured otherwise."""
        self._consumers[consumer.machine.name] = consumer
        self._audience.put(consumer)
        self._inactivity.watch(consumer, self._stream.jetstream.now_ns())

    def _dismiss(self, consumer: Consumer) -> None:
        """A consumer is about to go: nobody finds it any more."""
        del self._consumers[consumer.machine.name]
        self._audience.remove(consumer)
        self._inactivity.forget(consumer)

    def _is_volatile(self, config: ConsumerConfig) -> bool:
        """Whether the journal does not know of it."""
        return self._stream.machine.is_volatile(config)

    async def _apply(
        self, command: PutConsumer | RemoveConsumer | ResetConsumer, config: ConsumerConfig
    ) -> int:
        """Raises StoreError, ApiFailure."""
        stream = self._stream
        outcome: Outcome
        if self._is_volatile(config):
            outcome = stream.machine.apply(command)
        else:
            outcome = await stream.jetstream.commit(stream.group, command)
        if isinstance(outcome, Refused):
            raise ApiFailure(outcome.error)
        assert isinstance(outcome, int), outcome
        return outcome


def _nobody_waits(result: object) -> None:
    """The command that follows fails when this one does."""


class _Configs(Mapping[str, ConsumerConfig]):
    """Configurations by name. A request looks at few of them, and there may be thousands."""

    def __init__(self, consumers: Mapping[str, Consumer]) -> None:
        self._consumers = consumers

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._consumers[name].config

    def __iter__(self) -> Iterator[str]:
        return iter(self._consumers)

    def __len__(self) -> int:
        return len(self._consumers)
