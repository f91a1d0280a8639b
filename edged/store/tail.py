"""The batches written last, kept in memory: readers at the end of a stream do not go to the disk.

Invariant: the batches of a file are consecutive, and the newest ones are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Any


class Tail:
    """Frames by file and offset, up to `bytes_max` in all."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._order: deque[tuple[int, int]] = deque()
        self._starts: dict[int, list[int]] = {}
        self._buffers: dict[tuple[int, int], Any] = {}

    def add(self, file: int, offset: int, buffer: Any) -> None:
        """A batch was written there. `buffer` is its FrameBuffer, which nobody changes any more."""
        self._starts.setdefault(file, []).append(offset)
        self._buffers[file, offset] = buffer
        self._order.append((file, offset))
        self._bytes += len(buffer)
        while self._bytes > self._bytes_max and len(self._order) > 1:
            self._forget_oldest()

    def find(self, file: int, offset: int, size: int) -> bytes | None:
        """The bytes there, if they are kept."""
        starts = self._starts.get(file)
        if not starts or offset < starts[0]:
            return None
        start = starts[bisect_right(starts, offset) - 1]
        found: bytes = self._buffers[file, start].bytes_at(offset - start, size)
        return found

    def _forget_oldest(self) -> None:
        file, offset = self._order.popleft()
        self._bytes -= len(self._buffers.pop((file, offset)))
        starts = self._starts[file]
        del starts[0]
        if not starts:
            del self._starts[file]
