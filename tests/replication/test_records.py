"""The frames of groups that several nodes have: their bytes, and what is taken from another node."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.frames import APPEND, BATCH, COMMAND, HEADER_BYTES, MORE, FrameBuffer
from edged.core.replica_records import HardRecord, MembersRecord
from tests.core.frame_cases import both
from tests.core.run_cases import both as both_runs

GROUP = 7
NONCE = 0x0123_4567_89AB_CDEF
nodes = st.lists(st.integers(1, 2**63 - 1), max_size=5).map(tuple)


@given(st.integers(0, 2**63), st.integers(0, 2**63 - 1), st.booleans())
def test_hard_state_is_read_as_it_was_written(term: int, vote: int, is_rejoining: bool) -> None:
    record = HardRecord(term, vote, is_rejoining)
    assert HardRecord.decode(record.encode()) == record


@given(st.integers(0, 2**63), st.lists(nodes, min_size=4, max_size=4))
def test_members_are_read_as_they_were_written(term: int, lists: list[tuple[int, ...]]) -> None:
    record = MembersRecord(term, *lists)
    assert MembersRecord.decode(record.encode()) == record


@pytest.mark.parametrize(
    "values", [1, [], [1, 2], [1, 2, 3], ["a", 2, True], [1, [2], [], [], ["x"]], [1, 2, 3, 4, 5]]
)
def test_other_values_are_neither(values: Any) -> None:
    body = msgpack.packb(values)
    with pytest.raises(ValueError):
        HardRecord.decode(body)
    with pytest.raises(ValueError):
        MembersRecord.decode(body)


def entries(twin: Any, *, last_flags: int = 0) -> bytes:
    """Two messages, a command that is there twice, and one more message: entries 5 to 8."""
    buffer = twin.FrameBuffer()
    buffer.add_appends(GROUP, 5, 9, [(b"a", None, 0, b"one"), (b"b", None, 3, b"headers")])
    buffer.add(COMMAND, GROUP, 7, b"command")
    buffer.add(COMMAND, GROUP, 7, b"command")
    buffer.add_appends(GROUP, 8, 9, [(b"c", None, last_flags, b"two")])
    return buffer.bytes_at(0, len(buffer))


@both
def test_block_frames_finds_entries_without_their_checksums(twin: Any) -> None:
    data = entries(twin)
    found = twin.block_frames(data, GROUP, 5, 4)
    assert [(kind, group, index) for _, kind, group, index, _, _ in found] == [
        *((APPEND, GROUP, 5), (APPEND, GROUP, 6)),
        *((COMMAND, GROUP, 7), (COMMAND, GROUP, 7), (APPEND, GROUP, 8)),
    ]
    assert found[-1][4] + found[-1][5] == len(data)


@both
def test_block_frames_refuses_what_is_not_exactly_the_entries(twin: Any) -> None:
    data = entries(twin)
    for arguments in ((GROUP + 1, 5, 4), (GROUP, 4, 5), (GROUP, 6, 3), (GROUP, 5, 3), (GROUP, 5, 5)):
        with pytest.raises(ValueError):
            twin.block_frames(data, *arguments)
    for size in range(1, len(data)):
        with pytest.raises(ValueError):
            twin.block_frames(data[:size], GROUP, 5, 4)
    with pytest.raises(ValueError):
        twin.block_frames(entries(twin, last_flags=MORE), GROUP, 5, 4)
    with pytest.raises(ValueError):
        twin.block_frames(b"", GROUP, 5, 4)


@both
@given(st.data())
def test_block_frames_survives_any_byte(twin: Any, data: st.DataObject) -> None:
    body = bytearray(entries(twin))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        twin.block_frames(bytes(body), GROUP, 5, 4)


@both
def test_add_raw_puts_frames_behind_others_as_they_are(twin: Any) -> None:
    data = entries(twin)
    buffer = twin.FrameBuffer()
    buffer.add(BATCH, 0, 1, b"record")
    assert buffer.add_raw(data) == HEADER_BYTES + len(b"record")
    found = twin.scan(bytes(buffer.finish(NONCE, 4096)), NONCE, 0, 4096).frames
    assert [index for _, _, _, index, _, _ in found] == [1, 5, 6, 7, 7, 8]


@both_runs
def test_stretch_of_ends_where_the_entries_of_a_group_end(twin: Any) -> None:
    buffer = FrameBuffer()
    buffer.add_raw(entries(_reference()))
    buffer.add(COMMAND, GROUP + 1, 9, b"")
    buffer.add(APPEND, GROUP, 9, bytes(14))
    buffer.add(APPEND, GROUP, 11, bytes(14))
    buffer.add(BATCH, 0, 9, b"")
    frames = twin.scan(bytes(buffer.finish(NONCE, 0)), NONCE, 0).frames
    assert twin.stretch_of(frames, 0) == (5, 8)
    assert twin.stretch_of(frames, 2) == (5, 8)
    assert twin.stretch_of(frames, 5) == (6, 9)
    assert twin.stretch_of(frames, 6) == (7, 9)
    assert twin.stretch_of(frames, 7) == (8, 11)


@both_runs
def test_a_run_of_frames_may_end_early_and_lie_anywhere_in_its_file(twin: Any) -> None:
    buffer = FrameBuffer()
    buffer.add_appends(GROUP, 5, 9, [(b"a", None, 0, b"x")] * 4)
    frames = twin.scan(bytes(buffer.finish(NONCE, 0)), NONCE, 0).frames
    data = buffer.bytes_at(0, len(buffer))
    whole = twin.run_of_frames(data, frames, 0)
    part = twin.run_of_frames(data, frames, 1, 0, 1000, 3)
    assert list(part.offsets) == [offset + 1000 for offset in whole.offsets[1:3]]
    assert part.subjects == [b"a", b"a"]


def _reference() -> Any:
    from tests.core.frame_cases import REFERENCE

    return REFERENCE
