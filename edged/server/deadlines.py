"""One task that fires callbacks at given times, so that a connection needs no task of its own for its timers.

Rules: times are those of trio.current_time(); callbacks are plain functions and must not block; a cancelled
deadline costs a flag, and leaves the heap when its time comes.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import trio


class Deadline:
    """A callback that has been scheduled; `cancel()` makes it never happen."""

    __slots__ = ("at", "callback")

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Deadlines:
    """All timers of a server."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = itertools.count()
        self._sooner = trio.Event()

    def at(self, time: float, callback: Callable[[], None]) -> Deadline:
        """Call back at a time of the loop's clock."""
        deadline = Deadline(time, callback)
        if not self._heap or time < self._heap[0][0]:
            self._sooner.set()
        heapq.heappush(self._heap, (time, next(self._order), deadline))
        return deadline

    def after(self, delay_s: float, callback: Callable[[], None]) -> Deadline:
        """Call back once `delay_s` has passed."""
        return self.at(trio.current_time() + delay_s, callback)

    async def run(self) -> None:
        """Fire deadlines until cancelled."""
        while True:
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                callback = heapq.heappop(self._heap)[2].callback
                if callback is not None:
                    callback()
            self._sooner = trio.Event()
            until = self._heap[0][0] if self._heap else float("inf")
            with trio.move_on_at(until):
                await self._sooner.wait()
