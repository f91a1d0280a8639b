"""What clients know of streams and consumers whose server dies: the judge of what is there afterwards.

Clients tell the ledger what they did and what they were told; after each start the ledger is told what the
server shows, and says what must not be so.

Rules: a message is known by its seq and its number, which the publisher gave it. A confirmation that was read
before the crash is a promise; an acknowledgement that was sent and not confirmed may count or not, until the
server shows which. A delivery is durable when an acknowledgement of the same consumer that was sent after it
was read is confirmed, for a consumer's deliveries stand in the journal before its acknowledgements. That does
not hold for what was acknowledged before: this is confirmed without the journal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

SUBJECTS: Final = 2


class Violation(AssertionError):  # noqa: N818 - says what happened
    """Something that must hold does not."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """A consumer: what it wants, how it acknowledges, and how many clients work for it."""

    stream: str
    name: str
    ack_policy: str = "explicit"
    subject: int | None = None
    workers: int = 1

    def wants(self, number: int) -> bool:
        """Whether a message with this number is for it."""
        return self.subject is None or number % SUBJECTS == self.subject


@dataclass(slots=True)
class Durable:
    """Of a delivery that is durable: its count, and in which life of the server that was known."""

    count: int
    life: int


class ConsumerLedger:
    """Of one consumer. Seqs are those of its stream."""

    def __init__(self, plan: ConsumerPlan) -> None:
        self.plan = plan
        self.is_all = plan.ack_policy == "all"
        # By seq, in which life of the server it was confirmed, or said and not confirmed.
        self.confirmed: dict[int, int] = {}
        self.said: dict[int, int] = {}
        self.confirmed_to = 0
        self._confirmed_to_before = 0
        self.durable: dict[int, Durable] = {}
        self.delivered_consumer_seq = 0
        self.redeliveries = 0

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.plan.stream}.{self.plan.name}"

    def is_settled(self, seq: int) -> bool:
        """Whether that was promised."""
        return seq in self.confirmed or (self.is_all and seq <= self.confirmed_to)

    def _said_to(self) -> int:
        return max(self.said, default=0)

    def is_news(self, seq: int) -> bool:
        """Whether nobody has said anything of a message yet: then an acknowledgement reaches the journal."""
        if self.is_all:
            return seq > max(self.confirmed_to, self._said_to())
        return seq not in self.confirmed and seq not in self.said

    def open(self, seqs: Iterable[int]) -> tuple[list[int], list[int]]:
        """Those that are not settled for sure, and those that may not be."""
        possibly = [seq for seq in seqs if not self.is_settled(seq)]
        if self.is_all:
            said_to = self._said_to()
            return [seq for seq in possibly if seq > said_to], possibly
        return [seq for seq in possibly if seq not in self.said], possibly

    def begin_life(self) -> None:
        """The server is started anew: what was confirmed must never be seen again."""
        self._confirmed_to_before = self.confirmed_to

    # --- what clients see ---

    def delivered(self, seq: int, count: int, life: int, is_confirmed_here: bool) -> None:
        """A client got a message. `is_confirmed_here`: this connection was told that it is settled."""
        was_settled = self.is_all and seq <= self._confirmed_to_before
        if was_settled or self.confirmed.get(seq, life) < life or is_confirmed_here:
            raise Violation(f"{self.title}: {seq} was confirmed, and came again")
        known = self.durable.get(seq)
        if known is not None and known.life < life and count <= known.count:
            raise Violation(
                f"{self.title}: {seq} came for the {known.count}. time, and again for the {count}."
            )
        self.redeliveries += count > 1
        # What was said of it in an earlier life did not arrive.
        for said in [said for said in (self.said if self.is_all else (seq,)) if said >= seq]:
            if self.said.get(said, life) < life:
                del self.said[said]

    def say(self, seq: int, life: int) -> None:
        """An acknowledgement is sent."""
        self.said[seq] = life

    def confirm(self, seq: int, life: int) -> None:
        """It was confirmed."""
        self.said.pop(seq, None)
        self.confirmed.setdefault(seq, life)
        self.confirmed_to = max(self.confirmed_to, seq)

    def persist(self, seq: int, count: int, consumer_seq: int, life: int) -> None:
        """A delivery is durable."""
        known = self.durable.get(seq)
        if known is None or known.count < count:
            self.durable[seq] = Durable(count, life)
        self.delivered_consumer_seq = max(self.delivered_consumer_seq, consumer_seq)

    def resolve(self, seqs: list[int], is_settled: bool, life: int) -> None:
        """The server shows what became of messages of which something was said in an earlier life."""
        for seq in seqs:
            if self.said.pop(seq, None) is not None and is_settled:
                self.confirm(seq, life - 1)

    # --- what the server shows after a start ---

    def check(self, seqs: list[int], info: dict[str, Any], life: int) -> None:
        """`seqs` are all messages of the stream that were ever for it, ascending."""
        surely, possibly = self.open(seqs)
        left = info["num_pending"] + info["num_ack_pending"]
        self._expect(len(surely) <= left <= len(possibly), f"{len(surely)}..{len(possibly)} are open", info)
        floor, delivered = info["ack_floor"]["stream_seq"], info["delivered"]
        self._expect(not surely or surely[0] > floor, f"{surely[:1]} is open", info)
        first = possibly[0] if possibly else float("inf")
        done = [seq for seq in seqs if seq < first]
        self._expect(not done or floor >= done[-1], f"all up to {done[-1:]} are settled", info)
        reach = max([*self.durable, *self.confirmed], default=0)
        self._expect(delivered["stream_seq"] >= reach, f"{reach} was delivered", info)
        self._expect(
            delivered["consumer_seq"] >= self.delivered_consumer_seq,
            f"there were {self.delivered_consumer_seq} deliveries",
            info,
        )
        pending = [self.durable[seq] for seq in surely if seq in self.durable]
        self._expect(info["num_ack_pending"] >= len(pending), f"{len(pending)} are pending", info)
        repeated = sum(known.count > 1 for known in pending)
        self._expect(info["num_redelivered"] >= repeated, f"{repeated} were delivered again", info)
        self.resolve([seq for seq in self.said if seq <= floor], True, life)
        if left in (len(surely), len(possibly)) and not self.is_all:
            self.resolve(list(self.said), left == len(surely), life)

    def check_end(self, seqs: list[int], info: dict[str, Any]) -> None:
        """Everything was worked off."""
        surely, _ = self.open(seqs)
        self._expect(not surely, f"{len(surely)} were never delivered, the first is {surely[:1]}", info)
        self._expect(info["num_pending"] == info["num_ack_pending"] == 0, "nothing is open", info)
        self._expect(not seqs or info["ack_floor"]["stream_seq"] >= seqs[-1], "all is settled", info)

    def _expect(self, is_so: bool, what: str, info: dict[str, Any]) -> None:
        if not is_so:
            names = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")
            raise Violation(f"{self.title}: {what}, but it shows { ({name: info[name] for name in names}) }")


@dataclass(slots=True)
class StreamLedger:
    """Of one stream: which number has which seq, and who wants what."""

    name: str
    retention: str
    consumers: list[ConsumerLedger]
    # By seq, all messages that were ever seen there.
    numbers: dict[int, int] = field(default_factory=dict)
    acknowledged_to: int = 0
    published: int = 0

    def stored(self, seq: int, number: int) -> None:
        """A message with this number has this seq, says the stream or a consumer."""
        known = self.numbers.setdefault(seq, number)
        if known != number:
            raise Violation(f"{self.name}: {seq} was message {known}, and is message {number}")

    def seqs_of(self, consumer: ConsumerLedger) -> list[int]:
        """All that were ever for a consumer."""
        wants = consumer.plan.wants
        return sorted(seq for seq, number in self.numbers.items() if wants(number))

    def check(self, present: set[int], last_seq: int, life: int) -> None:
        """`present` are the messages that it has after a start; all numbers are known by now."""
        if last_seq < self.acknowledged_to:
            raise Violation(f"{self.name}: {self.acknowledged_to} was stored, it ends with {last_seq}")
        wanted = {one: self.seqs_of(one) for one in self.consumers}
        is_open = {seq for one, seqs in wanted.items() for seq in one.open(seqs)[0]}
        may_be_open = {seq for one, seqs in wanted.items() for seq in one.open(seqs)[1]}
        for seq in self.numbers:
            if seq not in present and (self.retention == "limits" or seq in is_open):
                raise Violation(f"{self.name}: {seq} is open, and gone")
            if seq in present and self.retention != "limits" and seq not in may_be_open:
                raise Violation(f"{self.name}: {seq} is settled, and still there")
        if self.retention == "workqueue":
            for one, seqs in wanted.items():
                one.resolve([seq for seq in seqs if seq in present], False, life)
                one.resolve(seqs, True, life)


class Ledger:
    """Of all streams. Clients write in it from their threads, under its lock."""

    def __init__(self, streams: list[StreamLedger]) -> None:
        self.streams = streams
        self.lock = threading.Lock()
        self.life = 0
        # When the power is cut nothing counts any more that a client reads, and it says nothing more.
        self.is_frozen = False
        self._changed = threading.Condition(self.lock)
        self._events = 0
        self._failure: Violation | None = None

    def begin_life(self) -> None:
        """The server is started anew."""
        with self.lock:
            self.life += 1
            for stream in self.streams:
                for consumer in stream.consumers:
                    consumer.begin_life()
            self.is_frozen = False
            self._events = 0

    def freeze(self) -> None:
        """What is read from now on does not count."""
        with self.lock:
            self.is_frozen = True

    def note(self) -> None:
        """Something counted. The lock is held."""
        self._events += 1
        self._changed.notify()

    def fail(self, violation: Violation) -> None:
        """A client saw what must not be."""
        with self.lock:
            self._failure = self._failure or violation
            self._changed.notify()

    def wait(self, events: int, limit_s: float) -> None:
        """Until so much has happened, or for so long."""
        with self.lock:
            self._changed.wait_for(lambda: self._events >= events or self._failure is not None, limit_s)
        self.check()

    def check(self) -> None:
        """Raise what a client saw."""
        if self._failure is not None:
            raise self._failure
