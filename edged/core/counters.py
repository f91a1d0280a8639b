"""Counter streams: a message carries an increment in `Nats-Incr`, what is stored carries the total.

The body of a stored message is `{"val":"N"}`, N being a whole number of any size. A message that came from
another counter stream brings the total there; the difference to what that stream had brought before is what
counts here, and `Nats-Counter-Sources` keeps, per stream and subject, the total seen last. So a message that
comes twice, or one that was missed, does no harm.

Rules: numbers are read as nats-server reads them, wrong ones included: a total that ends in rubbish counts up
to there. A number of more digits than a header could hold is refused, so that arithmetic takes bounded time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from edged.core import header_edits, headers
from edged.core.api_errors import (
    MESSAGE_COUNTER_BROKEN,
    MESSAGE_INCREMENT_DISABLED,
    MESSAGE_INCREMENT_INVALID,
    MESSAGE_INCREMENT_MISSING,
    MESSAGE_INCREMENT_PAYLOAD,
    ApiError,
)

INCREMENT: Final = b"Nats-Incr"
SOURCES: Final = b"Nats-Counter-Sources"
DIGITS_MAX: Final = 65_535

_STREAM_SOURCE: Final = b"Nats-Stream-Source"
# A counter takes every increment there is: it cannot be told when to.
_INCOMPATIBLE: Final = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
)
_NUMBER = re.compile(rb"[+-]?[0-9]+")
_LEADING_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
# Python converts this many digits in one go, whatever the limits of the interpreter say.
_DIGITS_AT_ONCE: Final = 600
_AT_ONCE: Final = 10**_DIGITS_AT_ONCE

Sources = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Counted:
    """What is stored for a message of a counter stream, and the total for its acknowledgement."""

    block: bytes
    payload: bytes
    value: str


def refusal(block: bytes, payload_bytes: int, allowed: bool, sourced: bool) -> ApiError | None:
    """Why a message must not be stored, judged by its increment alone; the first of all checks on headers.

    `allowed` says whether the stream counts, `sourced` whether the message came from another stream.
    """
    text = headers.value(block, INCREMENT)
    if text and not _is_number(text):
        return MESSAGE_INCREMENT_INVALID
    if not text or sourced:
        return None
    if not allowed:
        return MESSAGE_INCREMENT_DISABLED
    if payload_bytes:
        return MESSAGE_INCREMENT_PAYLOAD
    if any(headers.value(block, key) for key in _INCOMPATIBLE):
        return MESSAGE_INCREMENT_INVALID
    return None


def counted(
    subject: bytes, block: bytes, payload: bytes, last: tuple[bytes, bytes] | None
) -> Counted | ApiError:
    """What a counter stream stores for a message that refusal() let pass; the last of the checks on headers.

    `last` is the header block and the payload of the last message of the subject.
    """
    text = headers.value(block, INCREMENT)
    if not text:
        return MESSAGE_INCREMENT_MISSING
    total, sources = 0, {}
    if last is not None:
        total_before = _total(last[1])
        sources_before = _sources(headers.value(last[0], SOURCES))
        if total_before is None or sources_before is None:
            return MESSAGE_COUNTER_BROKEN
        total, sources = total_before, sources_before
    increment = _integer(text.decode())
    origin = headers.value(block, _STREAM_SOURCE)
    if origin:
        there = _total(payload)
        if there is None:
            return MESSAGE_COUNTER_BROKEN
        increment = there - _seen(sources, origin, subject, there)
        block = header_edits.replaced(block, INCREMENT, _text(increment).encode())
    value = _text(total + increment)
    if sources:
        block = header_edits.replaced(block, SOURCES, _json(sources).encode("utf-8", "surrogateescape"))
    return Counted(block, b'{"val":"%b"}' % value.encode(), value)


def value_of(payload: bytes) -> str:
    """The total in a stored message, as it stands there; empty when there is none."""
    found = _value(payload)
    return found or ""


def _seen(sources: Sources, origin: bytes, subject: bytes, there: int) -> int:
    """Note the total of an origin, and give the one noted before."""
    fields = origin.split(b" ")
    stream = fields[0].decode("utf-8", "surrogateescape")
    origin_subject = (fields[4] if len(fields) >= 5 else subject).decode("utf-8", "surrogateescape")
    totals = sources.setdefault(stream, {})
    before = totals.get(origin_subject, "")
    totals[origin_subject] = _text(there)
    return _leading(before) or 0


def _is_number(text: bytes) -> bool:
    return _NUMBER.fullmatch(text) is not None and len(text) <= DIGITS_MAX


def _total(payload: bytes) -> int | None:
    """The total in a body; None when the body is no counter's."""
    value = _value(payload)
    return None if value is None else _leading(value)


def _value(payload: bytes) -> str | None:
    try:
        document = _parsed(payload)
    except ValueError:
        return None
    if document is None:
        return ""
    if not isinstance(document, dict):
        return None
    found: Any = ""
    for key, value in document.items():
        # Go takes a key of any case for the one it wants; null leaves the value as it is.
        if key.lower() == "val" and value is not None:
            found = value
    return found if isinstance(found, str) else None


def _sources(text: bytes | None) -> Sources | None:
    """The totals seen per origin; None when the header is not that."""
    if not text:
        return {}
    try:
        document = _parsed(text)
    except ValueError:
        return None
    if not isinstance(document, dict | None):
        return None
    sources: Sources = {}
    for stream, totals in (document or {}).items():
        if not isinstance(totals, dict | None):
            return None
        sources[stream] = {subject: total or "" for subject, total in (totals or {}).items()}
        if not all(isinstance(total, str) for total in sources[stream].values()):
            return None
    return sources


def _parsed(data: bytes) -> Any:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no JSON")

    try:
        return json.loads(data.decode("utf-8", "surrogateescape"), parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _leading(text: str) -> int | None:
    """The number that a text begins with, 0 if there is none; None when it is too large to count with."""
    found = _LEADING_NUMBER.match(text)
    if found is None:
        return 0
    return _integer(found[0]) if len(found[0]) <= 2 * DIGITS_MAX else None


def _integer(text: str) -> int:
    """int() without a limit on the digits, for a text that is a number."""
    negative = text.startswith("-")
    digits = text.lstrip("+-")
    number = 0
    head = len(digits) % _DIGITS_AT_ONCE
    if head:
        number = int(digits[:head])
    for start in range(head, len(digits), _DIGITS_AT_ONCE):
        number = number * _AT_ONCE + int(digits[start : start + _DIGITS_AT_ONCE])
    return -number if negative else number


def _text(number: int) -> str:
    """str() without a limit on the digits."""
    sign, rest = ("-", -number) if number < 0 else ("", number)
    parts: list[str] = []
    while rest >= _AT_ONCE:
        rest, part = divmod(rest, _AT_ONCE)
        parts.append(f"{part:0{_DIGITS_AT_ONCE}d}")
    parts.append(str(rest))
    return sign + "".join(reversed(parts))


def _json(sources: Sources) -> str:
    """As Go writes it: keys sorted, no blanks, and nothing that HTML would take for its own."""
    text = json.dumps(sources, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
