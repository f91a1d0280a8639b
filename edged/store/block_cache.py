"""Decoded blocks and columns of segments, the recently used ones, within a number of bytes.

One cache serves all streams. Rules: any thread may use it; what is in it is never changed; a thing larger
than the whole cache is not kept; two threads that miss the same thing both load it, which costs time but no
harm.
Invariant: bytes <= bytes_max.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

# Whose it is, and which of its parts.
Key = tuple[int, Hashable]
_owners = count(1)
COLUMNS: Final = -1
"""Stands for the columns of a segment where the position of a block is noted."""


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """How the cache does."""

    hits: int
    misses: int
    entries: int
    bytes: int
    bytes_max: int


class BlockCache:
    """Keeps what was used last, up to `bytes_max`."""

    __slots__ = ("_bytes", "_entries", "_hits", "_lock", "_misses", "beyond_repair", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        # What was found to be beyond repair when somebody read it, by the path of a segment: the positions of
        # blocks, and COLUMNS.
        self.beyond_repair: dict[str, set[int]] = {}

    def note_damage(self, path: str, position: int) -> None:
        """Something of a segment is beyond repair, for who can get the messages elsewhere."""
        with self._lock:
            self.beyond_repair.setdefault(path, set()).add(position)

    @staticmethod
    def new_owner() -> int:
        """A number for the first part of keys that nobody else has, in any cache."""
        return next(_owners)

    def get(self, key: Key) -> Any | None:
        """What is kept under this key, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Key, value: Any, size: int) -> None:
        """Keep a value that takes about `size` bytes, in place of what was used longest ago."""
        if size > self.bytes_max:
            return
        with self._lock:
            before = self._entries.pop(key, None)
            self._bytes += size - (before[1] if before is not None else 0)
            self._entries[key] = value, size
            while self._bytes > self.bytes_max:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped

    def drop(self, owner: int) -> None:
        """Forget everything of an owner who is no longer read."""
        with self._lock:
            for key in [key for key in self._entries if key[0] == owner]:
                self._bytes -= self._entries.pop(key)[1]

    def figures(self) -> CacheFigures:
        """Counts since the start, and what is kept now."""
        with self._lock:
            return CacheFigures(self._hits, self._misses, len(self._entries), self._bytes, self.bytes_max)
