"""Journal frames of an encrypted store: every body sealed on its own, so that damage costs one record.

The body is followed by the tag of the cipher; its position in the file is the nonce, as each file has a key
of its own and nothing is ever written twice to one place. Kind, group and index are authenticated along.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edged.core.frame_twins import FrameBuffer
from edged.core.frames import HEADER_BYTES, Frame
from edged.store.errors import Damaged

if TYPE_CHECKING:
    from edged.store.box import Box

TAG_BYTES: Final = 16
PURPOSE: Final = b"journal"
_AAD: Final = struct.Struct("<IIQ")
_HEAD: Final = struct.Struct("<8xIIQ")


def seal_frames(plain: FrameBuffer, box: Box, offset: int) -> FrameBuffer:
    """The frames of a buffer made with TAG_BYTES, sealed for a write at this offset; sizes stay the same."""
    data = plain.bytes_at(0, len(plain))
    sealed = FrameBuffer()
    position = 0
    while position < len(data):
        size, kind_and_group, index = _HEAD.unpack_from(data, position)
        kind, group = kind_and_group & 0xFF, kind_and_group >> 8
        body = data[position + HEADER_BYTES : position + HEADER_BYTES + size - TAG_BYTES]
        sealed.add(kind, group, index, box.seal_at(offset + position, body, _AAD.pack(kind, group, index)))
        position += HEADER_BYTES + size
    assert len(sealed) == len(plain)
    return sealed


def open_frames(
    data: bytes, frames: Sequence[Frame], box: Box, offset: int
) -> tuple[bytes, list[Frame], list[tuple[int, int]]]:
    """The same data with plain bodies, frames that say so, and the ranges of those that cannot be opened.

    `data` begins at `offset` of its file.
    """
    opened = bytearray(data)
    good: list[Frame] = []
    bad: list[tuple[int, int]] = []
    for start, kind, group, index, body_start, size in frames:
        sealed = data[body_start : body_start + size]
        try:
            body = box.open_at(offset + start, sealed, _AAD.pack(kind, group, index))
        except Damaged:
            bad.append((start, body_start + size))
            continue
        opened[body_start : body_start + len(body)] = body
        good.append((start, kind, group, index, body_start, len(body)))
    return bytes(opened), good, bad
