"""WebSocket frames beyond what wsproto does: frames we send, and messages inflated within a bound.

Rules: pure. We never mask (only clients do) and never fragment. Compression is without context takeover in
both directions, as nats-server answers, so that an idle connection keeps no compression state.
Invariant: one message never inflates to more than inflated_bytes_max, whatever its compressed size, and at no
moment is more than that in memory for it.
"""

import zlib
from enum import IntEnum
from typing import Any, Final

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, Opcode, RsvBits

COMPRESS_BYTES_MIN: Final = 64
"""Messages up to this size are sent as they are, like nats-server does: compressing would not pay."""

_COMPRESSION_LEVEL: Final = 1
_WINDOW_BITS: Final = -15
_FINAL: Final = 0x80
_COMPRESSED: Final = 0x40
_FLUSH_MARK: Final = b"\x00\x00\xff\xff"
_NO_RESERVED_BITS: Final = RsvBits(False, False, False)
_COMPRESSED_BIT: Final = RsvBits(True, False, False)


class FrameKind(IntEnum):
    """The frames we send."""

    BINARY = 0x2
    CLOSE = 0x8
    PONG = 0xA


def encode_frame(kind: FrameKind, payload: bytes | memoryview, compressed: bool = False) -> bytes:
    """One whole, final, unmasked frame around a payload (compressed already, if it says so)."""
    first = _FINAL | kind | (_COMPRESSED if compressed else 0)
    size = len(payload)
    if size < 126:
        header = bytes((first, size))
    elif size < 65_536:
        header = bytes((first, 126)) + size.to_bytes(2, "big")
    else:
        header = bytes((first, 127)) + size.to_bytes(8, "big")
    return b"".join((header, payload))


def encode_close(status: int | None, text: str = "") -> bytes:
    """A close frame; without status when the peer gave none."""
    if status is None:
        return encode_frame(FrameKind.CLOSE, b"")
    # A control frame holds at most 125 bytes; a character cut in half is left out.
    reason = text.encode("utf-8")[:123].decode("utf-8", "ignore").encode("utf-8")
    return encode_frame(FrameKind.CLOSE, status.to_bytes(2, "big") + reason)


def encode_data(payload: memoryview, compress: bool) -> bytes:
    """A binary frame; compressed if wished and worth it."""
    if not compress or len(payload) <= COMPRESS_BYTES_MIN:
        return encode_frame(FrameKind.BINARY, payload)
    compressor = zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _WINDOW_BITS)
    deflated = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return encode_frame(FrameKind.BINARY, deflated[: -len(_FLUSH_MARK)], compressed=True)


class BoundedInflate(Extension):  # type: ignore[misc, unused-ignore]
    """permessage-deflate for what we receive, as an extension of wsproto's frame decoder.

    wsproto has its own, which inflates without a bound and loses its place when a control frame comes between
    the fragments of a compressed message.
    """

    name = "permessage-deflate"

    def __init__(self, inflated_bytes_max: int) -> None:
        self._inflated_bytes_max = inflated_bytes_max
        self._room = 0
        self._inflater: Any = None  # zlib's type has no public name; None outside a compressed message
        self._in_control_frame = False

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool:
        return False

    def frame_inbound_header(
        self, _proto: Any, opcode: Opcode, rsv: RsvBits, _payload_length: int
    ) -> CloseReason | RsvBits:
        """The reserved bits this frame may have."""
        self._in_control_frame = opcode.iscontrol()
        if self._in_control_frame or opcode is Opcode.CONTINUATION:
            return _NO_RESERVED_BITS
        self._room = self._inflated_bytes_max
        self._inflater = zlib.decompressobj(_WINDOW_BITS) if rsv.rsv1 else None
        return _COMPRESSED_BIT

    def frame_inbound_payload_data(self, _proto: Any, data: bytes) -> bytes | CloseReason:
        if self._in_control_frame or self._inflater is None:
            return data
        return self._inflate(data)

    def frame_inbound_complete(self, _proto: Any, fin: bool) -> bytes | CloseReason | None:
        if self._in_control_frame or self._inflater is None or not fin:
            return None
        rest = self._inflate(_FLUSH_MARK)
        self._inflater = None
        return rest

    def _inflate(self, data: bytes) -> bytes | CloseReason:
        if self._inflater.eof:
            # The sender ended the stream of this message; whatever follows has no meaning.
            return b""
        try:
            inflated: bytes = self._inflater.decompress(data, self._room + 1)
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        self._room -= len(inflated)
        if self._room < 0:
            return CloseReason.MESSAGE_TOO_BIG
        return inflated
