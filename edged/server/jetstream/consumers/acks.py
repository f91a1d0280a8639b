"""From what clients say of delivered messages to commands, and from those to confirmations.

Rules: what one turn of the loop brought is one command of each kind; if nobody waits for a confirmation, what
a few turns brought. An acknowledgement counts, and is confirmed, when it is durable; sending a message back,
or saying that it is worked on, counts at once. Nothing is confirmed for a message that was not delivered. A
message whose acknowledgement is on its way to the disk takes no room any more that others could have.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edged.core import ack_payload as payloads
from edged.core.ack_payload import PLAIN_ACKS, AckPayload, ack_payload
from edged.core.ack_subject import AckedMessage, acked_message
from edged.core.commands import ACK, ACK_ALL, SEQS_MAX, TERM, Ack, Terminate
from edged.core.dead_letter_message import letter_text
from edged.server.jetstream.consumers import advisories
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.jetstream.consumers.consumer import Consumer

_ALL_POLICIES: Final = ("all", "flow_control")
_PERCENT: Final = 100
GATHER_NS: Final = 3_000_000
"""Commands with acknowledgements that nobody waits for are so far apart: the first goes at once, then some
gather."""
GATHER_MAX: Final = 4096
"""So many are a command without having to wait."""


class Acks:
    """Of one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._machine = consumer.machine
        # What was not submitted yet.
        self._acked: list[int] = []
        self._ended: list[int] = []
        # What clients said of messages that they ended, for dead letters.
        self._reasons: dict[int, str] = {}
        self._replies: list[bytes] = []
        # Pending messages that are acknowledged one by one, but not durably yet.
        self._on_their_way: set[int] = set()
        # When acknowledgements were submitted last.
        self._submitted_ns = 0
        self.configure()

    def configure(self) -> None:
        """The configuration has changed."""
        config = self._consumer.config
        self._is_all = config.ack_policy in _ALL_POLICIES
        self._sampled_percent = _percent(config.sample_freq)

    @property
    def on_their_way(self) -> int:
        """How many pending messages are about to be settled."""
        return len(self._on_their_way)

    def is_on_its_way(self, seq: int) -> bool:
        """Whether a pending message is about to be settled."""
        return seq in self._on_their_way

    @property
    def due_at_ns(self) -> int:
        """When to submit what has gathered; 0 if there is nothing."""
        return self._submitted_ns + GATHER_NS if self._acked else 0

    # --- arrivals ---

    def arrived_plain(self, seqs: Sequence[int], messages: Sequence[Publish]) -> None:
        """Messages are done with, and nobody waits for a confirmation. `seqs` are those of `messages`."""
        machine = self._machine
        if self._sampled_percent:
            for message in messages:
                self._ack(acked_message(message[0]), None)
        elif self._is_all:
            self.acknowledged_to(max([seq for seq in seqs if seq < machine.next_seq], default=0))
        else:
            pending, deliveries, on_their_way = machine.pending, machine.deliveries, self._on_their_way
            found = [seq for seq in seqs if seq in pending and seq not in on_their_way]
            on_their_way.update(found)
            self._acked += found
            if deliveries:
                # Those that were given up.
                self._acked += [seq for seq in seqs if seq in deliveries and seq not in pending]
            self._consumer.wake()
        self._consumer.used()

    def arrived(self, subject: bytes, reply: bytes | None, payload: bytes) -> None:
        """Something is said of a message."""
        acked = acked_message(subject)
        if payload in PLAIN_ACKS:
            self._ack(acked, reply)
        elif acked.stream_seq:
            self._other(acked, reply, ack_payload(payload))
        else:
            # Only a request for more has a meaning without a message.
            said = ack_payload(payload)
            if said.kind == payloads.NEXT and reply is not None:
                self._consumer.pull(reply, b"", said.rest)
        self._consumer.used()

    def acknowledged_to(self, seq: int) -> None:
        """An answer to flow control says up to where everything was dealt with."""
        if 0 < seq < self._machine.next_seq:
            self._acked.append(seq)
            self._consumer.wake()

    def _ack(self, acked: AckedMessage, reply: bytes | None) -> None:
        """Note one, if it is for something that was delivered."""
        seq, machine = acked.stream_seq, self._machine
        if not 0 < seq < machine.next_seq:
            return
        if self._is_all:
            # Below the floor there may be messages that were given up: they are still to be settled.
            is_news = seq > machine.ack_floor.stream_seq or seq >= machine.lowest_known
        else:
            is_news = seq in machine.pending or seq in machine.deliveries
            if self._sampled_percent and seq in machine.pending:
                self._sample(acked)
        if is_news:
            self._acked.append(seq)
            if not self._is_all and seq in machine.pending:
                self._on_their_way.add(seq)
            if reply is not None:
                self._replies.append(reply)
        elif reply is not None:
            # It is known by what is durable.
            self._consumer.answer(reply, b"")
        self._consumer.wake()

    def _other(self, acked: AckedMessage, reply: bytes | None, said: AckPayload) -> None:
        consumer, seq = self._consumer, acked.stream_seq
        if said.kind == payloads.NEXT:
            self._ack(acked, None)
            if reply is not None:
                consumer.pull(reply, b"", said.rest)
            return
        if said.kind == payloads.TERM:
            self._term(acked, reply, said.rest)
            return
        if said.kind == payloads.NAK:
            self._send_back(acked, said.delay_ns)
        elif said.kind == payloads.PROGRESS:
            consumer.supply.redelivery.progress(seq, consumer.now_ns())
            consumer.plan()
        if reply is not None:
            consumer.answer(reply, b"")

    def _send_back(self, acked: AckedMessage, delay_ns: int | None) -> None:
        consumer, machine = self._consumer, self._machine
        is_current = machine.ack_floor.consumer_seq < acked.consumer_seq <= machine.delivered.consumer_seq
        if is_current and acked.stream_seq in machine.pending:
            advisories.message_naked(consumer, acked)
            consumer.supply.redelivery.send_back(acked.stream_seq, delay_ns, consumer.now_ns())
            consumer.wake()

    def _term(self, acked: AckedMessage, reply: bytes | None, reason: bytes) -> None:
        seq, machine = acked.stream_seq, self._machine
        letters = self._consumer.stream.machine.letters
        if not 0 < seq < machine.next_seq or (letters.subject and letters.is_full):
            return
        advisories.message_terminated(self._consumer, acked, reason.decode("utf-8", "replace"))
        if seq in machine.pending or seq in machine.deliveries:
            self._ended.append(seq)
            if letters.subject and reason:
                self._reasons[seq] = letter_text(reason)
            if reply is not None:
                self._replies.append(reply)
        elif reply is not None:
            self._consumer.answer(reply, b"")
        self._consumer.wake()

    def _sample(self, acked: AckedMessage) -> None:
        percent = self._sampled_percent
        if percent >= _PERCENT or random.randrange(_PERCENT) <= percent:
            pending = self._machine.pending[acked.stream_seq]
            delay_ns = self._consumer.now_ns() - pending.ts_ns
            advisories.acknowledged(self._consumer, acked, delay_ns)

    # --- commands ---

    def flush_due(self, now_ns: int) -> None:
        """Submit what has come, unless it may wait for more."""
        is_waited_for = self._replies or self._ended or len(self._acked) >= GATHER_MAX
        if self._acked and not is_waited_for and now_ns < self.due_at_ns and not self._consumer.is_volatile:
            redelivery_ns = self._consumer.supply.redelivery.due_at_ns
            if not redelivery_ns or now_ns < redelivery_ns:
                return
        self.flush()

    def flush(self) -> None:
        """Submit what has come."""
        if not (self._acked or self._ended):
            return
        self._submitted_ns = self._consumer.now_ns()
        acked, self._acked = self._acked, []
        ended, self._ended = self._ended, []
        replies, self._replies = self._replies, []
        consumer, number = self._consumer, self._machine.number
        consumer.supply.submit_dispatches()
        commands: list[Ack | Terminate] = []
        if not self._is_all:
            commands += _commands(number, ACK, acked)
        if not self._is_all or consumer.stream.machine.letters.subject:
            reasons, self._reasons = self._reasons, {}
            commands += [Terminate(number, seq, reason) for seq, reason in reasons.items()]
            commands += _commands(number, TERM, [seq for seq in ended if seq not in reasons])
        if self._is_all:
            commands.append(Ack(number, ACK_ALL, (max(acked + ended),)))
        for place, command in enumerate(commands):
            is_last = place == len(commands) - 1
            self._submit(command, replies if is_last else [])

    def _submit(self, command: Ack | Terminate, replies: list[bytes]) -> None:
        consumer = self._consumer
        settled = command.seqs if isinstance(command, Ack) and self._on_their_way else ()

        def done(result: object) -> None:
            self._on_their_way.difference_update(settled)
            if isinstance(result, StoreError):
                # Nobody knows what became of it: the messages come again.
                return
            self._machine.last_acked_ns = consumer.now_ns()
            for reply in replies:
                consumer.answer(reply, b"")
            consumer.acknowledged()

        consumer.submit(command, done)


def _commands(number: int, kind: int, seqs: list[int]) -> list[Ack]:
    """What says this of messages, in as many commands as it takes."""
    return [
        Ack(number, kind, _compact(seqs[start : start + SEQS_MAX])) for start in range(0, len(seqs), SEQS_MAX)
    ]


def _compact(seqs: list[int]) -> tuple[int, ...] | range:
    """Seqs in order, each once; neighbours as a range."""
    ordered = sorted(set(seqs))
    if ordered[-1] - ordered[0] + 1 == len(ordered):
        return range(ordered[0], ordered[-1] + 1)
    return tuple(ordered)


def _percent(text: str) -> int:
    """How many of a hundred acknowledgements are measured."""
    digits = text.removesuffix("%")
    return int(digits) if digits.isdigit() else 0
