"""Damaged segments: one bad bit or sector costs nothing, more is reported, and no answer is ever wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from edged.core.message import Message
from edged.store.block_cache import BlockCache
from edged.store.box import Keyring
from edged.store.errors import Damaged, StoreBroken, is_damage
from edged.store.guard import guard
from edged.store.segment import Segment
from edged.store.segment_footer import BlockEntry
from edged.store.segment_format import (
    EXPIRIES,
    HEADER_BYTES,
    MARK,
    SIZES,
    MessagesLost,
    NotThisSegment,
    segment_path,
)
from tests.store.segment_samples import (
    OTHER_STREAM_ID,
    START_NS,
    STREAM_ID,
    MemoryFiles,
    damaged,
    expires_ns,
    flips,
    forged_head,
    messages,
    opened,
    payload_of,
    written,
)

KEYS = Keyring.read("a key of many characters")


def blocks_of(segment: Segment) -> list[BlockEntry]:
    return segment._contents.table.entries()


def check_nothing_lost(
    files: MemoryFiles, path: str, kept: list[Message], keys: Keyring | None = None
) -> None:
    """Everything is read as it was, and the damage is noticed by who looks for it."""
    segment = opened(files, path, keys)
    assert list(segment.messages()) == kept
    assert None not in [segment.size_of(message.seq) for message in kept]
    problems = segment.verify()
    assert problems and all(problem.costs_nothing for problem in problems), problems


def check_no_wrong_answer(segment: Segment, kept: list[Message]) -> int:
    """Each message is there as it was or reported as lost; how many are there."""
    there = 0
    for message in kept:
        try:
            assert segment.get(message.seq) == message
            there += 1
        except MessagesLost as lost:
            assert lost.first_seq <= message.seq <= lost.last_seq
    return there


# --- what costs nothing ---


@pytest.mark.parametrize("keys", [None, KEYS])
def test_flipped_bits_of_a_small_segment_are_noticed_and_cost_nothing(keys: Keyring | None) -> None:
    kept = messages(5)
    files, path = written(kept, keys=keys)
    for _, data in flips(bytes(files.data[path]), step=23):
        check_nothing_lost(damaged(files, path, data), path, kept, keys)


@pytest.mark.slow
def test_every_flipped_bit_of_a_small_segment_is_noticed_and_costs_nothing() -> None:
    kept = messages(5)
    files, path = written(kept)
    for _, data in flips(bytes(files.data[path])):
        check_nothing_lost(damaged(files, path, data), path, kept)


def test_flipped_bits_of_a_larger_segment_are_noticed_and_cost_nothing() -> None:
    kept = messages(200, data_bytes=900, gaps=True)
    files, path = written(kept)
    whole = bytes(files.data[path])
    assert len(blocks_of(opened(files, path))) > 1
    for _, data in flips(whole, step=1009):
        check_nothing_lost(damaged(files, path, data), path, kept)


@pytest.mark.parametrize("noise", [b"\x00", b"\xff", None])
def test_lost_sector_anywhere_costs_nothing(noise: bytes | None) -> None:
    kept = messages(200, data_bytes=900, gaps=True)
    files, path = written(kept)
    whole = bytes(files.data[path])
    garbage = noise * 512 if noise else random.Random(3).randbytes(512)
    for start in range(0, len(whole), 512):
        data = whole[:start] + garbage[: len(whole) - start] + whole[start + 512 :]
        check_nothing_lost(damaged(files, path, data), path, kept)


def test_lost_sector_at_any_offset_of_a_small_segment_costs_nothing() -> None:
    kept = messages(5)
    files, path = written(kept)
    whole = bytes(files.data[path])
    for start in range(-511, len(whole), 9):
        low, high = max(0, start), min(len(whole), start + 512)
        data = whole[:low] + bytes(high - low) + whole[high:]
        check_nothing_lost(damaged(files, path, data), path, kept)


def test_sector_that_the_disk_refuses_to_read_costs_nothing() -> None:
    kept = messages(100, data_bytes=500)
    files, path = written(kept)
    for start in range(0, len(files.data[path]), 512):
        files.bad_sectors = [start]
        check_nothing_lost(files, path, kept)


def test_sectors_that_the_disk_refuses_for_a_while_are_no_damage() -> None:
    kept = messages(600, data_bytes=500)
    files, path = written(kept)
    segment = opened(files, path)
    files.bad_sectors = list(range(0, len(files.data[path]), 512))
    for read in (lambda: segment.get(kept[0].seq), segment.sizes):
        with pytest.raises(Damaged) as error:
            read()
        assert error.value.may_pass and not is_damage(error.value)
    files.bad_sectors = []
    assert list(segment.messages()) == kept
    assert sum(segment.sizes()) == segment.message_bytes


def test_repair_is_remembered() -> None:
    kept = messages(600)
    files, path = written(kept)
    files.data[path][5000] ^= 4
    segment = opened(files, path)
    assert list(segment.messages()) == kept
    assert segment.repaired_offsets == {HEADER_BYTES}


def test_column_beyond_repair_is_made_again_from_the_blocks() -> None:
    kept = messages(3000, gaps=True)
    files, path = written(kept)
    whole = opened(files, path)
    for kind, span in list(whole._contents.columns.items()):
        if isinstance(span, bytes):
            continue
        data = bytearray(files.data[path])
        data[span.offset : span.offset + span.size] = bytes(span.size)
        segment = opened(damaged(files, path, bytes(data)), path, expiry=expires_ns)
        assert segment.subjects == whole.subjects, kind
        assert segment.codes() == whole.codes()
        assert segment.expiries() == whole.expiries()
        assert [segment.size_of(m.seq) for m in kept] == [whole.size_of(m.seq) for m in kept]
        assert segment.repaired_offsets == {span.offset}
        without = opened(damaged(files, path, bytes(data)), path)
        assert [problem.costs_nothing for problem in without.verify()] == [kind != EXPIRIES]
        if kind == EXPIRIES:
            with pytest.raises(Damaged):
                without.expiries()


def test_header_of_another_file_in_the_first_sector_costs_nothing() -> None:
    kept = messages(300)
    files, path = written(kept)
    for other in (
        written(messages(300, seed=2), stream_id=OTHER_STREAM_ID),
        written(messages(300, seed=2), salt=bytes(16)),
    ):
        foreign = bytes(other[0].data[other[1]])
        data = foreign[:HEADER_BYTES] + bytes(files.data[path][HEADER_BYTES:])
        check_nothing_lost(damaged(files, path, data), path, kept)


def test_bytes_after_the_end_cost_nothing() -> None:
    kept = messages(300)
    files, path = written(kept)
    whole = bytes(files.data[path])
    for more in (b"?", bytes(4096), whole[-700:]):
        check_nothing_lost(damaged(files, path, whole + more), path, kept)
        check_nothing_lost(
            damaged(files, path, bytes(HEADER_BYTES) + whole[HEADER_BYTES:] + more), path, kept
        )


# --- what costs messages, and which ones ---


@pytest.mark.parametrize("keys", [None, KEYS])
def test_cut_off_segment_keeps_what_is_left_and_reports_the_rest(keys: Keyring | None) -> None:
    kept = messages(300, data_bytes=1000, gaps=True)
    files, path = written(kept, keys=keys)
    whole = bytes(files.data[path])
    found = []
    for size in range(0, len(whole), 512):
        cut = damaged(files, path, whole[:size])
        try:
            segment = opened(cut, path, keys)
        except Damaged as error:
            assert size <= blocks_of(opened(files, path, keys))[0].size + HEADER_BYTES, size
            assert size < HEADER_BYTES or isinstance(error, MessagesLost)
            continue
        there = check_no_wrong_answer(segment, kept)
        assert list(segment.messages()) == kept[:there]
        assert None not in [segment.size_of(message.seq) for message in kept[:there]]
        found.append(there)
        if there < len(kept):
            assert [(lost.first_seq, lost.last_seq) for lost in segment.lost] == [
                (kept[there - 1].seq + 1, kept[-1].seq)
            ]
            assert any(not problem.costs_nothing for problem in segment.verify())
    assert found == sorted(found)
    assert found[0] < len(kept) and found[-1] == len(kept)
    assert len(set(found)) == len(blocks_of(opened(files, path, keys)))


def test_cut_off_segment_without_its_header_says_that_nobody_knows_the_end() -> None:
    kept = messages(2500)
    files, path = written(kept)
    second = blocks_of(opened(files, path))[1]
    data = bytes(HEADER_BYTES) + bytes(files.data[path][HEADER_BYTES : second.offset])
    segment = opened(damaged(files, path, data), path)
    there = check_no_wrong_answer(segment, kept)
    assert there == second.first_seq - 1
    assert [(lost.first_seq, lost.last_seq) for lost in segment.lost] == [(second.first_seq, None)]


def broken_block(number: int) -> tuple[MemoryFiles, str, list[Message], BlockEntry]:
    kept = messages(4000, gaps=True)
    files, path = written(kept)
    entry = blocks_of(opened(files, path))[number]
    files.data[path][entry.offset + 2000 : entry.offset + entry.size - 2000] = bytes(entry.size - 4000)
    return files, path, kept, entry


def test_block_beyond_repair_costs_its_messages_and_no_other() -> None:
    files, path, kept, entry = broken_block(1)
    segment = opened(files, path)
    lost = [m.seq for m in kept if entry.first_seq <= m.seq <= entry.last_seq]
    assert check_no_wrong_answer(segment, kept) == len(kept) - len(lost)
    with pytest.raises(MessagesLost) as error:
        segment.get(lost[3])
    assert (error.value.first_seq, error.value.last_seq) == (entry.first_seq, entry.last_seq)
    gap = next(seq for seq in range(entry.first_seq, entry.last_seq) if seq not in lost)
    assert segment.get(gap) is None
    problems = [problem for problem in segment.verify() if not problem.costs_nothing]
    assert [(p.first_seq, p.last_seq, p.offset) for p in problems] == [(*(lost[0], lost[-1]), entry.offset)]


def test_reading_in_sequence_stops_at_a_lost_block_and_goes_on_after_it() -> None:
    files, path, kept, entry = broken_block(1)
    segment = opened(files, path)
    found: list[Message] = []
    with pytest.raises(MessagesLost) as error:
        found.extend(segment.messages())
    assert segment.read_batch(0, 1 << 30) == [m for m in kept if m.seq < entry.first_seq]
    with pytest.raises(MessagesLost):
        segment.read_batch(entry.first_seq, 1000)
    after = error.value.last_seq + 1
    assert list(segment.messages(after)) == [m for m in kept if m.seq > entry.last_seq]
    assert segment.seq_at_time(entry.first_ts_ns) == next(m.seq for m in kept if m.seq > entry.last_seq)


@pytest.mark.parametrize("number", [0, 1])
def test_lost_block_and_lost_footer_leave_the_rest_and_report_the_hole(number: int) -> None:
    files, path, kept, entry = broken_block(number)
    # The columns and the footer go with the last bytes.
    last = blocks_of(opened(files, path))[-1]
    del files.data[path][last.offset + last.size :]
    segment = opened(files, path)
    lost = [m for m in kept if entry.first_seq <= m.seq <= entry.last_seq]
    assert check_no_wrong_answer(segment, kept) == len(kept) - len(lost) == segment.count
    assert segment.is_rebuilt
    left = [m for m in kept if m not in lost]
    assert list(segment.messages()) == left
    assert list(segment.codes()[0]) == [m.seq for m in left]
    assert segment.seq_at_time(0) == left[0].seq
    ((first_seq, last_seq, _),) = segment.lost
    assert first_seq <= lost[0].seq and lost[-1].seq <= last_seq
    for seq in (lost[0].seq, lost[-1].seq):
        with pytest.raises(MessagesLost):
            segment.size_of(seq)
        with pytest.raises(MessagesLost):
            segment.subject_code(seq)


def test_column_and_block_beyond_repair_are_no_reason_to_answer_wrongly() -> None:
    files, path, kept, _ = broken_block(1)
    span = opened(files, path)._contents.columns[SIZES]
    assert not isinstance(span, bytes)
    files.data[path][span.offset : span.offset + span.size] = bytes(span.size)
    segment = opened(files, path)
    with pytest.raises(Damaged):
        segment.size_of(kept[0].seq)
    check_no_wrong_answer(segment, kept)


def test_a_segment_with_lost_columns_and_a_lost_block_is_rebuilt_from_the_other_blocks() -> None:
    files, path, kept, entry = broken_block(1)
    for span in opened(files, path)._contents.columns.values():
        if not isinstance(span, bytes):
            files.data[path][span.offset : span.offset + span.size] = bytes(span.size)
    segment = opened(files, path)
    with pytest.raises(Damaged):
        segment.sizes()
    rebuilt = segment.rebuilt()
    left = [m for m in kept if not entry.first_seq <= m.seq <= entry.last_seq]
    assert list(rebuilt.messages()) == left
    assert list(rebuilt.codes()[0]) == [m.seq for m in left]
    assert sum(one.count for one in rebuilt.subjects) == len(left) == rebuilt.count
    ((first_seq, last_seq, _),) = rebuilt.lost
    assert first_seq <= entry.first_seq and entry.last_seq <= last_seq


def test_expiries_survive_the_footer_in_their_own_column_or_are_computed_again() -> None:
    kept = messages(4000)
    files, path = written(kept)
    whole = opened(files, path)
    footer = whole._contents.footer
    assert footer is not None
    data = bytearray(files.data[path])
    data[footer.offset :] = bytes(footer.size)
    assert opened(damaged(files, path, bytes(data)), path).expiries() == whole.expiries()
    del data[blocks_of(whole)[-1].offset + blocks_of(whole)[-1].size :]
    cut = damaged(files, path, bytes(data))
    assert opened(cut, path, expiry=expires_ns).expiries() == whole.expiries()
    with pytest.raises(Damaged):
        opened(cut, path).expiries()


@pytest.mark.parametrize("seed", range(40))
def test_heavy_random_damage_never_gives_a_wrong_answer(seed: int) -> None:
    chance = random.Random(seed)
    kept = messages(2000, seed=seed, gaps=bool(seed % 2))
    files, path = written(kept)
    data = files.data[path]
    for _ in range(chance.randrange(1, 12)):
        start = chance.randrange(len(data))
        size = min(chance.choice((1, 100, 512, 4096, 40_000)), len(data) - start)
        data[start : start + size] = chance.choice((bytes(size), chance.randbytes(size)))
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    try:
        segment = opened(files, path)
    except Damaged:
        return
    there = check_no_wrong_answer(segment, kept)
    assert there == len(kept) or any(not problem.costs_nothing for problem in segment.verify())


# --- files that are something else ---


def test_empty_file_and_garbage_are_refused() -> None:
    path = segment_path(STREAM_ID, 1, 1)
    for data in (b"", b"x", bytes(100_000), random.Random(1).randbytes(100_000)):
        with pytest.raises(Damaged):
            opened(MemoryFiles({path: data}), path)


def test_file_of_another_stream_seq_or_generation_is_refused_whole_or_cut() -> None:
    kept = messages(300, first_seq=10, data_bytes=1000)
    files, path = written(kept, first_seq=10, generation=2)
    data = bytes(files.data[path])
    for other in (
        segment_path(OTHER_STREAM_ID, 10, 2),
        segment_path(STREAM_ID, 9, 2),
        segment_path(STREAM_ID, 10, 3),
    ):
        for size in (len(data), len(data) // 2, HEADER_BYTES):
            with pytest.raises(NotThisSegment, match="this is segment 10-2 of stream 00010203"):
                opened(MemoryFiles({other: data[:size]}), other)


def test_file_that_was_put_aside_is_opened_under_any_name() -> None:
    kept = messages(5)
    files, path = written(kept)
    aside = MemoryFiles({"lost+found/7.seg": bytes(files.data[path])})
    with pytest.raises(Damaged, match="not the name"):
        opened(aside, "lost+found/7.seg")
    segment = Segment.open(aside, "lost+found/7.seg", BlockCache(0), any_name=True)
    assert list(segment.messages()) == kept


def test_block_of_another_file_with_the_same_name_is_not_taken() -> None:
    kept, others = (messages(600, data_bytes=40, seed=seed) for seed in (1, 1))
    others[3] = others[3]._replace(data=b"x" * len(others[3].data))
    (files, path), (other, _) = written(kept), written(others, salt=bytes(16))
    entry = blocks_of(opened(files, path))[0]
    foreign = blocks_of(opened(other, path))[0]
    size = max(entry.size, foreign.size)
    data = bytearray(files.data[path])
    data[entry.offset : entry.offset + size] = other.data[path][entry.offset : entry.offset + size]
    with pytest.raises(MessagesLost):
        opened(damaged(files, path, bytes(data)), path).get(4)


def test_block_in_the_place_of_another_one_is_not_taken() -> None:
    kept = [Message(seq, START_NS, b"a", 0, random.Random(seq).randbytes(60_000)) for seq in range(1, 4)]
    files, path = written(kept)
    first, second, _ = blocks_of(opened(files, path))
    assert first.size == second.size
    data = files.data[path]
    data[second.offset : second.offset + second.size] = data[first.offset : first.offset + first.size]
    segment = opened(files, path)
    with pytest.raises(MessagesLost):
        segment.get(2)
    assert (segment.get(1), segment.get(3)) == (kept[0], kept[2])


def test_changed_block_of_a_sealed_segment_does_not_open() -> None:
    kept = messages(600)
    files, path = written(kept, keys=KEYS)
    entry = blocks_of(opened(files, path, KEYS))[0]
    payload = bytearray(payload_of(bytes(files.data[path][entry.offset : entry.offset + entry.size])))
    payload[200] ^= 1
    # Who can write to the disk can make all checksums fit, but not the seal.
    files.data[path][entry.offset : entry.offset + entry.size] = guard(bytes(payload), MARK)
    segment = opened(files, path, KEYS)
    with pytest.raises(MessagesLost, match="cannot be decrypted"):
        segment.get(kept[0].seq)


def test_section_inside_a_message_is_not_taken_for_one_of_the_file() -> None:
    forged_files, path = written([Message(2, START_NS, b"forged", 0, b"forged")], salt=bytes(16))
    forged = bytes(forged_files.data[path])[HEADER_BYTES:]
    kept = [Message(seq, START_NS, b"a", 0, random.Random(seq).randbytes(50_000)) for seq in (1, 2, 3, 4)]
    files, path = written(kept)
    entry = blocks_of(opened(files, path))[1]
    last = blocks_of(opened(files, path))[-1]
    data = files.data[path]
    # What did not compress stands in the block as it was sent. The rest of the block is gone.
    data[entry.offset : entry.offset + entry.size] = (bytes(30_000) + forged).ljust(entry.size, b"\x00")
    del data[last.offset + last.size :]
    for header in (bytes(data[:HEADER_BYTES]), bytes(HEADER_BYTES)):
        segment = opened(damaged(files, path, header + bytes(data[HEADER_BYTES:])), path)
        assert check_no_wrong_answer(segment, kept) == 3
        assert [summary.subject for summary in segment.subjects] == [b"a"]
        with pytest.raises(MessagesLost):
            segment.get(2)


def test_newer_format_is_left_alone() -> None:
    files, path = written(messages(5))
    entry = blocks_of(opened(files, path))[0]
    payload = payload_of(bytes(files.data[path][entry.offset : entry.offset + entry.size]))
    newer = guard(b"\x02" + payload[1:], MARK)
    with pytest.raises(StoreBroken, match="segment format 2"):
        opened(MemoryFiles({path: bytes(HEADER_BYTES) + newer}), path)


def hostile_files() -> list[Callable[[], bytes]]:
    def marks() -> bytes:
        return MARK.to_bytes(4, "little") * 250_000

    def fronts() -> bytes:
        # Every head is good and claims all that follows it.
        heads = b"".join(forged_head(MARK, 1_000_000 - at) for at in range(3000))
        return bytes(HEADER_BYTES) + heads + bytes(1_000_000)

    return [marks, fronts]


@pytest.mark.parametrize("build", hostile_files())
def test_search_in_a_hostile_file_is_bounded(build: Callable[[], bytes]) -> None:
    path = segment_path(STREAM_ID, 1, 1)
    files = MemoryFiles({path: build()})
    start = time.process_time()
    with pytest.raises(Damaged):
        opened(files, path)
    assert files.read_bytes < 20 * len(files.data[path])
    assert time.process_time() - start < 5
