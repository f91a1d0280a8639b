"""Guarded blobs: bytes that notice damage and repair the kind that disks do, a bad bit or a bad sector.

A blob is head, parity chunk, payload in chunks, and the head again (docs/format.md has the bytes). The
parity chunk is the exclusive or of all payload chunks, so together they cancel out column by column: one
chunk that fails its checksum is computed from the others. Damage that runs over the border of two chunks
hits the end of one and the beginning of the next, never the same column of both while it is no longer than
a chunk, so it is repaired as well, wherever it lies. A lost head is harmless as long as the one at the
other end is there.

Invariant: any one damaged range of at most `chunk_bytes(size)` bytes, which is 512 or more, costs nothing.
Rules: nothing read from a head is believed before the head's own checksum; what was repaired is checked
twice, by chunk and as a whole; work and memory are bounded by a multiple of the blob, whatever the bytes
say.
The usual case, nothing wrong, costs one checksum over the payload.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import reduce
from operator import xor
from typing import Final, NamedTuple
from zlib import crc32

from edged.store.errors import Damaged

CHUNK_BYTES_MIN: Final = 512  # a sector
CHUNKS_MAX: Final = 16

_FRONT: Final = 1
_BACK: Final = 2
_VERSION: Final = 1
# mark, place, version, zero, payload size, payload checksum, checksums of parity and chunks; then its own.
_HEAD: Final = struct.Struct(f"<IBBHQI{1 + CHUNKS_MAX}I")
_CHECKSUM: Final = struct.Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size
# How many borders are tried between the damage of two neighbours, and how many bytes may be checked for it.
_BORDERS_MAX: Final = 8192
_BORDER_BYTES_MAX: Final = 64 << 20
_zero_runs_of = re.compile(rb"\x00+").finditer


class Unguarded(NamedTuple):
    """What a blob holds, and whether something of it had to be repaired or done without."""

    payload: bytes
    repaired: bool


class Place(NamedTuple):
    """Where a blob seems to be. `offset` may lie before the bytes that were searched."""

    offset: int
    size: int


class _Head(NamedTuple):
    mark: int
    size: int
    checksum: int
    checksums: tuple[int, ...]


def chunk_bytes(payload_size: int) -> int:
    """The size of the parity chunk and of all chunks of a payload but the last."""
    sectors = -(-payload_size // (CHUNKS_MAX * CHUNK_BYTES_MIN))
    return max(1, sectors) * CHUNK_BYTES_MIN


def guarded_size(payload_size: int) -> int:
    """The size of a blob with a payload of this size."""
    return 2 * HEAD_BYTES + chunk_bytes(payload_size) + payload_size


def guard(payload: bytes, mark: int) -> bytes:
    """The blob for a payload; `mark` says what kind of thing it is and helps to find it again."""
    chunk = chunk_bytes(len(payload))
    chunks = [payload[start : start + chunk] for start in range(0, len(payload), chunk)]
    parity = _sum(chunks).to_bytes(chunk, "little")
    checksums = [crc32(parity), *map(crc32, chunks), *[0] * (CHUNKS_MAX - len(chunks))]
    front, back = (
        _HEAD.pack(mark, place, _VERSION, 0, len(payload), crc32(payload), *checksums)
        for place in (_FRONT, _BACK)
    )
    return b"".join((front, _CHECKSUM.pack(crc32(front)), parity, payload, back, _CHECKSUM.pack(crc32(back))))


def unguard(blob: bytes, mark: int | None = None, thorough: bool = False) -> Unguarded:
    """The payload of the blob that `blob` begins with, repaired if need be; Damaged if that fails.

    What follows the blob is ignored unless its front is damaged, for then it is found by its end. A blob that
    was cut off is repaired like any other. `thorough` also looks at what reading does not need.
    """
    front = _head(blob, 0, _FRONT, mark)
    head = front or _head(blob, len(blob) - HEAD_BYTES, _BACK, mark)
    if head is None:
        raise Damaged("neither end of it can be read")
    size = guarded_size(head.size)
    if len(blob) < size:
        if size - len(blob) > chunk_bytes(head.size) + HEAD_BYTES:
            raise Damaged("too much of it is missing")
        blob = blob.ljust(size, b"\x00")
    if front is None and len(blob) != size:
        raise Damaged("its beginning cannot be read, and its end is not where it should be")
    start = HEAD_BYTES + chunk_bytes(head.size)
    payload = blob[start : start + head.size]
    if crc32(payload) != head.checksum:
        return Unguarded(_repair(blob[HEAD_BYTES : start + head.size], head), True)
    if not thorough:
        return Unguarded(payload, front is None)
    parity_is_good = crc32(blob[HEAD_BYTES:start]) == head.checksums[0]
    both_ends_agree = front == _head(blob, size - HEAD_BYTES, _BACK, mark)
    return Unguarded(payload, not (parity_is_good and both_ends_agree))


def measure(data: bytes, offset: int = 0, mark: int | None = None) -> int | None:
    """The size of the blob that begins at `offset`, by its front or else by an end that fits there."""
    front = _head(data, offset, _FRONT, mark)
    if front is not None:
        return guarded_size(front.size)
    if mark is None:
        return None
    return next((place.size for place in search(data, offset, mark) if place.offset == offset), None)


def search(data: bytes, start: int, mark: int) -> Iterator[Place]:
    """Blobs of this mark with a readable head at `start` or after it, in the order of those heads."""
    wanted = mark.to_bytes(4, "little")
    position = data.find(wanted, start)
    while position >= 0:
        front = _head(data, position, _FRONT, mark)
        if front is not None:
            yield Place(position, guarded_size(front.size))
        else:
            back = _head(data, position, _BACK, mark)
            if back is not None:
                size = guarded_size(back.size)
                yield Place(position + HEAD_BYTES - size, size)
        position = data.find(wanted, position + 1)


def _head(data: bytes, offset: int, place: int, mark: int | None) -> _Head | None:
    """The head at `offset`, if there is one that can be believed."""
    if offset < 0 or offset + HEAD_BYTES > len(data):
        return None
    bytes_of_head = data[offset : offset + _HEAD.size]
    if _CHECKSUM.unpack_from(data, offset + _HEAD.size)[0] != crc32(bytes_of_head):
        return None
    found_mark, found_place, version, _, size, checksum, *checksums = _HEAD.unpack(bytes_of_head)
    if found_place != place or version != _VERSION or mark not in (None, found_mark):
        return None
    return _Head(found_mark, size, checksum, tuple(checksums))


def _sum(parts: list[bytes]) -> int:
    """The exclusive or of some chunks; shorter ones count as filled up with zeros."""
    return reduce(xor, (int.from_bytes(part, "little") for part in parts), 0)


def _added(part: bytes, difference: int) -> bytes:
    """A chunk with a difference applied, as far as the chunk goes."""
    whole = int.from_bytes(part, "little") ^ difference
    return (whole & ((1 << 8 * len(part)) - 1)).to_bytes(len(part), "little")


def _repair(body: bytes, head: _Head) -> bytes:
    """The payload from parity and payload, of which something is wrong."""
    chunk = chunk_bytes(head.size)
    parts = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    bad = [number for number, part in enumerate(parts) if crc32(part) != head.checksums[number]]
    # All that is whole cancels out; what remains is the difference that the damage made.
    difference = _sum(parts)
    if len(bad) == 1:
        parts[bad[0]] = _added(parts[bad[0]], difference)
    elif len(bad) == 2 and bad[1] == bad[0] + 1:
        left, right = bad
        parts[left], parts[right] = _repair_neighbours(
            parts[left], parts[right], difference, (head.checksums[left], head.checksums[right])
        )
    payload = b"".join(parts[1:])
    if any(crc32(part) != head.checksums[number] for number, part in enumerate(parts) if number in bad):
        raise Damaged(f"{len(bad)} of {len(parts)} chunks are bad")
    if crc32(payload) != head.checksum:
        raise Damaged("its chunks contradict its checksum")
    return payload


def _repair_neighbours(
    left: bytes, right: bytes, difference: int, checksums: tuple[int, int]
) -> tuple[bytes, bytes]:
    """Two chunks, damaged at the end of one and the beginning of the next; as they were if that fails."""
    chunk = len(left)
    left_changed = _added(left, difference)
    right_changed = _added(right, difference)
    tries_max = min(_BORDERS_MAX, max(CHUNKS_MAX, _BORDER_BYTES_MAX // chunk))
    for border in _borders(difference.to_bytes(chunk, "little"))[:tries_max]:
        # The prefix of the left chunk is whole, and so is what the right one has from the same column on.
        if crc32(left_changed[border:], crc32(left[:border])) == checksums[0]:
            right_repaired = right_changed[:border] + right[border:]
            if crc32(right_repaired) == checksums[1]:
                return left[:border] + left_changed[border:], right_repaired
    return left, right


def _borders(difference: bytes) -> list[int]:
    """Columns where the damage of two neighbours may part, the likely ones first."""
    # A sector is usually smaller than a chunk, which leaves a long run of whole columns in the middle.
    runs = sorted(_zero_runs_of(difference), key=lambda run: run.start() - run.end())
    borders = [run.start() for run in runs[:_BORDERS_MAX]]
    if len(difference) <= _BORDERS_MAX:
        borders += range(1, len(difference))
    return list(dict.fromkeys(borders))
