"""The CONNECT document of a client, as typed fields.

Rules: a document is JSON whose known fields have their types; anything else refuses the connection. Its size
is bounded by the control line, its nesting by what the JSON library takes. Unknown fields are ignored,
because newer clients have some. Absent `verbose`, `pedantic` and `echo` mean true, which is also how a client
is treated before it has sent CONNECT; a second CONNECT changes only what it names. Only known fields are
kept, so that a client which sends CONNECT over and over does not grow; their texts can be encoded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from edged.server import reasons
from edged.server.identity import REDACTED
from edged.server.reasons import Reason

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
_KNOWN = (*_BOOLEANS, *_STRINGS, "protocol")

_INT64 = 1 << 63
# Half of a surrogate pair: JSON can spell it, but it is no text, and nothing that encodes takes it.
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


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

    def without_secrets(self) -> ConnectFields:
        """These fields with what names the user, but nothing that lets anybody log in."""
        kept: dict[str, Any] = {
            key: self.credentials[key] for key in ("user", "nkey") if key in self.credentials
        }
        if self.credentials.get("auth_token"):
            kept["auth_token"] = REDACTED
        return replace(self, credentials=kept)

    def problem(self) -> tuple[Reason, str] | None:
        """What in these fields ends the connection even though its credentials are good."""
        if self.protocol not in (0, 1):
            return reasons.BAD_PROTOCOL_VERSION, "invalid client protocol"
        if self.no_responders and not self.headers:
            return reasons.NO_RESPONDERS_NEEDS_HEADERS, "no responders requires headers support"
        return None


def parse_connect(body: bytes, before: ConnectFields) -> ConnectFields:
    """Read a CONNECT document, or raise ConnectError. What it leaves out stays as it was `before`."""
    document = _load(body)
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConnectError("not a JSON object")
    named = {key.lower(): value for key, value in document.items() if value is not None}
    for key in _BOOLEANS:
        if not isinstance(named.get(key, False), bool):
            raise ConnectError(f"{key} is not true or false")
    for key in _STRINGS:
        if not isinstance(named.get(key, ""), str):
            raise ConnectError(f"{key} is not a string")
    protocol = named.get("protocol", 0)
    if not isinstance(protocol, int) or isinstance(protocol, bool) or not -_INT64 <= protocol < _INT64:
        raise ConnectError("protocol is not a number of 64 bits")
    named = {key: _mended(named[key]) for key in _KNOWN if key in named}
    known = {**before.credentials, **named}
    return ConnectFields(
        verbose=known.get("verbose", True),
        pedantic=known.get("pedantic", True),
        echo=known.get("echo", True),
        headers=known.get("headers", False),
        no_responders=known.get("no_responders", False),
        protocol=known.get("protocol", 0),
        name=known.get("name", ""),
        lang=known.get("lang", ""),
        version=known.get("version", ""),
        credentials=known,
    )


def is_json_object(body: bytes) -> bool:
    """Whether a document is what INFO and CONNECT may hold."""
    try:
        return isinstance(_load(body), dict | None)
    except ConnectError:
        return False


def _mended(value: Any) -> Any:
    """Text as nats-server reads it: what is no character becomes the sign for that."""
    if isinstance(value, str) and not value.isascii():
        return _HALF_A_PAIR.sub("\N{REPLACEMENT CHARACTER}", value)
    return value


def _load(body: bytes) -> Any:
    """Read JSON as nats-server does: text that is not UTF-8 is mended, not refused."""
    try:
        return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ConnectError("not JSON") from error
