"""A transport on top of another one: what TLS and WebSocket share.

Rules: application bytes are encoded in chunks (a TLS record, a WebSocket frame) and given to the wire below.
A chunk cannot be taken back once it is encoded, but the wire may take only a part of it. The rest is the
tail. While there is a tail, no new chunk is encoded, so the tail is never longer than one chunk and a bounded
number of control bytes.

The byte held back: the caller must come back to drive the tail out, so when a chunk leaves a tail its last
application byte is reported as not accepted, though it is already encoded. The contract of Transport says
that the caller offers it again first; it is then skipped.

Invariant: tail bytes made from application data imply that the last send_nowait accepted less than offered.
"""

import socket
from abc import ABC, abstractmethod
from typing import Final

import trio

from edged.server.transport import READS_PER_TURN, SHUTDOWN_TIMEOUT_S, ConnectionLost, Transport

CHUNK_BYTES: Final = 64 * 1024
"""The most application bytes encoded at once: bounds what one slow peer makes us keep."""

CONTROL_BYTES_MAX: Final = 64 * 1024
"""The most bytes of answers to control messages kept for a peer that does not read; beyond it is cut off."""


class LayeredTransport(ABC):
    """Encodes for, and decodes from, another transport (the wire)."""

    __slots__ = ("_held_back", "_reads", "_tail", "kind", "wire")

    def __init__(self, wire: Transport) -> None:
        self.wire = wire
        self.kind = wire.kind
        self._tail = b""
        self._held_back = False
        self._reads = 0

    @property
    def remote_ip(self) -> str:
        return self.wire.remote_ip

    @property
    def remote_port(self) -> int:
        return self.wire.remote_port

    @property
    def tls_version(self) -> str | None:
        return self.wire.tls_version

    @property
    def tls_cipher(self) -> str | None:
        return self.wire.tls_cipher

    @property
    def peer_certificate_der(self) -> bytes | None:
        return self.wire.peer_certificate_der

    @abstractmethod
    def _encode(self, chunk: memoryview) -> bytes:
        """Wire bytes for application bytes (never empty, at most CHUNK_BYTES). May raise ConnectionLost."""

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        if not self._flush_tail():
            return 0
        view = memoryview(data)
        total = len(view)
        position = 0
        if self._held_back and total:
            self._held_back = False
            position = 1
        while position < total:
            chunk = view[position : position + CHUNK_BYTES]
            self._tail = self._encode(chunk)
            position += len(chunk)
            if not self._flush_tail():
                self._held_back = True
                return position - 1
        return position

    def _send_control(self, wire_bytes: bytes) -> None:
        """Send bytes that are no application data, now if the wire takes them, else when it does."""
        if len(self._tail) + len(wire_bytes) > CHUNK_BYTES + CONTROL_BYTES_MAX:
            raise ConnectionLost("the peer makes us answer and does not read the answers")
        self._tail += wire_bytes
        self._flush_tail()

    def _flush_tail(self) -> bool:
        """Give the wire what is left; True when nothing is."""
        tail = self._tail
        if tail:
            accepted = self.wire.send_nowait(tail)
            self._tail = tail[accepted:]
        return not self._tail

    async def _drain_tail(self) -> None:
        while not self._flush_tail():
            await self.wire.wait_sendable()

    async def wait_sendable(self) -> None:
        await self.wire.wait_sendable()

    def close(self) -> None:
        self.wire.close()

    @property
    def socket(self) -> socket.socket:
        return self.wire.socket

    @property
    @abstractmethod
    def has_work(self) -> bool:
        """As in Transport."""

    @abstractmethod
    def receive_nowait(self) -> memoryview | bytes | None:
        """As in Transport."""

    async def receive(self) -> memoryview | bytes:
        self._reads += 1
        if self._reads % READS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        while True:
            chunk = self.receive_nowait()
            if chunk is not None:
                return chunk
            if self.has_work:
                await trio.lowlevel.checkpoint()
            else:
                await self.wire.wait_receivable()

    async def wait_receivable(self) -> None:
        await self.wire.wait_receivable()

    @abstractmethod
    async def shutdown(self, timeout_s: float = SHUTDOWN_TIMEOUT_S) -> None:
        """As in Transport."""
