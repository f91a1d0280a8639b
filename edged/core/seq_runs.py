"""Lists of numbers in few bytes: differences, and those that repeat only once.

A list becomes its first number, then the difference from each to the next. Where the same difference comes
again and again, there is a pair [difference, times] in place of it: neighbouring seqs, however many, are a
few bytes, and so is every third seq.

Rules: `unfolded()` takes whatever comes from a disk. It expands nothing before it knows how much that is, and
answers None for what `folded()` cannot have made, but for pairs where there need be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby, repeat
from operator import eq, sub
from typing import Any, Final

# From so many on a difference is written once.
TIMES_MIN: Final = 4

Folded = list[int | list[int]]


def folded(numbers: Sequence[int]) -> Folded:
    """The differences, with what repeats written once."""
    if not numbers:
        return []
    if isinstance(numbers, range):
        return [numbers[0], *_repeated(numbers.step, len(numbers) - 1)]
    differences = list(map(sub, numbers[1:], numbers))
    count = len(differences)
    if count < TIMES_MIN:
        return [numbers[0], *differences]
    if differences.count(differences[0]) == count:
        return [numbers[0], [differences[0], count]]
    if sum(map(eq, differences[1:], differences)) < count // 4:
        # Hardly anything repeats: looking for it costs more than it saves.
        return [numbers[0], *differences]
    items: Folded = [numbers[0]]
    for difference, same in groupby(differences):
        items += _repeated(difference, sum(1 for _ in same))
    return items


def unfolded(items: list[Any], count_max: int) -> tuple[int, ...] | None:
    """The reverse; None if these are no whole numbers, or more than `count_max`."""
    differences: list[int] = []
    left = count_max
    for item in items:
        if type(item) is list:
            if len(item) != 2 or type(item[0]) is not int or type(item[1]) is not int:
                return None
            difference, times = item
        else:
            difference, times = item, 1
        if type(difference) is not int or not 0 < times <= left:
            return None
        left -= times
        if times == 1:
            differences.append(difference)
        else:
            differences.extend(repeat(difference, times))
    return tuple(accumulate(differences))


def _repeated(difference: int, times: int) -> Folded:
    return [[difference, times]] if times >= TIMES_MIN else [difference] * times
