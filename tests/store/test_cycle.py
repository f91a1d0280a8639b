"""Cycles that fail, are tried again, or meet messages that cannot be read: nothing is lost without a word."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edged.core import commands
from edged.store.checkpoint import CHECKPOINTS
from edged.store.errors import Damaged, OutcomeUnknown, StoreBroken
from edged.store.files import File, RealFiles
from edged.store.journal_file import JOURNAL, file_numbers
from edged.store.journal_rows import APART_BYTES
from edged.store.store import Store
from edged.store.stream_log import StreamLog
from tests.lab.failing_calls import FailingCalls, Failure
from tests.lab.fake_disk import FakeDisk
from tests.store.test_store import Clock, options_with, publish, put_stream

RETRY_NS = 2_000_000_000


class LateFailures(FailingCalls):
    """Calls that work until a failure is named: renames, or syncs of one directory."""

    def __init__(self) -> None:
        super().__init__(Failure("EIO", 1, is_lasting=True, only=frozenset(("rename",))))
        self.heal()
        self.bad_directory = ""

    def fail_renames(self) -> None:
        self.failure = Failure("EIO", 1, is_lasting=True, only=frozenset(("rename",)))

    def fsync(self, descriptor: int, /) -> None:
        path = self.open_descriptors[descriptor]
        if self.bad_directory and path.endswith(self.bad_directory):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        super().fsync(descriptor)


def until_cycle_is_due(store: Store) -> None:
    for number in range(1000):
        if store.is_cycle_due:
            return
        publish(store, b"a", b"%d" % number * 60)
    raise AssertionError("no file of the journal was completed")


def log_of(store: Store) -> StreamLog:
    log = store.stream(1).log
    assert isinstance(log, StreamLog)
    return log


def datas(store: Store) -> list[bytes | None]:
    log = store.stream(1).log
    return [getattr(log.get(seq), "data", None) for seq in range(1, log.last_seq + 1)]


def segments_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.glob("streams/*/*.seg")}


@pytest.mark.parametrize("is_superseded", [False, True])
def test_segments_of_a_checkpoint_that_may_be_durable_stay_when_the_next_try_fails_otherwise(
    tmp_path: Path, is_superseded: bool
) -> None:
    calls, clock = LateFailures(), Clock()
    options = options_with(clock)
    store = Store.open(RealFiles(str(tmp_path), calls), options)
    put_stream(store)
    until_cycle_is_due(store)
    cycle = store.begin_cycle()
    calls.bad_directory = CHECKPOINTS
    cycle.run()
    store.end_cycle()
    calls.bad_directory = ""
    assert isinstance(cycle.error, OutcomeUnknown)
    named = segments_of(tmp_path)
    assert named
    clock.now_ns += RETRY_NS
    if is_superseded:
        until_next_border(store, cycle.border.next_file)
    again = store.begin_cycle()
    calls.fail_renames()
    again.run()
    store.end_cycle()
    calls.heal()
    assert again.error is not None and not again.is_saved
    assert segments_of(tmp_path) >= named, "the checkpoint names them"
    before = datas(store)
    # A crash now, after which the checkpoint counts.
    lost_and_found = Store.open(RealFiles(str(copy_of(tmp_path))), options)
    assert lost_and_found.report.is_clean and datas(lost_and_found) == before
    # Or no crash: the next try comes to its end, and later nothing is left behind.
    clock.now_ns += RETRY_NS
    for _ in range(4):
        until_cycle_is_due(store)
        store.maintain()
        clock.now_ns += RETRY_NS
    in_use = {segment.path for segment in log_of(store).segments} | {path for _, path in store.condemned}
    assert segments_of(tmp_path) == in_use
    before = datas(store)
    store.close()
    store = Store.open(RealFiles(str(tmp_path)), options)
    assert store.report.is_clean and not store.report.moved_aside and datas(store) == before
    store.close()


def until_next_border(store: Store, file: int) -> None:
    while store._border is None or store._border.next_file == file:
        publish(store, b"a", b"x" * 100)


def copy_of(root: Path) -> Path:
    target = root.parent / f"{root.name}-copy"
    for path in root.rglob("*"):
        if path.is_dir():
            (target / path.relative_to(root)).mkdir(parents=True, exist_ok=True)
        elif path.name != "lock":
            (target / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(root)).write_bytes(path.read_bytes())
    return target


def test_a_block_beyond_repair_costs_its_messages_and_not_the_checkpoints() -> None:
    clock = Clock()
    disk, options = FakeDisk(), options_with(clock)
    store = Store.open(disk, options)
    put_stream(store)
    until_cycle_is_due(store)
    store.maintain()
    (path,) = [path for path in disk.contents() if path.endswith(".seg")]
    file = disk.open(path)
    # The first block: more than parity can make good.
    file.write_at(300, b"\xaa" * 3000)
    file.close()
    store.close()
    store = Store.open(disk, options)
    checkpoint = store.report.checkpoint
    until_cycle_is_due(store)
    cycle = store.begin_cycle()
    cycle.run()
    store.end_cycle()
    assert cycle.error is None and cycle.is_saved
    (lost, *others) = store.holes
    assert not others and lost.first_seq == 1
    with pytest.raises(Damaged):
        store.stream(1).log.get(1)
    assert store.stream(1).log.get(lost.last_seq + 1) is not None
    holes, count = store.holes, store.stream(1).log.message_count
    store.close()
    store = Store.open(disk, options)
    assert store.report.checkpoint > checkpoint and store.report.is_clean
    assert store.holes == holes and store.stream(1).log.message_count == count


def test_a_segment_of_which_all_is_dead_goes_without_being_read() -> None:
    clock = Clock()
    disk, options = FakeDisk(), options_with(clock)
    store = Store.open(disk, options)
    put_stream(store)
    until_cycle_is_due(store)
    store.maintain()
    (path,) = [path for path in disk.contents() if path.endswith(".seg")]
    last_sealed = log_of(store).segments[-1].last_seq
    assert store.commit([(1, commands.Purge(last_sealed + 1, b"", 0))]) == [last_sealed]
    until_cycle_is_due(store)
    # Whoever reads a block of it now reads nothing but damage.
    file = disk.open(path)
    file.write_at(0, bytes(file.size()))
    file.close()
    cycle = store.begin_cycle()
    cycle.run()
    store.end_cycle()
    assert cycle.error is None and cycle.border.moves[0].lost == [] and store.holes == []
    assert path not in [segment.path for segment in log_of(store).segments]


class FaultyDisk(FakeDisk):
    """A disk whose driver has a fault, so to speak: segments cannot be made while `is_faulty`."""

    is_faulty = False

    def create(self, path: str) -> File:
        if self.is_faulty and path.startswith("streams/"):
            raise RuntimeError("a fault")
        return super().create(path)


def test_a_fault_ends_a_cycle_and_not_the_store() -> None:
    disk, clock = FaultyDisk(), Clock()
    store = Store.open(disk, options_with(clock))
    put_stream(store, 1)
    until_cycle_is_due(store)
    before = datas(store)
    disk.is_faulty = True
    cycle = store.begin_cycle()
    cycle.run()
    store.end_cycle()
    assert isinstance(cycle.error, RuntimeError)
    assert datas(store) == before
    disk.is_faulty = False
    clock.now_ns += RETRY_NS
    assert store.is_cycle_due
    store.maintain()
    assert log_of(store).segments and datas(store) == before
    store.close()
    assert datas(Store.open(disk, options_with(clock))) == before


@pytest.mark.parametrize("is_damaged", [False, True])
def test_streams_whose_messages_lie_far_apart_in_the_journal_keep_them_all(is_damaged: bool) -> None:
    disk, clock = FakeDisk(), Clock()
    store = Store.open(disk, options_with(clock, journal_file_bytes=8 * APART_BYTES))
    put_stream(store, 1, name="FEW", subjects=["few"])
    put_stream(store, 2, name="MUCH", subjects=["much"])
    number = 0
    while not store.is_cycle_due:
        number += 1
        for _ in range(3):
            publish(store, b"few", b"message %d" % number, 1)
        publish(store, b"much", b"%d" % number * APART_BYTES, 2)
    last = number
    if is_damaged:
        damage(disk, b"message 2")
    store.maintain()
    kept = [store.stream(1).log.peek(seq) for seq in range(1, 3 * last + 1)]
    texts = [None if message is None else message.data for message in kept]
    expected = [b"message %d" % number for number in range(1, last + 1) for _ in range(3)]
    segments = [segment for group in (1, 2) for segment in segments_in(store, group)]
    assert len(segments) == 2
    if is_damaged:
        assert texts.count(None) == 1 and expected[texts.index(None)] == b"message 2"
        expected[texts.index(None)] = None
    assert texts == expected
    store.close()


def segments_in(store: Store, group: int) -> list[object]:
    log = store.stream(group).log
    assert isinstance(log, StreamLog)
    return list(log.segments)


def damage(disk: FakeDisk, text: bytes) -> None:
    """Spoil the first place in the journal where a text is."""
    for path, content in disk.contents().items():
        if path.startswith("journal/") and text in content:
            file = disk.open(path)
            file.write_at(content.index(text), b"?")
            file.close()
            return
    raise AssertionError("it is not there")


def test_a_store_whose_checkpoints_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    disk, clock = FakeDisk(), Clock()
    options = options_with(clock)
    store = Store.open(disk, options)
    put_stream(store, 1)
    while file_numbers(disk.list(JOURNAL))[0] == 1:
        until_cycle_is_due(store)
        store.maintain()
        clock.now_ns += RETRY_NS
    store.close()
    for path, file in disk.files():
        if path.startswith(CHECKPOINTS):
            file.writable()[:] = b"rotten"
    before = disk.contents()
    with pytest.raises(StoreBroken, match="run edged fsck"):
        Store.open(disk, options)
    assert disk.contents() == before
