"""Message ids seen within a window, so that a publish repeated by its sender is stored once.

Rules: ids are remembered by the time of their message, which the caller gives; nothing here reads a clock. A
window of 0 remembers nothing.
Invariant: `_order` holds every id of `_seqs` exactly once, in the order of time.
"""

from __future__ import annotations

from collections import deque
from typing import Any


class Dedupe:
    """The ids of one stream."""

    __slots__ = ("_order", "_seqs", "window_ns")

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self._seqs: dict[bytes, int] = {}
        self._order: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._seqs)

    def seen(self, message_id: bytes, now_ns: int) -> int | None:
        """The seq of the message with this id, if it is within the window."""
        order = self._order
        if order and order[0][0] <= now_ns - self.window_ns:
            self._forget(now_ns)
        return self._seqs.get(message_id)

    def remember(self, message_id: bytes, seq: int, ts_ns: int) -> None:
        """A message with this id was stored. One that is known already keeps its first seq."""
        if message_id not in self._seqs and self.window_ns > 0:
            self._seqs[message_id] = seq
            self._order.append((ts_ns, message_id))

    def _forget(self, now_ns: int) -> None:
        newest_ns = now_ns - self.window_ns
        while self._order and self._order[0][0] <= newest_ns:
            del self._seqs[self._order.popleft()[1]]

    def snapshot(self) -> list[Any]:
        """Everything, for a checkpoint."""
        return [[ts_ns, message_id, self._seqs[message_id]] for ts_ns, message_id in self._order]

    def restore(self, snapshot: list[Any]) -> None:
        """The reverse of snapshot()."""
        for ts_ns, message_id, seq in snapshot:
            self.remember(message_id, seq, ts_ns)
