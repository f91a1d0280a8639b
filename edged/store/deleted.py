"""Which messages of a part of a stream are gone: a set of positions, small whether it holds few or many.

Positions count the messages of one part from 0. All below `floor` are in the set and take no memory,
which is all that a queue or a limit ever needs; above it there is one integer for every 2048 positions
with something in it, of which the bits are the members. So a member costs at most some 400 bytes, and a
position at most 0.2.

Rules: positions are only ever added. Invariant: `floor` is not in the set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Any, Final

_SHIFT: Final = 11
_CHUNK: Final = 1 << _SHIFT
_MASK: Final = _CHUNK - 1
# One object for all chunks of which everything is gone.
_FULL: Final = (1 << _CHUNK) - 1
_ZERO_IF_DELETED: Final = bytes.maketrans(b"01", b"\x01\x00")
_ONE_IF_DELETED: Final = bytes.maketrans(b"01", b"\x00\x01")


class DeletedPositions:
    """A growing set of positions, with its members counted."""

    __slots__ = ("_chunks", "count", "floor")

    def __init__(self) -> None:
        self.count = 0
        self.floor = 0
        self._chunks: dict[int, int] = {}

    def __contains__(self, position: int) -> bool:
        if position < self.floor:
            return True
        bits = self._chunks.get(position >> _SHIFT)
        return bits is not None and bits >> (position & _MASK) & 1 == 1

    def add(self, position: int) -> bool:
        """Add one; False if it was there already."""
        if position in self:
            return False
        self.count += 1
        if position == self.floor:
            self._raise_floor(self.next_absent(position + 1) if self._chunks else position + 1)
            return True
        chunk = position >> _SHIFT
        bits = self._chunks.get(chunk, 0) | 1 << (position & _MASK)
        self._chunks[chunk] = _FULL if bits == _FULL else bits
        return True

    def add_below(self, position: int) -> None:
        """Add all positions below this one."""
        if position > self.floor:
            self.count += position - self.count_below(position)
            self._raise_floor(position)
            self._raise_floor(self.next_absent(position))

    def next_absent(self, position: int) -> int:
        """The first position from here on that is not in the set."""
        position = max(position, self.floor)
        while True:
            bits = self._chunks.get(position >> _SHIFT)
            if bits is None:
                return position
            missing = ~bits >> (position & _MASK)
            found = position + (missing & -missing).bit_length() - 1
            if found >> _SHIFT == position >> _SHIFT:
                return found
            position = found & ~_MASK

    def previous_absent(self, position: int) -> int:
        """The last position up to here that is not in the set, or -1."""
        while position >= self.floor:
            bits = self._chunks.get(position >> _SHIFT)
            if bits is None:
                return position
            missing = ~bits & (2 << (position & _MASK)) - 1
            start = position & ~_MASK
            if missing:
                found = start + missing.bit_length() - 1
                return found if found >= self.floor else -1
            position = start - 1
        return -1

    def count_below(self, position: int) -> int:
        """How many members are below this position."""
        if position <= self.floor:
            return position
        last = position >> _SHIFT
        first = self.floor >> _SHIFT
        count = self.floor
        for chunk, bits in self._chunks.items():
            if chunk == first:
                # Bits below the floor are counted with the floor.
                bits = bits >> (self.floor & _MASK) << (self.floor & _MASK)
            if chunk < last:
                count += bits.bit_count()
            elif chunk == last:
                count += (bits & (1 << (position & _MASK)) - 1).bit_count()
        return count

    def positions(self) -> Iterator[int]:
        """The members from the floor on, in order."""
        for chunk in sorted(self._chunks):
            start = chunk << _SHIFT
            flags = f"{self._chunks[chunk]:0{_CHUNK}b}"[::-1].encode().translate(_ONE_IF_DELETED)
            for position in compress(range(start, start + _CHUNK), flags):
                if position >= self.floor:
                    yield position

    def live_flags(self, start: int, stop: int) -> bytes:
        """One byte for each of these positions: 1 if it is not in the set, else 0. Made for compress()."""
        if stop <= start:
            return b""
        gone = max(0, min(self.floor, stop) - start)
        if start + gone >= stop:
            return bytes(stop - start)
        if not self._chunks:
            return bytes(gone) + b"\x01" * (stop - start - gone)
        pieces = [bytes(gone)]
        position = start + gone
        while position < stop:
            end = min((position & ~_MASK) + _CHUNK, stop)
            bits = self._chunks.get(position >> _SHIFT)
            if bits is None:
                pieces.append(b"\x01" * (end - position))
            else:
                width = end - position
                wanted = bits >> (position & _MASK) & (1 << width) - 1
                pieces.append(f"{wanted:0{width}b}"[::-1].encode().translate(_ZERO_IF_DELETED))
            position = end
        return b"".join(pieces)

    def copy(self) -> DeletedPositions:
        """The same positions, to keep."""
        other = DeletedPositions()
        other.count, other.floor, other._chunks = self.count, self.floor, self._chunks.copy()
        return other

    def dump(self) -> list[Any]:
        """The set for a checkpoint: the floor, then pairs of a chunk's number and its bits."""
        chunks = [
            [chunk, bits.to_bytes((bits.bit_length() + 7) // 8, "little")]
            for chunk, bits in sorted(self._chunks.items())
        ]
        return [self.floor, chunks]

    @classmethod
    def load(cls, dumped: list[Any]) -> DeletedPositions:
        """The reverse of dump()."""
        loaded = cls()
        floor, chunks = dumped
        for chunk, data in chunks:
            bits = int.from_bytes(data, "little") & _FULL
            loaded._chunks[chunk] = _FULL if bits == _FULL else bits
            loaded.count += bits.bit_count()
        loaded.add_below(floor)
        return loaded

    def _raise_floor(self, floor: int) -> None:
        """Bits below the floor may stay behind in its own chunk; chunks below are forgotten."""
        before, self.floor = self.floor, floor
        if not self._chunks or before >> _SHIFT == floor >> _SHIFT:
            return
        if len(self._chunks) < (floor - before) >> _SHIFT:
            self._chunks = {chunk: bits for chunk, bits in self._chunks.items() if chunk >= floor >> _SHIFT}
        else:
            for chunk in range(before >> _SHIFT, floor >> _SHIFT):
                self._chunks.pop(chunk, None)
