"""How fast a push consumer sends: so many bits per second, and one large message at once.

Rules: time is an argument. What may be sent gathers with time, up to `burst_bytes`; a message takes its bytes
even when there are too few, and the next one waits until that is made good.
"""

from __future__ import annotations

from typing import Final

_SECOND_NS: Final = 1_000_000_000


class RateLimit:
    """Of one consumer."""

    __slots__ = ("_burst_bytes", "_bytes_per_s", "_counted_ns", "_room_bytes")

    def __init__(self, bits_per_s: int, burst_bytes: int) -> None:
        self._bytes_per_s = max(bits_per_s // 8, 1)
        self._burst_bytes = burst_bytes
        self._room_bytes = float(burst_bytes)
        self._counted_ns = 0

    def ready_at_ns(self, now_ns: int) -> int:
        """When the next message may be sent; not later than now if it may at once."""
        self._gather(now_ns)
        if self._room_bytes >= 0:
            return now_ns
        return now_ns + int(-self._room_bytes * _SECOND_NS / self._bytes_per_s) + 1

    def sent(self, size: int) -> None:
        """A message was sent."""
        self._room_bytes -= size

    def _gather(self, now_ns: int) -> None:
        if self._counted_ns:
            passed_ns = max(now_ns - self._counted_ns, 0)
            gathered = self._room_bytes + passed_ns * self._bytes_per_s / _SECOND_NS
            self._room_bytes = min(gathered, float(self._burst_bytes))
        self._counted_ns = now_ns
