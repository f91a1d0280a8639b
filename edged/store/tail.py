"""The batches written last, kept in memory: readers at the end of a stream do not go to the disk.

Invariant: the batches of a file are consecutive, and the newest ones are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

_FORGOTTEN_MAX: Final = 256


class _FileTail:
    """The batches of one file: where they start, and their FrameBuffers. The first `forgotten` are gone."""

    __slots__ = ("buffers", "forgotten", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.buffers: list[Any] = []
        self.forgotten = 0

    @property
    def count(self) -> int:
        """How many are kept."""
        return len(self.starts) - self.forgotten

    def forget_first(self) -> int:
        """How many bytes that gives back."""
        place = self.forgotten
        size, self.buffers[place] = len(self.buffers[place]), None
        self.forgotten = place + 1
        if place >= _FORGOTTEN_MAX and 2 * place >= len(self.starts):
            # Not each time: a list moves all that is behind.
            del self.starts[: place + 1], self.buffers[: place + 1]
            self.forgotten = 0
        return size


class Tail:
    """Frames by file and offset, up to `bytes_max` in all."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # In the order in which they were written.
        self._files: dict[int, _FileTail] = {}

    def add(self, file: int, offset: int, buffer: Any) -> None:
        """A batch was written there. `buffer` is its FrameBuffer, which nobody changes any more."""
        found = self._files.get(file)
        if found is None:
            found = self._files[file] = _FileTail()
        found.starts.append(offset)
        found.buffers.append(buffer)
        self._bytes += len(buffer)
        while self._bytes > self._bytes_max and (len(self._files) > 1 or found.count > 1):
            self._forget_oldest()

    def find(self, file: int, offset: int, size: int) -> bytes | None:
        """The bytes there, if they are kept."""
        kept = self._files.get(file)
        if kept is None or offset < kept.starts[kept.forgotten]:
            return None
        place = bisect_right(kept.starts, offset) - 1
        found: bytes = kept.buffers[place].bytes_at(offset - kept.starts[place], size)
        return found

    def find_span(self, file: int, offset: int, size: int) -> bytes | None:
        """The same for bytes that may be of several batches."""
        kept = self._files.get(file)
        if kept is None or offset < kept.starts[kept.forgotten]:
            return None
        place = bisect_right(kept.starts, offset) - 1
        parts: list[bytes] = []
        while size > 0:
            if place == len(kept.starts) or offset < kept.starts[place]:
                return None
            start, buffer = offset - kept.starts[place], kept.buffers[place]
            part: bytes = buffer.bytes_at(start, min(size, len(buffer) - start))
            parts.append(part)
            offset += len(part)
            size -= len(part)
            place += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _forget_oldest(self) -> None:
        number, oldest = next(iter(self._files.items()))
        self._bytes -= oldest.forget_first()
        if not oldest.count:
            del self._files[number]
