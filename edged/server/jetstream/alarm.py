"""Rings at a time of day, for what is due before JetStream looks at all its streams the next time.

Rules: it rings once, at the earliest of the times that it was told, and is then told the next one by whom it
called. Times that are far away are left aside, since every look at the streams tells them again: so a clock
that is set otherwise meanwhile delays nothing for long, and no timer is kept for what may never come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edged.server.deadlines import Deadline, Deadlines

HORIZON_NS: Final = 1_000_000_000
"""How far ahead it takes a time; longer than from one look at the streams to the next."""


class Alarm:
    """Calls `ring`; `now_ns` is the time of day."""

    __slots__ = ("_at_ns", "_deadline", "_deadlines", "_now_ns", "_ring")

    def __init__(self, deadlines: Deadlines, now_ns: Callable[[], int], ring: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self._now_ns = now_ns
        self._ring = ring
        self._deadline: Deadline | None = None
        self._at_ns = 0

    def set(self, at_ns: int | None) -> None:
        """Ring at this time, unless that is far away or an earlier one is set. None is never."""
        if at_ns is None or (self._deadline is not None and self._at_ns <= at_ns):
            return
        delay_ns = max(0, at_ns - self._now_ns())
        if delay_ns < HORIZON_NS:
            self.cancel()
            self._at_ns = at_ns
            self._deadline = self._deadlines.after(delay_ns / 1e9, self._rung)

    def cancel(self) -> None:
        """Do not ring."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _rung(self) -> None:
        self._deadline = None
        self._ring()
