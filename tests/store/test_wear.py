"""Flash wear is counted for ever in total, and by day, whatever the clock does; and all of it is counted."""

from itertools import count

import msgpack

from edged.core import commands
from edged.store.checkpoint import load_newest
from edged.store.options import SYNC_OS, StoreOptions
from edged.store.store import Append, Store
from edged.store.wear import DAYS_MAX, DayOfWear, WearCounter
from tests.lab.fake_disk import FakeDisk, Sync, SyncDirectory, Write

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
    again = WearCounter()
    again.resume(msgpack.unpackb(msgpack.packb(counter.snapshot())))
    again.add(5, 1, TODAY * DAY_NS)
    assert again.days() == [DayOfWear(TODAY, 10, 2)]
    assert (again.bytes_written, again.syncs) == (10, 2)


def test_what_was_counted_before_a_counter_resumes_comes_on_top() -> None:
    counter, again = WearCounter(), WearCounter()
    counter.add(5, 1, TODAY * DAY_NS)
    again.add(2, 1, TODAY * DAY_NS)
    again.add(1, 0, (TODAY + 1) * DAY_NS)
    again.resume(counter.snapshot())
    assert again.days() == [DayOfWear(TODAY, 7, 2), DayOfWear(TODAY + 1, 1, 0)]
    assert (again.bytes_written, again.syncs) == (8, 2)


def on_the_disk(disk: FakeDisk) -> tuple[int, int]:
    """Bytes written and syncs, as the disk has recorded them."""
    operations = disk.operations or []
    written = sum(len(one.data) for one in operations if isinstance(one, Write))
    return written, sum(isinstance(one, Sync | SyncDirectory) for one in operations)


def test_everything_that_a_store_writes_is_counted_and_goes_on_after_a_restart() -> None:
    disk, nonces = FakeDisk(is_recording=True), count(12345)
    options = StoreOptions(
        journal_file_bytes=16 * 1024, sync=SYNC_OS, draw_nonce=lambda: next(nonces) << 40 | next(nonces) | 1
    )
    store = Store.open(disk, options)
    store.commit([(0, commands.PutStream(1, b"s" * 16, "A", "S", {}))])
    for number in range(60):
        store.commit([(1, Append(b"a", 0, b"x" * 1000))])
        if number % 10 == 0:
            store.seal_tail()
        store.maintain()
        store.tend(options.now_ns())
    wear = store.room.wear
    assert any(name.endswith(".seg") for name in disk.contents())
    assert (wear.bytes_written, wear.syncs) == on_the_disk(disk)
    # Killed with records that no sync has made durable: the next start copies them.
    disk.end_process()
    before = on_the_disk(disk)
    again = Store.open(disk, options)
    assert again.report.copied_bytes
    checkpoint, _ = load_newest(disk, lambda _: True)
    assert checkpoint is not None
    known, after, wear = checkpoint.state["wear"], on_the_disk(disk), again.room.wear
    assert known["bytes"] > 60_000
    assert wear.bytes_written == known["bytes"] + after[0] - before[0]
    assert wear.syncs == known["syncs"] + after[1] - before[1]
    again.close()
