"""The nonce of a journal file whose header is gone, computed from its frames.

A frame begins with the lower half of the nonce, and its checksum was begun with the whole nonce and the
frame's offset. A CRC can be run backwards: from the checksum of one good frame to the value that it was begun
with, and from there to the half that is missing. Whether the answer is right, the other frames tell; every
batch has two at least.

Rules: nothing is believed that fewer than two frames confirm. Work is bounded, whatever the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from edged.core.frame_twins import scan
from edged.core.frames import BATCH, BODY_BYTES_MAX, COMMAND
from edged.core.frames import HEADER_BYTES as FRAME_HEADER_BYTES
from edged.store.journal_file import HEADER_BYTES

_POLYNOMIAL: Final = 0xEDB88320
_ALL: Final = 0xFFFFFFFF
_FRAME: Final = struct.Struct("<IIII")
# How many places are tried, and how large a frame may be that is run backwards, a byte at a time.
_PLACES_MAX: Final = 64
_BACKWARD_BYTES_MAX: Final = 1 << 20


def _table() -> list[int]:
    values = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        values.append(value)
    return values


_FORWARD: Final = _table()
# The entry of the table by its highest byte, which no two entries share.
_BACKWARD: Final = {value >> 24: position for position, value in enumerate(_FORWARD)}


def _run_forward(register: int, data: bytes) -> int:
    for byte in data:
        register = register >> 8 ^ _FORWARD[(register ^ byte) & 0xFF]
    return register


def _run_backward(register: int, data: bytes) -> int:
    for byte in reversed(data):
        position = _BACKWARD[register >> 24]
        register = (register ^ _FORWARD[position]) << 8 & _ALL | position ^ byte
    return register


def nonce_from_frame(data: bytes, offset: int) -> int:
    """The nonce that makes the frame at `offset` of a file's bytes a good one."""
    mark: int
    mark, checksum, size, _ = _FRAME.unpack_from(data, offset)
    end = offset + FRAME_HEADER_BYTES + size
    # A CRC begins and ends with all bits turned over, so between two of them they cancel out.
    register = _run_backward(checksum ^ _ALL, data[offset + 8 : end])
    register = _run_backward(register, offset.to_bytes(8, "little"))
    lower = _run_forward(_ALL, mark.to_bytes(4, "little"))
    # Four bytes that go in are the same as zeros that go into a register changed by them.
    upper = _run_backward(register, bytes(4)) ^ lower
    return upper << 32 | mark


def recover_nonce(data: bytes) -> int | None:
    """The nonce of a journal file from all its bytes, or None if its frames do not tell."""
    if len(data) < HEADER_BYTES + FRAME_HEADER_BYTES:
        return None
    mark = data[HEADER_BYTES : HEADER_BYTES + 4]
    if not any(mark):
        return None
    for offset in _places(data, mark):
        nonce = nonce_from_frame(data, offset)
        frames = scan(data, nonce, HEADER_BYTES).frames
        if len(frames) >= 2:
            return nonce
    return None


def _places(data: bytes, mark: bytes) -> Iterator[int]:
    """Where frames seem to be that can be run backwards in reasonable time."""
    offset = HEADER_BYTES
    for _ in range(_PLACES_MAX):
        _, _, size, kind_and_group = _FRAME.unpack_from(data, offset)
        end = offset + FRAME_HEADER_BYTES + size
        is_frame = BATCH <= kind_and_group & 0xFF <= COMMAND and size <= BODY_BYTES_MAX and end <= len(data)
        if is_frame and size <= _BACKWARD_BYTES_MAX:
            yield offset
        offset = data.find(mark, offset + 1)
        if offset < 0 or offset + FRAME_HEADER_BYTES > len(data):
            return
