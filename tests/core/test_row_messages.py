"""Messages out of the columns of a block, and out of frames at known places, by both twins."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.frames import APPEND, FrameBuffer
from edged.core.message import Message
from edged.core.rows import BlockColumns
from edged.core.runs import packed_size
from tests.core.row_cases import NATIVE, REFERENCE, both

OFFSET = 4096

message_of = st.builds(
    lambda step, ts_ns, subject, header, data: (step, ts_ns, subject, len(header), header + data),
    st.sampled_from((1, 1, 1, 2, 2**40)),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from((b"a", b"b.c", b"")),
    st.sampled_from((b"", b"NATS/1.0\r\n\r\n", b"h" * 300)),
    st.binary(max_size=5),
)


def messages_of(parts: list[tuple[int, int, bytes, int, bytes]]) -> list[Message]:
    seq, found = 0, []
    for step, *rest in parts:
        seq += step
        found.append(Message(seq, *rest))
    return found


def block_of(messages: list[Message]) -> BlockColumns:
    subjects = sorted({message.subject for message in messages})
    bounds = array("I", [0])
    for message in messages:
        bounds.append(bounds[-1] + len(message.data))
    first, last = messages[0].seq, messages[-1].seq
    is_dense = last - first == len(messages) - 1
    header_sizes = [message.header_bytes for message in messages]
    return BlockColumns(
        range(first, last + 1) if is_dense else array("Q", [message.seq for message in messages]),
        array("q", [message.ts_ns for message in messages]),
        array("B", [subjects.index(message.subject) for message in messages]),
        array("H" if max(header_sizes) > 255 else "B", header_sizes),
        bounds,
        subjects,
        b"".join([message.data for message in messages]),
    )


@given(st.lists(message_of, min_size=1, max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_messages_of_a_block_are_those_it_was_made_of(
    parts: list[tuple[int, int, bytes, int, bytes]], one: int, other: int
) -> None:
    messages = messages_of(parts)
    block = block_of(messages)
    for twin in (REFERENCE, NATIVE):
        found = twin.messages_between(block, one, other)
        assert found == messages[one:other]
        assert all(type(message) is Message for message in found)
        assert twin.messages_between(block, 0, len(messages)) == messages


@pytest.mark.parametrize("typecode", "BHIQq")
@both
def test_columns_may_have_any_width(twin: SimpleNamespace, typecode: str) -> None:
    messages = [Message(seq, seq, b"%d" % (seq % 2), seq, b"x" * 9) for seq in range(1, 6)]
    block = block_of(messages)
    wide = block._replace(
        codes=array(typecode, block.codes), header_sizes=array(typecode, block.header_sizes)
    )
    assert twin.messages_between(wide, 0, 5) == messages


@both
def test_subject_that_a_block_does_not_have_is_no_subject(twin: SimpleNamespace) -> None:
    block = block_of([Message(1, 1, b"a", 0, b"x")])
    with pytest.raises(IndexError):
        twin.messages_between(block._replace(codes=array("B", [1])), 0, 1)


@given(st.lists(st.integers(0, 40), min_size=4, max_size=4), st.integers(0, 3), st.integers(0, 3))
def test_twins_make_the_same_of_bounds_that_contradict_themselves(
    bounds: list[int], start: int, end: int
) -> None:
    block = block_of([Message(seq, 1, b"a", 0, b"abcdefghij") for seq in (1, 2, 3)])
    odd = block._replace(bounds=array("I", bounds))
    assert NATIVE.messages_between(odd, start, end) == REFERENCE.messages_between(odd, start, end)


# --- frames at known places ---


def frames_of(messages: list[Message], tag_bytes: int = 0) -> tuple[bytes, array[int], array[int]]:
    buffer = FrameBuffer(tag_bytes)
    offsets, sizes = array("I"), array("I")
    for message in messages:
        publish = (message.subject, None, message.header_bytes, message.data)
        before = len(buffer)
        offsets.append(OFFSET + buffer.add_appends(1, message.seq, message.ts_ns, [publish])[0])
        frame_bytes = len(buffer) - before - tag_bytes
        sizes.append(packed_size(frame_bytes, frame_bytes - 8))
    return buffer.bytes_at(0, len(buffer)), offsets, sizes


@pytest.mark.parametrize("tag_bytes", [0, 16])
@given(parts=st.lists(message_of, max_size=8))
def test_messages_at_known_places_are_those_that_were_added(
    tag_bytes: int, parts: list[tuple[int, int, bytes, int, bytes]]
) -> None:
    messages = [message._replace(ts_ns=message.ts_ns & 2**63 - 1) for message in messages_of(parts)]
    data, offsets, sizes = frames_of(messages, tag_bytes)
    seqs = [message.seq for message in messages]
    for twin in (REFERENCE, NATIVE):
        found = twin.messages_at(data, OFFSET, seqs, offsets, sizes)
        assert found == messages
        assert all(type(message) is Message for message in found)


@both
def test_place_without_a_message_is_refused(twin: SimpleNamespace) -> None:
    data, offsets, sizes = frames_of([Message(1, 5, b"a.b", 0, b"data")])
    (size,) = sizes
    for place, frame_bytes in ((offsets[0] - 1, size), (offsets[0] + 1, size), (2**32 - 1, size)):
        with pytest.raises(ValueError):
            twin.messages_at(data, OFFSET, [1], array("I", [place]), array("I", [frame_bytes]))
    for frame_bytes in (0, 23, 24, 37, len(data) + 1):
        with pytest.raises(ValueError):
            twin.messages_at(data, OFFSET, [1], offsets, array("I", [frame_bytes]))
    for body in (bytes(13), bytes(8) + b"\1" + bytes(5), bytes(12) + b"\1\0"):
        buffer = FrameBuffer()
        buffer.add(APPEND, 1, 1, body)
        with pytest.raises(ValueError):
            twin.messages_at(buffer.bytes_at(0, len(buffer)), OFFSET, [1], offsets, array("I", [len(buffer)]))
    with pytest.raises(ValueError):
        twin.messages_at(data, OFFSET, [1, 2], offsets, sizes)


@both
def test_time_beyond_the_range_of_a_message_is_refused(twin: SimpleNamespace) -> None:
    data, offsets, sizes = frames_of([Message(1, 2**63, b"a", 0, b"x")])
    with pytest.raises(OverflowError):
        twin.messages_at(data, OFFSET, [1], offsets, sizes)


# --- times ---


@given(st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))))
def test_times_are_summed_alike_or_refused_alike(steps: list[int]) -> None:
    column = array("q", steps)
    try:
        expected = REFERENCE.running_times(column)
    except OverflowError:
        with pytest.raises(OverflowError):
            NATIVE.running_times(column)
    else:
        assert NATIVE.running_times(column) == expected
        assert list(expected) == [sum(steps[: end + 1]) for end in range(len(steps))]


@both
def test_times_may_be_kept_as_unsigned_numbers(twin: SimpleNamespace) -> None:
    assert twin.running_times(array("B", [7, 0, 200])) == array("q", [7, 7, 207])
