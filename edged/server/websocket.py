"""WebSocket on a plain or TLS transport: the HTTP upgrade, then NATS bytes in frames.

Rules: inbound, frame and message borders mean nothing: text and binary, whole or in fragments, it is one
stream of NATS bytes. Outbound, each chunk is one binary frame. Pings are answered here and never seen by the
caller. A peer that breaks the rules of the protocol gets a close frame with the reason from shutdown(), which
receive() calls itself; then ConnectionLost is raised.
Invariants: what one receive() returns is bounded by the receive buffer and one inflated message; answers to
pings are bounded (layered.py); no state of compression lives between messages.
"""

from http import HTTPStatus
from typing import Final, cast

import trio
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason

from edged.config.options import WebsocketOptions
from edged.core.http_upgrade import (
    RequestReader,
    UpgradeAccepted,
    UpgradeRefused,
    UpgradeRequest,
    UpgradeRules,
    decide_upgrade,
    parse_origin,
)
from edged.core.websocket_frames import BoundedInflate, FrameKind, encode_close, encode_data, encode_frame
from edged.server.layered import LayeredTransport
from edged.server.transport import (
    RECEIVE_BUFFER_BYTES,
    SHUTDOWN_TIMEOUT_S,
    ConnectionLost,
    Transport,
    send_all,
)

INFLATED_BYTES_MAX: Final = 1024 * 1024 + 64 * 1024
"""What one compressed message may inflate to when the caller does not say: max_payload and some slack."""

FRAMES_PER_TURN: Final = 256
"""How many frames are decoded before the other tasks get their turn: a flood of tiny frames is slow work."""

NORMAL_CLOSURE: Final = 1000


class WebSocketRefused(Exception):  # noqa: N818 - says what happened
    """The upgrade was refused, and the peer told so. The transport is left for the caller to close."""


async def accept_websocket(
    wire: Transport,
    options: WebsocketOptions,
    timeout_s: float | None = None,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> "WebSocketTransport":
    """Read the HTTP request and upgrade. Raises WebSocketRefused and ConnectionLost.

    The time limit (by default that of the options) covers the whole upgrade, however slowly bytes arrive.
    """
    timeout_s = options.handshake_timeout_s if timeout_s is None else timeout_s
    refused = UpgradeRefused(HTTPStatus.BAD_REQUEST, f"no complete request within {timeout_s:g} s")
    accepted: UpgradeAccepted | None = None
    with trio.move_on_after(timeout_s):
        try:
            request = await _read_request(wire)
            accepted = decide_upgrade(request, upgrade_rules(options, wire.tls_version is not None))
        except UpgradeRefused as error:
            refused = error
    with trio.move_on_after(timeout_s):
        await send_all(wire, refused.response() if accepted is None else accepted.answer)
        if accepted is None:
            raise WebSocketRefused(str(refused)) from refused
        return WebSocketTransport(wire, options, request, accepted, inflated_bytes_max)
    raise WebSocketRefused("the peer does not read our answer")


def upgrade_rules(options: WebsocketOptions, is_tls: bool) -> UpgradeRules:
    """The rules of a listener from its configuration. Raises ValueError for an origin that is none."""
    return UpgradeRules(
        is_tls=is_tls,
        same_origin=options.same_origin,
        allowed_origins=tuple(parse_origin(text) for text in options.allowed_origins),
        compression=options.compression,
        answer_headers=options.headers,
    )


async def _read_request(wire: Transport) -> UpgradeRequest:
    reader = RequestReader()
    while True:
        request = reader.receive(bytes(await wire.receive()))
        if request is not None:
            return request


class WebSocketTransport(LayeredTransport):
    """NATS bytes in WebSocket frames. Made by accept_websocket."""

    __slots__ = (
        "_compress",
        "_ended",
        "_frames",
        "_work_left",
        "close_status",
        "close_text",
        "cookie_jwt",
        "cookie_password",
        "cookie_token",
        "cookie_user",
        "forwarded_for",
        "violation",
    )

    def __init__(
        self,
        wire: Transport,
        options: WebsocketOptions,
        request: UpgradeRequest,
        accepted: UpgradeAccepted,
        inflated_bytes_max: int,
    ) -> None:
        super().__init__(wire)
        self.kind = "LEAFNODE_WS" if accepted.is_leafnode else "WEBSOCKET"
        # The client's address as reported by a proxy in front; for showing, not for trusting.
        self.forwarded_for = request.forwarded_for
        cookies = request.cookies()
        self.cookie_jwt = _cookie(cookies, options.jwt_cookie)
        self.cookie_user = _cookie(cookies, options.user_cookie)
        self.cookie_password = _cookie(cookies, options.pass_cookie)
        self.cookie_token = _cookie(cookies, options.token_cookie)
        # What shutdown() tells the peer; whoever ends the connection for a reason sets them first.
        self.close_status = NORMAL_CLOSURE
        self.close_text = ""
        self._compress = accepted.compression
        # wsproto's client side is the one that takes frames without mask; it only decodes here.
        side = ConnectionType.SERVER if accepted.masking else ConnectionType.CLIENT
        extensions: list[Extension] = [BoundedInflate(inflated_bytes_max)] if accepted.compression else []
        self._frames = Connection(side, extensions)
        self._work_left = False
        self._ended = False
        self.violation: str | None = None

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        if self._ended:
            # After a close frame, in either direction, no more data may be sent.
            raise ConnectionLost("the WebSocket is closed")
        return super().send_nowait(data)

    def _encode(self, chunk: memoryview) -> bytes:
        return encode_data(chunk, self._compress)

    async def receive(self) -> memoryview | bytes:
        try:
            return await super().receive()
        except ConnectionLost:
            if self.violation is not None:
                await self.shutdown()
            raise

    @property
    def has_work(self) -> bool:
        return self._work_left or self.wire.has_work

    def receive_nowait(self) -> memoryview | bytes | None:
        while True:
            data = self._decode() if self._work_left else b""
            if data:
                return data
            if self.violation is not None:
                raise ConnectionLost(f"WebSocket: {self.violation}")
            if self._ended:
                return b""
            if self._work_left:
                return None
            self._flush_tail()
            received = self.wire.receive_nowait()
            if received is None:
                return None
            if not received:
                self._ended = True
                return b""
            # It is copied at once; wsproto's annotation is narrower than what it takes.
            self._frames.receive_data(cast(bytes, received))
            self._work_left = True

    def _decode(self) -> bytes:
        """The application bytes of the frames that are complete, up to a buffer full."""
        parts: list[bytes] = []
        size = 0
        for frames, event in enumerate(self._frames.events(), start=1):
            if isinstance(event, BytesMessage):
                parts.append(bytes(event.data))
                size += len(event.data)
            elif isinstance(event, TextMessage):
                parts.append(event.data.encode("utf-8"))
                size += len(parts[-1])
            elif isinstance(event, Ping):
                self._send_control(encode_frame(FrameKind.PONG, event.payload))
            elif isinstance(event, CloseConnection):
                self._end(event)
                break
            if size >= RECEIVE_BUFFER_BYTES or frames >= FRAMES_PER_TURN:
                return b"".join(parts)
        self._work_left = False
        return b"".join(parts)

    def _end(self, event: CloseConnection) -> None:
        """The peer said goodbye: answer it. Or wsproto found a violation: shutdown() will say which."""
        if self._frames.state is ConnectionState.REMOTE_CLOSING:
            status = None if event.code == CloseReason.NO_STATUS_RCVD else int(event.code)
            if not self._ended:
                self._send_control(encode_close(status, event.reason or ""))
            self._ended = True
            return
        self.violation = event.reason or "protocol error"
        self.close_status, self.close_text = int(event.code), self.violation

    async def shutdown(self, timeout_s: float = SHUTDOWN_TIMEOUT_S) -> None:
        deadline = trio.current_time() + timeout_s
        try:
            with trio.move_on_at(deadline) as scope:
                scope.shield = True
                await self._drain_tail()
                if not self._ended:
                    self._ended = True
                    self._send_control(encode_close(self.close_status, self.close_text))
                await self._drain_tail()
        except ConnectionLost:
            pass  # The peer did not wait for our goodbye.
        await self.wire.shutdown(max(0.0, deadline - trio.current_time()))


def _cookie(cookies: dict[str, str], name: str | None) -> str | None:
    return None if name is None else cookies.get(name)
