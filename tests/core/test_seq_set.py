"""Sets of seqs, against sets of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.seq_set import PAGE_SEQS, SeqSet, SeqSetFullError

seqs = st.sets(st.one_of(st.integers(1, 1200), st.integers(1, (1 << 63) - 1)), max_size=40)
bounds = st.lists(st.integers(1, 1600), max_size=8, unique=True)


def made(numbers: set[int]) -> SeqSet:
    result = SeqSet(100)
    for number in numbers:
        result.add(number)
    return result


def in_it(found: SeqSet, candidates: set[int]) -> set[int]:
    return {number for number in candidates if number in found}


@given(seqs, seqs)
def test_it_holds_what_was_put_in_and_not_taken_out(numbers: set[int], others: set[int]) -> None:
    found = made(numbers)
    assert in_it(found, numbers | others) == numbers
    found.remove_all(made(others))
    left = numbers - others
    assert in_it(found, numbers | others) == left
    assert (len(found), bool(found)) == (len(left), bool(left))
    if left:
        assert found.first() == min(left)
    found.add_all(made(others))
    assert in_it(found, numbers | others) == left | others


@given(seqs, bounds)
def test_what_is_in_no_range_is_taken_out(numbers: set[int], edges: list[int]) -> None:
    edges.sort()
    ranges = [(edges[index], edges[index + 1]) for index in range(0, len(edges) - 1, 2)]
    # An empty one is what an index says of an empty block.
    ranges.append((700, 699))
    found = made(numbers)
    found.keep_ranges(ranges)
    left = {number for number in numbers if any(first <= number <= last for first, last in ranges)}
    assert in_it(found, numbers) == left
    assert len(found) == len(left)


def test_it_has_no_more_pages_than_allowed() -> None:
    found = SeqSet(2)
    found.add(1)
    found.add(PAGE_SEQS)
    found.add(PAGE_SEQS - 1)
    with pytest.raises(SeqSetFullError):
        found.add(2 * PAGE_SEQS)
    found.add_page(5, 0)
    assert len(found) == 3
