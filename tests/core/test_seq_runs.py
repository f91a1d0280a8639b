"""Lists of numbers in few bytes."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.seq_runs import folded, unfolded

numbers = st.lists(st.integers(-(2**40), 2**40), max_size=30)
runs = st.lists(
    st.tuples(st.integers(0, 2**40), st.integers(1, 40)).map(lambda pair: range(pair[0], sum(pair))),
    max_size=6,
).map(lambda parts: [number for part in parts for number in part])


@given(numbers | runs)
def test_what_is_folded_is_unfolded(listed: list[int]) -> None:
    assert unfolded(folded(listed), len(listed)) == tuple(listed)


@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(1, 5))
def test_range_is_folded_as_its_numbers_are(start: int, count: int, step: int) -> None:
    listed = range(start, start + count * step, step)
    assert folded(listed) == folded(list(listed))


def test_neighbours_take_a_few_bytes_however_many_there_are() -> None:
    assert folded(range(1_000_000, 1_001_000)) == [1_000_000, [1, 999]]
    assert len(msgpack.packb(folded(tuple(range(1_000_000, 1_001_000))))) <= 12
    assert folded([5, 8, 11, 14, 17, 20]) == [5, [3, 5]]


def test_few_numbers_are_plain_differences() -> None:
    assert folded([7, 8, 9]) == [7, 1, 1]
    assert folded([9, 4]) == [9, -5]
    assert folded([]) == []


@pytest.mark.parametrize(
    "items",
    [
        [1, [1]],
        [1, [1, 2, 3]],
        [1, [1, 0]],
        [1, [1, -4]],
        [1, ["1", 2]],
        [1, [1, True]],
        ["1"],
        [1.0],
        [None],
        [[[], 2]],
    ],
)
def test_what_cannot_have_been_folded_is_refused(items: list[object]) -> None:
    assert unfolded(items, 100) is None


def test_nothing_is_expanded_that_is_longer_than_allowed() -> None:
    assert unfolded([1, [1, 2**62]], 65_536) is None
    assert unfolded([1, [1, 99]], 100) == tuple(range(1, 101))
    assert unfolded([1, [1, 100]], 100) is None
