"""When messages have outlived their time: by the stream's max_age, and by a TTL of their own.

Rules: nothing is removed here. `due()` makes the command that removes what is over; it is committed like any
other. Adding costs O(1) per message with a TTL and nothing for the others. Time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from edged.core import gotime, headers
from edged.core.commands import SEQS_MAX, Expire
from edged.core.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from edged.core.message import Message

TTL: Final = b"Nats-TTL"
NEVER: Final = 0
_SECOND_NS: Final = 1_000_000_000


class Aging(Protocol):
    """What must be known of a log."""

    first_seq: int
    message_count: int

    @property
    def first_ts_ns(self) -> int: ...

    def seq_at_time(self, ts_ns: int) -> int: ...


class Expiry:
    """The clock of one stream. `max_age_ns` 0 means for ever."""

    __slots__ = ("_wheel", "max_age_ns")

    def __init__(self) -> None:
        self.max_age_ns = 0
        # Made when the first message with a TTL comes: most streams never have one.
        self._wheel: TimerWheel | None = None

    def add(self, seq: int, expires_ns: int) -> None:
        """A message was stored that expires by itself; NEVER if it does not."""
        if expires_ns != NEVER:
            if self._wheel is None:
                self._wheel = TimerWheel()
            self._wheel.add(expires_ns, seq)

    def due(self, log: Aging, now_ns: int) -> Expire | None:
        """The command that removes what is over by now, if anything is. Too much for one comes in parts."""
        to_seq = 0
        if self.max_age_ns and log.message_count and log.first_ts_ns <= now_ns - self.max_age_ns:
            to_seq = log.seq_at_time(now_ns - self.max_age_ns + 1)
        seqs: list[int] = []
        if self._wheel is not None:
            seqs = [seq for seq in self._wheel.expired(now_ns) if seq >= max(to_seq, log.first_seq)]
            for seq in seqs[SEQS_MAX:]:
                self._wheel.add(now_ns, seq)
        if not to_seq and not seqs:
            return None
        return Expire(to_seq, tuple(sorted(seqs[:SEQS_MAX])))

    def next_ns(self, log: Aging) -> int | None:
        """When to ask again; None when nothing will ever expire."""
        times = []
        if self.max_age_ns and log.message_count:
            times.append(log.first_ts_ns + self.max_age_ns)
        if self._wheel is not None:
            next_ns = self._wheel.next_ns()
            if next_ns is not None:
                times.append(next_ns)
        return min(times, default=None)


def expires_ns(ts_ns: int, header: bytes) -> int:
    """When a message with this header block expires; NEVER without a TTL, or with one that is not valid."""
    text = headers.value(header, TTL)
    if text is None:
        return NEVER
    value = text.strip()
    if value.isdigit():
        ttl_ns = int(value[:12]) * _SECOND_NS
    else:
        try:
            ttl_ns = gotime.parse_duration_ns(value.decode("ascii"))
        except ValueError:
            return NEVER
    return ts_ns + ttl_ns if ttl_ns >= _SECOND_NS else NEVER


def message_expires_ns(message: Message) -> int:
    """The same, of a stored message."""
    return expires_ns(message.ts_ns, message.data[: message.header_bytes])
