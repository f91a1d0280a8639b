"""The subject table, what filters match in it, and the sets and columns that searches run over."""

from __future__ import annotations

import random
import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import subjects
from edged.core.run_twins import enter_subjects
from edged.store.code_column import CodeColumn, Wanted
from edged.store.deleted import DeletedPositions
from edged.store.subject_filters import FilterCache, compile_pattern, is_literal, literal_prefix
from edged.store.subject_table import SubjectTable

token = st.sampled_from((b"a", b"b", b"a-", b"a/", b"*", b">", b"a*", b".", b"\n", b"\xff", b""))
subject_of = st.lists(token, min_size=1, max_size=4).map(b".".join)


def table_of(names: list[bytes]) -> SubjectTable:
    table = SubjectTable()
    for seq, name in enumerate(names, 1):
        table.append(table.numbers[name] if name in table.numbers else table.add(name), seq)
    return table


def found(table: SubjectTable, cache: FilterCache, filters: tuple[bytes, ...]) -> set[bytes]:
    names = [table.names[number] for number in cache.get(filters).numbers(table)]
    return {name for name in names if name is not None}


@given(subject_of, subject_of)
def test_compiled_pattern_gives_the_answers_of_the_one_matcher(subject: bytes, pattern: bytes) -> None:
    assert bool(compile_pattern(pattern)(subject)) == subjects.matches(subject, pattern)


@given(st.lists(subject_of, max_size=30), subject_of)
def test_subjects_that_match_are_found_through_their_prefix(names: list[bytes], pattern: bytes) -> None:
    table = table_of(names)
    expected = {name for name in names if subjects.matches(name, pattern)}
    if is_literal(pattern):
        expected = {name for name in names if name == pattern}
    assert found(table, FilterCache(table), (pattern, b"nothing")) == expected


def test_prefix_is_what_stands_before_the_first_wildcard() -> None:
    assert literal_prefix(b"a.b.*.c") == b"a.b."
    assert literal_prefix(b"a.>") == b"a."
    assert literal_prefix(b"*.a") == b""
    assert literal_prefix(b"a.b*.>") == b"a.b*."


def test_only_subjects_with_the_prefix_are_looked_at() -> None:
    table = table_of([b"a.%d" % number for number in range(500)] + [b"b.1", b"b.2", b"a-b.1"])
    assert sorted(table.with_prefix(b"b.")) == [b"b.1", b"b.2"]
    table.append(table.add(b"b.3"), 600)
    assert sorted(table.with_prefix(b"b.")) == [b"b.1", b"b.2", b"b.3"]


def test_matches_stay_current_while_subjects_come_and_go() -> None:
    chance = random.Random(3)
    table = SubjectTable()
    cache = FilterCache(table)
    alive: dict[bytes, int] = {}
    filters = [(b"s.1.*",), (b"s.*.3", b"t"), (b"*.2.>",)]
    for seq in range(1, 40_000):
        name = b"s.%d.%d" % (chance.randrange(4), chance.randrange(200))
        if name in alive:
            table.remove(table.numbers[name], alive.pop(name))
        else:
            table.append(table.add(name), seq)
            alive[name] = seq
        if seq % 500 == 0:
            for one in filters:
                expected = {name for name in alive if any(subjects.matches(name, part) for part in one)}
                assert found(table, cache, one) == expected
    assert len(table.names) <= 800
    assert table.epoch > 0


def test_number_of_a_vanished_subject_is_used_again() -> None:
    table = table_of([b"a", b"b"])
    table.remove(table.numbers[b"a"], 1)
    assert table.add(b"c") == 0
    assert len(table) == 2


def test_first_is_a_bound_after_its_message_went_and_exact_when_one_is_left() -> None:
    table = table_of([b"a", b"a", b"a"])
    table.remove(0, 1)
    assert (table.firsts[0], table.is_first_known(0)) == (2, False)
    table.remove(0, 2)
    assert (table.firsts[0], table.is_first_known(0)) == (3, True)


def test_last_is_a_bound_after_its_message_went_and_exact_when_one_is_left() -> None:
    table = table_of([b"a", b"a", b"a"])
    table.remove(0, 3)
    assert (table.lasts[0], table.is_last_known(0)) == (2, False)
    table.remove(0, 2)
    assert (table.lasts[0], table.is_last_known(0)) == (1, True)
    table.append(0, 9)
    assert (table.lasts[0], table.is_last_known(0)) == (9, True)


positions_of = st.lists(st.one_of(st.integers(0, 40), st.integers(2_030, 2_070), st.integers(4_090, 4_110)))


@given(positions_of, st.integers(0, 4_200), positions_of)
def test_deleted_positions_agree_with_a_set(before: list[int], below: int, after: list[int]) -> None:
    deleted, model = DeletedPositions(), set()
    for position in before:
        assert deleted.add(position) == (position not in model)
        model.add(position)
    deleted.add_below(below)
    model.update(range(below))
    for position in after:
        assert deleted.add(position) == (position not in model)
        model.add(position)
    absent = [one for one in range(4_400) if one not in model]
    for same in (deleted, DeletedPositions.load(deleted.dump()), deleted.copy()):
        assert same.count == len(model)
        assert same.floor not in model
        assert set(same.positions()) == {position for position in model if position >= same.floor}
        for position in {*before, *after, below, 0, 2_047, 2_048, 4_095, 4_300}:
            assert (position in same) == (position in model)
            assert same.count_below(position) == sum(one < position for one in model)
            assert same.next_absent(position) == min(one for one in absent if one >= position)
            assert same.previous_absent(position) == max(
                (one for one in absent if one <= position), default=-1
            )
        for start, stop in ((0, 4_300), (below, below), (35, 2_060), (2_048, 4_096), (below, 4_300)):
            flags = same.live_flags(start, stop)
            assert list(flags) == [one not in model for one in range(start, stop)]


def test_subject_of_26_bytes_takes_at_most_256_bytes() -> None:
    names = 50_000
    tracemalloc.start()
    table = SubjectTable()
    for first in range(0, names, 1_000):
        subjects = [b"bench.key.%016d" % number for number in range(first, first + 1_000)]
        enter_subjects(table, subjects, range(first + 1, first + 1_001))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(table) == names
    assert size <= 256 * names


def test_deleted_positions_take_little_memory_whether_sparse_or_dense() -> None:
    dense = DeletedPositions()
    for position in range(100_000, 0, -1):
        dense.add(position)
    assert len(dense.dump()[1]) <= 50
    dense.add(0)
    assert (dense.floor, dense.count, len(dense.dump()[1])) == (100_001, 100_001, 1)


@pytest.mark.parametrize("limit", [3, 256, 300, 70_000, 20_000_000])
def test_column_finds_and_counts_what_is_wanted(limit: int) -> None:
    chance = random.Random(limit)
    numbers = [chance.randrange(limit) for _ in range(3_000)]
    growing = CodeColumn()
    growing.extend(array("I", numbers[:1_000]))
    for number in numbers[1_000:1_100]:
        growing.append(number)
    growing.extend(array("I", numbers[1_100:]))
    fixed = CodeColumn.of(array("B" if limit <= 256 else "H" if limit <= 65_536 else "I", numbers))
    deleted = DeletedPositions()
    deleted.add_below(50)
    for _ in range(300):
        deleted.add(chance.randrange(3_000))
    for few in (0, 1, 5, 400):
        chosen = set(chance.sample(numbers, few))
        flags = bytearray(limit)
        for number in chosen:
            flags[number] = 1
        wanteds = [Wanted(flags=flags)]
        if len(chosen) == 1:
            wanteds.append(Wanted(min(chosen)))
        places = [position for position, number in enumerate(numbers) if number in chosen]
        for column in (growing, fixed):
            assert len(column) == 3_000
            assert [column[position] for position in range(0, 3_000, 37)] == numbers[::37]
            assert list(column.numbers(7, 90)) == numbers[7:90]
            for wanted in wanteds:
                for start, stop in ((0, 3_000), (100, 101), (1_234, 2_000), (2_999, 3_000), (5, 5)):
                    inside = [position for position in places if start <= position < stop]
                    assert column.find(wanted, start, stop) == min(inside, default=-1)
                    assert column.find_last(wanted, start, stop) == max(inside, default=-1)
                    live = sum(position not in deleted for position in inside)
                    assert column.count(wanted, start, stop, deleted) == live


def test_wanted_learns_numbers_that_come_later() -> None:
    wanted = Wanted(flags=bytearray(10))
    column = CodeColumn()
    column.extend(array("I", [1, 2, 5_000, 3]))
    assert column.find(wanted, 0, 4) == -1
    wanted.set(5_000, True)
    assert column.find(wanted, 0, 4) == 2
    wanted.set(5_000, False)
    assert column.find(wanted, 0, 4) == -1
