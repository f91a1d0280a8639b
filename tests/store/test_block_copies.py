"""Blocks that go from segment to segment: as they are where everything in them is alive, else as new ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.message import Message
from edged.store.block_cache import BlockCache
from edged.store.block_copies import blocks_of_segments, messages_of_segments
from edged.store.box import Keyring
from edged.store.column_cache import ColumnCache
from edged.store.sealed_part import DeadSeqs, SealedPart
from edged.store.segment import Segment
from edged.store.segment_format import segment_path
from edged.store.segment_writer import USUAL, Draft, PackedBlock, finish_drafts
from edged.store.subject_table import SubjectTable
from tests.examples import examples
from tests.store.segment_samples import STREAM_ID, MemoryFiles, expires_ns, messages, opened, written

KEYS = Keyring.read("a key of many characters")
BLOCK_BYTES = 8192


def dead_in(segment: Segment, seqs: set[int]) -> DeadSeqs:
    part = SealedPart.adopted(segment, ColumnCache(), SubjectTable())
    for position, seq in enumerate(segment.codes()[0]):
        if seq in seqs:
            part.deleted.add(position)
    return DeadSeqs(part)


def merged(
    parts: list[tuple[Segment, DeadSeqs]], keys: Keyring | None = None, block_bytes: int = USUAL.block_bytes
) -> Segment:
    """A segment made of what is alive in others."""
    files, path = MemoryFiles(), segment_path(STREAM_ID, 1, 9)
    blocks = blocks_of_segments(parts, block_bytes)
    finish_drafts([Draft.write(files, path, STREAM_ID, blocks, keys, expires_ns)])
    return Segment.open(files, path, BlockCache(1 << 20), keys, expires_ns)


def every(kept: list[Message], share: int) -> set[int]:
    return {message.seq for message in kept if message.seq % share == 0}


def test_block_of_which_all_is_alive_is_taken_as_it_is() -> None:
    segment = opened(*written(messages(3000)))
    found = list(blocks_of_segments([(segment, dead_in(segment, set()))], USUAL.block_bytes))
    whole = [block for block in found if isinstance(block, PackedBlock)]
    assert len(whole) >= 2
    with segment.opened() as file:
        expected = [segment.packed_block(file, position) for position in range(len(whole))]
    assert [(one.prelude, one.body) for one in whole] == expected


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(("old", "new"), [(None, None), (KEYS, KEYS), (None, KEYS), (KEYS, None)])
def test_merged_segments_are_those_that_were_written_at_once(
    gaps: bool, old: Keyring | None, new: Keyring | None
) -> None:
    kept = messages(6000, gaps=gaps)
    segments = [opened(*written(part, keys=old), old) for part in (kept[:3500], kept[3500:3600], kept[3600:])]
    segment = merged([(one, dead_in(one, set())) for one in segments], new)
    assert list(segment.messages()) == kept
    once = opened(*written(kept))
    assert segment.subjects == once.subjects
    assert segment.expiries() == once.expiries()
    assert list(segment.sizes()) == list(once.sizes())
    assert segment.message_bytes == once.message_bytes
    assert segment.verify() == []


def test_messages_that_are_dead_stay_behind() -> None:
    kept = messages(5000, data_bytes=100)
    segment = opened(*written(kept))
    dead = {message.seq for message in kept if 1000 < message.seq < 1500 or message.seq == 4000}
    parts = [(segment, dead_in(segment, dead))]
    alive = [message for message in kept if message.seq not in dead]
    new = merged(parts)
    assert list(new.messages()) == alive
    assert list(messages_of_segments(parts)) == alive
    assert new.verify() == []
    found = list(blocks_of_segments(parts, USUAL.block_bytes))
    assert {type(block) is PackedBlock for block in found} == {True, False}


def test_many_small_segments_become_few_blocks() -> None:
    kept = messages(2000)
    segments = [opened(*written(kept[start : start + 20])) for start in range(0, 2000, 20)]
    new = merged([(one, dead_in(one, set())) for one in segments])
    assert list(new.messages()) == kept
    assert len(new.table) == len(opened(*written(kept)).table)


def test_messages_without_data_are_not_gathered_for_ever() -> None:
    kept = [Message(seq, seq, b"a", 0, b"") for seq in range(1, 20_001)]
    segment = opened(*written(kept))
    half = {message.seq for message in kept if message.seq % 2}
    found = blocks_of_segments([(segment, dead_in(segment, half))], BLOCK_BYTES)
    sizes = [len(block.seqs) for block in found]
    assert sum(sizes) == 10_000
    assert max(sizes) <= BLOCK_BYTES // 20


def test_blocks_of_another_size_than_now_are_made_anew() -> None:
    kept = messages(3000)
    segment = opened(*written(kept))
    new = merged([(segment, dead_in(segment, set()))], block_bytes=BLOCK_BYTES)
    assert list(new.messages()) == kept
    assert len(new.table) > 4 * len(segment.table)


def test_block_beyond_repair_costs_its_messages_only() -> None:
    files, path = written(messages(3000))
    segment = opened(files, path)
    entry = segment.table.entry(1)
    files.data[path][entry.offset : entry.offset + entry.size] = bytes(entry.size)
    new = merged([(segment, dead_in(segment, set()))])
    lost = range(entry.first_seq, entry.last_seq + 1)
    assert list(new.messages()) == [message for message in messages(3000) if message.seq not in lost]


@settings(max_examples=examples(30))
@given(
    counts=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    share=st.integers(2, 500),
    seed=st.integers(),
)
def test_whatever_is_alive_is_there_and_nothing_else(counts: list[int], share: int, seed: int) -> None:
    kept = messages(sum(counts), seed=seed % 1000)
    parts, start = [], 0
    for count in counts:
        segment = opened(*written(kept[start : start + count]))
        parts.append((segment, dead_in(segment, every(kept, share))))
        start += count
    alive = [message for message in kept if message.seq % share]
    if alive:
        new = merged(parts, block_bytes=BLOCK_BYTES)
        assert list(new.messages()) == alive
        assert new.verify() == []
