"""S2 as it travels: chunks after an identifier, read and written as the bytes come and go.

    0   u8   kind
    1   u24  bytes that follow
    4   ...  data (kind 0 compressed, kind 1 as it is): u32 masked CRC of what it decodes to, then the block
             identifier (kind 255): `S2sTwO` or `sNaPpY`; first in the stream, allowed again, as after `cat`
             kinds 128 to 254: padding, indexes and what is not known yet; skipped unread

Rules: input comes from outside. A chunk's size is believed within the format's limits only, one call of
next_block() decodes one chunk that has something in it, and all of them together never more than the
caller's `output_bytes_max`. S2Error is the only way to fail, and a reader that failed stays so.
"""

from __future__ import annotations

from typing import Final

from edged.core.s2 import BLOCK_BYTES_MAX, SNAPPY_BLOCK_BYTES_MAX, S2Error
from edged.core.s2_twins import crc32c, decode_block, encode_block

IDENTIFIER: Final = b"\xff\x06\x00\x00S2sTwO"

# A block in progress costs this much memory at both ends.
WRITE_BLOCK_BYTES: Final = 256 * 1024

_COMPRESSED: Final = 0
_PLAIN: Final = 1
_SKIPPABLE_FIRST: Final = 0x80
_IDENTIFIER: Final = 0xFF
_NAMES: Final = {b"S2sTwO": BLOCK_BYTES_MAX, b"sNaPpY": SNAPPY_BLOCK_BYTES_MAX}
_HEADER_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4
# What does not compress grows by a few bytes in encoders that do not send it as it is.
_CHUNK_BYTES_MAX: Final = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 6 + 64


def masked_checksum(data: bytes) -> int:
    """The CRC of a chunk. The mask is the format's: a CRC over data with CRCs in it is a weak one."""
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFF_FFFF


class S2Reader:
    """Compressed bytes in by feed(), blocks of what they stand for out by next_block()."""

    __slots__ = ("_block_bytes_max", "_failure", "_input", "_output_bytes_max", "_skip_bytes", "output_bytes")

    def __init__(self, output_bytes_max: int) -> None:
        self._output_bytes_max = output_bytes_max
        # What blocks may have after the last identifier; 0: none was seen.
        self._block_bytes_max = 0
        self._input = bytearray()
        self._skip_bytes = 0
        self._failure: S2Error | None = None
        self.output_bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes as they come, cut anywhere. Take the blocks out before more is fed: what waits is kept."""
        self._input += data

    def next_block(self) -> bytes | None:
        """The next block, of at least one byte; None: more bytes are needed."""
        if self._failure is not None:
            raise self._failure
        try:
            while (chunk := self._next_chunk()) is not None:
                if block := self._decoded(*chunk):
                    return block
        except S2Error as failure:
            self._failure = failure
            raise
        return None

    def finish(self) -> None:
        """Nothing comes any more; S2Error when that is within a chunk or before the first."""
        if self._failure is not None:
            raise self._failure
        if self._input or self._skip_bytes or not self._block_bytes_max:
            raise S2Error("the compressed stream was cut")

    def _next_chunk(self) -> tuple[int, bytes] | None:
        """Kind and body of the next chunk that says something."""
        while True:
            if self._skip_bytes:
                skipped = min(self._skip_bytes, len(self._input))
                del self._input[:skipped]
                self._skip_bytes -= skipped
            if self._skip_bytes or len(self._input) < _HEADER_BYTES:
                return None
            kind = self._input[0]
            size = int.from_bytes(self._input[1:_HEADER_BYTES], "little")
            self._check_chunk(kind, size)
            if _SKIPPABLE_FIRST <= kind < _IDENTIFIER:
                del self._input[:_HEADER_BYTES]
                self._skip_bytes = size
                continue
            end = _HEADER_BYTES + size
            if len(self._input) < end:
                return None
            body = bytes(self._input[_HEADER_BYTES:end])
            del self._input[:end]
            return kind, body

    def _check_chunk(self, kind: int, size: int) -> None:
        if kind == _IDENTIFIER:
            if size != len(IDENTIFIER) - _HEADER_BYTES:
                raise S2Error("an identifier of another size")
        elif not self._block_bytes_max:
            raise S2Error("the stream does not begin as S2 or Snappy do")
        elif kind in (_COMPRESSED, _PLAIN):
            if not _CHECKSUM_BYTES <= size <= _CHUNK_BYTES_MAX:
                raise S2Error(f"a chunk of {size} bytes")
        elif kind < _SKIPPABLE_FIRST:
            raise S2Error(f"a chunk of the unknown kind {kind}")

    def _decoded(self, kind: int, body: bytes) -> bytes:
        if kind == _IDENTIFIER:
            if body not in _NAMES:
                raise S2Error("the stream is neither S2 nor Snappy")
            self._block_bytes_max = _NAMES[body]
            return b""
        rest_bytes = self._output_bytes_max - self.output_bytes
        block_bytes_max = min(self._block_bytes_max, rest_bytes)
        block = body[_CHECKSUM_BYTES:]
        if kind == _COMPRESSED:
            block = decode_block(block, block_bytes_max)
        elif len(block) > block_bytes_max:
            raise S2Error(f"a block of {len(block)} bytes, more than {block_bytes_max}")
        if masked_checksum(block) != int.from_bytes(body[:_CHECKSUM_BYTES], "little"):
            raise S2Error("a block does not match its checksum")
        self.output_bytes += len(block)
        return block


class S2Writer:
    """Bytes in, chunks out. What write() returns may be empty: it gathers a block first."""

    __slots__ = ("_block_bytes", "_gathered", "_started")

    def __init__(self, block_bytes: int = WRITE_BLOCK_BYTES) -> None:
        assert 0 < block_bytes <= BLOCK_BYTES_MAX, block_bytes
        self._block_bytes = block_bytes
        self._gathered = bytearray()
        self._started = False

    def write(self, data: bytes | bytearray) -> bytes:
        """Chunks for the blocks that these bytes complete."""
        self._gathered += data
        if len(self._gathered) < self._block_bytes:
            return b""
        output = bytearray()
        whole = len(self._gathered) - len(self._gathered) % self._block_bytes
        for position in range(0, whole, self._block_bytes):
            output += self._chunk(bytes(self._gathered[position : position + self._block_bytes]))
        del self._gathered[:whole]
        return bytes(output)

    def flush(self) -> bytes:
        """A chunk for what was gathered; an empty stream has its identifier at least."""
        block = bytes(self._gathered)
        self._gathered.clear()
        return self._chunk(block)

    def _chunk(self, block: bytes) -> bytes:
        start = b"" if self._started else IDENTIFIER
        self._started = True
        if not block:
            return start
        kind, body = _COMPRESSED, encode_block(block)
        if len(body) >= len(block):
            kind, body = _PLAIN, block
        size = (_CHECKSUM_BYTES + len(body)).to_bytes(3, "little")
        checksum = masked_checksum(block).to_bytes(_CHECKSUM_BYTES, "little")
        return b"".join((start, bytes((kind,)), size, checksum, body))
