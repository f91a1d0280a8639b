"""The HTTP request that becomes a WebSocket: read within bounds, decided, answered.

Rules: pure; bytes in, decision and bytes out. Status codes and bodies are those of nats-server, so that what
watches it (load balancers, browsers) sees no difference. The order of the checks is that of RFC 6455, section
4.2.1. An Origin that is absent is accepted: only browsers send one, and only browsers need the rule.
"""

import base64
import binascii
import hashlib
import ipaddress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import h11

REQUEST_BYTES_MAX: Final = 32 * 1024
"""The longest request head. Room for cookies that carry JWTs; beyond it the answer is 431."""

NO_MASKING_HEADER: Final = "Nats-No-Masking"
_ACCEPT_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_DEFLATE: Final = "permessage-deflate"
_DEFLATE_ANSWER: Final = f"{_DEFLATE}; server_no_context_takeover; client_no_context_takeover"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class UpgradeRefused(Exception):  # noqa: N818 - says what happened
    """The request does not become a WebSocket; answer with response() and close."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status

    def response(self) -> bytes:
        """The whole HTTP answer. The reason is for our log only, as in nats-server."""
        body = f"{self.status.phrase}\n"
        return (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            "Content-Type: text/plain; charset=utf-8\r\n"
            "Sec-WebSocket-Version: 13\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode("ascii")


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port, with the scheme's default port filled in."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class UpgradeRules:
    """What the listener allows."""

    is_tls: bool = False
    same_origin: bool = False
    allowed_origins: tuple[Origin, ...] = ()
    compression: bool = False
    answer_headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """A request head; header names are in lower case, values as sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    def header(self, name: str) -> str | None:
        """The first value of a header (name in lower case)."""
        return next((value for key, value in self.headers if key == name), None)

    def tokens(self, name: str) -> list[str]:
        """All comma-separated values of a header."""
        values = [value.split(",") for key, value in self.headers if key == name]
        return [token.strip() for tokens in values for token in tokens]

    def cookies(self) -> dict[str, str]:
        """Every cookie; of two with one name, the last."""
        pairs = [
            part.strip().partition("=")
            for key, value in self.headers
            if key == "cookie"
            for part in value.split(";")
        ]
        return {name: _unquoted(value) for name, equals, value in pairs if equals and name}

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def forwarded_for(self) -> str | None:
        """The client's address as a proxy in front reports it, when it is one."""
        value = self.header("x-forwarded-for")
        if value is None or "%" in value:
            return None
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class UpgradeAccepted:
    """The request becomes a WebSocket; send answer first."""

    answer: bytes
    compression: bool
    masking: bool
    is_leafnode: bool


class RequestReader:
    """Collects bytes until the request head is complete."""

    __slots__ = ("_connection", "_received")

    def __init__(self) -> None:
        # Its own limit spares heads that arrive in one piece, so there is ours below.
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._received = 0

    def receive(self, data: bytes) -> UpgradeRequest | None:
        """Take more bytes, b"" at the end; the request when it is complete. Raises UpgradeRefused."""
        self._received += len(data)
        if self._received > REQUEST_BYTES_MAX:
            raise UpgradeRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request head is too long")
        try:
            self._connection.receive_data(data)
            event = self._connection.next_event()
        except h11.RemoteProtocolError as error:
            raise UpgradeRefused(HTTPStatus(error.error_status_hint), str(error)) from error
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Request):
            raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "the connection ended before the request")
        if self._connection.trailing_data[0]:
            raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "data was sent before the handshake was complete")
        return UpgradeRequest(
            method=event.method.decode("latin-1"),
            target=event.target.decode("latin-1"),
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers),
        )


def decide_upgrade(request: UpgradeRequest, rules: UpgradeRules) -> UpgradeAccepted:
    """Accept the request or raise UpgradeRefused."""
    if request.path.endswith("/mqtt"):
        raise UpgradeRefused(HTTPStatus.NOT_FOUND, "MQTT over WebSocket is not served")
    if request.method != "GET":
        raise UpgradeRefused(HTTPStatus.METHOD_NOT_ALLOWED, "the method is not GET")
    if not request.header("host"):
        raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "Host is missing")
    if not _has_token(request, "upgrade", "websocket"):
        raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "Upgrade is not websocket")
    if not _has_token(request, "connection", "upgrade"):
        raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "Connection is not Upgrade")
    key = _checked_key(request)
    if not _has_token(request, "sec-websocket-version", "13"):
        raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Version is not 13")
    _check_origin(request, rules)
    compression = rules.compression and _offers_deflate(request)
    masking = request.header(NO_MASKING_HEADER.lower()) != "true"
    return UpgradeAccepted(
        answer=_accepting_answer(key, rules, compression, masking),
        compression=compression,
        masking=masking,
        is_leafnode=request.path.endswith("/leafnode"),
    )


def parse_origin(text: str) -> Origin:
    """An origin such as https://example.com:8443. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"not an http or https URL with a host: {text!r}")
    return Origin(parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])


def _accepting_answer(key: str, rules: UpgradeRules, compression: bool, masking: bool) -> bytes:
    digest = hashlib.sha1(key.encode("ascii") + _ACCEPT_SUFFIX, usedforsecurity=False).digest()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode('ascii')}",
    ]
    if compression:
        lines.append(f"Sec-WebSocket-Extensions: {_DEFLATE_ANSWER}")
    if not masking:
        lines.append(f"{NO_MASKING_HEADER}: true")
    lines.extend(f"{name}: {value}" for name, value in rules.answer_headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _checked_key(request: UpgradeRequest) -> str:
    key = request.header("sec-websocket-key") or ""
    try:
        decoded = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != 16:
        raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Key is missing or not 16 bytes in base64")
    return key


def _has_token(request: UpgradeRequest, name: str, wanted: str) -> bool:
    return any(token.lower() == wanted for token in request.tokens(name))


def _check_origin(request: UpgradeRequest, rules: UpgradeRules) -> None:
    if not rules.same_origin and not rules.allowed_origins:
        return
    text = request.header("origin") or request.header("sec-websocket-origin")
    if not text:
        return
    try:
        origin = parse_origin(text)
        own = parse_origin(f"{'https' if rules.is_tls else 'http'}://{request.header('host')}")
    except ValueError:
        raise UpgradeRefused(HTTPStatus.FORBIDDEN, "Origin or Host cannot be read") from None
    if rules.same_origin and origin != own:
        raise UpgradeRefused(HTTPStatus.FORBIDDEN, "Origin is not the same")
    if rules.allowed_origins and origin not in rules.allowed_origins:
        raise UpgradeRefused(HTTPStatus.FORBIDDEN, "Origin is not in the allowed list")


def _offers_deflate(request: UpgradeRequest) -> bool:
    """Whether one offer suits us: any, but one that wants a smaller window than ours."""
    for offer in request.tokens("sec-websocket-extensions"):
        name, *parameters = [part.strip().lower() for part in offer.split(";")]
        wants_small_window = any(part.startswith("server_max_window_bits") for part in parameters)
        if name == _DEFLATE and not wants_small_window:
            return True
    return False


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value
