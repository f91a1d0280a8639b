"""What happens when: a heap of events, and a clock per node that may be fast or slow.

Rules: times are whole microseconds. Events of the same time happen in the order in which they were planned,
so a run is a function of its seed. The digest tells two runs apart: it is made of the time and the number
of every event.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

# A node's clock counts so many of its own microseconds in this many true ones.
RATE_UNIT: Final = 16


class Events:
    """The events to come."""

    __slots__ = ("_heap", "_planned", "digest", "handled", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.handled = 0
        self.digest = 0
        self._planned = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event."""
        self._planned += 1
        heappush(self._heap, (time_us, self._planned, action, arguments))

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event, from now on."""
        self._planned += 1
        heappush(self._heap, (self.now_us + delay_us, self._planned, action, arguments))

    def run(self, handled_max: int, until_us: int) -> None:
        """Let events happen, until so many have happened in all, or up to a time."""
        heap = self._heap
        handled = self.handled
        digest = self.digest
        try:
            while handled < handled_max and heap and heap[0][0] <= until_us:
                time_us, number, action, arguments = heappop(heap)
                self.now_us = time_us
                handled += 1
                # Hashes of whole numbers are the same in every process.
                digest = hash((digest, time_us, number))
                action(*arguments)
        finally:
            self.handled = handled
            self.digest = digest
        if handled < handled_max:
            self.now_us = max(self.now_us, until_us)


class Clock:
    """The clock of one node: it only goes forward, at a rate of its own."""

    __slots__ = ("_events", "_own_us", "_rate", "_since_us")

    def __init__(self, events: Events, own_us: int, rate: int = RATE_UNIT) -> None:
        self._events = events
        self._since_us = events.now_us
        self._own_us = own_us
        self._rate = rate

    def now_ms(self) -> int:
        """What it shows."""
        return (self._own_us + (self._events.now_us - self._since_us) * self._rate // RATE_UNIT) // 1000

    def when_us(self, own_ms: int) -> int:
        """The true time at which it will show this."""
        wait_us = own_ms * 1000 - self._own_us
        return self._since_us + -(-wait_us * RATE_UNIT // self._rate)

    def set_rate(self, rate: int) -> None:
        """From now on it runs at another rate."""
        now_us = self._events.now_us
        self._own_us += (now_us - self._since_us) * self._rate // RATE_UNIT
        self._since_us = now_us
        self._rate = rate
