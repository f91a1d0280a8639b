"""Journal frames: what is written is found again, and nothing else is; over both twins."""

from __future__ import annotations

import random
import time
import zlib
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import frames
from edged.core.frames import (
    APPEND,
    BATCH,
    BODY_BYTES_MAX,
    COMMAND,
    HEADER_BYTES,
    INTERNAL,
    MORE,
    ONLY_IF_EMPTY,
)
from edged.core.twins import Parser
from tests.core.frame_cases import REFERENCE, both, native

NONCE = 0x1122334455667788
OTHER_NONCE = 0x1122334455667789
MARK = (0x55667788).to_bytes(4, "little")
FILE_HEADER_BYTES = 64
# A CPU time that linear work stays far below and quadratic work far above, on any machine.
CPU_S_MAX = 5.0

Record = tuple[int, int, int, bytes]

indexes = st.integers(0, frames.INDEX_MAX)
records = st.lists(
    st.tuples(st.integers(1, 255), st.integers(0, frames.GROUP_MAX), indexes, st.binary(max_size=60)),
    max_size=12,
)
nonces = st.builds(lambda high, low: high << 32 | low, st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1))
messages = st.lists(
    st.tuples(
        st.binary(max_size=20),
        st.none() | st.binary(max_size=5),
        st.integers(-1, 8),
        st.binary(min_size=8, max_size=60),
    ),
    max_size=8,
)


def written(twin: Any, content: list[Record], nonce: int = NONCE, offset: int = 0) -> bytes:
    """The bytes of some frames, as they go to `offset` of a file."""
    buffer = twin.FrameBuffer()
    for record in content:
        buffer.add(*record)
    return bytes(buffer.finish(nonce, offset))


def found(twin: Any, data: bytes, start: int = 0, nonce: int = NONCE, offset: int = 0) -> list[Record]:
    """The frames that a scan finds, as they were added."""
    scan = twin.scan(data, nonce, start, offset)
    return [
        (kind, group, index, data[body_start : body_start + size])
        for _, kind, group, index, body_start, size in scan.frames
    ]


def ranges(content: list[Record]) -> list[tuple[int, int]]:
    """Where each frame starts and ends."""
    places = []
    position = 0
    for *_, body in content:
        end = position + HEADER_BYTES + len(body)
        places.append((position, end))
        position = end
    return places


def summary(scan: Any) -> tuple[list[frames.Frame], list[tuple[int, int]], int]:
    return list(scan.frames), list(scan.damage), scan.tail_start


# Twenty frames of several sizes; one of them holds the mark, one a whole frame of the same file.
TWENTY: list[Record] = [(1 + n % 3, n * 7, n * n, bytes([n]) * (n % 9)) for n in range(18)]
TWENTY.insert(5, (APPEND, 1, 99, b"x" + MARK + MARK))
TWENTY.insert(11, (COMMAND, 1, 100, written(frames, [(COMMAND, 2, 3, b"inner")])))


@both
def test_bytes_of_a_frame_are_as_described(twin: SimpleNamespace) -> None:
    data = written(twin, [(COMMAND, 0x0A0B0C, 0x010203040506, b"body")], NONCE, 4096)
    seed = zlib.crc32(NONCE.to_bytes(8, "little") + (4096).to_bytes(8, "little"))
    assert data[:4] == bytes.fromhex("88776655")
    assert data[4:8] == zlib.crc32(data[8:], seed).to_bytes(4, "little")
    assert data[8:] == bytes.fromhex("04000000 030c0b0a 0605040302010000") + b"body"
    assert data[4:8] == bytes.fromhex("bf711092")


@both
@given(records, nonces, st.integers(0, 2**40))
def test_what_is_written_is_found(
    twin: SimpleNamespace, content: list[Record], nonce: int, offset: int
) -> None:
    data = written(twin, content, nonce, offset)
    scan = twin.scan(data, nonce, 0, offset)
    assert found(twin, data, 0, nonce, offset) == content
    assert [frame[0] for frame in scan.frames] == [start for start, _ in ranges(content)]
    assert scan.damage == [] and scan.tail_start == len(data)


@both
@given(messages, st.integers(0, 2**64 - 1))
def test_appends_are_frames_that_hold_their_messages(
    twin: SimpleNamespace, batch: list[Any], ts_ns: int
) -> None:
    buffer = twin.FrameBuffer()
    first = buffer.add(BATCH, 0, 1, b"batch")
    offsets = buffer.add_appends(9, 70, ts_ns, batch)
    data = bytes(buffer.finish(NONCE, 0))
    scan = twin.scan(data, NONCE, 0)
    assert [frame[0] for frame in scan.frames] == [first, *offsets]
    assert [frame[1:4] for frame in scan.frames][1:] == [(APPEND, 9, 70 + n) for n in range(len(batch))]
    assert [twin.decode_append(data, frame[4], frame[5]) for frame in list(scan.frames)[1:]] == [
        (ts_ns, subject, max(header_bytes, 0), payload) for subject, _, header_bytes, payload in batch
    ]


@both
@pytest.mark.parametrize("flags", [MORE, ONLY_IF_EMPTY, INTERNAL, MORE | ONLY_IF_EMPTY | INTERNAL])
def test_flags_are_kept_beside_the_message_and_are_no_part_of_it(twin: SimpleNamespace, flags: int) -> None:
    buffer = twin.FrameBuffer()
    block = b"NATS/1.0\r\n\r\n"
    offsets = buffer.add_appends(1, 1, 5, [(b"a", None, flags | 12, block + b"x"), (b"a", None, flags, b"y")])
    data = bytes(buffer.finish(NONCE, 0))
    assert [twin.decode_append(data, frame[4], frame[5]) for frame in twin.scan(data, NONCE, 0).frames] == [
        (5, b"a", 12, block + b"x"),
        (5, b"a", 0, b"y"),
    ]
    for offset in offsets:
        assert frames.append_flags(data, offset + HEADER_BYTES) == flags


@both
def test_batch_of_the_parser_is_taken_as_it_is(twin: SimpleNamespace) -> None:
    parser = Parser(1024, 1024)
    parser.headers_allowed = True
    (batch,) = parser.feed(b"PUB a r 2\r\nxy\r\nHPUB b 12 13\r\nNATS/1.0\r\n\r\nz\r\n")
    buffer = twin.FrameBuffer()
    offsets = buffer.add_appends(1, 1, 5, batch)
    data = bytes(buffer.finish(NONCE, 0))
    assert len(offsets) == 2
    assert [twin.decode_append(data, frame[4], frame[5]) for frame in twin.scan(data, NONCE, 0).frames] == [
        (5, b"a", 0, b"xy"),
        (5, b"b", 12, b"NATS/1.0\r\n\r\nz"),
    ]


@both
def test_same_frames_can_be_finished_for_another_file(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer()
    buffer.add(COMMAND, 1, 2, b"abc")
    first = bytes(buffer.finish(NONCE, 0))
    second = bytes(buffer.finish(OTHER_NONCE, 512))
    assert second == written(twin, [(COMMAND, 1, 2, b"abc")], OTHER_NONCE, 512)
    assert bytes(buffer.finish(NONCE, 0)) == first


@both
def test_every_cut_keeps_the_frames_before_it(twin: SimpleNamespace) -> None:
    data = written(twin, TWENTY)
    places = ranges(TWENTY)
    for cut in range(len(data) + 1):
        scan = twin.scan(data[:cut], NONCE, 0)
        ends = [end for _, end in places if end <= cut]
        assert found(twin, data[:cut]) == TWENTY[: len(ends)]
        assert scan.damage == [] and scan.tail_start == (ends[-1] if ends else 0)


@both
def test_every_flipped_bit_costs_its_own_frame_only(twin: SimpleNamespace) -> None:
    data = bytearray(written(twin, TWENTY))
    for number, (start, end) in enumerate(ranges(TWENTY)):
        is_last = number == len(TWENTY) - 1
        for bit in range(start * 8, end * 8):
            data[bit // 8] ^= 1 << bit % 8
            damaged = bytes(data)
            data[bit // 8] ^= 1 << bit % 8
            scan = twin.scan(damaged, NONCE, 0)
            assert found(twin, damaged) == TWENTY[:number] + TWENTY[number + 1 :], bit
            assert scan.damage == ([] if is_last else [(start, end)]), bit
            assert scan.tail_start == (start if is_last else len(data)), bit


@both
@given(st.binary(max_size=200), records)
def test_garbage_behind_the_end_is_the_tail(
    twin: SimpleNamespace, garbage: bytes, content: list[Record]
) -> None:
    data = written(twin, content)
    for tail in (garbage, MARK + garbage, bytes(100), bytes(30) + MARK):
        scan = twin.scan(data + tail, NONCE, 0)
        assert found(twin, data + tail) == content
        assert scan.damage == [] and scan.tail_start == len(data)


@both
def test_frames_of_an_earlier_use_of_the_file_are_not_found(twin: SimpleNamespace) -> None:
    old = written(twin, TWENTY, OTHER_NONCE)
    # Another nonce may even have the same mark.
    same_mark = written(twin, TWENTY, NONCE + 2**32)
    new = written(twin, TWENTY[:3])
    for left_over in (old, same_mark):
        data = new + left_over[len(new) :]
        assert found(twin, data) == TWENTY[:3]
        assert twin.scan(data, NONCE, 0).tail_start == len(new)


@both
def test_frame_at_another_place_is_not_found(twin: SimpleNamespace) -> None:
    data = written(twin, TWENTY)
    for shift in (1, 24, 512, 4096, 2**32):
        assert found(twin, bytes(shift % 8192) + data, offset=0 if shift < 8192 else shift) == []
        assert found(twin, data, offset=shift) == []


@both
def test_part_of_a_file_is_scanned_from_where_it_is_told_to(twin: SimpleNamespace) -> None:
    data = bytes(FILE_HEADER_BYTES) + written(twin, TWENTY, offset=FILE_HEADER_BYTES)
    whole = twin.scan(data, NONCE, FILE_HEADER_BYTES)
    assert found(twin, data, FILE_HEADER_BYTES) == TWENTY and whole.damage == []
    assert twin.scan(data, NONCE, 0).damage == [(0, FILE_HEADER_BYTES)]
    border = list(whole.frames)[7][0]
    assert found(twin, data[border:], offset=border) == TWENTY[7:]
    assert found(twin, data, border) == TWENTY[7:]
    assert summary(twin.scan(data, NONCE, len(data))) == ([], [], len(data))


@both
def test_frames_within_a_damaged_frame_are_not_taken_for_records(twin: SimpleNamespace) -> None:
    inner = written(twin, [(COMMAND, 1, n, b"inner" * n) for n in range(50)])
    content = [(APPEND, 1, 1, inner), (COMMAND, 2, 2, b"after")]
    data = bytearray(written(twin, content))
    data[HEADER_BYTES + 3] ^= 1
    assert found(twin, bytes(data)) == content[1:]
    assert twin.scan(bytes(data), NONCE, 0).damage == [ranges(content)[0]]


def forged(count: int, size_of: Any) -> bytes:
    """Headers with the right mark whose sizes fit into what follows."""
    buffer = bytearray()
    for number in range(count):
        rest = (count - number - 1) * HEADER_BYTES
        buffer += MARK + bytes(4) + size_of(rest).to_bytes(4, "little") + b"\x02" + bytes(11)
    return bytes(buffer)


@both
@pytest.mark.parametrize(
    "size_of", [lambda rest: rest, lambda rest: rest // 2, lambda rest: min(rest, 65536)]
)
def test_forged_sizes_cost_linear_time_and_hide_no_frame(twin: SimpleNamespace, size_of: Any) -> None:
    forgery = forged(100_000, size_of)
    real = [(COMMAND, 1, n, b"x" * 200) for n in range(10)]
    data = forgery + written(twin, real, offset=len(forgery))
    started = time.process_time()
    scan = twin.scan(data, NONCE, 0)
    assert time.process_time() - started < CPU_S_MAX
    assert found(twin, data) == real
    assert scan.damage == [(0, len(forgery))] and scan.tail_start == len(data)


@both
def test_marks_without_end_cost_linear_time(twin: SimpleNamespace) -> None:
    # Every fourth byte begins a header whose size and kind are plausible.
    nonce = 0x00000102
    data = nonce.to_bytes(4, "little") * 500_000
    started = time.process_time()
    assert summary(twin.scan(data, nonce, 0)) == ([], [], 0)
    assert time.process_time() - started < CPU_S_MAX


@both
def test_frame_of_an_unknown_kind_is_found_and_kind_zero_is_none(twin: SimpleNamespace) -> None:
    assert found(twin, written(twin, [(200, 1, 1, b"new")])) == [(200, 1, 1, b"new")]
    with pytest.raises(AssertionError):
        twin.FrameBuffer().add(0, 1, 1, b"")


@both
def test_frames_can_be_counted_picked_and_compared(twin: SimpleNamespace) -> None:
    found_frames = twin.scan(written(twin, TWENTY), NONCE, 0).frames
    expected = frames.scan(written(frames, TWENTY), NONCE, 0).frames
    assert len(found_frames) == 20 and found_frames == expected
    assert found_frames[0] == expected[0] and found_frames[-1] == expected[-1]
    assert list(found_frames[3:7]) == expected[3:7]
    with pytest.raises(IndexError):
        found_frames[20]


@both
def test_nonce_without_a_mark_is_refused(twin: SimpleNamespace) -> None:
    for nonce in (0, 5 << 32, 2**64 + 1, -1):
        with pytest.raises(ValueError, match="nonce"):
            twin.scan(b"", nonce, 0)
        with pytest.raises(ValueError, match="nonce"):
            twin.FrameBuffer().finish(nonce, 0)


@both
def test_message_that_is_too_large_is_refused_and_leaves_the_buffer_as_it_was(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer()
    buffer.add(COMMAND, 1, 1, b"kept")
    before = bytes(buffer.finish(NONCE, 0))
    fits = (b"a", None, -1, b"x")
    for too_large in ((b"s" * 65536, None, -1, b""), (b"a", None, -1, bytes(BODY_BYTES_MAX - 14))):
        with pytest.raises(ValueError, match="does not fit"):
            buffer.add_appends(1, 2, 3, [fits, too_large, fits])
        assert bytes(buffer.finish(NONCE, 0)) == before
    with pytest.raises(ValueError, match="does not fit"):
        buffer.add(COMMAND, 1, 1, bytes(BODY_BYTES_MAX + 1))
    assert len(buffer) == len(before)


@both
def test_frames_behind_a_cut_are_forgotten_and_others_take_their_place(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer(0, 100)
    buffer.add(COMMAND, 1, 1, b"kept")
    size = len(buffer)
    buffer.add_appends(1, 2, 3, [(b"a", None, -1, b"x" * 500)] * 3)
    buffer.cut(size)
    buffer.add(COMMAND, 1, 2, b"new")
    assert bytes(buffer.finish(NONCE, 0)) == written(
        twin, [(COMMAND, 1, 1, b"kept"), (COMMAND, 1, 2, b"new")]
    )
    for wrong in (-1, len(buffer) + 1):
        with pytest.raises(AssertionError):
            twin.FrameBuffer().cut(wrong)


@both
def test_largest_body_fits(twin: SimpleNamespace) -> None:
    data = written(twin, [(COMMAND, 1, 1, bytes(BODY_BYTES_MAX))])
    assert twin.scan(data, NONCE, 0).tail_start == len(data)


@both
def test_numbers_out_of_their_fields_are_our_fault(twin: SimpleNamespace) -> None:
    for wrong in ((256, 1, 1), (-1, 1, 1), (1, 2**24, 1), (1, -1, 1), (1, 1, 2**48), (1, 1, -1)):
        with pytest.raises(AssertionError):
            twin.FrameBuffer().add(*wrong, b"")


@both
def test_buffer_cannot_grow_while_its_bytes_are_in_use(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer()
    buffer.add(COMMAND, 1, 1, b"body")
    view = buffer.finish(NONCE, 0)
    before = bytes(view)
    for change in (
        lambda: buffer.add(COMMAND, 1, 2, b""),
        lambda: buffer.add_appends(1, 2, 3, [(b"a", None, -1, b"x")]),
        buffer.clear,
    ):
        with pytest.raises(BufferError):
            change()
    assert bytes(view) == before and view.readonly
    assert buffer.bytes_at(HEADER_BYTES, 4) == b"body"
    view.release()
    buffer.add(COMMAND, 1, 2, b"")
    assert len(buffer) == len(before) + HEADER_BYTES


@both
def test_bytes_outlive_the_buffer_that_made_them(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer()
    buffer.add(COMMAND, 1, 1, b"body" * 1000)
    view = buffer.finish(NONCE, 0)
    expected = bytes(view)
    del buffer
    assert bytes(view) == expected


@both
def test_cleared_buffer_begins_anew(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer()
    buffer.add_appends(1, 1, 1, [(b"a", None, -1, b"x" * 5000)] * 50)
    buffer.clear()
    assert len(buffer) == 0 and bytes(buffer.finish(NONCE, 0)) == b""
    assert buffer.add(COMMAND, 1, 1, b"x") == 0
    assert bytes(buffer.finish(NONCE, 0)) == written(twin, [(COMMAND, 1, 1, b"x")])


@both
def test_bytes_are_read_from_anywhere_in_the_buffer_and_not_beyond(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer()
    buffer.add(COMMAND, 1, 1, b"abcdef")
    assert buffer.bytes_at(HEADER_BYTES + 1, 4) == b"bcde"
    expected = bytes(buffer.finish(NONCE, 0))
    assert buffer.bytes_at(0, len(buffer)) == expected
    assert buffer.bytes_at(len(buffer), 0) == b""
    for offset, size in ((-1, 2), (0, len(buffer) + 1), (len(buffer), 1), (2, -1)):
        with pytest.raises(AssertionError):
            buffer.bytes_at(offset, size)


@both
def test_append_that_contradicts_itself_is_refused(twin: SimpleNamespace) -> None:
    buffer = twin.FrameBuffer()
    buffer.add_appends(1, 1, 5, [(b"subject", None, 3, b"abcdef")])
    body = bytes(buffer.finish(NONCE, 0))[HEADER_BYTES:]
    assert twin.decode_append(body, 0, len(body)) == (5, b"subject", 3, b"abcdef")
    assert twin.decode_append(b"zz" + body, 2, len(body) - 3) == (5, b"subject", 3, b"abc")
    for size in range(len(body) - 3):
        with pytest.raises(ValueError, match="append"):
            twin.decode_append(body, 0, size)
    for start, size in ((0, len(body) + 1), (1, len(body)), (-1, 20), (5, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match="append"):
            twin.decode_append(body, start, size)


@given(records, st.randoms(use_true_random=False), st.integers(0, 40))
def test_twins_agree_on_any_damage(content: list[Record], chance: random.Random, start: int) -> None:
    data = bytearray(written(frames, content, offset=7))
    for _ in range(chance.randrange(6)):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[place : place + chance.randrange(40)]
            case 2:
                data[place:place] = MARK + bytes([0, 0, 0, 0, chance.randrange(64), 0, 0, 0, 2]) + bytes(11)
            case _:
                data[place : place + 30] = data[place : place + 30][::-1]
    expected = frames.scan(bytes(data), NONCE, start, 7)
    assert summary(native().scan(bytes(data), NONCE, start, 7)) == summary(expected)


@given(records, messages, nonces, st.integers(0, 2**63))
def test_twins_write_the_same_bytes(content: list[Record], batch: list[Any], nonce: int, offset: int) -> None:
    def bytes_of(twin: Any) -> tuple[list[int], bytes]:
        buffer = twin.FrameBuffer()
        offsets = [buffer.add(*record) for record in content]
        offsets += buffer.add_appends(3, 4, 5, batch)
        return offsets, bytes(buffer.finish(nonce, offset))

    assert bytes_of(native()) == bytes_of(REFERENCE)
