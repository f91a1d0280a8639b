"""Protocol lines for people who read a trace: what came in and what went out, without secrets.

Rules: credentials in CONNECT are replaced, however their names are spelled and even when the document is cut
off; payloads are cut at the configured length; nothing here can fail on any bytes, since a trace must never
change what the server does. One event is one line: what is not printable is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from edged.core import wire
from edged.core.twins import PUBLISHES
from edged.core.wire import Event

_SECRETS = frozenset(("pass", "auth_token", "jwt", "sig", "proxy_sig"))
# A text in JSON and, when it is the name of a member, its value: text (closed or not), or anything else.
# Every text is taken whole, whether it names something or not, so that one pass is enough.
_MEMBER = re.compile(
    rb'"((?:[^"\\]|\\.)*+)(?:"(?:(\s*+:\s*+)("(?:[^"\\]|\\(?:.|\Z))*+(?:"|\Z)|[^\s,}]*+))?+)?+', re.DOTALL
)
# A size of more digits is none: what looks like such a line is a piece of somebody's payload.
_MESSAGE_LINE = re.compile(rb"H?MSG [^\r]* (\d{1,9})\Z")


def without_secrets(body: bytes) -> bytes:
    """A CONNECT document with its credentials blotted out."""
    return _MEMBER.sub(_redacted, body)


def _redacted(member: re.Match[bytes]) -> bytes:
    if member[2] is None:
        return member[0]
    try:
        name = str(json.loads(b'"%s"' % member[1])).lower()
    except ValueError:
        return member[0]  # Not a name that JSON has, so the document is refused as a whole.
    return b'"%s"%s"[REDACTED]"' % (member[1], member[2]) if name in _SECRETS else member[0]


def incoming(event: Event, payload_max: int) -> Iterator[str]:
    """The lines for one event; `payload_max` of 0 shows payloads whole."""
    if isinstance(event, PUBLISHES):
        for subject, reply, header_bytes, message in event:
            verb = "PUB" if header_bytes < 0 else "HPUB"
            sizes = f"{len(message)}" if header_bytes < 0 else f"{header_bytes} {len(message)}"
            yield f"<<- [{' '.join(filter(None, [verb, _text(subject), _text(reply or b''), sizes]))}]"
            yield f'<<- MSG_PAYLOAD: ["{_cut(message, payload_max)}"]'
    elif isinstance(event, wire.Connect):
        yield f"<<- [CONNECT {_text(without_secrets(event.body))}]"
    elif isinstance(event, wire.Subscribe):
        words = (event.subject, event.queue or b"", event.sid)
        yield f"<<- [SUB {' '.join(filter(None, map(_text, words)))}]"
    elif isinstance(event, wire.Unsubscribe):
        yield f"<<- [UNSUB {_text(event.sid)}{f' {event.deliveries_max}' if event.deliveries_max else ''}]"
    elif isinstance(event, wire.Ping | wire.Pong):
        yield f"<<- [{type(event).__name__.upper()}]"


def outgoing(data: bytes) -> Iterator[str]:
    """The protocol lines in bytes that are about to be written, without payloads and INFO documents."""
    position = 0
    while position < len(data):
        stop = data.find(b"\r\n", position)
        if stop < 0:
            return
        line = data[position:stop]
        position = stop + 2
        match = _MESSAGE_LINE.match(line)
        if match is not None:
            position += int(match[1]) + 2
        yield f"->> [{_text(line[:4] if line.startswith(b'INFO') else line)}]"


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])


def _cut(message: bytes, payload_max: int) -> str:
    shown = message if not payload_max or len(message) <= payload_max else message[:payload_max] + b"..."
    return repr(shown)[2:-1]
