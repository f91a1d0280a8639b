"""Connected loopback sockets for the transport tests: our end, and the peer's as a trio stream."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from edged.server.transport import PlainTransport, Transport


def socket_pair(buffer_bytes: int | None = None) -> tuple[socket.socket, socket.socket]:
    """(ours, the peer's), over real TCP; small buffers make a slow peer easy to play."""
    with socket.socket() as listener:
        if buffer_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        peer = socket.socket()
        if buffer_bytes is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        peer.connect(listener.getsockname())
        ours, _address = listener.accept()
    return ours, peer


@contextmanager
def tcp_pair(buffer_bytes: int | None = None) -> Iterator[tuple[PlainTransport, trio.SocketStream]]:
    ours, peer = socket_pair(buffer_bytes)
    transport = PlainTransport(ours)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(peer))
    try:
        yield transport, stream
    finally:
        transport.close()
        stream.socket.close()


async def send_all(transport: Transport, data: bytes) -> None:
    """What a connection task does with its queue: offer, wait, offer the rest."""
    position = transport.send_nowait(data)
    while position < len(data):
        await transport.wait_sendable()
        position += transport.send_nowait(memoryview(data)[position:])


async def receive_exactly(transport: Transport, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = bytes(await transport.receive())
        assert chunk, f"the stream ended after {len(data)} of {count} bytes"
        data += chunk
    return data


async def receive_to_end(transport: Transport) -> bytes:
    data = b""
    while chunk := bytes(await transport.receive()):
        data += chunk
    return data
