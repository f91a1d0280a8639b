"""Checksums of the native frames are those of zlib, whichever way the processor can compute them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from edged.core import _frames
from edged.core.frames import COMMAND, HEADER_BYTES

NONCE = 0x1122334455667788
OFFSET = 777
# Around each border: of words, of lanes of 16 bytes, of four lanes.
SIZES = [*range(150), 255, 256, 257, 1000, 4096, 65_537]


@pytest.fixture(params=["tables", "multiplying"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Tables, which every processor has; and what this one does by itself, which may be the same."""
    _frames.multiply(request.param == "multiplying")
    yield request.param
    _frames.multiply(True)


def frames_of(sizes: list[int]) -> bytes:
    buffer = _frames.FrameBuffer()
    for index, size in enumerate(sizes):
        buffer.add(COMMAND, 7, index, bytes((place * 37 + size) & 0xFF for place in range(size)))
    return bytes(buffer.finish(NONCE, OFFSET))


def checksum(data: bytes, at: int, size: int) -> bytes:
    place = NONCE.to_bytes(8, "little") + (OFFSET + at).to_bytes(8, "little")
    return zlib.crc32(data[at + 8 : at + HEADER_BYTES + size], zlib.crc32(place)).to_bytes(4, "little")


@pytest.mark.usefixtures("way")
def test_a_frame_of_any_size_has_the_checksum_of_zlib_alone_and_beside_others() -> None:
    for size in SIZES:
        for sizes in ([size], [size, size + 5], [size, 0, size]):
            data = frames_of(sizes)
            at = 0
            for number in sizes:
                assert data[at + 4 : at + 8] == checksum(data, at, number), (size, sizes)
                at += HEADER_BYTES + number
            assert len(_frames.scan(data, NONCE, 0, OFFSET).frames) == len(sizes)


@pytest.mark.usefixtures("way")
def test_a_flipped_bit_anywhere_in_a_frame_is_noticed() -> None:
    data = frames_of([200])
    for place in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        # The upper 16 bits of the index are not read, but are part of the checksum.
        assert not _frames.scan(bytes(damaged), NONCE, 0, OFFSET).frames, place


def test_one_way_gives_the_bytes_of_the_other() -> None:
    found = []
    for is_multiplying in (True, False):
        _frames.multiply(is_multiplying)
        found.append(frames_of(SIZES))
    _frames.multiply(True)
    assert found[0] == found[1]
