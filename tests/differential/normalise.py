"""Normalising: what two correct servers cannot agree on is replaced by its kind, everything else is kept.

Text: server ids, generated service replies and unique ids. JSON: times, durations and what the tables in
`allowed` name. Rules: pure; a value is never replaced by something that hides its type; the zero time is
kept, because it means "never".
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tests.differential.allowed import Treatment, treatment
from tests.differential.connection import Frame

PAYLOAD_SHOWN_BYTES = 400
ZERO_TIME = "0001-01-01T00:00:00Z"

OWN_SUBJECTS = ("$SYS.", "_R_.")
# Documents whose fields are compared in their order: what clients print is what they got.
ORDERED = ("API", "API.CONSUMER", "ADVISORY")
# A time in a header; how many digits it has is chance, and with it the size of the header.
TIME_HEADER = re.compile(rb"(Nats-Time-Stamp|Nats-Schedule-Next): \d{4}-[^\r]*")
IDENTITY_HEADER = re.compile(rb"(Nats-Stream-Identity): [0-9A-Za-z]{8}(?=\r)")
REQUEST_INFO = re.compile(rb"Nats-Request-Info: (\{.*\})")
TEXT_KINDS = (
    (re.compile(r"\bN[A-Z2-7]{55}\b"), "<server-id>"),
    (re.compile(r"\bX[A-Z2-7]{55}\b"), "<curve-key>"),
    (re.compile(r"\b127\.0\.0\.1:\d+\b"), "127.0.0.1:<port>"),
    (re.compile(r"_R_\.[A-Za-z0-9]{6,}(\.[A-Za-z0-9]+)?"), "<service-reply>"),
    (re.compile(r"(Error decoding \w+ for '[^']*'): .*"), r"\1: <reason of the number parser>"),
    (re.compile(r"(\$JS\.ACK\.\S+?\.\d+\.\d+\.\d+)\.\d{19}\."), r"\1.<ns>."),
    (re.compile(r"^node-\d$"), "<node>"),
    (re.compile(r"\b[SC]-(R\d[FM])-[0-9A-Za-z]{8}\b"), r"<group \1>"),
    (re.compile(r"^[0-9A-Za-z]{22}$"), "<unique-id>"),
    (re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"), "<time>"),
    (re.compile(r"^(\d+[ydhms])*\d+(\.\d+)?(s|ms|µs|ns)$"), "<duration>"),
)


def mask_text(text: str) -> str:
    """Replace what differs between any two servers."""
    if text == ZERO_TIME:
        return text
    for pattern, name in TEXT_KINDS:
        text = pattern.sub(name, text)
    return text


def type_name(value: Any) -> str:
    """The JSON type of a value; whole and broken numbers are one type."""
    names = (
        (bool, "<bool>"),
        (str, "<string>"),
        (int | float, "<number>"),
        (list, "<list>"),
        (dict, "<object>"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "<null>")


def mask(value: Any, where: str, path: str = "") -> Any:
    """The document with every allowed difference removed."""
    if isinstance(value, dict):
        kept = {}
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            how = treatment(where, inner)
            if where in ORDERED and name == "response" and isinstance(item, str):
                # An audit holds the answer as text.
                kept[name] = mask(json.loads(item), where)
            elif how is None:
                kept[mask_text(name)] = mask(item, where, inner)
            elif how is Treatment.SORT:
                kept[mask_text(name)] = _sorted(mask(item, where, inner))
            elif how is Treatment.OWN:
                others = _without_own(item)
                if others or not item:  # A list of nothing but the server's own entries is as good as none.
                    kept[mask_text(name)] = _sorted(mask(others, where, inner))
            elif how is Treatment.TYPE:
                kept[mask_text(name)] = type_name(item)
        return kept
    if isinstance(value, list):
        inner = f"{path}.#" if path else "#"
        return [mask(item, where, inner) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def _sorted(value: Any) -> Any:
    """A list without its order; anything else stays as it is."""
    return (
        sorted(value, key=lambda item: json.dumps(item, sort_keys=True)) if isinstance(value, list) else value
    )


def _without_own(value: Any) -> Any:
    """A list without the entries about the server's own subjects."""
    if not isinstance(value, list):
        return value
    return [item for item in value if not (isinstance(item, dict) and _is_own(item))]


def _is_own(item: dict[str, Any]) -> bool:
    """An entry of a list that the implementation made: accounts of nats-server import the JetStream API."""
    subject = str(item.get("subject", ""))
    return subject.startswith(OWN_SUBJECTS) or (subject == "$JS.API.>" and item.get("share") is True)


def json_lines(text: bytes, where: str) -> list[str] | None:
    """A JSON document as sorted, indented lines after masking; None when it is no JSON object or list."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict | list):
        return None
    is_sorted = where not in ORDERED
    return json.dumps(mask(value, where), indent=2, sort_keys=is_sorted).splitlines()


def show(data: bytes) -> str:
    """Bytes as one line of text: printable ones as they are, others escaped, long ones by their digest."""
    if len(data) > PAYLOAD_SHOWN_BYTES:
        return f"<{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}>"
    escaped = data.decode("latin-1").encode("unicode_escape").decode()
    return mask_text(escaped)


def frame_lines(frame: Frame, where: str = "") -> list[str]:
    """A frame as transcript lines. With `where` its payload is a JSON document, compared by that table."""
    if frame.kind.upper() == b"INFO":
        lines = json_lines(frame.line[5:], "INFO")
        if lines is not None:
            before_end = " " if frame.line.endswith(b" ") else ""
            return ["INFO", *lines, show(before_end.encode() + frame.line_end)]
    if where and frame.payload is not None:
        block, document = _parts(frame)
        lines = json_lines(document, where)
        if lines is not None:
            # Internal services put two spaces before the sizes; clients split on any number of them.
            head = re.sub(rb" +\d+$", b" #", re.sub(rb" +", b" ", frame.line) if block else frame.line)
            if TIME_HEADER.search(block):
                # The size of the block, too: a time is shorter if it ends in zeros.
                head = re.sub(rb" \d+ #$", b" # #", head)
            shown = [show(_without_chance(block))] if block else []
            return [show(head + frame.line_end), *shown, *lines, show(frame.payload_end)]
    if frame.payload is None:
        return [show(frame.line + frame.line_end)]
    return [_head(frame) + show(_without_chance(frame.payload)) + show(frame.payload_end)]


def _parts(frame: Frame) -> tuple[bytes, bytes]:
    """The headers of a message and what follows them."""
    payload = frame.payload or b""
    sizes = re.search(rb" (\d+) \d+$", frame.line) if frame.kind.upper() == b"HMSG" else None
    split = int(sizes.group(1)) if sizes is not None else 0
    return payload[:split], payload[split:]


def _head(frame: Frame) -> str:
    """The line of a message; its sizes mean nothing when a header says who asked, or when."""
    line = frame.line
    payload = frame.payload or b""
    if REQUEST_INFO.search(payload) or TIME_HEADER.search(payload):
        line = re.sub(rb" \d+ \d+$", b" # #", line)
    return show(line + frame.line_end)


def _without_chance(payload: bytes) -> bytes:
    """Headers without times, and with the one that says who asked compared as JSON."""

    def masked(match: re.Match[bytes]) -> bytes:
        lines = json_lines(match.group(1), "Nats-Request-Info") or []
        return b"Nats-Request-Info: " + "".join(line.strip() for line in lines).encode()

    payload = TIME_HEADER.sub(rb"\1: <time>", payload)
    payload = IDENTITY_HEADER.sub(rb"\1: <hash of a time>", payload)
    return REQUEST_INFO.sub(masked, payload)
