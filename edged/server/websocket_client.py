"""A client that came over WebSocket: credentials may come from cookies, and the close frame says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from edged.server import reasons
from edged.server.client import ClientConnection
from edged.server.connect import ConnectFields
from edged.server.reasons import Reason
from edged.server.server import Server
from edged.server.websocket import WebSocketTransport

_NORMAL: Final = 1000
_GOING_AWAY: Final = 1001
_PROTOCOL_ERROR: Final = 1002
_POLICY_VIOLATION: Final = 1008
_TOO_BIG: Final = 1009

_STATUS_OF: Final = {
    reasons.CLIENT_CLOSED: _NORMAL,
    reasons.SERVER_SHUTDOWN: _GOING_AWAY,
    reasons.STALE_CONNECTION: _GOING_AWAY,
    reasons.READ_ERROR: _GOING_AWAY,
    reasons.WRITE_ERROR: _GOING_AWAY,
    reasons.PARSE_ERROR: _PROTOCOL_ERROR,
    reasons.PROTOCOL_VIOLATION: _PROTOCOL_ERROR,
    reasons.BAD_PROTOCOL_VERSION: _PROTOCOL_ERROR,
    reasons.PAYLOAD_EXCEEDED: _TOO_BIG,
    reasons.CONTROL_LINE_EXCEEDED: _TOO_BIG,
}


class WebSocketClient(ClientConnection):
    """A client connection over a WebSocket transport."""

    __slots__ = ("_websocket",)

    def __init__(self, server: Server, transport: WebSocketTransport, cid: int) -> None:
        super().__init__(server, transport, cid)
        self._websocket = transport

    def completed(self, fields: ConnectFields) -> ConnectFields:
        """Cookies stand in for credentials that CONNECT leaves out."""
        cookies = {
            "jwt": self._websocket.cookie_jwt,
            "user": self._websocket.cookie_user,
            "pass": self._websocket.cookie_password,
            "auth_token": self._websocket.cookie_token,
        }
        missing = {key: value for key, value in cookies.items() if value and not fields.credentials.get(key)}
        return replace(fields, credentials={**fields.credentials, **missing}) if missing else fields

    def close(self, reason: Reason, error: str | None = None) -> None:
        if self.reason is None and self._websocket.violation is None:
            self._websocket.close_status = _STATUS_OF.get(reason, _POLICY_VIOLATION)
            self._websocket.close_text = reason
        super().close(reason, error)
