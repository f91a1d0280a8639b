"""S2 and HighwayHash: the format's own rules, what another implementation wrote, and input made to do harm.

The files in `tests/data/s2` were written by the Go package github.com/klauspost/compress v1.18.6.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.s2 import BLOCK_BYTES_MAX, SNAPPY_BLOCK_BYTES_MAX, S2Error
from edged.core.s2_stream import IDENTIFIER, S2Reader, S2Writer, masked_checksum
from tests.core.s2_cases import NATIVE, REFERENCE, both
from tests.examples import examples

DATA = Path(__file__).parent.parent / "data" / "s2"
CUBES = b"".join(b"%d;" % number**3 for number in range(150))
KNOWN = CUBES + b"abc" * 30_000 + bytes(range(256)) + CUBES
SNAPPY = b"\xff\x06\x00\x00sNaPpY"
LARGE = 1 << 30

# Bytes with repetitions in them, near and far, short and long.
repetitive = st.lists(st.one_of(st.binary(max_size=70), st.integers(1, 70_000)), min_size=1, max_size=12).map(
    lambda parts: b"".join(part if isinstance(part, bytes) else b"tick" * (part // 4) for part in parts)
)


def chunk(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "little") + body


def plain_chunk(data: bytes) -> bytes:
    return chunk(1, masked_checksum(data).to_bytes(4, "little") + data)


def block_chunk(block: bytes, data: bytes) -> bytes:
    return chunk(0, masked_checksum(data).to_bytes(4, "little") + block)


def read(stream: bytes, output_bytes_max: int = LARGE, step: int = LARGE) -> bytes:
    reader = S2Reader(output_bytes_max)
    output = bytearray()
    for position in range(0, len(stream), step):
        reader.feed(stream[position : position + step])
        while (block := reader.next_block()) is not None:
            output += block
    reader.finish()
    return bytes(output)


# --- blocks ---


@both
def test_the_checksum_is_the_one_of_the_standard(twin: SimpleNamespace) -> None:
    assert twin.crc32c(b"123456789") == 0xE3069283
    assert twin.crc32c(b"") == 0
    assert twin.crc32c(memoryview(bytes(32))) == 0x8A9136AA


@both
@pytest.mark.parametrize(
    ("block", "data"),
    [
        (b"\x00", b""),
        (b"\x03\x08abc", b"abc"),
        (b"\x46\xf0\x45" + b"x" * 70, b"x" * 70),
        (b"\x46\xf4\x45\x00" + b"x" * 70, b"x" * 70),
        (b"\x46\xf8\x45\x00\x00" + b"x" * 70, b"x" * 70),
        (b"\x46\xfc\x45\x00\x00\x00" + b"x" * 70, b"x" * 70),
        # Copies of the three kinds, the first of them over what it writes itself.
        (b"\x0a\x04ab\x11\x02", b"ab" * 5),
        (b"\x0a\x04ab\x1e\x02\x00", b"ab" * 5),
        (b"\x0a\x04ab\x1f\x02\x00\x00\x00", b"ab" * 5),
        # The last offset again, with the length in no, one, two and three more bytes.
        (b"\x0e\x04ab\x11\x02\x01\x00", b"ab" * 7),
        (b"\x12\x04ab\x11\x02\x15\x00\x00", b"ab" * 9),
        (b"\x8e\x02\x04ab\x11\x02\x19\x00\x00\x00", b"ab" * 135),
        (b"\x8e\x80\x04\x04ab\x11\x02\x1d\x00\x00\x00\x00", b"ab" * 32775),
    ],
)
def test_every_kind_of_element_decodes(twin: SimpleNamespace, block: bytes, data: bytes) -> None:
    assert twin.decode_block(block, len(data)) == data


@both
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"", id="nothing at all"),
        pytest.param(b"\x80\x80\x80\x80\x80\x00", id="a size that does not end"),
        pytest.param(b"\x05\x08abc", id="less than it says"),
        pytest.param(b"\x02\x08abc", id="more than it says"),
        pytest.param(b"\x05\x10abc", id="a literal past the end"),
        pytest.param(b"\x05\xf0", id="a literal without its length"),
        pytest.param(b"\x05\xfc\xff\xff\xff\xff", id="a literal of four gigabytes"),
        pytest.param(b"\x06\x04ab\x01\x00", id="the last offset when there was none"),
        pytest.param(b"\x06\x04ab\x01\x03", id="a copy from before the start"),
        pytest.param(b"\x06\x04ab\x0e\x00\x00", id="a copy with offset zero"),
        pytest.param(b"\x06\x04ab\x0d\x02", id="a copy past the size"),
        pytest.param(b"\x06\x04ab\x0e\x02", id="a copy without its offset"),
        pytest.param(b"\x06\x04ab\x0f\xff\xff\xff\xff", id="a copy from four gigabytes before"),
        pytest.param(b"\x0e\x04ab\x11\x02\x1d\x00\xff\xff", id="a repeat without its length"),
    ],
)
def test_a_block_that_is_none_is_refused(twin: SimpleNamespace, block: bytes) -> None:
    with pytest.raises(S2Error):
        twin.decode_block(block, LARGE)


@both
def test_a_block_declaring_more_than_allowed_is_refused_before_it_is_made(
    twin: SimpleNamespace,
) -> None:
    with pytest.raises(S2Error, match="declares"):
        twin.decode_block(b"\xff\xff\xff\xff\x7f\x00a", BLOCK_BYTES_MAX)


@both
@settings(max_examples=examples(60), deadline=None)
@given(data=repetitive)
def test_what_is_encoded_decodes_to_the_same_with_either_twin(twin: SimpleNamespace, data: bytes) -> None:
    block = twin.encode_block(data)
    assert REFERENCE.decode_block(block, len(data)) == data
    assert NATIVE.decode_block(block, len(data)) == data


def test_the_native_encoder_finds_repetitions_near_and_far() -> None:
    far = bytes(range(256)) * 2
    for data in (b"a" * 100_000, b"ab" * 50_000, KNOWN, far + CUBES * 100 + far):
        assert len(NATIVE.encode_block(data)) < len(data) // 5


def test_the_native_encoder_grows_what_does_not_compress_by_little() -> None:
    state, numbers = 1, bytearray()
    for _ in range(200_000):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        numbers.append(state >> 56)
    assert len(NATIVE.encode_block(bytes(numbers))) <= len(numbers) + 16


@settings(max_examples=examples(300), deadline=None)
@given(data=repetitive, cut=st.integers(0, 1 << 20), junk=st.binary(max_size=6), keep=st.booleans())
def test_damaged_blocks_decode_alike_or_fail_alike(data: bytes, cut: int, junk: bytes, keep: bool) -> None:
    block = NATIVE.encode_block(data)
    cut %= len(block)
    damaged = block[:cut] + junk + (block[cut + len(junk) :] if keep else b"")
    outcomes = []
    for twin in (REFERENCE, NATIVE):
        try:
            outcomes.append(twin.decode_block(damaged, BLOCK_BYTES_MAX))
        except S2Error as error:
            outcomes.append(str(error).encode())
    assert outcomes[0] == outcomes[1]


# --- streams ---


@pytest.mark.parametrize("name", ["default.s2", "best.s2", "index-and-padding.s2", "snappy.s2"])
@pytest.mark.parametrize("step", [1, 7, LARGE])
def test_a_stream_of_another_implementation_is_read_however_it_is_cut(name: str, step: int) -> None:
    assert read((DATA / name).read_bytes(), step=step) == KNOWN


@settings(max_examples=examples(50), deadline=None)
@given(
    parts=st.lists(repetitive, max_size=4), block_bytes=st.integers(100, 80_000), step=st.integers(1, 5000)
)
def test_what_is_written_is_read_again(parts: list[bytes], block_bytes: int, step: int) -> None:
    writer = S2Writer(block_bytes)
    stream = b"".join([*(writer.write(part) for part in parts), writer.flush()])
    assert stream.startswith(IDENTIFIER)
    assert read(stream, step=step) == b"".join(parts)


def test_flush_gives_out_what_was_gathered_and_writing_goes_on() -> None:
    writer = S2Writer()
    first = writer.write(b"one") + writer.flush()
    assert read(first) == b"one"
    assert read(first + writer.write(b"two") + writer.flush()) == b"onetwo"
    assert writer.flush() == b""


def test_an_empty_stream_is_its_identifier() -> None:
    assert S2Writer().flush() == IDENTIFIER
    assert read(IDENTIFIER) == b""


def test_streams_one_after_the_other_are_one() -> None:
    assert read(IDENTIFIER + plain_chunk(b"a") + SNAPPY + plain_chunk(b"b")) == b"ab"


def test_chunks_that_may_be_skipped_are() -> None:
    skipped = chunk(0xFE, bytes(100_000)) + chunk(0x99, b"index") + chunk(0x80, b"")
    stream = IDENTIFIER + skipped + plain_chunk(b"a") + skipped
    assert read(stream) == b"a"
    assert read(stream, step=11) == b"a"


def test_what_is_skipped_is_not_kept() -> None:
    reader = S2Reader(LARGE)
    reader.feed(IDENTIFIER + b"\xfe\xff\xff\xff")
    for _ in range(100):
        reader.feed(bytes(10_000))
        assert reader.next_block() is None
    assert len(reader._input) == 0


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(plain_chunk(b"a"), id="no identifier"),
        pytest.param(chunk(0xFE, b""), id="padding before the identifier"),
        pytest.param(chunk(0xFF, b"S2sThr"), id="another identifier"),
        pytest.param(chunk(0xFF, b"S2sTwO2"), id="a longer identifier"),
        pytest.param(IDENTIFIER + chunk(2, b"abcdef"), id="an unknown kind"),
        pytest.param(IDENTIFIER + chunk(0x7F, b""), id="another unknown kind"),
        pytest.param(IDENTIFIER + chunk(0, b"abc"), id="no checksum"),
        pytest.param(IDENTIFIER + plain_chunk(b"abc")[:-1] + b"d", id="a wrong checksum"),
        pytest.param(IDENTIFIER + block_chunk(b"\x03\x08abc", b"abd"), id="a wrong checksum after decoding"),
        pytest.param(IDENTIFIER + plain_chunk(b"abc")[:-1], id="cut within a chunk"),
        pytest.param(IDENTIFIER + b"\x01\x05", id="cut within the start of a chunk"),
        pytest.param(IDENTIFIER + b"\xfe\x05\x00\x00abc", id="cut within what is skipped"),
        pytest.param(IDENTIFIER + b"\x00\xff\xff\xff", id="a chunk longer than a block can be"),
        pytest.param(IDENTIFIER + plain_chunk(bytes(BLOCK_BYTES_MAX + 1)), id="a block too large"),
        pytest.param(SNAPPY + plain_chunk(bytes(SNAPPY_BLOCK_BYTES_MAX + 1)), id="too large for Snappy"),
    ],
)
def test_a_stream_that_is_none_is_refused(stream: bytes) -> None:
    with pytest.raises(S2Error):
        read(stream)


def test_a_reader_that_failed_fails_again_whatever_comes() -> None:
    reader = S2Reader(LARGE)
    reader.feed(IDENTIFIER + chunk(2, b""))
    for _ in range(2):
        with pytest.raises(S2Error, match="unknown kind"):
            reader.next_block()
        reader.feed(plain_chunk(b"a"))
    with pytest.raises(S2Error, match="unknown kind"):
        reader.finish()


def test_a_bomb_ends_at_the_budget_and_gives_one_block_at_a_time() -> None:
    zeros = bytes(BLOCK_BYTES_MAX)
    bomb = block_chunk(NATIVE.encode_block(zeros), zeros)
    assert len(bomb) < 50
    reader = S2Reader(3 * BLOCK_BYTES_MAX)
    reader.feed(IDENTIFIER + bomb * 1000)
    for _ in range(3):
        assert reader.next_block() == zeros
    with pytest.raises(S2Error, match="declares"):
        reader.next_block()
    assert reader.output_bytes == 3 * BLOCK_BYTES_MAX


@settings(max_examples=examples(200), deadline=None)
@given(position=st.integers(0, 3000), junk=st.binary(min_size=1, max_size=5), step=st.integers(1, 4000))
def test_a_damaged_stream_gives_what_was_good_or_an_error_and_nothing_else(
    position: int, junk: bytes, step: int
) -> None:
    stream = bytearray((DATA / "default.s2").read_bytes())
    position %= len(stream)
    stream[position : position + len(junk)] = junk
    try:
        output = read(bytes(stream), output_bytes_max=len(KNOWN), step=step)
    except S2Error:
        return
    # A chunk may have become one that is skipped.
    assert len(output) <= len(KNOWN)


# --- HighwayHash ---


@both
def test_the_hash_is_the_one_of_its_authors(twin: SimpleNamespace) -> None:
    key = bytes(range(32))
    # The first values of the table that comes with the algorithm.
    for size, expected in ((0, 0x907A56DE22C26E53), (1, 0x7EAB43AAC7CDDD78), (2, 0xB8D0569AB0B53D62)):
        assert twin.highway_hash(key, bytes(range(size))) == expected.to_bytes(8, "little")


@settings(max_examples=examples(150), deadline=None)
@given(key=st.binary(min_size=32, max_size=32), data=st.binary(max_size=200))
def test_both_twins_hash_alike(key: bytes, data: bytes) -> None:
    assert REFERENCE.highway_hash(key, data) == NATIVE.highway_hash(key, data)
