"""The local committer: batches, threads, order, backpressure, and a disk that is slow or fails."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from edged import committer as committer_module
from edged.committer import LocalCommitter
from edged.core import commands
from edged.core.space_rules import SpaceLimits
from edged.core.stream_machine import Outcome
from edged.store.errors import OutcomeUnknown, StoreError, StoreFull
from edged.store.options import StoreOptions
from edged.store.space import POLL_NS
from edged.store.store import Append, Store
from edged.store.upkeep import CYCLE_RETRY_NS
from tests.lab.slow_disk import DEADLINE_S, SlowDisk


class World:
    """A store, its committer, and what came back."""

    def __init__(self, disk: SlowDisk, **options: Any) -> None:
        nonces = count(99)
        options.setdefault("journal_file_bytes", 64 * 1024)
        self.disk = disk
        self.now_ns = 1_800_000_000_000_000_000
        self.store = Store.open(
            disk,
            StoreOptions(now_ns=lambda: self.now_ns, draw_nonce=lambda: next(nonces) << 33 | 1, **options),
        )
        self.store.commit([(0, commands.PutStream(1, b"s" * 16, "A", "S", {}))])
        self.woken = threading.Semaphore(0)
        self.committer = LocalCommitter(self.store, self.woken.release)
        self.outcomes: list[Any] = []

    def publish(self, count: int, data: bytes = b"x") -> None:
        def done(result: Sequence[Outcome] | StoreError) -> None:
            self.outcomes += [result] if isinstance(result, StoreError) else result

        self.committer.submit_appends(1, [(b"a", None, -1, data)] * count, self.now_ns, done)

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        """Collect after each wake until something is so."""
        while not is_reached():
            assert self.woken.acquire(timeout=DEADLINE_S)
            self.committer.collect()


@contextmanager
def world(**options: Any) -> Iterator[World]:
    made = World(SlowDisk(), **options)
    yield made
    made.disk.gate.set()
    made.committer.close()
    made.store.close()


@pytest.fixture
def always_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "INLINE_S", 0.0)


def test_outcomes_come_back_in_order_and_only_after_the_sync(always_threads: None) -> None:
    with world() as it:
        it.disk.gate.clear()
        it.publish(3)
        it.committer.flush()
        it.publish(2)
        it.committer.flush()
        assert it.outcomes == [] and not it.committer.is_idle
        it.disk.gate.set()
        it.run_until(lambda: len(it.outcomes) == 5)
        assert it.outcomes == [1, 2, 3, 4, 5]


def test_everything_that_gathers_while_the_disk_works_is_one_batch(always_threads: None) -> None:
    with world() as it:
        it.disk.gate.clear()
        it.publish(1)
        it.committer.flush()
        for _ in range(50):
            it.publish(1)
            it.committer.flush()
        syncs = it.disk.syncs
        it.disk.gate.set()
        it.run_until(lambda: len(it.outcomes) == 51)
        assert it.disk.syncs - syncs <= 3
        assert it.committer.thread_batches == 2


def test_on_a_fast_disk_batches_are_written_without_another_thread() -> None:
    with world() as it:
        it.publish(1)
        it.committer.flush()
        it.run_until(lambda: bool(it.outcomes))
        it.committer.commit_s = 0.000_01
        it.publish(1)
        it.committer.flush()
        assert it.outcomes == [1, 2] and it.committer.inline_batches == 1


def test_after_a_slow_batch_the_thread_has_the_disk_for_a_while() -> None:
    with world() as it:
        it.committer.commit_s = 0.000_01
        it.committer._measure(committer_module.SLOW_S * 2, 100)
        it.publish(1)
        it.committer.flush()
        it.run_until(lambda: bool(it.outcomes))
        assert it.committer.thread_batches == 1 and it.committer.inline_batches == 0


def test_a_failing_disk_refuses_what_was_on_its_way_and_what_gathered_then_works_again(
    always_threads: None,
) -> None:
    with world() as it:
        it.disk.gate.clear()
        it.publish(1)
        it.committer.flush()
        it.publish(1)
        it.disk.error = OSError(errno.EIO, "bad disk")
        it.disk.gate.set()
        it.run_until(lambda: len(it.outcomes) == 2)
        assert all(isinstance(outcome, StoreError) for outcome in it.outcomes)
        it.disk.error = None
        it.publish(2)
        it.committer.flush()
        it.run_until(lambda: len(it.outcomes) == 4)
        assert it.outcomes[2:] == [1, 2]


def test_a_full_queue_says_so_and_calls_back_when_there_is_room(
    always_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "COMMIT_QUEUE_BYTES_MAX", 10_000)
    with world() as it:
        told: list[int] = []
        it.disk.gate.clear()
        it.publish(1)
        it.committer.flush()
        it.publish(200, b"y" * 100)
        assert it.committer.is_full
        it.committer.when_there_is_room(lambda: told.append(len(it.outcomes)))
        it.committer.flush()
        assert told == []
        it.disk.gate.set()
        it.run_until(lambda: len(it.outcomes) == 201)
        assert len(told) == 1


def test_without_sync_nothing_waits_for_the_disk_until_the_interval_is_over() -> None:
    with world(sync="interval", sync_interval_ns=2_000_000_000) as it:
        syncs = it.disk.syncs
        it.publish(3)
        it.committer.flush()
        assert it.outcomes == [1, 2, 3] and it.disk.syncs == syncs
        it.committer.tend(it.now_ns + 1_000_000_000)
        assert it.store.has_unsynced and it.disk.syncs == syncs
        it.committer.tend(it.now_ns + 3_000_000_000)
        it.run_until(lambda: it.committer.is_idle)
        assert not it.store.has_unsynced and it.disk.syncs == syncs + 1
        it.committer.tend(it.now_ns + 6_000_000_000)
        assert it.committer.is_idle and it.disk.syncs == syncs + 1


def test_how_fast_the_disk_is_is_not_learned_from_batches_that_do_not_wait_for_it() -> None:
    with world(sync="os") as it:
        it.publish(1)
        it.committer.flush()
        assert it.outcomes == [1] and it.committer.inline_batches == 1
        assert it.committer.commit_s is None
        # A command about streams is promised the disk, whatever the mode: nobody knows yet what that takes.
        it.committer.submit(0, commands.PutStream(2, b"t" * 16, "A", "T", {}), it.outcomes.append)
        it.committer.flush()
        it.run_until(lambda: len(it.outcomes) == 2)
        assert it.committer.thread_batches == 1 and it.committer.commit_s is not None


def test_complete_journal_files_are_sealed_in_the_background_and_freed(always_threads: None) -> None:
    with world() as it:
        for _ in range(40):
            it.publish(20, b"z" * 500)
            it.committer.flush()
            expected = len(it.outcomes) + 20
            it.run_until(lambda expected=expected: len(it.outcomes) >= expected)  # type: ignore[misc]
        it.run_until(lambda: it.store.unsealed_files <= 1)
        assert it.outcomes == list(range(1, 801))
        assert any(name.endswith(".seg") for name in it.disk.contents())
        message = it.store.stream(1).log.get(1)
        assert message is not None and message.data == b"z" * 500


def test_closing_finishes_everything_that_was_submitted(always_threads: None) -> None:
    with world() as it:
        it.publish(1)
        it.committer.flush()
        it.publish(1)
        it.committer.close()
        assert it.outcomes == [1, 2]


def test_with_a_delay_a_batch_waits_for_more_until_it_is_due_or_large(always_threads: None) -> None:
    with world(group_commit_delay_ns=5_000_000, group_commit_bytes=10_000) as it:
        it.publish(1)
        it.committer.flush()
        assert it.committer.thread_batches == 0
        assert it.committer.flush_due_ns == it.now_ns + 5_000_000
        it.now_ns += 5_000_000
        it.committer.flush()
        it.run_until(lambda: it.outcomes == [1])
        it.publish(100, b"y" * 100)
        it.committer.flush()
        it.run_until(lambda: len(it.outcomes) == 101)
        assert it.committer.thread_batches == 2


# --- a second batch on its way ---

LARGE = b"y" * 1000
LARGE_COUNT = committer_module.AHEAD_BYTES // 1000 + 1


@contextmanager
def two_on_their_way(**options: Any) -> Iterator[World]:
    """One message at the disk, which waits; behind it LARGE_COUNT messages with the thread; then one more."""
    options.setdefault("journal_file_bytes", 1024 * 1024)
    with world(**options) as it:
        it.committer.commit_s = committer_module.INLINE_S
        it.disk.gate.clear()
        it.publish(1)
        it.committer.flush()
        it.publish(LARGE_COUNT, LARGE)
        it.committer.flush()
        it.publish(1)
        it.committer.flush()
        assert it.committer.thread_batches == 2 and it.outcomes == []
        yield it


def test_a_large_batch_goes_to_the_thread_while_another_is_at_the_disk(always_threads: None) -> None:
    with two_on_their_way() as it:
        syncs = it.disk.syncs
        it.disk.gate.set()
        it.run_until(lambda: len(it.outcomes) == LARGE_COUNT + 2)
        assert it.outcomes == list(range(1, LARGE_COUNT + 3))
        assert it.committer.thread_batches == 3 and it.disk.syncs == syncs + 3


def test_on_a_slow_disk_everything_gathers_until_the_batch_before_is_written(always_threads: None) -> None:
    with world(journal_file_bytes=1024 * 1024) as it:
        it.committer.commit_s = committer_module.AHEAD_S
        it.disk.gate.clear()
        it.publish(1)
        it.committer.flush()
        it.publish(LARGE_COUNT, LARGE)
        it.committer.flush()
        assert it.committer.thread_batches == 1
        it.disk.gate.set()
        it.run_until(lambda: len(it.outcomes) == LARGE_COUNT + 1)
        assert it.committer.thread_batches == 2


def test_when_a_batch_fails_the_one_behind_it_is_not_written_and_all_are_told_in_order(
    always_threads: None,
) -> None:
    with two_on_their_way() as it:
        told: list[str] = []
        it.committer.submit(0, commands.RemoveStream(9), lambda result: told.append(type(result).__name__))
        it.disk.error = OSError(errno.EIO, "bad disk")
        before = it.store.room.wear.bytes_written
        it.disk.gate.set()
        it.run_until(lambda: len(it.outcomes) == 3)
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in it.outcomes)
        assert len({id(outcome) for outcome in it.outcomes}) == 1
        assert told == ["OutcomeUnknown"] and it.committer.is_idle
        assert it.store.room.wear.bytes_written - before < len(LARGE), "the second batch was written"
        it.disk.error = None
        it.publish(2)
        it.committer.flush()
        it.run_until(lambda: len(it.outcomes) == 5)
        assert it.outcomes[-2:] == [1, 2]


def test_commands_that_come_between_two_refusals_are_refused_behind_them(
    always_threads: None,
) -> None:
    with two_on_their_way() as it:
        it.disk.error = OSError(errno.EIO, "bad disk")
        it.disk.gate.set()
        # The first of the two is collected alone, as if the loop was faster than the thread.
        assert it.woken.acquire(timeout=DEADLINE_S) and it.woken.acquire(timeout=DEADLINE_S)
        first, second = it.committer._written.get(), it.committer._written.get()
        it.committer._on_their_way.popleft()
        it.store.finish(first)
        assert len(it.outcomes) == 1
        it.publish(3)
        it.committer._written.put(second)
        it.disk.error = None
        it.committer.collect()
        assert len(it.outcomes) == 4
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in it.outcomes)
        it.publish(1)
        it.committer.flush()
        it.run_until(lambda: it.committer.is_idle)
        assert it.outcomes[-1] == 1


def test_after_a_failure_with_a_batch_behind_it_a_restart_finds_what_was_told(always_threads: None) -> None:
    with two_on_their_way() as it:
        it.disk.error = OSError(errno.EIO, "bad disk")
        it.disk.gate.set()
        it.run_until(lambda: it.committer.is_idle)
        it.disk.error = None
        it.publish(3, b"kept")
        it.committer.flush()
        it.run_until(lambda: it.committer.is_idle)
        assert it.outcomes[-3:] == [1, 2, 3]
        again = Store.open(it.disk.copy(), it.store.options)
        assert again.report.is_clean and again.stream(1).log.message_count == 3
        found = [again.stream(1).log.get(seq) for seq in (1, 2, 3)]
        assert [message and message.data for message in found] == [b"kept"] * 3
        again.close()


def test_a_batch_that_waits_behind_another_counts_for_the_queue(
    always_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_on_their_way() as it:
        monkeypatch.setattr(committer_module, "COMMIT_QUEUE_BYTES_MAX", committer_module.AHEAD_BYTES)
        assert it.store.gathered_bytes < 1000 and it.committer.is_full
        it.disk.gate.set()
        it.run_until(lambda: it.committer.is_idle)
        assert not it.committer.is_full


# --- under load ---


def test_the_next_file_is_made_ready_while_batches_are_on_their_way(always_threads: None) -> None:
    with world() as it:
        numbers = set()
        made_ready = 0
        for _ in range(60):
            it.publish(5, LARGE)
            it.committer.flush()
            it.publish(5, LARGE)
            it.woken.acquire(timeout=DEADLINE_S)
            it.committer.collect()
            if it.store.journal.number not in numbers:
                numbers.add(it.store.journal.number)
                assert it.committer._upkeep is not None
                it.committer._upkeep.join(DEADLINE_S)
                made_ready += it.store.journal.is_prepared
        assert len(numbers) > 3 and made_ready == len(numbers)


def test_the_reserve_is_made_by_the_clock_while_batches_are_on_their_way(always_threads: None) -> None:
    disk = SlowDisk()
    it = World(disk, space=SpaceLimits(reserve_bytes=100_000))
    disk.remove("reserve")
    it.store.room.governor.is_reserve_held = False
    disk.gate.clear()
    it.publish(1)
    it.committer.flush()
    it.publish(1)
    it.committer.tend(it.now_ns + 1_000_000_000)
    assert not it.committer.is_idle and it.committer._upkeep is not None
    disk.gate.set()
    it.committer._upkeep.join(DEADLINE_S)
    assert "reserve" in disk.list("") and it.store.room.governor.is_reserve_held
    it.run_until(lambda: it.committer.is_idle)
    it.committer.close()
    it.store.close()


def test_full_disk_that_old_journal_files_fill_gets_room_without_anybody_writing() -> None:
    """As after some unclean starts on a small disk: each has left a file with next to nothing in it."""
    disk = SlowDisk()
    space = SpaceLimits(free_bytes_min=2600 * 1024, reserve_bytes=0)
    options = {"space": space, "journal_file_bytes": 1200 * 1024}
    for _ in range(3):
        it = World(disk, **options)
        it.store.commit([(1, Append(b"a", 0, b"kept"))])
        disk.end_process()
    it = World(disk, **options)
    # What is left of the disk is less than what is to be left free.
    disk.capacity_bytes = disk.used_bytes() + 2500 * 1024
    it.now_ns += POLL_NS
    it.publish(1)
    assert isinstance(it.outcomes.pop(), StoreFull)
    for _ in range(20):
        it.now_ns += 2 * CYCLE_RETRY_NS
        it.committer.tend(it.now_ns)
        while not it.committer.is_idle or it.committer._sealing is not None:
            assert it.woken.acquire(timeout=DEADLINE_S)
            it.committer.collect()
    turned = it.store.journal.number
    it.publish(1)
    it.committer.flush()
    it.run_until(lambda: bool(it.outcomes))
    assert it.outcomes == [4]
    # It does not go on when that brings nothing any more.
    assert turned <= 10
    it.committer.close()
    it.store.close()
