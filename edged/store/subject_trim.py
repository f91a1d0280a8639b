"""Keeping a limit per subject after many messages came in: the oldest of each subject go, many in one pass.

A bucket whose keys are all full loses a message for each that it takes. To search the oldest of one subject
costs more than to store the new message; but those of subjects that came together mostly lie close together,
and one pass over the numbers of a part finds them all.

Rules: the same messages go as if the oldest of each subject had been removed one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from edged.store.code_column import Wanted
from edged.store.log_part import LogPart
from edged.store.message_index import MessageIndex

# Subjects whose oldest messages are farther apart than this are searched in passes of their own.
_APART: Final = 16_384
# How many more messages a pass looks at than it has to find: of some subjects there are several.
_MORE: Final = 256


class SubjectTrim(MessageIndex):
    """A log that removes the oldest messages of many subjects at once."""

    def trim_subjects(self, subjects: Iterable[bytes], count_max: int) -> None:
        """Remove the oldest messages of those subjects that have more than so many."""
        table = self.table
        counts = table.counts
        surplus = {
            number: counts[number] - count_max
            for number in map(table.numbers.__getitem__, set(subjects))
            if counts[number] > count_max
        }
        if self._refilled is not None:
            self._trim_one_by_one(surplus)
        elif surplus:
            first_seq = self.first_seq
            was_there = self.has(first_seq)
            numbers = sorted(surplus, key=table.firsts.__getitem__)
            for group in _neighbours(numbers, [table.firsts[number] for number in numbers]):
                self._trim({number: surplus[number] for number in group}, table.firsts[group[0]])
            if was_there and not self.has(first_seq):
                self._advance(first_seq + 1)

    def _trim_one_by_one(self, surplus: dict[int, int]) -> None:
        for number, count in surplus.items():
            for _ in range(count):
                self.remove(self._first_of_number(number))

    def _trim(self, surplus: dict[int, int], seq: int) -> None:
        """Remove so many messages of each number, the oldest, all of which are at `seq` or behind it."""
        for part in self._parts[self._part_index(seq) :]:
            flags = _flags(part.codes_of(surplus))
            position = part.position_from(seq)
            while flags and surplus:
                limit = sum(surplus.values()) + _MORE
                found = part.positions(Wanted(None, flags), position, limit)
                if found:
                    self._remove_oldest(part, found, surplus)
                if len(found) < limit:
                    break
                position = found[-1] + 1
            if not surplus:
                return
        raise AssertionError(surplus)

    def _remove_oldest(self, part: LogPart, positions: Sequence[int], surplus: dict[int, int]) -> None:
        """Of the messages at these positions, remove those of which their subject has too many."""
        table, number_of = self.table, part.number_of
        oldest: list[int] = []
        for position, code in zip(positions, part.column().at(positions), strict=True):
            number = number_of(code)
            left = surplus.get(number)
            if left is None:
                continue
            oldest.append(position)
            table.remove(number, part.seq_at(position))
            if left > 1:
                surplus[number] = left - 1
            else:
                del surplus[number]
                if not surplus:
                    break
        size = sum(map(part.bytes_at, oldest))
        part.remove_many(oldest, size)
        self.message_count -= len(oldest)
        self.bytes -= size


def _neighbours(numbers: list[int], firsts: list[int]) -> Iterator[list[int]]:
    """Numbers in the order of their first messages, cut where those are far apart."""
    start = 0
    for place in range(1, len(numbers)):
        if firsts[place] - firsts[place - 1] > _APART:
            yield numbers[start:place]
            start = place
    yield numbers[start:]


def _flags(codes: Sequence[int]) -> bytearray:
    """A 1 at the place of each code."""
    flags = bytearray(max(codes) + 1 if codes else 0)
    for code in codes:
        flags[code] = 1
    return flags
