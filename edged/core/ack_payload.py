"""What is said about a message that was delivered: the payload of an acknowledgement.

Rules: a delay that cannot be read is none. Whatever else is said means nothing, and is not an error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edged.core.gojson import JsonError, document
from edged.core.gojson_shapes import DURATION, Structure
from edged.core.gotime import parse_duration_ns

ACK: Final = 0
NAK: Final = 1
PROGRESS: Final = 2
NEXT: Final = 3
TERM: Final = 4
NOTHING: Final = 5

PLAIN_ACKS: Final = frozenset((b"", b"+ACK", b"+OK"))
_NAK: Final = b"-NAK"
_PROGRESS: Final = b"+WPI"
_NEXT: Final = b"+NXT"
_TERM: Final = b"+TERM"
_NAK_SHAPE: Final = Structure("server.ConsumerNakOptions", {"delay": DURATION})


class AckPayload(NamedTuple):
    """`kind` is one of the above. A NAK may have a delay, NEXT a request and TERM a reason in `rest`."""

    kind: int
    delay_ns: int | None = None
    rest: bytes = b""


_PLAIN: Final = AckPayload(ACK)


def ack_payload(payload: bytes) -> AckPayload:
    """What a payload says."""
    if payload in PLAIN_ACKS:
        return _PLAIN
    if payload.startswith(_NEXT):
        return AckPayload(NEXT, rest=payload[len(_NEXT) :])
    if payload.startswith(_NAK):
        return AckPayload(NAK, _delay_ns(payload[len(_NAK) :].strip()))
    if payload == _PROGRESS:
        return AckPayload(PROGRESS)
    if payload.startswith(_TERM):
        return AckPayload(TERM, rest=payload[len(_TERM) :].strip())
    return AckPayload(NOTHING)


def _delay_ns(argument: bytes) -> int | None:
    """How long to wait before the message is delivered again; None for as soon as can be."""
    if not argument:
        return None
    try:
        if argument.startswith(b"{"):
            delay: int = _NAK_SHAPE.read(document(argument), "", strict=False).get("delay", 0)
            return delay
        return parse_duration_ns(argument.decode())
    except (JsonError, ValueError):
        return None
