"""Byte transports: the contract every connection task relies on, and plain TCP.

Rules:
* One loop, one thread. All plain transports read into ONE module-level buffer, so an idle connection costs no
  buffer. What receive() returns points into it and is valid until the caller's next await: parse it, or copy
  what must stay, before awaiting anything.
* One task at a time may be in receive(), and one in wait_sendable(); they may be two different tasks.
* Bytes that send_nowait() did not accept are offered again, unchanged and first, or the transport is closed.
  Layers that encode (TLS, WebSocket) rely on it: see layered.py.
* Errors of the operating system become ConnectionLost here, once.
"""

import contextlib
import socket
from typing import Final, Protocol

import trio

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""The most that one receive() returns. A full read means that more is probably waiting."""

READS_PER_TURN: Final = 4
"""How many reads one connection may do before the other tasks get their turn."""

SHUTDOWN_TIMEOUT_S: Final = 1.0
"""How long a polite end may take before the socket is closed anyway."""

_receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
_receive_view = memoryview(_receive_buffer)


class ConnectionLost(Exception):  # noqa: N818 - says what happened
    """The connection is gone or must not be used any more; the text says why."""


class Transport(Protocol):
    """An ordered stream of application bytes in both directions, however it is wrapped."""

    kind: str
    """The connection type as in allowed_connection_types: STANDARD, WEBSOCKET or LEAFNODE_WS."""

    @property
    def remote_ip(self) -> str: ...

    @property
    def remote_port(self) -> int: ...

    @property
    def tls_version(self) -> str | None:
        """Such as "1.3"; None without TLS."""

    @property
    def tls_cipher(self) -> str | None:
        """The IANA name of the cipher suite; None without TLS."""

    @property
    def peer_certificate_der(self) -> bytes | None:
        """The verified client certificate; None without TLS or when none was asked for."""

    async def receive(self) -> memoryview | bytes:
        """The next application bytes; b"" at the end of the stream. Raises ConnectionLost.

        A memoryview may point into a buffer shared by all connections: valid until the caller's next await.
        """

    def receive_nowait(self) -> memoryview | bytes | None:
        """What is there now, as receive() gives it; None when the socket must be waited for. See has_work."""

    @property
    def has_work(self) -> bool:
        """Whether receive_nowait() may give more although the socket has nothing."""

    @property
    def socket(self) -> socket.socket:
        """What to wait on for more, when has_work is False."""

    async def wait_receivable(self) -> None:
        """Wait until the socket has bytes or its end. Raises ConnectionLost."""

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Give the socket what it takes now; return how many of the bytes were accepted, possibly 0.

        While anything accepted is still held back inside, fewer bytes are accepted than offered, so that the
        caller, who waits and offers the rest again, also drives what is held back. Raises ConnectionLost.
        """

    async def wait_sendable(self) -> None:
        """Wait until send_nowait may make progress. Raises ConnectionLost."""

    def close(self) -> None:
        """End at once; a second call does nothing. Tasks that wait in here wake with ConnectionLost."""

    async def shutdown(self, timeout_s: float = SHUTDOWN_TIMEOUT_S) -> None:
        """End politely: last bytes, goodbye of each layer, wait for the peer's end; then close."""


class PlainTransport:
    """TCP without any wrapping; the hot path. Takes over a connected stdlib socket."""

    __slots__ = (
        "_closed",
        "_reads",
        "_recv_into",
        "_send",
        "kind",
        "remote_ip",
        "remote_port",
        "socket",
    )

    tls_version: str | None = None
    tls_cipher: str | None = None
    peer_certificate_der: bytes | None = None
    has_work = False

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.kind = "STANDARD"
        self.remote_ip, self.remote_port = _remote_address(connected)
        self.socket = connected
        self._recv_into = connected.recv_into
        self._send = connected.send
        self._closed = False
        self._reads = 0
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            # Replies are written in whole batches already; waiting for more would only delay them.
            # Some systems refuse when the peer has gone since accept; reading will say so.
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def receive(self) -> memoryview | bytes:
        # The next bytes are often there already, and looking costs less than waiting for nothing.
        self._reads += 1
        if self._reads % READS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise ConnectionLost("closed")
            chunk = self.receive_nowait()
            if chunk is not None:
                return chunk
            await self.wait_receivable()

    def receive_nowait(self) -> memoryview | bytes | None:
        try:
            count = self._recv_into(_receive_buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConnectionLost(f"receive failed: {error}") from error
        return _receive_view[:count] if count else b""

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(f"send failed: {error}") from error

    async def wait_receivable(self) -> None:
        if self._closed:
            raise ConnectionLost("closed")
        try:
            await trio.lowlevel.wait_readable(self.socket)
        except trio.ClosedResourceError:
            raise ConnectionLost("closed") from None

    async def wait_sendable(self) -> None:
        if self._closed:
            raise ConnectionLost("closed")
        try:
            await trio.lowlevel.wait_writable(self.socket)
        except trio.ClosedResourceError:
            raise ConnectionLost("closed") from None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        trio.lowlevel.notify_closing(self.socket)
        self.socket.close()

    async def shutdown(self, timeout_s: float = SHUTDOWN_TIMEOUT_S) -> None:
        """Send our end, then read and forget until the peer's.

        Closing a socket with unread bytes makes the kernel reset the connection, and a reset can take away
        our last words (an -ERR, say) before the peer has read them.
        """
        try:
            with trio.move_on_after(timeout_s) as scope:
                # Bounded by the timeout, so a cancelled daemon may still say goodbye.
                scope.shield = True
                if not self._closed:
                    self.socket.shutdown(socket.SHUT_WR)
                while await self.receive():
                    await trio.lowlevel.checkpoint()
        except (ConnectionLost, OSError, trio.BusyResourceError):
            # The peer is gone already, or another task is reading; it sees the end when we close.
            pass
        finally:
            self.close()


async def send_all(transport: Transport, data: bytes) -> None:
    """Send bytes whole, where nothing else is in their way: greetings and answers to an upgrade."""
    sent = transport.send_nowait(data)
    while sent < len(data):
        await transport.wait_sendable()
        sent += transport.send_nowait(data[sent:])


def _remote_address(connected: socket.socket) -> tuple[str, int]:
    """Where the peer is, as nats-server prints it: IPv4 through an IPv6 socket is shown as IPv4."""
    try:
        address = connected.getpeername()
    except OSError:
        # The peer has gone between accept and now; reading will say so.
        return "", 0
    if not isinstance(address, tuple):
        return "", 0
    return str(address[0]).removeprefix("::ffff:"), int(address[1])
