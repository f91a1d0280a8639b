"""Frames of a control link: a length, a checksum, a kind, and a body.

Rules: the checksum covers everything but itself. A length is compared with what is allowed at this moment
before anything is kept; memory grows with what has arrived, not with what was claimed. After a FrameError
nothing more is read: the link is closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import Any, Final
from zlib import crc32

import msgpack

Part = bytes | bytearray | memoryview

_HEAD: Final = Struct("<IIB")
# What the checksum begins with: length and kind.
_CHECKED: Final = Struct("<IB")


class Kind(IntEnum):
    """What a body is. A number is never used anew."""

    HELLO = 1  # msgpack: who is there
    REFUSED = 2  # msgpack: why the other end is not wanted
    READY = 3  # empty: the end that dialled takes the link into use
    PING = 4  # eight bytes that come back
    PONG = 5
    RAFT = 6  # messages of raft_codec.py, one behind the other
    CALL = 7  # msgpack: [number, method, body]
    ANSWER = 8  # msgpack: [number, error or None, body]
    GOSSIP = 9  # msgpack: who else is there


class FrameError(ValueError):
    """Bytes that cannot be followed any further."""


def frame(kind: Kind, parts: Iterable[Part]) -> list[Part]:
    """A frame as parts, to be sent one behind the other."""
    body = list(parts)
    length = sum(map(len, body))
    checksum = crc32(_CHECKED.pack(length, kind))
    for part in body:
        checksum = crc32(part, checksum)
    return [_HEAD.pack(length, checksum, kind), *body]


def pack(kind: Kind, document: Any) -> bytes:
    """A frame whose body is msgpack."""
    return b"".join(frame(kind, [msgpack.packb(document)]))


def unpack(body: memoryview) -> Any:
    """The document of a body. FrameError when it is none."""
    try:
        return msgpack.unpackb(body, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise FrameError(f"a document cannot be read: {error}") from error


def take(work: memoryview, position: int, body_bytes_max: int) -> tuple[Kind, memoryview, int] | int:
    """The frame at a position and where it ends; or how many bytes it needs to be whole. FrameError."""
    start = position + _HEAD.size
    if start > len(work):
        return _HEAD.size
    length, checksum, number = _HEAD.unpack_from(work, position)
    if length > body_bytes_max:
        raise FrameError(f"a frame of {length} bytes, where {body_bytes_max} are allowed")
    stop = start + length
    if stop > len(work):
        return _HEAD.size + int(length)
    body = work[start:stop]
    if crc32(body, crc32(_CHECKED.pack(length, number))) != checksum:
        raise FrameError("the checksum of a frame is wrong")
    try:
        return Kind(number), body, stop
    except ValueError:
        raise FrameError(f"a frame of unknown kind {number}") from None


class FrameReader:
    """Cuts what arrives into frames, however it was cut on its way."""

    __slots__ = ("_held", "_wanted_bytes", "body_bytes_max")

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._held = bytearray()
        self._wanted_bytes = 0

    @property
    def held_bytes(self) -> int:
        """What is kept of a frame that has not arrived completely."""
        return len(self._held)

    def feed(self, chunk: bytes | memoryview) -> list[tuple[Kind, memoryview]]:
        """All frames that `chunk` completes; bodies are to be used before the next feed. FrameError."""
        if self._held:
            self._held += chunk
            if len(self._held) < self._wanted_bytes:
                return []
            # The bodies point into it, so it is not touched any more.
            work = memoryview(self._held)
            self._held = bytearray()
        else:
            work = memoryview(chunk)
        found = []
        position = 0
        while position < len(work):
            taken = take(work, position, self.body_bytes_max)
            if isinstance(taken, int):
                self._wanted_bytes = taken
                break
            kind, body, position = taken
            found.append((kind, body))
        self._held += work[position:]
        return found
