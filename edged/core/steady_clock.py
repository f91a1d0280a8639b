"""A time of day that neither goes back nor stands still, for what is due after a while.

The clock of a device may be set back by hours when it first hears what time it is. Then this one goes on from
where it was, as fast as time passes, until the clock of the device has caught up.

Rules: what both clocks show is an argument.
"""

from __future__ import annotations


class SteadyClock:
    """Nanoseconds since the epoch."""

    __slots__ = ("_monotonic_ns", "_now_ns")

    def __init__(self, wall_ns: int, monotonic_ns: int) -> None:
        self._now_ns = wall_ns
        self._monotonic_ns = monotonic_ns

    def read(self, wall_ns: int, monotonic_ns: int) -> int:
        """The time, given what the clock of the device shows and a clock that nobody sets."""
        passed_ns = monotonic_ns - self._monotonic_ns
        self._monotonic_ns = monotonic_ns
        self._now_ns = max(wall_ns, self._now_ns + passed_ns)
        return self._now_ns
