"""Which consumers nobody has used for as long as their `inactive_threshold`.

Rules: a consumer is looked at when its time may be over, and not before. One that is in use has no such time,
and is looked at a few times within its threshold, so it goes at most a quarter of that too late. One without
a threshold is never looked at.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edged.server.jetstream.consumers.consumer import Consumer

LOOK_MIN_NS: Final = 250_000_000
LOOK_MAX_NS: Final = 5_000_000_000
"""How soon one that is in use is looked at again."""


class Inactivity:
    """Of the consumers of one stream."""

    def __init__(self) -> None:
        # (when to look, order of entry, at whom); entries that do not agree with `_due_ns` mean nothing.
        self._heap: list[tuple[int, int, Consumer]] = []
        self._due_ns: dict[Consumer, int] = {}
        self._order = 0

    def watch(self, consumer: Consumer, now_ns: int) -> None:
        """A consumer is new, or has another threshold."""
        self._due_ns.pop(consumer, None)
        if consumer.config.inactive_threshold > 0:
            self._look_at(consumer, self._next_look_ns(consumer, now_ns))

    def forget(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self._due_ns.pop(consumer, None)

    def take(self, now_ns: int) -> list[Consumer]:
        """Those that nobody has used for too long. They are not watched any more."""
        found = []
        while self._heap and self._heap[0][0] <= now_ns:
            due_ns, _, consumer = heapq.heappop(self._heap)
            if self._due_ns.get(consumer) != due_ns:
                continue
            next_ns = self._next_look_ns(consumer, now_ns)
            if next_ns <= now_ns:
                del self._due_ns[consumer]
                found.append(consumer)
            else:
                self._look_at(consumer, next_ns)
        return found

    def _next_look_ns(self, consumer: Consumer, now_ns: int) -> int:
        """When its time is over; if it is in use, when to look whether it still is."""
        threshold_ns = consumer.config.inactive_threshold
        since_ns = consumer.inactive_since_ns
        if since_ns is None:
            return now_ns + min(max(threshold_ns // 4, LOOK_MIN_NS), LOOK_MAX_NS)
        return since_ns + threshold_ns

    def _look_at(self, consumer: Consumer, due_ns: int) -> None:
        self._order += 1
        self._due_ns[consumer] = due_ns
        heapq.heappush(self._heap, (due_ns, self._order, consumer))
