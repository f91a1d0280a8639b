"""Flash wear is counted for ever in total, and by day, whatever the clock does."""

import msgpack

from edged.store.wear import DAYS_MAX, DayOfWear, WearCounter

DAY_NS = 86_400 * 1_000_000_000
TODAY = 20_000


def test_bytes_and_syncs_are_counted_in_total_and_by_day() -> None:
    counter = WearCounter()
    counter.add(100, 1, TODAY * DAY_NS)
    counter.add(50, 0, (TODAY + 1) * DAY_NS - 1)
    counter.add(7, 2, (TODAY + 1) * DAY_NS)
    assert (counter.bytes_written, counter.syncs) == (157, 3)
    assert counter.days() == [DayOfWear(TODAY, 150, 1), DayOfWear(TODAY + 1, 7, 2)]


def test_only_the_last_days_are_kept_and_the_total_stays() -> None:
    counter = WearCounter()
    for day in range(3 * DAYS_MAX):
        counter.add(1, 1, (TODAY + day) * DAY_NS)
    assert [day.number for day in counter.days()] == list(range(TODAY + 2 * DAYS_MAX, TODAY + 3 * DAYS_MAX))
    assert counter.bytes_written == 3 * DAYS_MAX


def test_clock_that_was_years_ahead_pushes_no_day_out() -> None:
    counter = WearCounter()
    for day in (TODAY, TODAY + 9999, TODAY, TODAY + 1):
        counter.add(1, 0, day * DAY_NS)
    assert [(day.number, day.bytes_written) for day in counter.days()] == [
        (TODAY, 2),
        (TODAY + 9999, 1),
        (TODAY + 1, 1),
    ]


def test_counter_comes_back_from_its_snapshot_and_counts_on() -> None:
    counter = WearCounter()
    counter.add(5, 1, TODAY * DAY_NS)
    again = WearCounter.restore(msgpack.unpackb(msgpack.packb(counter.snapshot())))
    again.add(5, 1, TODAY * DAY_NS)
    assert again.days() == [DayOfWear(TODAY, 10, 2)]
    assert (again.bytes_written, again.syncs) == (10, 2)
