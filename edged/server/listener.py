"""Accepts connections and brings them to the point where they speak NATS.

Between accept and the first operation lie, as configured: a PROXY header, a TLS handshake before or after
INFO, a WebSocket upgrade. Each step has a time limit and ends the connection on its own when it fails.
"""

from __future__ import annotations

import errno
import secrets
import socket
import ssl

import trio

from edged.config.options import Options, TlsOptions
from edged.core import nkeys
from edged.core.proxy_header import ProxyHeaderError
from edged.server import reasons
from edged.server.client import ClientConnection
from edged.server.first_bytes import looks_like_tls, read_proxy_header
from edged.server.server import Server
from edged.server.tls import AfterInfo, TlsHandshakeFailed, accept_tls, greeting
from edged.server.tls_context import server_context
from edged.server.transport import ConnectionLost, PlainTransport, Transport, send_all

_BACKLOG = 1024
# Room for the protocol around the largest payload in one compressed WebSocket message.
WEBSOCKET_SLACK_BYTES = 64 * 1024
# With no file descriptors left accept() fails at once and for a while: a pause instead of a busy loop.
_DESCRIPTORS_PAUSE_S = 0.1
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ListenError(OSError):
    """An address cannot be listened on; the text says which and why."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; a port of -1 lets the system choose. ListenError when it cannot be had."""
    try:
        found = socket.getaddrinfo(
            host or None, max(port, 0), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener


class HandshakesThrottled(TlsHandshakeFailed):
    """A handshake was not begun, because there were too many of them lately."""


class HandshakeRate:
    """Counts TLS handshakes, the dearest thing a stranger can ask for, second by second."""

    __slots__ = ("_count", "_ends_at")

    def __init__(self) -> None:
        self._ends_at = 0.0
        self._count = 0

    def allow(self, limit: int, now: float) -> bool:
        """Whether one more handshake fits into this second; a limit of 0 allows all."""
        if now >= self._ends_at:
            self._ends_at = now + 1.0
            self._count = 0
        self._count += 1
        return limit <= 0 or self._count <= limit


class Listener:
    """The client port or the WebSocket port of a server."""

    def __init__(self, server: Server, listening: socket.socket, is_websocket: bool = False) -> None:
        self.server = server
        self.listening = listening
        self.is_websocket = is_websocket
        self.host, self.port = listening.getsockname()[:2]
        self._tls_context: ssl.SSLContext | None = None
        self._handshakes = HandshakeRate()
        if is_websocket:
            import edged.server.websocket_client  # noqa: F401 - nothing may be loaded once we serve
        self.configure(server.options)

    def configure(self, options: Options) -> None:
        """Take over certificates and keys, at start and at reload. TlsConfigError when they are unusable."""
        tls = self._tls_options(options)
        self._tls_context = None if tls is None else server_context(tls)

    def _tls_options(self, options: Options) -> TlsOptions | None:
        if self.is_websocket:
            return None if options.websocket is None else options.websocket.tls
        return options.tls

    def close(self) -> None:
        """Accept nothing more."""
        trio.lowlevel.notify_closing(self.listening)
        self.listening.close()

    async def run(self) -> None:
        """Accept until closed or cancelled."""
        while self.listening.fileno() >= 0:
            try:
                await trio.lowlevel.wait_readable(self.listening)
                accepted, _ = self.listening.accept()
            except (trio.ClosedResourceError, BlockingIOError, ConnectionError):
                continue
            except OSError as error:
                if self.listening.fileno() < 0:
                    return
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                self.server.log.error("cannot accept: out of descriptors or memory", error=error)
                await trio.sleep(_DESCRIPTORS_PAUSE_S)
                continue
            self.server.nursery.start_soon(self._welcome, accepted)

    async def _welcome(self, accepted: socket.socket) -> None:
        wire = PlainTransport(accepted)
        try:
            if self.server.options.proxy_protocol:
                # A client that comes without a proxy in front is taken as it is.
                await read_proxy_header(wire)
            connection = await (
                self._welcome_websocket(wire) if self.is_websocket else self._welcome_client(wire)
            )
        except (ConnectionLost, ProxyHeaderError) as error:
            self.server.log.debug("connection refused", ip=wire.remote_ip, error=error)
            await wire.shutdown()
            return
        except BaseException:
            wire.close()
            raise
        if connection is not None:
            await connection.serve()

    async def _welcome_client(self, wire: PlainTransport) -> ClientConnection | None:
        options = self.server.options
        plan = greeting(options.tls, options.allow_non_tls)
        connection = ClientConnection(self.server, wire, self.server.next_cid())
        self._register(connection)
        try:
            handshake = plan.handshake_first
            if handshake and plan.hello_delay_s > 0:
                handshake = await looks_like_tls(wire, plan.hello_delay_s)
            if handshake:
                connection.take_transport(await self._handshake(wire))
                await send_all(connection.transport, self.server.info_line(connection))
            else:
                await send_all(wire, self.server.info_line(connection))
                follows = plan.after_info
                if follows is AfterInfo.HANDSHAKE or (
                    follows is AfterInfo.EITHER and await looks_like_tls(wire, options.auth_timeout_s)
                ):
                    connection.take_transport(await self._handshake(wire))
        except HandshakesThrottled:
            text = "Connection throttling is active. Please try again later."
            connection.close(reasons.CONNECTIONS_EXCEEDED, text)
        except TlsHandshakeFailed as failure:
            self.server.log.error(
                "TLS handshake failed", cid=connection.cid, ip=wire.remote_ip, error=failure
            )
            connection.close(reasons.TLS_HANDSHAKE)
        except ConnectionLost:
            connection.close(reasons.CLIENT_CLOSED)
        return connection

    async def _welcome_websocket(self, wire: PlainTransport) -> ClientConnection | None:
        # Only a daemon with a WebSocket port pays for these; a listener imports them before it is ready.
        from edged.server.websocket import WebSocketRefused, accept_websocket
        from edged.server.websocket_client import WebSocketClient

        options = self.server.options.websocket
        assert options is not None, "a WebSocket listener has its options"
        try:
            transport = wire if options.tls is None else await self._handshake(wire)
            inflated_max = self.server.options.max_payload + WEBSOCKET_SLACK_BYTES
            upgraded = await accept_websocket(transport, options, inflated_bytes_max=inflated_max)
        except (TlsHandshakeFailed, WebSocketRefused) as error:
            raise ConnectionLost(str(error)) from error
        if upgraded.kind != "WEBSOCKET":
            raise ConnectionLost("leaf links are not accepted here")
        connection = WebSocketClient(self.server, upgraded, self.server.next_cid())
        self._register(connection)
        await send_all(upgraded, self.server.info_line(connection))
        return connection

    async def _handshake(self, wire: PlainTransport) -> Transport:
        tls = self._tls_options(self.server.options)
        assert tls is not None and self._tls_context is not None
        if not self._handshakes.allow(tls.connection_rate_limit, trio.current_time()):
            raise HandshakesThrottled("too many handshakes in this second")
        return await accept_tls(wire, self._tls_context, tls.timeout_s, tls.pinned_certs)

    def _register(self, connection: ClientConnection) -> None:
        if self.server.authenticator.nonce_required:
            connection.nonce = nkeys.nonce_from(secrets.token_bytes(11))
        self.server.remember(connection)
