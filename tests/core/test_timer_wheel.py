"""The timing wheel gives back what a sorted list would, whatever the clock does."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.timer_wheel import SLOTS, TICK_NS, TIME_NS_MAX, TimerWheel
from tests.examples import examples

SECOND_NS = 1_000_000_000
YEAR_NS = 365 * 86_400 * SECOND_NS
NOW_NS = 1_790_000_000 * SECOND_NS

# Spans around every border of ticks, slots and levels, and such as messages have.
SPANS = st.one_of(
    st.integers(-3, 3),
    st.integers(-5 * TICK_NS, 5 * TICK_NS),
    st.builds(
        lambda power, near, sign: sign * (TICK_NS * SLOTS**power + near),
        st.integers(0, 5),
        st.integers(-2, 2),
        st.sampled_from((1, -1)),
    ),
    st.integers(-100 * SECOND_NS, 100 * SECOND_NS),
    st.integers(-90 * YEAR_NS, 90 * YEAR_NS),
)
STEPS = st.lists(st.tuples(st.sampled_from(("add", "add", "turn")), SPANS), max_size=60)


class Model:
    """The same by sorting everything every time."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def add(self, expires_ns: int, item: int) -> None:
        self.entries.append((min(max(expires_ns, 0), TIME_NS_MAX), item))

    def expired(self, now_ns: int) -> list[int]:
        due = sorted(entry for entry in self.entries if entry[0] <= min(now_ns, TIME_NS_MAX))
        self.entries = [entry for entry in self.entries if entry not in due]
        return [item for _, item in due]

    def next_ns(self) -> int | None:
        return min(self.entries)[0] if self.entries else None


@settings(max_examples=examples(400))
@given(start_ns=st.sampled_from((0, 1, NOW_NS, TIME_NS_MAX)), steps=STEPS)
def test_wheel_does_what_a_sorted_list_does(start_ns: int, steps: list[tuple[str, int]]) -> None:
    wheel, model = TimerWheel(start_ns), Model()
    now_ns = NOW_NS
    for item, (what, span_ns) in enumerate(steps):
        if what == "add":
            wheel.add(now_ns + span_ns, item)
            model.add(now_ns + span_ns, item)
        else:
            now_ns = max(0, now_ns + span_ns)
            assert wheel.expired(now_ns) == model.expired(now_ns)
        assert wheel.next_ns() == model.next_ns()
        assert len(wheel) == len(model.entries)
    assert wheel.expired(TIME_NS_MAX) == model.expired(TIME_NS_MAX)
    assert len(wheel) == 0
    assert wheel.next_ns() is None


def test_entry_comes_back_at_its_nanosecond_and_not_before() -> None:
    wheel = TimerWheel(NOW_NS)
    wheel.add(NOW_NS + 5, 1)
    assert wheel.expired(NOW_NS + 4) == []
    assert wheel.expired(NOW_NS + 5) == [1]
    assert wheel.expired(NOW_NS + 5) == []


def test_entry_added_after_its_time_comes_back_at_once() -> None:
    wheel = TimerWheel(NOW_NS)
    wheel.add(NOW_NS - YEAR_NS, 1)
    assert wheel.next_ns() == NOW_NS - YEAR_NS
    assert wheel.expired(NOW_NS) == [1]


def test_clock_set_forward_by_years_expires_what_lies_between() -> None:
    wheel = TimerWheel(NOW_NS)
    wheel.add(NOW_NS + 60 * SECOND_NS, 1)
    wheel.add(NOW_NS + 20 * YEAR_NS, 2)
    assert wheel.expired(NOW_NS + 10 * YEAR_NS) == [1]
    assert wheel.expired(NOW_NS + 20 * YEAR_NS) == [2]


def test_clock_set_back_by_years_keeps_everything_and_takes_new_entries() -> None:
    wheel = TimerWheel(NOW_NS)
    wheel.add(NOW_NS + SECOND_NS, 1)
    then_ns = NOW_NS - 10 * YEAR_NS
    assert wheel.expired(then_ns) == []
    wheel.add(then_ns + SECOND_NS, 2)
    assert wheel.next_ns() == then_ns + SECOND_NS
    assert wheel.expired(then_ns + SECOND_NS) == [2]
    assert wheel.expired(NOW_NS) == []
    assert wheel.expired(NOW_NS + SECOND_NS) == [1]


def test_late_entry_outlives_a_clock_that_is_set_back() -> None:
    wheel = TimerWheel(NOW_NS)
    wheel.add(NOW_NS - 10 * SECOND_NS, 1)
    assert wheel.expired(NOW_NS - YEAR_NS) == []
    assert wheel.next_ns() == NOW_NS - 10 * SECOND_NS
    assert wheel.expired(NOW_NS - 10 * SECOND_NS) == [1]


def test_clock_that_trembles_does_not_turn_the_wheel_back() -> None:
    wheel = TimerWheel(NOW_NS)
    for second in range(1, 1000):
        wheel.add(NOW_NS + second * SECOND_NS, second)
    found: list[int] = []
    for second in range(1, 1000):
        found += wheel.expired(NOW_NS + second * SECOND_NS)
        found += wheel.expired(NOW_NS + second * SECOND_NS - 50 * TICK_NS)
    assert found == list(range(1, 1000))


def test_time_beyond_the_range_is_the_end_of_the_range() -> None:
    wheel = TimerWheel(NOW_NS)
    wheel.add(2**70, 1)
    wheel.add(-(2**70), 2)
    assert wheel.next_ns() == 0
    assert wheel.expired(-1) == [2]
    assert wheel.next_ns() == TIME_NS_MAX
    assert wheel.expired(2**80) == [1]


@pytest.mark.parametrize("item", [0, 2**64 - 1])
def test_items_are_64_bits(item: int) -> None:
    wheel = TimerWheel()
    wheel.add(7, item)
    assert wheel.expired(7) == [item]


def day_of_messages(count: int) -> TimerWheel:
    """A day's worth of messages, each to be kept for a day."""
    wheel = TimerWheel(NOW_NS)
    day_ns = 86_400 * SECOND_NS
    for item in range(count):
        wheel.add(NOW_NS + day_ns + item * day_ns // count, item)
    return wheel


def test_entries_take_little_memory() -> None:
    count = 100_000
    tracemalloc.start()
    try:
        wheel = day_of_messages(count)
        used_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(wheel) == count
    # Besides the entries, the empty wheel itself has some tens of kilobytes.
    assert used_bytes < 18 * count + 100_000


@pytest.mark.slow
def test_a_million_entries_come_back_in_order_hour_by_hour() -> None:
    count = 1_000_000
    wheel = day_of_messages(count)
    found = 0
    for hour in range(24, 49):
        items = wheel.expired(NOW_NS + hour * 3600 * SECOND_NS)
        assert items == list(range(found, found + len(items)))
        found += len(items)
    assert found == count
    assert len(wheel) == 0
