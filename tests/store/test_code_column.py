"""A column that many numbers are added to at once is the one they were added to one by one."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from edged.store.code_column import CodeColumn

number_of = st.one_of(*[st.integers(0, 2**bits - 1) for bits in (8, 8, 9, 16, 24, 25, 32)])


@given(st.lists(st.lists(number_of, max_size=5), max_size=6))
def test_numbers_of_any_size_come_back_however_they_were_added(runs: list[list[int]]) -> None:
    together, single = CodeColumn(), CodeColumn()
    for run in runs:
        together.extend(array("I", run))
        for number in run:
            single.append(number)
    expected = [number for run in runs for number in run]
    for column in (together, single):
        assert [column[position] for position in range(len(column))] == expected
        assert list(column.numbers(0, len(expected))) == expected
    assert (together.low, together.high) == (single.low, single.high)
