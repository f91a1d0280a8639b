"""Lines for the trace: total on any bytes, one line each, and without what a client logs in with."""

from __future__ import annotations

import json

from edged.core import trace, wire
from edged.server.connect import ConnectError, ConnectFields, parse_connect
from tests.fuzz.target import Target
from tests.fuzz.targets.wire_seeds import SEEDS, WORDS

SECRET_FIELDS = ("pass", "auth_token", "jwt", "sig", "proxy_sig")
CANARY = "CANARY7c2f"
PAYLOAD_SHOWN_MAX = 64
LINES_MAX = 300


def run_lines(data: bytes) -> None:
    for number, line in enumerate(trace.outgoing(data)):
        assert line.startswith("->> [") and "\n" not in line
        if number > LINES_MAX:
            break
    parser = wire.Parser(4096, 4096)
    parser.headers_allowed = True
    events = parser.feed(data)
    while events:
        for event in events:
            for number, line in enumerate(trace.incoming(event, PAYLOAD_SHOWN_MAX)):
                assert line.startswith("<<- ") and "\n" not in line and "\r" not in line
                if number > LINES_MAX:
                    break
        events = parser.feed(b"") if isinstance(events[-1], wire.Connect) else []


def run_secrets(data: bytes) -> None:
    """Whatever the server would take for a password is not in the line."""
    body = data.replace(b"\n", b"")
    shown = trace.without_secrets(body).decode("utf-8", "replace")
    try:
        fields = parse_connect(body, ConnectFields())
    except ConnectError:
        return
    for field in SECRET_FIELDS:
        value = fields.credentials.get(field)
        if isinstance(value, str) and CANARY in value:
            assert CANARY not in shown or CANARY in _without(body, value), (field, shown)


def _without(body: bytes, value: str) -> str:
    """The document without this value everywhere: it may stand in a field that is no secret as well."""
    document = json.loads(body.decode("utf-8", "replace"))
    rest = {key: item for key, item in document.items() if key.lower() not in SECRET_FIELDS or item != value}
    duplicates = body.decode("utf-8", "replace").count(CANARY) > 1
    return json.dumps(rest, ensure_ascii=False) + (CANARY if duplicates else "")


SECRET_SEEDS = (
    *(f'{{"user":"a","{field}":"{CANARY}"}}'.encode() for field in SECRET_FIELDS),
    f'{{"PASS" : "x\\"{CANARY}"}}'.encode(),
    f'{{"p\\u0061ss":"{CANARY}"}}'.encode(),
    f'{{"pass":"{CANARY}'.encode(),
)
SECRET_WORDS = (
    b'"pass":',
    b'"',
    b"\\",
    b"\\u0061",
    b":",
    b",",
    b"{",
    b"}",
    b" ",
    b"\t",
    b'\\"',
    b"PASS",
    b"null",
)
OUTGOING = (
    b"MSG a.b 1 5\r\nhello\r\nHMSG a.b 1 12 17\r\nNATS/1.0\r\n\r\nhello\r\nPONG\r\nINFO {}\r\n",
    b"-ERR 'x'\r\n+OK\r\nMSG a 1 99999999999999999999\r\nx",
)
TARGETS = (
    Target("trace", run_lines, (*SEEDS, *OUTGOING), (*WORDS, b"MSG a 1 ", b"HMSG a 1 5 "), share=4),
    Target("secrets", run_secrets, SECRET_SEEDS, SECRET_WORDS, share=3),
)
