"""Searches in a column of numbers: which messages have the subject, or one of the subjects, that is wanted.

A column is in two pieces, `low` with the low byte of each number, and `high` with the rest, or None while no
number is above 255. What is wanted is one number, or `flags` with a 1 at the place of each wanted number; a
number beyond the flags is not wanted.

Rules: no I/O. `start` and `stop` lie within the column; nothing found is -1.

This is the reference; `_codes.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, compress, islice
from operator import and_
from typing import Final, TypeAlias

High: TypeAlias = "array[int] | None"
_IS_LITTLE_ENDIAN: Final = array("H", [1]).tobytes() == b"\1\0"
# A search looks at a few messages first, because the next match is often near, then at more and more.
_WINDOW_FIRST: Final = 8
_WINDOW_MAX: Final = 16_384
_WINDOW_GROWTH: Final = 4


def joined(low: bytearray, high: High, start: int, stop: int) -> Sequence[int]:
    """The numbers from one position to another."""
    lows = low[start:stop]
    if high is None:
        return lows
    # Where it is possible, their bytes are laid side by side.
    rest = high[start:stop].tobytes()
    if high.itemsize == 1 and _IS_LITTLE_ENDIAN:
        pairs = bytearray(2 * len(lows))
        pairs[0::2], pairs[1::2] = lows, rest
        return memoryview(pairs).cast("H")
    if high.itemsize == 2 and _IS_LITTLE_ENDIAN:
        fours = bytearray(4 * len(lows))
        fours[0::4], fours[1::4], fours[2::4] = lows, rest[0::2], rest[1::2]
        return memoryview(fours).cast("I")
    return [one | more << 8 for one, more in zip(lows, high[start:stop], strict=True)]


def find_number(low: bytearray, high: High, number: int, start: int, stop: int) -> int:
    """The first position from `start` and before `stop` with this number."""
    byte, more = number & 255, number >> 8
    if high is None:
        return low.find(byte, start, stop) if not more else -1
    found = low.find(byte, start, stop)
    while found >= 0 and high[found] != more:
        found = low.find(byte, found + 1, stop)
    return found


def find_last_number(low: bytearray, high: High, number: int, start: int, stop: int) -> int:
    """The last position before `stop` and not before `start` with this number."""
    byte, more = number & 255, number >> 8
    if high is None:
        return low.rfind(byte, start, stop) if not more else -1
    found = low.rfind(byte, start, stop)
    while found >= 0 and high[found] != more:
        found = low.rfind(byte, start, found)
    return found


def find_wanted(low: bytearray, high: High, flags: bytearray, start: int, stop: int) -> int:
    """The first position from `start` and before `stop` with a wanted number."""
    window = _WINDOW_FIRST
    while start < stop:
        end = min(start + window, stop)
        found = _marks(low, high, flags, start, end).find(1)
        if found >= 0:
            return start + found
        start = end
        window = min(window * _WINDOW_GROWTH, _WINDOW_MAX)
    return -1


def find_last_wanted(low: bytearray, high: High, flags: bytearray, start: int, stop: int) -> int:
    """The last position before `stop` and not before `start` with a wanted number."""
    window = _WINDOW_FIRST
    while start < stop:
        begin = max(stop - window, start)
        found = _marks(low, high, flags, begin, stop).rfind(1)
        if found >= 0:
            return begin + found
        stop = begin
        window = min(window * _WINDOW_GROWTH, _WINDOW_MAX)
    return -1


def count_wanted(low: bytearray, high: High, flags: bytearray, start: int, stop: int, live: bytes) -> int:
    """How many positions have a wanted number and a 1 in `live`, which begins at `start`."""
    return sum(compress(_marks(low, high, flags, start, stop), live))


def positions_of(
    low: bytearray, high: High, flags: bytearray | None, start: int, live: bytes, limit: int
) -> array[int]:
    """The first `limit` positions from `start` on with a 1 in `live` and a wanted number; None wants all."""
    found = compress(range(start, start + len(live)), live)
    if flags is not None:
        marks = _marks(low, high, flags, start, start + len(live))
        found = compress(range(start, start + len(live)), map(and_, marks, live))
    return array("I", islice(found, limit))


def running_sums(steps: array[int]) -> array[int]:
    """0, and the sum of the steps up to and with each of them; OverflowError if it does not fit 64 bits."""
    total = sum(steps)
    if steps.typecode not in "BHIQ":
        raise TypeError(steps.typecode)
    return array("I" if total <= 0xFFFFFFFF else "Q", accumulate(steps, initial=0))


def flags_by_code(flags: bytearray, numbers: array[int], counts: array[int]) -> bytearray:
    """For each code, 1 if the number it stands for is wanted and it has messages at all, else 0."""
    padded = flags + bytes(max(0, max(numbers, default=0) + 1 - len(flags)))
    return bytearray(
        1 if count and padded[number] else 0 for number, count in zip(numbers, counts, strict=True)
    )


def _marks(low: bytearray, high: High, flags: bytearray, start: int, stop: int) -> bytes:
    """A byte for each position: 1 if its number is wanted, else 0."""
    if high is None:
        return bytes(low[start:stop].translate((flags + bytes(256))[:256]))
    size = len(flags)
    return bytes(number < size and flags[number] for number in joined(low, high, start, stop))
