"""A column of small numbers, one per message, that is searched at the speed of memory.

The numbers say which subject a message has: numbers of the subject table, or a segment's own codes. The
low byte of each is in one string of bytes and the rest in another column, which is only there once a
number is above 255. A search runs over the low bytes with what C gives us, `find` and `translate`, and
looks at the rest where they agree. That is why there are no summaries of pages: reading every low byte is
as fast as reading summaries.

Rules: a number fits 32 bits. Invariant: `high` is None or as long as `low`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from edged.store.deleted import DeletedPositions

Numbers: TypeAlias = "array[int]"
# A search looks at a few messages first, because the next match is often near, then at more and more.
_WINDOW_FIRST: Final = 8
_WINDOW_MAX: Final = 16_384
_WINDOW_GROWTH: Final = 4
# With so many low bytes wanted it is cheaper to look up every number than to check where low bytes agree.
_SELECTIVE_MAX: Final = 48
_IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"
_NOTHING: Final = bytearray(256)


class Wanted:
    """Which numbers a search is for: one of them, or those with a 1 at their place in `flags`, or none.

    Flags, where there are any, are there for all numbers in the columns that are searched.
    """

    __slots__ = ("flags", "is_selective", "one", "table")

    def __init__(self, one: int | None = None, flags: bytearray | None = None) -> None:
        self.one = one
        # For each low byte, 1 in the table if a wanted number has it.
        self.flags = self.table = _NOTHING
        self.is_selective = True
        if flags is not None:
            if len(flags) < 256:
                flags.extend(bytes(256 - len(flags)))
            self.flags = flags
            self.table = bytearray(1 in flags[byte::256] for byte in range(256))
            self.is_selective = self.table.count(1) <= _SELECTIVE_MAX

    def set(self, number: int, is_wanted: bool) -> None:
        """Say whether a number is wanted that was not known before, or had another meaning."""
        if number >= len(self.flags):
            self.flags.extend(bytes(number + 1 - len(self.flags) + (len(self.flags) >> 3)))
        self.flags[number] = is_wanted
        if is_wanted and not self.table[number & 255]:
            self.table[number & 255] = 1
            self.is_selective = self.table.count(1) <= _SELECTIVE_MAX


class CodeColumn:
    """Numbers by position."""

    __slots__ = ("high", "low")

    def __init__(self) -> None:
        self.low = bytearray()
        self.high: Numbers | None = None

    @classmethod
    def of(cls, codes: Numbers) -> CodeColumn:
        """A column that does not grow, from an array of unsigned numbers."""
        column = cls()
        if not _IS_LITTLE_ENDIAN:
            codes = codes[:]
            codes.byteswap()
        raw = codes.tobytes()
        column.low = bytearray(raw[:: codes.itemsize])
        if codes.itemsize == 2:
            column.high = array("B", raw[1::2])
        elif codes.itemsize > 2:
            if not _IS_LITTLE_ENDIAN:
                codes.byteswap()
            column.high = array("I", [code >> 8 for code in codes])
        return column

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, position: int) -> int:
        high = self.high
        return self.low[position] if high is None else self.low[position] | high[position] << 8

    def append(self, number: int) -> None:
        """One more, of a column that grows."""
        high = self.high
        if high is None and number < 256:
            self.low.append(number)
        elif high is not None and number < 1 << 24:
            high.append(number >> 8)
            self.low.append(number & 255)
        else:
            self._append_wide([number])

    def extend(self, numbers: Numbers) -> None:
        """Many more, of a column that grows, from an array of four-byte numbers."""
        assert numbers.itemsize == 4, numbers.typecode
        if not _IS_LITTLE_ENDIAN:
            self._append_wide(numbers)
            return
        # Byte by byte instead of number by number.
        raw = numbers.tobytes()
        low, second, third, fourth = raw[0::4], raw[1::4], raw[2::4], raw[3::4]
        zeros = bytes(len(numbers))
        if self.high is None and second == third == fourth == zeros:
            self.low += low
        elif fourth == zeros and (self.high is None or self.high.typecode == "H"):
            rest = bytearray(2 * len(numbers))
            rest[0::2], rest[1::2] = second, third
            if self.high is None:
                self.high = array("H", bytes(2 * len(self.low)))
            self.low += low
            self.high.frombytes(rest)
        else:
            self._append_wide(numbers)

    def numbers(self, start: int, stop: int) -> Iterable[int]:
        """The numbers from one position to another."""
        low, high = self.low[start:stop], self.high
        if high is None:
            return low
        return _joined(low, high[start:stop])

    def find(self, wanted: Wanted, start: int, stop: int) -> int:
        """The first position from `start` and before `stop` with a wanted number, or -1."""
        if wanted.one is not None:
            return self._find_one(wanted.one, start, stop)
        window = _WINDOW_FIRST
        while start < stop:
            end = min(start + window, stop)
            found = self._marks(wanted, start, end).find(1)
            if found >= 0:
                return start + found
            start = end
            window = min(window * _WINDOW_GROWTH, _WINDOW_MAX)
        return -1

    def find_last(self, wanted: Wanted, start: int, stop: int) -> int:
        """The last position before `stop` and not before `start` with a wanted number, or -1."""
        if wanted.one is not None:
            return self._find_last_one(wanted.one, start, stop)
        window = _WINDOW_FIRST
        while start < stop:
            begin = max(stop - window, start)
            found = self._marks(wanted, begin, stop).rfind(1)
            if found >= 0:
                return begin + found
            stop = begin
            window = min(window * _WINDOW_GROWTH, _WINDOW_MAX)
        return -1

    def count(self, wanted: Wanted, start: int, stop: int, deleted: DeletedPositions) -> int:
        """How many positions have a wanted number and are not deleted."""
        start = max(start, deleted.floor)
        if wanted.one is not None and self.high is None:
            wanted = Wanted(flags=bytearray(wanted.one) + b"\x01") if wanted.one < 256 else Wanted()
        count = 0
        while start < stop:
            end = min(start + _WINDOW_MAX, stop)
            marks = self._marks(wanted, start, end)
            if deleted.count == deleted.floor:
                count += marks.count(1)
            else:
                live = int.from_bytes(deleted.live_flags(start, end), "little")
                count += (live & int.from_bytes(marks, "little")).bit_count()
            start = end
        return count

    def _marks(self, wanted: Wanted, start: int, stop: int) -> bytearray | bytes:
        """A byte for each position: 1 if its number is wanted, else 0."""
        low, high, flags = self.low[start:stop], self.high, wanted.flags
        if wanted.one is not None:
            return self._marks_of_one(wanted.one, start, stop)
        if high is None:
            return low.translate(flags[:256])
        if not wanted.is_selective:
            return bytes(map(flags.__getitem__, _joined(low, high[start:stop])))
        marks = bytearray(low.translate(wanted.table))
        found = marks.find(1)
        while found >= 0:
            number = low[found] | high[start + found] << 8
            if number >= len(flags) or not flags[number]:
                marks[found] = 0
            found = marks.find(1, found + 1)
        return marks

    def _marks_of_one(self, number: int, start: int, stop: int) -> bytearray:
        marks = bytearray(stop - start)
        found = self._find_one(number, start, stop)
        while found >= 0:
            marks[found - start] = 1
            found = self._find_one(number, found + 1, stop)
        return marks

    def _find_one(self, number: int, start: int, stop: int) -> int:
        low, high, more = self.low, self.high, number >> 8
        if high is None:
            return low.find(number, start, stop) if not more else -1
        byte = number & 255
        found = low.find(byte, start, stop)
        while found >= 0 and high[found] != more:
            found = low.find(byte, found + 1, stop)
        return found

    def _find_last_one(self, number: int, start: int, stop: int) -> int:
        low, high, more = self.low, self.high, number >> 8
        if high is None:
            return low.rfind(number, start, stop) if not more else -1
        byte = number & 255
        found = low.rfind(byte, start, stop)
        while found >= 0 and high[found] != more:
            found = low.rfind(byte, start, found)
        return found

    def _append_wide(self, numbers: Sequence[int]) -> None:
        low, high = self.low, self.high
        if high is None:
            high = self.high = array("H", bytes(2 * len(low)))
        rest = [number >> 8 for number in numbers]
        if max(rest, default=0) > 0xFFFF and high.typecode == "H":
            high = self.high = array("I", high)
        low.extend([number & 255 for number in numbers])
        high.extend(rest)


def _joined(low: bytearray, high: Numbers) -> Sequence[int]:
    """The numbers of which these are the low bytes and the rest: their bytes are laid side by side."""
    if high.typecode == "B" and _IS_LITTLE_ENDIAN:
        joined = bytearray(2 * len(low))
        joined[0::2], joined[1::2] = low, high.tobytes()
        return memoryview(joined).cast("H")
    if high.typecode == "H" and _IS_LITTLE_ENDIAN:
        rest = high.tobytes()
        joined = bytearray(4 * len(low))
        joined[0::4], joined[1::4], joined[2::4] = low, rest[0::2], rest[1::2]
        return memoryview(joined).cast("I")
    return [one | more << 8 for one, more in zip(low, high, strict=True)]
