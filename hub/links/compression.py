"""A link compressed with zstd, one stream in each direction.

Rules: what is sent can be read at the other end at once, because each chunk ends a block. What arrives may be
larger when it is unpacked, but not without bound; a peer that goes beyond is cut off.
"""

from __future__ import annotations

from typing import Final

import zstandard

from edged.server.layered import LayeredTransport
from edged.server.transport import SHUTDOWN_TIMEOUT_S, ConnectionLost, Transport

LEVEL: Final = 1
# What one receive may unpack to, and how much is unpacked before that is looked at.
UNPACKED_BYTES_MAX: Final = 128 * 1024 * 1024
_STEP_BYTES: Final = 16 * 1024
_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024


class ZstdTransport(LayeredTransport):
    """Application bytes in a zstd stream."""

    __slots__ = ("_packer", "_unpacker")

    def __init__(self, wire: Transport) -> None:
        super().__init__(wire)
        self._packer = zstandard.ZstdCompressor(level=LEVEL).compressobj()
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX).decompressobj()

    def _encode(self, chunk: memoryview) -> bytes:
        return self._packer.compress(chunk) + self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    @property
    def has_work(self) -> bool:
        return self.wire.has_work

    def receive_nowait(self) -> memoryview | bytes | None:
        while True:
            packed = self.wire.receive_nowait()
            if packed is None or not packed:
                return packed
            found = self.unpack(packed)
            if found:
                return found

    def unpack(self, packed: memoryview | bytes) -> bytes:
        """Application bytes from wire bytes. Raises ConnectionLost."""
        found = []
        size = 0
        try:
            for start in range(0, len(packed), _STEP_BYTES):
                piece = self._unpacker.decompress(bytes(packed[start : start + _STEP_BYTES]))
                size += len(piece)
                if size > UNPACKED_BYTES_MAX:
                    raise ConnectionLost("what the peer sends unpacks to too much")
                found.append(piece)
        except zstandard.ZstdError as error:
            raise ConnectionLost(f"what the peer sends cannot be unpacked: {error}") from error
        return b"".join(found)

    async def shutdown(self, timeout_s: float = SHUTDOWN_TIMEOUT_S) -> None:
        await self.wire.shutdown(timeout_s)
