"""Segments: what was written is read back, by every way of reading; nothing half written is ever seen."""

from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.message import Message, counted_bytes
from edged.store.block_cache import BlockCache
from edged.store.box import Keyring, WrongKey
from edged.store.errors import Damaged, StoreBroken, StoreFull
from edged.store.files import OperatingSystem, RealFiles
from edged.store.segment import Segment
from edged.store.segment_format import segment_name, segment_path
from edged.store.segment_writer import SegmentInfo, write_segment
from tests.examples import examples
from tests.store.segment_samples import (
    START_NS,
    STREAM_ID,
    MemoryFiles,
    expires_ns,
    messages,
    opened,
    written,
)

KEYS = Keyring.read("a key of many characters")


def check_reads(segment: Segment, kept: list[Message]) -> None:
    """Every way of reading agrees with the list of messages."""
    by_seq = {message.seq: message for message in kept}
    first, last = kept[0].seq, kept[-1].seq
    assert (segment.first_seq, segment.last_seq, segment.count) == (first, last, len(kept))
    assert (segment.first_ts_ns, segment.last_ts_ns) == (kept[0].ts_ns, kept[-1].ts_ns)
    sizes = {m.seq: counted_bytes(len(m.subject), m.header_bytes, len(m.data)) for m in kept}
    assert segment.message_bytes == sum(sizes.values())
    assert list(segment.messages()) == kept
    subjects = [summary.subject for summary in segment.subjects]
    wanted = {0, first - 1, last + 1, 2**64 - 1, *by_seq, *(seq + 1 for seq in by_seq)}
    for seq in wanted:
        message = by_seq.get(seq)
        assert segment.get(seq) == message
        assert segment.size_of(seq) == sizes.get(seq)
        code = segment.subject_code(seq)
        assert (subjects[code] if code is not None else None) == (message.subject if message else None)
    seqs, codes = segment.codes()
    assert list(seqs) == list(by_seq)
    assert [subjects[code] for code in codes] == [message.subject for message in kept]
    for summary in segment.subjects:
        found = [message.seq for message in kept if message.subject == summary.subject]
        assert (summary.count, summary.first_seq, summary.last_seq) == (len(found), found[0], found[-1])


def model_messages() -> st.SearchStrategy[list[Message]]:
    row = st.tuples(
        st.one_of(st.integers(1, 3), st.integers(1, 2**40)),
        st.integers(0, 2**62),
        st.binary(min_size=1, max_size=6),
        st.integers(0, 5),
        st.binary(max_size=40),
        st.sampled_from([1, 1, 1, 3000]),
    )

    def build(rows: list[tuple[int, int, bytes, int, bytes, int]]) -> list[Message]:
        seq = 0
        found = []
        for step, ts_ns, subject, header_bytes, data, repeats in rows:
            seq += step
            data *= repeats
            found.append(Message(seq, ts_ns, subject, min(header_bytes, len(data)), data))
        return found

    return st.lists(row, min_size=1, max_size=30).map(build)


@settings(max_examples=examples(60))
@given(kept=model_messages(), max_bytes=st.integers(1, 100_000), data=st.data())
def test_any_messages_are_read_back_by_every_way_of_reading(
    kept: list[Message], max_bytes: int, data: st.DataObject
) -> None:
    segment = opened(*written(kept, first_seq=kept[0].seq))
    check_reads(segment, kept)
    from_seq = data.draw(st.sampled_from([0, *(m.seq + d for m in kept for d in (0, 1))]))
    rest = [message for message in kept if message.seq >= from_seq]
    assert list(segment.messages(from_seq)) == rest
    batch = segment.read_batch(from_seq, max_bytes)
    assert batch == rest[: len(batch)]
    assert bool(batch) == bool(rest)
    assert len(batch) <= 1 or sum(len(message.data) for message in batch) <= max_bytes
    ts_ns = data.draw(st.sampled_from([0, 2**62, *(m.ts_ns + d for m in kept for d in (0, 1))]))
    assert segment.seq_at_time(ts_ns) == next((m.seq for m in kept if m.ts_ns >= ts_ns), kept[-1].seq + 1)
    assert segment.verify() == []


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("keys", [None, KEYS])
def test_many_blocks_with_columns_of_their_own_are_read_back(gaps: bool, keys: Keyring | None) -> None:
    kept = messages(4000, first_seq=1000, data_bytes=120, gaps=gaps)
    segment = opened(*written(kept, first_seq=990, keys=keys), keys)
    check_reads(segment, kept)
    assert segment.verify() == []
    assert not segment.is_rebuilt and segment.lost == () and not segment.repaired_offsets


def test_seqs_up_to_the_largest_are_read_back() -> None:
    kept = [Message(seq, START_NS, b"a", 0, b"x") for seq in (1, 2**32 + 5, 2**63, 2**64 - 2)]
    check_reads(opened(*written(kept)), kept)


def test_as_many_subjects_as_messages_are_read_back() -> None:
    kept = [Message(seq, START_NS, b"device.%d.state" % seq, 0, b"x") for seq in range(1, 1500)]
    check_reads(opened(*written(kept)), kept)


def test_message_much_larger_than_a_block_is_read_back() -> None:
    big = Message(9, START_NS, b"big", 0, bytes(3 << 20))
    kept = [*messages(3), big, Message(10, START_NS, b"a", 0, b"x")]
    segment = opened(*written(kept))
    check_reads(segment, kept)
    assert [len(segment.read_batch(seq, 1000)) for seq in (1, 9, 10)] == [3, 1, 1]


def test_batches_follow_each_other_to_the_end() -> None:
    kept = messages(3000, gaps=True)
    segment = opened(*written(kept))
    found: list[Message] = []
    while batch := segment.read_batch(found[-1].seq + 1 if found else 0, 10_000):
        found += batch
    assert found == kept


def test_messages_without_data_do_not_make_a_batch_endless() -> None:
    kept = [Message(seq, START_NS, b"a", 0, b"") for seq in range(1, 20_001)]
    batch = opened(*written(kept)).read_batch(1, 1000)
    assert batch == kept[: len(batch)]
    assert 1 <= len(batch) <= 5000


def test_expiries_are_kept_for_the_messages_that_have_one() -> None:
    kept = messages(800)
    seqs, times_ns = opened(*written(kept)).expiries()
    wanted = [(m.seq, expires_ns(m)) for m in kept if m.header_bytes and m.seq % 2 == 0]
    assert list(zip(seqs, times_ns, strict=True)) == wanted
    assert len(wanted) > 10
    none, _ = opened(*written(kept, expiry=None)).expiries()
    assert list(none) == []


def test_times_that_go_back_are_found_as_the_first_that_is_late_enough() -> None:
    blocks = [100, 300, 200, 50, 400]
    kept = [Message(1 + at, ts_ns, b"a", 0, bytes(60_000)) for at, ts_ns in enumerate(blocks)]
    segment = opened(*written(kept))
    assert [segment.seq_at_time(ts_ns) for ts_ns in (0, 100, 101, 300, 301, 401)] == [1, 1, 2, 2, 5, 6]


# --- cost ---


def test_reading_in_sequence_decodes_each_block_once() -> None:
    kept = messages(3000)
    files, path = written(kept)
    for read in (lambda s: list(s.messages()), lambda s: [s.get(m.seq) for m in kept]):
        segment = Segment.open(files, path, BlockCache(1 << 20))
        files.read_bytes = 0
        assert read(segment) == kept
        assert files.read_bytes <= segment.file_bytes


def test_batches_with_a_small_cache_decode_each_block_once() -> None:
    kept = messages(3000)
    files, path = written(kept)
    segment = Segment.open(files, path, BlockCache(200_000))
    files.read_bytes = 0
    seq = 0
    while batch := segment.read_batch(seq + 1, 5000):
        seq = batch[-1].seq
    assert seq == kept[-1].seq
    assert files.read_bytes <= segment.file_bytes


def test_opening_reads_the_ends_of_the_file_only() -> None:
    files, path = written(messages(20_000))
    files.read_bytes = 0
    segment = opened(files, path)
    assert files.read_bytes < segment.file_bytes / 100


def test_size_and_subject_are_answered_without_reading_a_block() -> None:
    files, path = written(messages(5000))
    segment = opened(files, path)
    files.read_bytes = 0
    for seq in range(1, 5001):
        assert segment.size_of(seq) and segment.subject_code(seq) is not None
    assert files.read_bytes < segment.file_bytes / 10


def test_writing_takes_memory_for_a_block_and_the_columns_only(tmp_path: Path) -> None:
    def generated() -> Iterator[Message]:
        for seq in range(1, 20_001):
            yield Message(seq, START_NS + seq, b"a.b", 0, seq.to_bytes(8, "big") * 128)

    tracemalloc.start()
    try:
        write_segment(RealFiles(str(tmp_path)), segment_path(STREAM_ID, 1, 1), STREAM_ID, generated())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20


# --- all or nothing ---


def test_segment_is_durable_before_it_has_its_name() -> None:
    files, path = written(messages(3))
    directory = path.rpartition("/")[0]
    assert files.calls[-5:] == [
        *("sync", "rename"),
        *(f"sync_directory {directory}", "sync_directory streams", "sync_directory "),
    ]
    assert list(files.data) == [path]


def test_real_files_hold_the_same_bytes(tmp_path: Path) -> None:
    kept = messages(700)
    memory, path = written(kept)
    files = RealFiles(str(tmp_path))
    info = write_segment(files, path, STREAM_ID, kept, expires_ns=expires_ns, salt=memory_salt(memory, path))
    assert (tmp_path / path).read_bytes() == memory.data[path]
    segment = Segment.open(files, path, BlockCache(1 << 20))
    check_reads(segment, kept)
    assert info == SegmentInfo(
        path=path,
        count=segment.count,
        first_seq=segment.first_seq,
        last_seq=segment.last_seq,
        first_ts_ns=segment.first_ts_ns,
        last_ts_ns=segment.last_ts_ns,
        message_bytes=segment.message_bytes,
        file_bytes=segment.file_bytes,
    )
    assert files.list(path.rpartition("/")[0]) == [path.rpartition("/")[2]]


def memory_salt(files: MemoryFiles, path: str) -> bytes:
    """The salt stands in the header, behind the magic and 32 bytes of the prelude."""
    return bytes(files.data[path][40:56])


def test_salt_is_another_one_in_every_file() -> None:
    kept = messages(3)
    salts = {memory_salt(*written(kept, salt=None)) for _ in range(5)}
    assert len(salts) == 5


def test_no_messages_make_no_file() -> None:
    files, path = written([])
    assert files.data == {}
    assert write_segment(MemoryFiles(), path, STREAM_ID, []) == SegmentInfo(path)


def test_failing_source_leaves_nothing_and_its_error_comes_through() -> None:
    def failing() -> Iterator[Message]:
        yield from messages(2000)
        raise Damaged("a hot message", "journal")

    files = MemoryFiles()
    with pytest.raises(Damaged, match="a hot message"):
        write_segment(files, segment_path(STREAM_ID, 1, 1), STREAM_ID, failing())
    assert files.data == {}


def test_full_disk_leaves_nothing_and_says_so() -> None:
    files = MemoryFiles()
    files.file_bytes_max = 50_000
    with pytest.raises(StoreFull):
        write_segment(files, segment_path(STREAM_ID, 1, 1), STREAM_ID, messages(5000))
    assert files.data == {}


class FailingCalls:
    """The calls of the operating system, of which the n-th fails."""

    def __init__(self, number: int, code: int) -> None:
        self.calls_left = number
        self._code = code

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(OperatingSystem, name)

        def counted(*arguments: Any) -> Any:
            self.calls_left -= 1
            if self.calls_left == 0 and name != "close":
                raise OSError(self._code, os.strerror(self._code))
            return call(*arguments)

        return counted


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_any_call_that_fails_gives_an_error_and_whole_segments_only(tmp_path: Path, code: int) -> None:
    kept = messages(200, data_bytes=900)
    path = segment_path(STREAM_ID, 1, 1)
    number, is_done, failures = 0, False, 0
    while not is_done:
        number += 1
        root = tmp_path / str(number)
        calls = FailingCalls(number, code)
        try:
            write_segment(RealFiles(str(root), calls), path, STREAM_ID, kept)
            is_done = calls.calls_left > 0
        except StoreFull:
            assert code == errno.ENOSPC
            failures += 1
        except StoreBroken:
            assert code == errno.EIO
            failures += 1
        if (root / path).exists():
            check_reads(Segment.open(RealFiles(str(root)), path, BlockCache(1 << 20)), kept)
        # What a failed attempt left behind is no obstacle to the next one.
        write_segment(RealFiles(str(root)), path, STREAM_ID, kept)
        check_reads(Segment.open(RealFiles(str(root)), path, BlockCache(1 << 20)), kept)
    assert failures > 10


def test_rest_of_an_attempt_that_a_crash_ended_is_replaced() -> None:
    path = segment_path(STREAM_ID, 1, 1)
    files = MemoryFiles({path + ".tmp": b"half a segment"})
    kept = messages(5)
    write_segment(files, path, STREAM_ID, kept)
    check_reads(opened(files, path), kept)
    assert list(files.data) == [path]


def test_missing_file_is_reported() -> None:
    with pytest.raises(StoreBroken, match="cannot be opened"):
        opened(MemoryFiles(), segment_path(STREAM_ID, 1, 1))


def test_seqs_out_of_order_are_our_own_mistake() -> None:
    kept = messages(5)
    for wrong in ([kept[1], kept[0]], [kept[0], kept[0]]):
        with pytest.raises(AssertionError):
            written(wrong)
    with pytest.raises(AssertionError):
        written(kept, first_seq=2)


def test_names_and_paths_agree() -> None:
    path = segment_path(STREAM_ID, 812, 3)
    assert path == "streams/000102030405060708090a0b0c0d0e0f/00000000000000000812-00000003.seg"
    assert segment_name(path) == (STREAM_ID, 812, 3)
    for wrong in (path + ".tmp", path[:-4], path.replace("-", "_"), "00000000000000000812-00000003.seg", ""):
        assert segment_name(wrong) is None


# --- keys and threads ---


def test_sealed_segment_shows_no_message_and_no_subject() -> None:
    kept = [Message(seq, START_NS, b"secret.subject", 0, b"secret data %d" % seq) for seq in range(1, 400)]
    files, path = written(kept, keys=KEYS)
    assert b"secret" not in files.data[path]
    segment = opened(files, path, KEYS)
    check_reads(segment, kept)
    assert KEYS.is_current(segment.label)


def test_sealed_segment_without_its_key_is_not_called_damaged() -> None:
    files, path = written(messages(50), keys=KEYS)
    for keys in (None, Keyring.read("another key of many letters")):
        with pytest.raises(WrongKey):
            opened(files, path, keys)


def test_old_key_and_plain_segments_stay_readable() -> None:
    kept = messages(50)
    rotated = Keyring.read("a newer key of many characters", "a key of many characters")
    for keys in (None, KEYS):
        segment = opened(*written(kept, keys=keys), rotated)
        check_reads(segment, kept)
        assert not rotated.is_current(segment.label)


def test_many_threads_read_one_segment() -> None:
    kept = messages(2000, data_bytes=200)
    files, path = written(kept, keys=KEYS)
    segment = Segment.open(files, path, BlockCache(100_000), KEYS)
    wrong: list[int] = []

    def read(start: int) -> None:
        for message in kept[start::4] + kept[: start * 20]:
            if segment.get(message.seq) != message or segment.size_of(message.seq) is None:
                wrong.append(message.seq)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_forgotten_segment_leaves_the_cache_to_others() -> None:
    files, path = written(messages(50))
    cache = BlockCache(1 << 20)
    one, other = Segment.open(files, path, cache), Segment.open(files, path, cache)
    one.get(1), other.get(1)
    assert cache.figures().entries == 2
    one.forget()
    assert cache.figures().entries == 1
