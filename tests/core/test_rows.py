"""Messages on their way from the journal to a segment, by the reference and by its native twin."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.frames import (
    APPEND,
    BATCH,
    COMMAND,
    HEADER_SIZE_MASK,
    INTERNAL,
    MORE,
    ONLY_IF_EMPTY,
    FrameBuffer,
)
from edged.core.message import Message
from edged.core.rows import Places, Rows
from edged.core.wire import Publish
from tests.core.row_cases import NATIVE, REFERENCE, both

NONCE = 0x0123_4567_89AB_CDEF
OFFSET = 4096
BLOCK_BYTES = 300
ROW_BYTES = 20


def journal(messages: Sequence[Publish], ts_ns: int = 7) -> tuple[bytes, array[int]]:
    """A part of a file with these messages and frames of other kinds between them; offsets in the file."""
    buffer = FrameBuffer()
    offsets = array("I")
    for index, message in enumerate(messages, 1):
        if index % 3 == 0:
            buffer.add(COMMAND if index % 2 else BATCH, 9, index, b"\x01" * index)
        offsets.append(OFFSET + buffer.add_appends(1, index, ts_ns + 5 * (index % 4), [message])[0])
    return bytes(buffer.finish(NONCE, OFFSET)), offsets


def all_rows(twin: SimpleNamespace, data: bytes, places: Places) -> list[Rows]:
    frames = twin.scan(data, NONCE, 0, OFFSET).frames
    found: list[Rows] = []
    position = frame = 0
    while position < len(places.offsets):
        rows, after, frame = twin.rows_of_frames(
            data, frames, OFFSET, places, position, frame, BLOCK_BYTES, ROW_BYTES
        )
        assert after > position
        position = after
        if rows is not None:
            found.append(rows)
    return found


message_of = st.builds(
    lambda subject, header, flags, data: (subject, None, len(header) | flags or -1, header + data),
    st.sampled_from((b"", b"a", b"b.c", b"x" * 300)),
    st.sampled_from((b"", b"", b"NATS/1.0\r\n\r\n")),
    st.sampled_from((0, 0, MORE, ONLY_IF_EMPTY | INTERNAL)),
    st.one_of(st.binary(max_size=60), st.just(b"z" * 400)),
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(message_of, st.booleans(), st.sampled_from((1, 1, 1, 5, 2**33))), max_size=25),
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(1, 255)), max_size=2),
)
def test_rows_are_the_messages_that_are_alive_and_undamaged_in_blocks(
    given_messages: list[tuple[Publish, bool, int]], flips: list[tuple[int, int]]
) -> None:
    messages = [message for message, _, _ in given_messages]
    seqs = array("Q")
    for _, _, step in given_messages:
        seqs.append(step + (seqs[-1] if seqs else 0))
    whole, offsets = journal(messages)
    live = bytes(is_live for _, is_live, _ in given_messages)
    damaged = bytearray(whole)
    for place, flip in flips:
        if place < len(damaged):
            damaged[place] ^= flip
    data = bytes(damaged)
    good = {OFFSET + frame[0] for frame in REFERENCE.scan(data, NONCE, 0, OFFSET).frames}
    expected = [
        Message(seq, 7 + 5 * (index % 4), subject, max(header_bytes, 0) & HEADER_SIZE_MASK, content)
        for index, ((subject, _, header_bytes, content), seq) in enumerate(
            zip(messages, seqs, strict=True), 1
        )
        if live[index - 1] and offsets[index - 1] in good
    ]
    is_dense = bool(seqs) and seqs[-1] - seqs[0] == len(seqs) - 1
    places = Places(range(seqs[0], seqs[-1] + 1) if is_dense else seqs, offsets, live)
    found = all_rows(REFERENCE, data, places)
    assert [message for rows in found for message in rows.messages()] == expected
    for rows in found:
        assert rows == Rows.of(rows.messages())._replace(seqs=rows.seqs)
        taken = sum(rows.data_sizes) + ROW_BYTES * len(rows.seqs)
        assert taken <= BLOCK_BYTES or len(rows.seqs) == 1
    native = all_rows(NATIVE, data, places)
    assert native == found
    assert [NATIVE.pack_rows(rows) for rows in native] == [REFERENCE.pack_rows(rows) for rows in found]


@both
def test_list_of_frames_will_do_as_well(twin: SimpleNamespace) -> None:
    data, offsets = journal([(b"a", None, -1, b"x"), (b"b", None, -1, b"y")])
    frames = list(twin.scan(data, NONCE, 0, OFFSET).frames)
    step = twin.rows_of_frames(data, frames, OFFSET, Places(range(5, 7), offsets, b"\1\1"), 0, 0, 300, 20)
    assert step.rows.subjects == [b"a", b"b"]
    assert step.rows.seqs == range(5, 7)
    assert (step.position, step.frame) == (2, 1)


@both
def test_frame_that_says_too_much_of_itself_is_refused(twin: SimpleNamespace) -> None:
    for body in (bytes(13), bytes(8) + b"\1" + bytes(5), bytes(12) + b"\1\0"):
        buffer = FrameBuffer()
        buffer.add(APPEND, 1, 1, body)
        data = bytes(buffer.finish(NONCE, OFFSET))
        frames = twin.scan(data, NONCE, 0, OFFSET).frames
        places = Places(range(1, 2), array("I", [OFFSET]), b"\1")
        with pytest.raises(ValueError):
            twin.rows_of_frames(data, frames, OFFSET, places, 0, 0, 300, 20)


@both
def test_time_beyond_the_range_of_a_segment_is_refused(twin: SimpleNamespace) -> None:
    data, offsets = journal([(b"a", None, -1, b"x")], ts_ns=2**63 - 5)
    frames = twin.scan(data, NONCE, 0, OFFSET).frames
    with pytest.raises(OverflowError):
        twin.rows_of_frames(data, frames, OFFSET, Places(range(1, 2), offsets, b"\1"), 0, 0, 300, 20)


# --- packing ---


@given(
    st.sampled_from("BHIQq"),
    st.lists(st.one_of(*[st.integers(0, 2**bits - 1) for bits in (1, 8, 9, 16, 17, 32, 33, 63)])),
)
def test_twins_pack_any_column_alike(typecode: str, numbers: list[int]) -> None:
    limit = 2 ** (8 * array(typecode).itemsize - (typecode == "q"))
    column = array(typecode, [number % limit for number in numbers])
    assert NATIVE.pack_column(column) == REFERENCE.pack_column(column)
    assert NATIVE.pack_column(list(column)) == REFERENCE.pack_column(list(column))


time_of = st.one_of(st.integers(0, 10), st.integers(-(2**62), 2**62), st.sampled_from((-(2**63), 2**63 - 1)))


@given(st.lists(st.tuples(time_of, st.sampled_from((b"a", b"b", b"")), st.binary(max_size=3)), min_size=1))
def test_twins_pack_any_rows_alike_also_when_clocks_go_back(some: list[tuple[int, bytes, bytes]]) -> None:
    rows = Rows.of([Message(seq * seq, ts, subject, 0, data) for seq, (ts, subject, data) in enumerate(some)])
    try:
        expected = REFERENCE.pack_rows(rows)
    except OverflowError:
        with pytest.raises(OverflowError):
            NATIVE.pack_rows(rows)
    else:
        assert NATIVE.pack_rows(rows) == expected


@pytest.mark.parametrize("count", [256, 257, 65_537])
def test_twins_number_many_subjects_of_a_block_alike(count: int) -> None:
    rows = Rows.of([Message(seq, 1, b"s.%d" % seq, 0, b"") for seq in range(count)])
    assert NATIVE.pack_rows(rows) == REFERENCE.pack_rows(rows)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from((b"a", b"b")), st.binary(max_size=3)), min_size=1), min_size=1
    ),
    st.integers(1, 2),
)
def test_rows_that_are_joined_are_those_of_all_messages(
    parts: list[list[tuple[bytes, bytes]]], step: int
) -> None:
    seqs = iter(range(5, 5 + step * sum(map(len, parts)), step))
    messages = [[Message(next(seqs), 9, subject, 0, data) for subject, data in part] for part in parts]
    joined = Rows.joined([Rows.of(part) for part in messages])
    assert joined.messages() == [message for part in messages for message in part]
    assert isinstance(joined.seqs, range) == (len(parts) > 1 and step == 1) or len(joined.seqs) == 1
