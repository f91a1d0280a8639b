"""Logs in single situations: what moves, what is removed meanwhile, what is lost, what is read when."""

from __future__ import annotations

import tracemalloc

import pytest

from edged.core.message import Message
from edged.core.runs import Run
from edged.store.errors import Damaged
from edged.store.memory_log import MemoryLog
from edged.store.message_index import LostRange
from edged.store.segment import Segment
from edged.store.stream_log import StreamLog, moved_snapshot
from tests.store.log_cases import (
    STREAM_ID,
    FakeJournal,
    FakeSegment,
    FakeSegments,
    FileWorld,
    RealSegments,
    broken_open,
    counted,
    places_in,
    run_of,
)


def message(seq: int, subject: bytes = b"a", data: bytes = b"x") -> Message:
    return Message(seq, 1_000 + seq, subject, 0, data)


def world_of(subjects: list[bytes], segments: FakeSegments | RealSegments | None = None) -> FileWorld:
    world = FileWorld(segments or FakeSegments())
    for seq, subject in enumerate(subjects, 1):
        world.append(message(seq, subject))
    return world


def seal(world: FileWorld) -> None:
    world.begin_move(0)
    world.end_move()


def test_empty_log_begins_behind_its_last_seq() -> None:
    log = FileWorld(FakeSegments()).log
    assert (log.first_seq, log.last_seq, log.first_ts_ns, log.next_matching((), 0)) == (1, 0, 0, None)
    log.skip_to(41)
    assert (log.first_seq, log.last_seq, log.deleted_count, log.deleted_seqs()) == (42, 41, 0, [])


def test_compact_beyond_the_end_removes_everything_and_leaves_the_last_seq() -> None:
    log = world_of([b"a"] * 3).log
    assert log.compact_to(100).count == 3
    assert (log.first_seq, log.last_seq, log.bytes) == (4, 3, 0)


def test_removing_the_first_advances_over_what_was_removed_before() -> None:
    log = world_of([b"a"] * 6).log
    for seq in (3, 2, 4):
        log.remove(seq)
    assert log.deleted_seqs() == [2, 3, 4]
    log.remove(1)
    assert (log.first_seq, log.deleted_count) == (5, 0)


def test_deleted_seqs_lists_what_is_gone_from_the_start_of_a_later_part() -> None:
    world = world_of([b"a"] * 4)
    seal(world)
    for seq in range(5, 9):
        world.append(message(seq))
    for seq in (5, 6, 3):
        world.log.remove(seq)
    assert world.log.deleted_seqs() == [3, 5, 6]
    assert world.log.deleted_seqs(2) == [3, 5]


def test_gap_of_a_trillion_seqs_takes_no_memory() -> None:
    world = world_of([b"a"] * 3)
    tracemalloc.start()
    world.append(message(1 << 40))
    world.append(message(1 << 41))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 100_000
    assert world.log.next_matching((b"a",), 4) == 1 << 40
    assert world.log.deleted_seqs(3) == [4, 5, 6]
    assert world.log.get(1 << 41) == message(1 << 41)


def test_removed_between_asking_and_sealing_stays_removed() -> None:
    world = world_of([b"a", b"b", b"a", b"b", b"a"])
    world.begin_move(0)
    world.log.remove(2)
    world.log.compact_to(2)
    world.log.remove(5)
    world.end_move()
    assert isinstance(world.log.segments[0], FakeSegment)
    assert (world.log.segments[0].count, world.log.message_count) == (5, 2)
    assert [world.log.get(seq) for seq in range(1, 6)] == [None, None, message(3), message(4, b"b"), None]
    assert world.log.last_of(b"a") == 3


def test_appended_while_a_file_is_moved_is_read_from_the_journal() -> None:
    world = world_of([b"a"])
    world.begin_move(0)
    world.append(message(2, b"b"))
    world.end_move()
    assert world.log.hot_files() == [2]
    assert world.log.get(1) == message(1)
    assert world.log.get(2) == message(2, b"b")


def test_sealing_a_file_without_live_messages_leaves_nothing_behind() -> None:
    world = world_of([b"a", b"a"])
    world.log.compact_to(3)
    world.log.seal(1, None)
    assert (world.log.hot_files(), world.log.segments, world.log.subject_count) == ([], [], 0)
    world.file = 2
    world.append(message(3))
    assert world.log.get(3) == message(3)


def test_message_that_did_not_reach_its_segment_is_lost_and_said_so() -> None:
    world = world_of([b"a", b"b", b"b", b"a"])
    world.log.live_in_file(1)
    segment = world.segments.write([message(1), message(4)])
    lost = world.log.adopt([1], [], segment)
    assert [(one.first_seq, one.last_seq) for one in lost] == [(2, 3)]
    assert world.log.lost == lost
    assert (world.log.message_count, world.log.subject_count) == (2, 1)
    with pytest.raises(Damaged, match="message 2 is lost"):
        world.log.get(2)
    world.log.compact_to(4)
    assert world.log.lost == []
    assert world.log.get(2) is None


def test_lost_while_replaying_keeps_the_seqs_and_raises_when_read() -> None:
    world = world_of([b"a"])
    world.log.lose(2, 4)
    world.append(message(5))
    assert world.log.lost == [LostRange(2, 4, "its record is damaged")]
    with pytest.raises(Damaged, match="message 3 is lost"):
        world.log.get(3)
    assert world.log.next_matching((), 2) == 5


def test_frame_of_another_message_is_damage() -> None:
    world = world_of([b"a", b"b"])
    content = world.journal.files[1]
    (_, one, size), (_, other, _) = places_in(world.log, 1)
    content[one : one + size] = content[other : other + size]
    with pytest.raises(Damaged, match="another subject"):
        world.log.get(1)
    assert world.log.get(2) == message(2, b"b")


@pytest.mark.parametrize("left", [0, 10, 40])
def test_frame_that_is_cut_off_or_no_message_is_damage(left: int) -> None:
    world = world_of([b"a" * 50])
    (_, offset, size) = places_in(world.log, 1)[0]
    del world.journal.files[1][offset + left :]
    with pytest.raises(Damaged, match="cut off"):
        world.log.get(1)
    world.journal.files[1][offset:] = b"\xff" * size
    with pytest.raises(Damaged, match="holds no message"):
        world.log.get(1)


def test_time_of_an_unreadable_message_is_passed_over() -> None:
    world = world_of([b"a"] * 5)
    places = places_in(world.log, 1)
    for _, offset, size in (places[0], places[2]):
        world.journal.files[1][offset : offset + size] = b"\xff" * size
    assert world.log.seq_at_time(1_004) == 4
    assert world.log.first_ts_ns == 0


@pytest.mark.parametrize("segments", [FakeSegments, RealSegments])
def test_restored_log_has_read_no_column_of_a_segment_without_deletions(segments: type) -> None:
    world = world_of([b"a", b"b", b"a"], segments())
    seal(world)
    for seq in range(4, 9):
        world.append(message(seq, b"c"))
    seal(world)
    world.log.remove(6)
    log = world.restored(world.log.snapshot())
    assert (log.message_count, log.bytes, log.subject_count) == (7, world.log.bytes, 3)
    assert log.count_matching((b"c",)) == 4
    if segments is FakeSegments:
        fakes = [segment for segment in log.segments if isinstance(segment, FakeSegment)]
        before = fakes[0].columns_read
        assert (log.first_of(b"a"), log.last_of(b"a"), log.count_matching((b"*",), 4)) == (1, 3, 4)
        assert fakes[0].columns_read == before == 0


def test_snapshot_at_a_border_ignores_what_happens_before_it_is_written() -> None:
    world = world_of([b"a", b"b", b"a"])
    world.log.remove(1)
    world.begin_move(0)
    snapshot = world.log.snapshot()
    world.log.remove(2)
    world.append(message(4))
    segment = world.end_move()
    log = world.restored(moved_snapshot(snapshot, [], segment))
    assert (log.first_seq, log.last_seq, log.message_count) == (2, 3, 2)
    assert log.get(2) == message(2, b"b")


def test_restore_without_a_damaged_segment_goes_on_and_says_what_is_lost() -> None:
    world = world_of([b"a", b"b"])
    seal(world)
    world.append(message(3))
    seal(world)
    snapshot = world.log.snapshot()
    first = snapshot["segments"][0][0]
    journal = world.journal

    def open_segment(path: str) -> FakeSegment:
        return broken_open(path) if path == first else world.segments.open(path)

    log = StreamLog.restore(snapshot, open_segment, STREAM_ID, journal.read, journal.decode)
    assert (log.first_seq, log.last_seq, log.message_count) == (3, 3, 1)
    snapshot = {**snapshot, "segments": snapshot["segments"][::-1]}
    log = StreamLog.restore(snapshot, broken_open, STREAM_ID, journal.read, journal.decode)
    assert (log.first_seq, log.last_seq, log.message_count) == (4, 3, 0)


def test_restore_of_a_segment_that_lost_messages_keeps_the_right_ones_deleted() -> None:
    world = world_of([b"a"] * 10)
    seal(world)
    for seq in (4, 8):
        world.log.remove(seq)
    snapshot = world.log.snapshot()
    rest = FakeSegment("rest", [message(seq) for seq in (1, 2, 7, 8, 9, 10)])
    journal = world.journal
    log = StreamLog.restore(snapshot, lambda _: rest, STREAM_ID, journal.read, journal.decode)
    assert [seq for seq in range(11) if log.next_matching((), seq) == seq] == [1, 2, 7, 9, 10]
    assert log.bytes == 5 * counted(message(1))
    with pytest.raises(Damaged, match="message 5 is lost"):
        log.get(5)


@pytest.mark.parametrize("is_trusted", [False, True], ids=["file", "memory"])
def test_batch_names_what_cannot_be_read_and_goes_on_behind_it(is_trusted: bool) -> None:
    world = world_of([b"a", b"b"] * 5)
    world.journal.is_trusted = is_trusted
    places = places_in(world.log, 1)
    for _, offset, size in (places[1], places[4]):
        world.journal.files[1][offset : offset + size] = b"\xff" * size
    batch = world.log.messages((), 0, 100, 1 << 20)
    assert [one.seq for one in batch.messages] == [1, 3, 4, 6, 7, 8, 9, 10]
    assert batch.unreadable == [2, 5]
    assert batch.next_seq == 11
    assert world.log.messages((), 1, 1, 1 << 20) == ([message(1)], 2, [])
    assert world.log.messages((b"b",), 0, 2, 1 << 20).unreadable == [2]
    assert world.log.messages((b"b",), 2, 9, 1 << 20).messages[0] == message(4, b"b")


@pytest.mark.parametrize("is_trusted", [False, True], ids=["file", "memory"])
def test_batch_of_hot_messages_is_read_in_one_go(is_trusted: bool) -> None:
    world = world_of([b"a", b"b", b"c"] * 40)
    world.journal.is_trusted = is_trusted
    assert len(world.log.messages((b"a", b"c"), 0, 1_000, 1 << 20).messages) == 80
    assert world.journal.spans_read == 1
    (_, one, size), (_, other, _) = places_in(world.log, 1)[4:6]
    content = world.journal.files[1]
    content[one : one + size] = content[other : other + size]
    assert world.log.messages((), 0, 1_000, 1 << 20).unreadable == [5]


def test_batch_over_a_block_beyond_repair_names_its_messages() -> None:
    world = FileWorld(RealSegments())
    for seq in range(1, 41):
        world.append(message(seq, b"a", b"x" * 10_000))
    seal(world)
    segment = world.log.segments[0]
    assert isinstance(segment, Segment)
    entry = segment._contents.table.entry(2)
    segment.forget()
    stored = segment._sections._files.data[segment.path]
    stored[entry.offset : entry.offset + entry.size] = bytes(entry.size)
    batch = world.log.messages((), 0, 1_000, 1 << 30)
    lost = list(range(entry.first_seq, entry.last_seq + 1))
    assert batch.unreadable == lost
    assert [one.seq for one in batch.messages] == [seq for seq in range(1, 41) if seq not in lost]


def test_number_of_a_vanished_subject_means_its_new_owner_only() -> None:
    world = world_of([b"old", b"other"])
    seal(world)
    world.log.remove(1)
    world.append(message(3, b"new"))
    assert world.log.table.numbers[b"new"] == 0
    assert list(world.log.subjects((b"*",))) == [(b"new", 1), (b"other", 1)]
    assert world.log.next_matching((b"new",), 0) == 3
    assert world.log.next_matching((b"old", b"new"), 0) == 3
    assert world.log.count_matching((b"n*", b"new"), 2) == 1


def test_filter_that_matched_nothing_is_not_searched_again() -> None:
    world = world_of([b"a.%d" % (seq % 5) for seq in range(2_000)])
    assert world.log.next_matching((b"b.*", b"c"), 0) is None
    matched = world.log._filters.get((b"b.*", b"c"))
    assert (matched.gap_start, matched.gap_stop) == (1, 2_001)
    world.append(message(2_001, b"b.1"))
    assert world.log.next_matching((b"b.*", b"c"), 5) == 2_001


def test_columns_of_one_segment_at_most_are_read_to_count_from_the_middle() -> None:
    world = FileWorld(FakeSegments())
    for seq in range(1, 101):
        world.append(message(seq, b"s.%d" % (seq % 3)))
        if seq % 10 == 0:
            seal(world)
    fakes = [segment for segment in world.log.segments if isinstance(segment, FakeSegment)]
    before = sum(segment.columns_read for segment in fakes)
    assert world.log.count_matching((b"s.1", b"s.2"), 45) == 37
    assert sum(segment.columns_read for segment in fakes) - before <= 1


def test_hot_message_takes_at_most_twelve_bytes_and_a_cold_one_next_to_nothing() -> None:
    journal = FakeJournal()
    log = StreamLog(STREAM_ID, journal.read, journal.decode)
    subjects = [b"s.%d" % (seq % 1_000) for seq in range(50_000)]
    run = run_of([message(seq, subject, b"") for seq, subject in enumerate(subjects)], [(0, 48)] * 50_000)
    log.append_run(1, 1, Run(subjects[:1_000], [1] * 1_000, run.offsets[:1_000], run.sizes[:1_000], 40_000))
    tracemalloc.start()
    log.append_run(1_001, 1, run)
    size = tracemalloc.get_traced_memory()[0]
    assert size <= 12 * 50_000 * 1.125  # arrays grow by an eighth
    segment = FakeSegments().write([message(seq + 1, b"s.%d" % (seq % 1_000), b"") for seq in range(51_000)])
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    log.seal(1, segment)
    size += tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert size <= 2 * 50_000


def test_memory_log_counts_bytes_as_nats_server_does_and_forgets_pages() -> None:
    log = MemoryLog()
    for seq in range(1, 10_001):
        log.append(Message(seq, seq, b"abc", 2, b"hhpp"))
    assert log.bytes == 10_000 * (3 + 2 + 2 + 16)
    log.compact_to(9_000)
    assert len(log._parts) == 1
    for seq in range(9_000, 10_001):
        assert log.remove(seq) == 23
    assert (log.first_seq, log.bytes, log._parts) == (10_001, 0, [])
