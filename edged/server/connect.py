"""The CONNECT document of a client, as typed fields.

Rules: a document is JSON of bounded nesting whose known fields have their types; anything else refuses the
connection. Unknown fields are ignored, because newer clients have some. Absent `verbose`, `pedantic` and
`echo` mean true, which is also how a client is treated before it has sent CONNECT.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from edged.core.limits import CONNECT_NESTING_MAX
from edged.server import reasons
from edged.server.reasons import Reason
from edged.server.websocket import WebSocketTransport

_BOOLEANS = ("verbose", "pedantic", "echo", "tls_required", "headers", "no_responders", "new_account")
_STRINGS = (
    "user",
    "pass",
    "auth_token",
    "nkey",
    "jwt",
    "sig",
    "proxy_sig",
    "name",
    "lang",
    "version",
    "account",
)


class ConnectError(ValueError):
    """The document is not one that a client may send."""


@dataclass(frozen=True, slots=True)
class ConnectFields:
    """What a client said about itself. Credentials stay in `credentials` and out of repr()."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    credentials: dict[str, Any] = field(default_factory=dict, repr=False)

    def with_cookies(self, transport: object) -> ConnectFields:
        """These fields, completed from the cookies of a WebSocket."""
        if not isinstance(transport, WebSocketTransport):
            return self
        cookies = {
            "jwt": transport.cookie_jwt,
            "user": transport.cookie_user,
            "pass": transport.cookie_password,
            "auth_token": transport.cookie_token,
        }
        missing = {key: value for key, value in cookies.items() if value and not self.credentials.get(key)}
        return replace(self, credentials={**self.credentials, **missing}) if missing else self

    def problem(self) -> tuple[Reason, str] | None:
        """What in these fields ends the connection even though its credentials are good."""
        if self.protocol not in (0, 1):
            return reasons.BAD_PROTOCOL_VERSION, "invalid client protocol"
        if self.no_responders and not self.headers:
            return reasons.NO_RESPONDERS_NEEDS_HEADERS, "no responders requires headers support"
        return None


def parse_connect(body: bytes) -> ConnectFields:
    """Read a CONNECT document, or raise ConnectError."""
    if _nesting(body) > CONNECT_NESTING_MAX:
        raise ConnectError("nested too deeply")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConnectError("not JSON") from error
    if not isinstance(document, dict):
        raise ConnectError("not a JSON object")
    known = {key.lower(): value for key, value in document.items() if value is not None}
    for key in _BOOLEANS:
        if not isinstance(known.get(key, False), bool):
            raise ConnectError(f"{key} is not true or false")
    for key in _STRINGS:
        if not isinstance(known.get(key, ""), str):
            raise ConnectError(f"{key} is not a string")
    protocol = known.get("protocol", 0)
    if not isinstance(protocol, int) or isinstance(protocol, bool):
        raise ConnectError("protocol is not a number")
    return ConnectFields(
        verbose=known.get("verbose", True),
        pedantic=known.get("pedantic", True),
        echo=known.get("echo", True),
        headers=known.get("headers", False),
        no_responders=known.get("no_responders", False),
        protocol=protocol,
        name=known.get("name", ""),
        lang=known.get("lang", ""),
        version=known.get("version", ""),
        credentials=known,
    )


def _nesting(body: bytes) -> int:
    """An upper bound of how deeply a JSON text is nested; brackets in strings count too, harmlessly."""
    depth = deepest = 0
    for byte in body:
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
