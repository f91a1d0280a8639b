"""Searches in columns of numbers, by the reference and by its native twin, against lists."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.code_cases import NATIVE, REFERENCE, both

NUMBERS = (0, 1, 2, 255, 256, 257, 511, 512, 65_535, 65_536, 16_777_215, 16_777_216, 2**32 - 1)
WIDTHS = {None: 255, "B": 2**16 - 1, "H": 2**24 - 1, "I": 2**32 - 1}


def column_of(numbers: list[int], typecode: str | None) -> tuple[bytearray, Any]:
    """The two pieces of a column, the high one of this type."""
    low = bytearray(number & 255 for number in numbers)
    return low, None if typecode is None else array(typecode, [number >> 8 for number in numbers])


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[int], tuple[bytearray, Any], int, int]:
    """Numbers, the column of them, and a stretch of it."""
    typecode = draw(st.sampled_from(sorted(WIDTHS, key=str)))
    allowed = [number for number in NUMBERS if number <= WIDTHS[typecode]]
    numbers = draw(st.lists(st.sampled_from(allowed), max_size=30))
    start = draw(st.integers(0, len(numbers)))
    stop = draw(st.integers(start, len(numbers)))
    return numbers, column_of(numbers, typecode), start, stop


@given(columns(), st.sampled_from(NUMBERS))
def test_one_number_is_found_first_and_last(found: Any, number: int) -> None:
    numbers, column, start, stop = found
    places = [place for place in range(start, stop) if numbers[place] == number]
    for twin in (REFERENCE, NATIVE):
        assert twin.find_number(*column, number, start, stop) == min(places, default=-1), twin.name
        assert twin.find_last_number(*column, number, start, stop) == max(places, default=-1), twin.name


@given(columns(), st.sets(st.sampled_from(NUMBERS[:9])), st.integers(0, 600), st.data())
def test_wanted_numbers_are_found_counted_and_listed(
    found: Any, wanted: set[int], size: int, data: st.DataObject
) -> None:
    numbers, column, start, stop = found
    flags = bytearray(number in wanted for number in range(size))
    live = bytes(data.draw(st.lists(st.integers(0, 1), min_size=stop - start, max_size=stop - start)))
    limit = data.draw(st.integers(0, 31))
    # A number beyond the flags is not wanted.
    places = [place for place in range(start, stop) if numbers[place] in wanted and numbers[place] < size]
    alive = [place for place in places if live[place - start]]
    all_alive = [place for place in range(start, stop) if live[place - start]]
    for twin in (REFERENCE, NATIVE):
        assert twin.find_wanted(*column, flags, start, stop) == min(places, default=-1), twin.name
        assert twin.find_last_wanted(*column, flags, start, stop) == max(places, default=-1), twin.name
        assert twin.count_wanted(*column, flags, start, stop, live) == len(alive), twin.name
        assert list(twin.positions_of(*column, flags, start, live, limit)) == alive[:limit], twin.name
        assert list(twin.positions_of(*column, None, start, live, limit)) == all_alive[:limit], twin.name


@both
def test_match_far_behind_and_far_before_is_found(twin: SimpleNamespace) -> None:
    numbers = [place % 1000 for place in range(100_000)]
    numbers[70_000] = 5_000
    column = column_of(numbers, "H")
    flags = bytearray(5_001)
    flags[5_000] = 1
    assert twin.find_wanted(*column, flags, 3, 100_000) == 70_000
    assert twin.find_last_wanted(*column, flags, 3, 100_000) == 70_000
    assert twin.find_wanted(*column, flags, 70_001, 100_000) == -1
    assert twin.find_number(*column, 5_000, 0, 100_000) == 70_000


@given(
    st.lists(st.tuples(st.sampled_from((0, 1, 7, 300, 2**32 - 1)), st.integers(0, 255)), max_size=9),
    st.sampled_from("BHIQ"),
    st.integers(0, 400),
)
def test_code_is_flagged_if_its_number_is_wanted_and_it_has_messages(
    some: list[tuple[int, int]], typecode: str, size: int
) -> None:
    flags = bytearray(number % 7 == 0 for number in range(size))
    numbers = array("I", [min(number, 2**20) for number, _ in some])
    counts = array(typecode, [count << 8 * (array(typecode).itemsize - 1) for _, count in some])
    expected = [
        number < size and number % 7 == 0 and count > 0 for number, count in zip(numbers, counts, strict=True)
    ]
    for twin in (REFERENCE, NATIVE):
        assert list(twin.flags_by_code(flags, numbers, counts)) == expected, twin.name


@given(st.sampled_from("BHIQ"), st.lists(st.sampled_from((0, 1, 200, 2**32 - 1, 2**60)), max_size=20))
def test_twins_add_up_alike_and_take_four_bytes_where_they_suffice(typecode: str, steps: list[int]) -> None:
    largest = 2 ** (8 * array(typecode).itemsize) - 1
    column = array(typecode, [min(step, largest) for step in steps])
    expected = [sum(column[:place]) for place in range(len(column) + 1)]
    for twin in (REFERENCE, NATIVE):
        sums = twin.running_sums(column)
        assert list(sums) == expected
        assert sums.typecode == ("I" if expected[-1] < 2**32 else "Q"), twin.name


@both
def test_sums_that_run_over_and_signed_steps_are_refused(twin: SimpleNamespace) -> None:
    with pytest.raises(OverflowError):
        twin.running_sums(array("Q", [2**64 - 1, 1]))
    with pytest.raises(TypeError):
        twin.running_sums(array("q", [-1]))


def test_native_twin_refuses_what_it_would_read_beyond() -> None:
    low, high = column_of([1, 2, 300], "B")
    flags = bytearray(400)
    for start, stop in ((-1, 2), (0, 4)):
        with pytest.raises(IndexError):
            NATIVE.find_number(low, high, 1, start, stop)
        with pytest.raises(IndexError):
            NATIVE.find_wanted(low, high, flags, start, stop)
    with pytest.raises(IndexError):
        NATIVE.find_last_number(low, high[:1], 1, 0, 3)
    with pytest.raises(IndexError):
        NATIVE.count_wanted(low, high, flags, 0, 3, b"\x01")
    with pytest.raises(IndexError):
        NATIVE.positions_of(low, high, flags, 1, b"\x01\x01\x01", 3)
    with pytest.raises(TypeError):
        NATIVE.find_number(low, array("Q", high), 1, 0, 3)
    with pytest.raises(ValueError):
        NATIVE.flags_by_code(flags, array("I", [1]), array("B"))
