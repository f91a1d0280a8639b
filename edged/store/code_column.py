"""A column of small numbers, one per message, that is searched at the speed of memory.

The numbers say which subject a message has: numbers of the subject table, or a segment's own codes. The
low byte of each is in one string of bytes and the rest in another column, which is only there once a
number is above 255. Searches are in edged/core/codes.py; they look at every number, and are so fast that
there are no summaries of pages.

Rules: a number fits 32 bits. Invariant: `high` is None or as long as `low`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from edged.core.code_twins import (
    count_wanted,
    find_last_number,
    find_last_wanted,
    find_number,
    find_wanted,
    positions_of,
)
from edged.core.codes import joined
from edged.store.deleted import DeletedPositions

Numbers: TypeAlias = "array[int]"
# How far a search for many positions looks at once.
_WINDOW_MAX: Final = 65_536
_IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"


class Wanted:
    """Which numbers a search is for: one of them, or those with a 1 at their place in `flags`, or none.

    A number beyond the flags is not wanted.
    """

    __slots__ = ("flags", "one")

    def __init__(self, one: int | None = None, flags: bytearray | None = None) -> None:
        self.one = one
        self.flags = bytearray() if flags is None else flags

    def all_flags(self) -> bytearray:
        """The flags, also where only one number is wanted."""
        if self.one is None:
            return self.flags
        flags = bytearray(self.one + 1)
        flags[self.one] = 1
        return flags

    def set(self, number: int, is_wanted: bool) -> None:
        """Say whether a number is wanted that was not known before, or had another meaning."""
        if number >= len(self.flags):
            self.flags.extend(bytes(number + 1 - len(self.flags) + (len(self.flags) >> 3)))
        self.flags[number] = is_wanted


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
        if codes.itemsize == 1:
            column.low = bytearray(codes.tobytes())
        elif codes.itemsize == 2 and _IS_LITTLE_ENDIAN:
            raw = codes.tobytes()
            column.low, column.high = bytearray(raw[0::2]), array("B", raw[1::2])
        else:
            column.extend(array("I", codes))
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
        return joined(self.low, self.high, start, stop)

    def at(self, positions: Sequence[int]) -> Iterable[int]:
        """The numbers at some positions, which grow."""
        if positions[-1] - positions[0] == len(positions) - 1:
            return self.numbers(positions[0], positions[-1] + 1)
        return [self[position] for position in positions]

    def find(self, wanted: Wanted, start: int, stop: int) -> int:
        """The first position from `start` and before `stop` with a wanted number, or -1."""
        if wanted.one is not None:
            return find_number(self.low, self.high, wanted.one, start, stop)
        return find_wanted(self.low, self.high, wanted.flags, start, stop)

    def find_last(self, wanted: Wanted, start: int, stop: int) -> int:
        """The last position before `stop` and not before `start` with a wanted number, or -1."""
        if wanted.one is not None:
            return find_last_number(self.low, self.high, wanted.one, start, stop)
        return find_last_wanted(self.low, self.high, wanted.flags, start, stop)

    def count(self, wanted: Wanted, start: int, stop: int, deleted: DeletedPositions) -> int:
        """How many positions have a wanted number and are not deleted."""
        start = max(start, deleted.floor)
        if start >= stop:
            return 0
        live = deleted.live_flags(start, stop)
        return count_wanted(self.low, self.high, wanted.all_flags(), start, stop, live)

    def positions(
        self, wanted: Wanted | None, start: int, stop: int, deleted: DeletedPositions, limit: int
    ) -> Numbers:
        """The first positions, at most `limit`, with a wanted number that are not deleted; None wants all."""
        found: Numbers = array("I")
        flags = None if wanted is None else wanted.all_flags()
        position, window = max(start, deleted.floor), limit
        while position < stop and len(found) < limit:
            end = min(position + window, stop)
            live = deleted.live_flags(position, end)
            found += positions_of(self.low, self.high, flags, position, live, limit - len(found))
            position = end
            window = min(2 * window, _WINDOW_MAX)
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
