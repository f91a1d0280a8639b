"""Where the entries of a group are: what is said of each, however they were told and moved."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from edged.store.journal_reads import JournalReads
from hub.replication.places import Place, Places

SIZE = 100


def empty() -> Places:
    return Places(1, cast(JournalReads, None), 0)


def known(places: Places) -> dict[int, tuple[int, int, int]]:
    """The file of each entry, and the piece of it where it is."""
    found: dict[int, tuple[int, int, int]] = {}
    for piece in places._pieces:
        for index in range(piece.first, piece.last + 1):
            assert index not in found
            found[index] = (piece.file, piece.start, piece.end)
    assert list(found) == sorted(found)
    return found


class Journal:
    """Files that grow, and the place of each entry in them by the last that was told."""

    def __init__(self) -> None:
        self.places = empty()
        self.model: dict[int, tuple[int, int]] = {}
        self.file = 1
        self.end = 0
        self.last = 0

    def put(self, first: int, count: int) -> Place:
        start, self.end = self.end, self.end + count * SIZE
        self.model |= {first + number: (self.file, start + number * SIZE) for number in range(count)}
        self.last = max(self.last, first + count - 1)
        return first, first + count - 1, self.file, start, self.end

    def add(self, count: int) -> None:
        self.places.add(*self.put(self.last + 1, count))

    def turn(self, kept: list[int], share: float) -> None:
        """A new file begins with some of the last entries, in runs; more may come before that is known."""
        self.file, self.end = self.file + 1, 0
        last = self.last
        first = max(last - sum(kept), 0) + 1
        moved = []
        for count in kept:
            count = min(count, last - first + 1)
            if count > 0:
                moved.append(self.put(first, count))
                first += count
        if share > 0.5:
            self.add(2)
        self.places.move(moved)

    def cut(self, share: float) -> None:
        index = int(self.last * share) + 1
        self.places.cut(index)
        self.last = min(self.last, index - 1)
        self.model = {one: place for one, place in self.model.items() if one < index}

    def check(self) -> None:
        found = known(self.places)
        assert found.keys() == self.model.keys()
        for index, (file, start) in self.model.items():
            assert found[index][0] == file
            assert found[index][1] <= start < start + SIZE <= found[index][2]


shares = st.floats(0, 1)
steps = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 5)),
    st.tuples(st.just("turn"), st.lists(st.integers(1, 4), max_size=5), shares),
    st.tuples(st.just("cut"), shares),
)


@given(st.lists(steps, max_size=20))
def test_each_entry_is_where_it_was_last_said_to_be(told: list[tuple[Any, ...]]) -> None:
    journal = Journal()
    for name, *arguments in told:
        getattr(journal, name)(*arguments)
        journal.check()


def test_a_hundred_thousand_entries_that_wait_move_to_the_next_file() -> None:
    """Once it took minutes, in which the node heard of nobody and nobody of it."""
    journal = Journal()
    for _ in range(100_000):
        journal.add(1)
    journal.turn([1] * 100_000, 1.0)
    assert {file for file, _, _ in known(journal.places).values()} == {2}
