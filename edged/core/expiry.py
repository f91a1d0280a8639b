"""When messages have outlived their time: by the stream's max_age, and by a TTL of their own.

Rules: nothing is removed here. `due()` makes the command that removes what is over; it is committed like any
other, and `done()` is told when it was applied: until then the same messages are due again. A message whose
TTL is `never` outlives max_age as well. Adding costs O(1) per message with a TTL and nothing for the others.
Time is an argument.
Invariant: below `_checked_seq` everything that is alive has a TTL of `never`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from edged.core import headers
from edged.core.commands import SEQS_MAX, Expire
from edged.core.message_ttl import NEVER_S, UNSET_S, parse_ttl_s
from edged.core.publish_headers import TTL
from edged.core.timer_wheel import TIME_NS_MAX, TimerWheel

if TYPE_CHECKING:
    from edged.core.message import Message

# Without a TTL.
NEVER: Final = 0
# With a TTL of `never`: not even max_age ends it.
FOREVER: Final = TIME_NS_MAX
_SECOND_NS: Final = 1_000_000_000


class Aging(Protocol):
    """What must be known of a log."""

    first_seq: int
    message_count: int

    @property
    def first_ts_ns(self) -> int: ...

    def seq_at_time(self, ts_ns: int) -> int: ...

    def has(self, seq: int) -> bool: ...

    def next_matching(self, filters: Sequence[bytes], seq: int) -> int | None: ...

    def peek(self, seq: int) -> Message | None: ...


class Expiry:
    """The clock of one stream. `max_age_ns` 0 means for ever; without `allows_ttl` no TTL counts."""

    __slots__ = ("_checked_seq", "_due", "_kept", "_wheel", "allows_ttl", "max_age_ns")

    def __init__(self) -> None:
        self.max_age_ns = 0
        self.allows_ttl = False
        # Made when the first message with a TTL comes: most streams never have one.
        self._wheel: TimerWheel | None = None
        # Messages whose TTL is over and that no command has removed yet.
        self._due: set[int] = set()
        # Messages that are kept for ever, in order.
        self._kept: dict[int, None] = {}
        self._checked_seq = 0

    def add(self, seq: int, expires_ns: int) -> None:
        """A message was stored that expires by itself; NEVER if it does not, FOREVER if nothing ends it."""
        if expires_ns == FOREVER:
            self._kept[seq] = None
        elif expires_ns != NEVER:
            if self._wheel is None:
                self._wheel = TimerWheel()
            self._wheel.add(expires_ns, seq)

    def refilled(self, seq: int, expires_ns: int) -> None:
        """The same of a message that was lost and is back, among those that came after it."""
        self.add(seq, expires_ns)
        self._kept = dict.fromkeys(sorted(self._kept))
        self._checked_seq = min(self._checked_seq, seq)

    def due(self, log: Aging, now_ns: int) -> Expire | None:
        """The command that removes what is over by now, if anything is. Too much for one comes in parts."""
        to_seq, old = self._too_old(log, now_ns)
        seqs = set(old)
        if self.allows_ttl:
            if self._wheel is not None:
                self._due.update(self._wheel.expired(now_ns))
            gone = [seq for seq in self._due if not log.has(seq)]
            self._due.difference_update(gone)
            seqs.update(seq for seq in self._due if seq >= to_seq)
        if not to_seq and not seqs:
            return None
        return Expire(to_seq, tuple(sorted(seqs)[:SEQS_MAX]))

    def done(self, command: Expire) -> None:
        """A command was applied: what it names is gone."""
        if self._due:
            self._due.difference_update(command.seqs)

    def next_ns(self, log: Aging) -> int | None:
        """When to ask again; None when nothing will ever expire."""
        times = []
        if self.max_age_ns and log.message_count:
            ts_ns = self._oldest_ns(log)
            if ts_ns is not None:
                times.append(ts_ns + self.max_age_ns)
        if self.allows_ttl and self._due:
            times.append(0)
        if self.allows_ttl and self._wheel is not None:
            next_ns = self._wheel.next_ns()
            if next_ns is not None:
                times.append(next_ns)
        return min(times, default=None)

    # --- max_age ---

    def _too_old(self, log: Aging, now_ns: int) -> tuple[int, list[int]]:
        """Up to which seq all can go, and single ones behind it between those that are kept for ever."""
        if not self.max_age_ns or not log.message_count or log.first_ts_ns > now_ns - self.max_age_ns:
            return 0, []
        stop = log.seq_at_time(now_ns - self.max_age_ns + 1)
        first_kept = self._first_kept(log)
        if first_kept is None or first_kept >= stop:
            return stop, []
        to_seq = first_kept if log.first_seq < first_kept else 0
        seqs: list[int] = []
        seq = self._next_mortal(log, first_kept)
        while seq is not None and seq < stop and len(seqs) < SEQS_MAX:
            seqs.append(seq)
            seq = self._next_mortal(log, seq + 1)
        if not seqs:
            self._checked_seq = max(self._checked_seq, stop)
        return to_seq, seqs

    def _oldest_ns(self, log: Aging) -> int | None:
        """The time of the oldest message that max_age can end."""
        if self._first_kept(log) is None:
            return log.first_ts_ns
        seq = self._next_mortal(log, log.first_seq)
        message = None if seq is None else log.peek(seq)
        return None if message is None else message.ts_ns

    def _next_mortal(self, log: Aging, seq: int) -> int | None:
        """The first message from a seq on that is not kept for ever."""
        found = log.next_matching((), max(seq, self._checked_seq))
        while found is not None and found in self._kept:
            found = log.next_matching((), found + 1)
        return found

    def _first_kept(self, log: Aging) -> int | None:
        """The first message that is kept for ever. Those before it that are gone are forgotten."""
        while self._kept:
            seq = next(iter(self._kept))
            if log.has(seq):
                return seq
            del self._kept[seq]
        return None


def expires_ns(ts_ns: int, header: bytes) -> int:
    """When a message with this header block expires; NEVER without a TTL, or with one that is not valid."""
    text = headers.value(header, TTL)
    return NEVER if text is None else expires_at_ns(ts_ns, text)


def expires_at_ns(ts_ns: int, ttl: bytes) -> int:
    """The same, from the value of the header."""
    try:
        ttl_s = parse_ttl_s(ttl)
    except ValueError:
        return NEVER
    if ttl_s == NEVER_S:
        return FOREVER
    return NEVER if ttl_s == UNSET_S else min(ts_ns + ttl_s * _SECOND_NS, FOREVER - 1)


def message_expires_ns(message: Message) -> int:
    """The same, of a stored message."""
    return expires_ns(message.ts_ns, message.data[: message.header_bytes])
