"""Journal frames: how records are laid out in a journal file, and how they are found again, without I/O.

A frame, little endian:

     0  u32  mark: the low half of the file's nonce, never 0
     4  u32  checksum: crc32 over the bytes from 8 to the end, begun with crc32(nonce u64, offset u64)
     8  u32  size of the body
    12  u32  kind in the low 8 bits, group above
    16  u64  index in the low 48 bits; the upper 16 are written as 0 and not read
    24       body

Rules:
* Nonce and offset are part of the checksum, so a frame counts only in the file and at the place that it was
  written for. What an earlier use of the file left behind is not found.
* A FrameBuffer gathers frames before it is known where they go; `finish()` fills in marks and checksums, and
  may do so again for another file.
* No size is believed before its checksum. After damage the next frame is found by its mark.
* `header_bytes` of a message that is added may carry the flags MORE, ONLY_IF_EMPTY, INTERNAL, FOLLOWS. What
  is read has them no more; `append_flags()` gives them.
* What a scan checksums in vain is bounded by a multiple of what it was given, so that bytes made to look like
  frames cost linear time. Each magnitude of sizes has its own bound: forged large frames do not use up what
  finds the small ones. Beyond it, candidates are passed over.

This is the reference; `_frames.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from edged.core.wire import Publish

BATCH: Final = 1
APPEND: Final = 2
COMMAND: Final = 3
# Of groups that several nodes have, see replica_records.py.
HARD_STATE: Final = 4
CUT: Final = 5
MEMBERS: Final = 6
INSTALL: Final = 7
REPAIR: Final = 8

HEADER_BYTES: Final = 24
# The largest payload that can be configured, with room for its subject and header.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024 + 64 * 1024
GROUP_MAX: Final = 2**24 - 1
INDEX_MAX: Final = 2**48 - 1
SUBJECT_BYTES_MAX: Final = 2**16 - 1
# In an APPEND body the upper bits of the size of the header block say more about the message.
HEADER_SIZE_MASK: Final = 2**27 - 1
# A member of an atomic batch: at least one more follows directly.
MORE: Final = 1 << 31
# Stored only while its subject has no message.
ONLY_IF_EMPTY: Final = 1 << 30
# Made by a server, not sent by a client: from an origin, by a schedule, or a delete marker.
INTERNAL: Final = 1 << 29
# Taken only if the message before it was not refused: those of an origin come in their order, without gaps.
FOLLOWS: Final = 1 << 28
# How many times the given bytes a scan may checksum in vain, for each power of two of sizes. A damaged frame
# costs its size once, and a frame stored inside of a message once more: only bytes made to reach this do.
WASTE_FACTOR: Final = 2

_HEADER: Final = struct.Struct("<IIIIQ")
_MARK_AND_CHECKSUM: Final = struct.Struct("<II")
_APPEND: Final = struct.Struct("<QIH")
_PLACE: Final = struct.Struct("<QQ")

# (offset in the data, kind, group, index, where the body starts, its size): a tuple, there is one per record.
Frame = tuple[int, int, int, int, int, int]


def mark_of(nonce: int) -> int:
    """What every frame of a file begins with. A nonce without a mark is refused: zeros are no frames."""
    mark = nonce & 0xFFFFFFFF
    if mark == 0 or nonce >> 64:
        raise ValueError(f"not a nonce: {nonce}")
    return mark


def append_frame_bytes(subject_bytes: int, data_bytes: int) -> int:
    """The size of the frame of a message."""
    return HEADER_BYTES + _APPEND.size + subject_bytes + data_bytes


def _header(kind: int, group: int, index: int, size: int) -> bytes:
    """A header whose mark and checksum are still missing."""
    assert 0 < kind <= 0xFF and 0 <= group <= GROUP_MAX and 0 <= index <= INDEX_MAX, (kind, group, index)
    if size > BODY_BYTES_MAX:
        raise ValueError(f"a body of {size} bytes does not fit into a frame")
    return _HEADER.pack(0, 0, size, kind | group << 8, index)


class FrameBuffer:
    """The frames of a batch that gathers. What `finish()` returned must be gone before it grows again.

    With `tag_bytes` each body is followed by so many zeros, which count for its size: room for the tag of a
    cipher, so that offsets are the same before and after it. `capacity` is how large it will be, about.
    """

    __slots__ = ("_data", "_tag")

    def __init__(self, tag_bytes: int = 0, capacity: int = 0) -> None:
        self._data = bytearray()
        self._tag = bytes(tag_bytes)

    def __len__(self) -> int:
        return len(self._data)

    def add(self, kind: int, group: int, index: int, body: bytes) -> int:
        """Append a frame; return where in the buffer it starts."""
        offset = len(self._data)
        self._data += _header(kind, group, index, len(body) + len(self._tag)) + body + self._tag
        return offset

    def add_raw(self, frames: bytes) -> int:
        """Append frames as they lie in another buffer, of the same tag; return where they start."""
        offset = len(self._data)
        self._data += frames
        return offset

    def add_appends(self, group: int, first_index: int, ts_ns: int, messages: Iterable[Publish]) -> list[int]:
        """Append a frame for each message, with indexes that count up; none at all if one is too large."""
        tag = self._tag
        offset = len(self._data)
        offsets = []
        pieces: list[bytes] = []
        for index, (subject, _reply, header_bytes, data) in enumerate(messages, first_index):
            if len(subject) > SUBJECT_BYTES_MAX:
                raise ValueError(f"a subject of {len(subject)} bytes does not fit into a frame")
            size = _APPEND.size + len(subject) + len(data) + len(tag)
            head = _APPEND.pack(ts_ns, max(header_bytes, 0), len(subject))
            pieces += (_header(APPEND, group, index, size), head, subject, data, tag)
            offsets.append(offset)
            offset += HEADER_BYTES + size
        self._data += b"".join(pieces)
        return offsets

    def finish(self, nonce: int, offset: int) -> memoryview:
        """Fill in marks and checksums for a write at `offset` of the file with this nonce; the bytes."""
        mark = mark_of(nonce)
        view = memoryview(self._data)
        position = 0
        while position < len(view):
            size = _HEADER.unpack_from(view, position)[2]
            end = position + HEADER_BYTES + size
            seed = crc32(_PLACE.pack(nonce, offset + position))
            _MARK_AND_CHECKSUM.pack_into(view, position, mark, crc32(view[position + 8 : end], seed))
            position = end
        return view.toreadonly()

    def bytes_at(self, offset: int, size: int) -> bytes:
        """A copy of some bytes of the buffer, which must be there."""
        assert 0 <= offset <= offset + size <= len(self._data), (offset, size, len(self._data))
        return bytes(memoryview(self._data)[offset : offset + size])

    def cut(self, size: int) -> None:
        """Forget the frames behind the first `size` bytes."""
        assert 0 <= size <= len(self._data), (size, len(self._data))
        del self._data[size:]

    def clear(self) -> None:
        """Forget all frames."""
        self._data.clear()


@dataclass(frozen=True, slots=True)
class Scan:
    """The frames in some data, in order, and the ranges before and between them that hold none.

    From `tail_start` on there is no frame: free space, a torn write, or damage. Which, the caller can tell.
    """

    frames: Sequence[Frame]
    damage: list[tuple[int, int]]
    tail_start: int


def scan(data: bytes, nonce: int, start: int, offset: int = 0) -> Scan:
    """Find the frames in `data` from `start` on; `data` begins at `offset` of the file with this nonce."""
    assert start >= 0, start
    mark = mark_of(nonce).to_bytes(4, "little")
    view = memoryview(data)
    frames: list[Frame] = []
    damage: list[tuple[int, int]] = []
    waste_bytes_left = [WASTE_FACTOR * max(0, len(view) - start)] * (BODY_BYTES_MAX.bit_length() + 1)
    expected = position = start
    while position + HEADER_BYTES <= len(view):
        if data[position : position + 4] != mark:
            position = data.find(mark, position + 1)
            if position < 0:
                break
            continue
        _, checksum, size, kind_and_group, index = _HEADER.unpack_from(view, position)
        end = position + HEADER_BYTES + size
        is_plausible = kind_and_group & 0xFF and size <= BODY_BYTES_MAX and end <= len(view)
        if not is_plausible or size > waste_bytes_left[size.bit_length()]:
            position += 1
            continue
        seed = crc32(_PLACE.pack(nonce, offset + position))
        if crc32(view[position + 8 : end], seed) != checksum:
            waste_bytes_left[size.bit_length()] -= size
            position += 1
            continue
        if position > expected:
            damage.append((expected, position))
        body_start = position + HEADER_BYTES
        frames.append(
            (position, kind_and_group & 0xFF, kind_and_group >> 8, index & INDEX_MAX, body_start, size)
        )
        expected = position = end
    return Scan(frames, damage, expected)


def block_frames(data: bytes, group: int, first_index: int, count: int) -> Sequence[Frame]:
    """The frames of consecutive entries of a group, as another node sent them; ValueError for other bytes.

    Marks and checksums are not looked at. An entry may be there twice. The last message is no member of an
    atomic batch of which more would follow.
    """
    found: list[Frame] = []
    position, index = 0, first_index - 1
    is_followed = False
    while position < len(data):
        if position + HEADER_BYTES > len(data):
            raise ValueError(f"a frame is cut off at {position}")
        _, _, size, kind_and_group, frame_index = _HEADER.unpack_from(data, position)
        kind, start = kind_and_group & 0xFF, position + HEADER_BYTES
        is_next = frame_index == index + 1 or (
            frame_index == index and kind == COMMAND and index >= first_index
        )
        if not is_next or kind_and_group >> 8 != group or kind not in (APPEND, COMMAND):
            raise ValueError(f"no entry of group {group} behind {index} at {position}")
        if size > BODY_BYTES_MAX or start + size > len(data):
            raise ValueError(f"a frame of {size} bytes is cut off at {position}")
        is_followed = False
        if kind == APPEND:
            decode_append(data, start, size)
            is_followed = append_flags(data, start) & MORE != 0
        found.append((position, kind, group, frame_index, start, size))
        index, position = frame_index, start + size
    if index != first_index + count - 1 or is_followed:
        raise ValueError(f"{index - first_index + 1} entries instead of {count}")
    return found


def decode_append(data: bytes, body_start: int, body_size: int) -> tuple[int, bytes, int, bytes]:
    """(ts_ns, subject, header_bytes, data) of an APPEND frame's body; ValueError if it is not one."""
    body_end = body_start + body_size
    if not 0 <= body_start <= body_end <= len(data) or body_size < _APPEND.size:
        raise ValueError(f"no append of {body_size} bytes at {body_start}")
    ts_ns, header_bytes, subject_bytes = _APPEND.unpack_from(data, body_start)
    header_bytes &= HEADER_SIZE_MASK
    subject_start = body_start + _APPEND.size
    message_start = subject_start + subject_bytes
    if message_start + header_bytes > body_end:
        raise ValueError(f"an append of {body_size} bytes is too short for what it says about itself")
    return ts_ns, data[subject_start:message_start], header_bytes, data[message_start:body_end]


def append_flags(data: bytes, body_start: int) -> int:
    """The flags of an APPEND frame's body, which decode_append() could read."""
    found: int = _APPEND.unpack_from(data, body_start)[1]
    return found & ~HEADER_SIZE_MASK
