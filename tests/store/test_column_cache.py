"""Who may hold columns, and who lets go of them first."""

from __future__ import annotations

from edged.store.column_cache import COLUMNS_BYTES_PER_SUBJECT, ColumnCache


class FakeHolder:
    """Remembers whether it holds something."""

    def __init__(self) -> None:
        self.was_asked = False
        self.holds = True

    def let_go(self) -> None:
        self.holds = False


def holding(cache: ColumnCache, *sizes: int) -> list[FakeHolder]:
    holders = [FakeHolder() for _ in sizes]
    for holder, size in zip(holders, sizes, strict=True):
        cache.hold(holder, size, 0)
    return holders


def test_oldest_lets_go_when_there_are_too_many_bytes() -> None:
    cache = ColumnCache(100)
    one, other, third = holding(cache, 40, 40, 40)
    assert (one.holds, other.holds, third.holds, cache.bytes) == (False, True, True, 80)


def test_who_was_asked_is_passed_over_once() -> None:
    cache = ColumnCache(100)
    one, other = holding(cache, 40, 40)
    one.was_asked = True
    holding(cache, 40)
    assert (one.holds, one.was_asked, other.holds) == (True, False, False)
    holding(cache, 40)
    assert (one.holds, cache.bytes) == (False, 80)


def test_one_that_is_too_large_alone_is_held_and_nobody_else() -> None:
    cache = ColumnCache(100)
    small, large = holding(cache, 10, 1_000)
    assert (small.holds, large.holds, cache.bytes) == (False, True, 1_000)


def test_one_that_grows_is_counted_once() -> None:
    cache = ColumnCache(100)
    one, other = holding(cache, 40, 40)
    cache.hold(one, 50, 0)
    assert (one.holds, other.holds, cache.bytes) == (True, True, 90)
    cache.forget(one)
    cache.forget(one)
    assert (one.holds, cache.bytes) == (False, 40)


def test_log_with_many_subjects_may_hold_more() -> None:
    cache = ColumnCache(100)
    (one,) = holding(cache, 100)
    cache.hold(FakeHolder(), 100 * COLUMNS_BYTES_PER_SUBJECT, 100)
    assert one.holds
    cache.hold(FakeHolder(), 1, 100)
    assert not one.holds
