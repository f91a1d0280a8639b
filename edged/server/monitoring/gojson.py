"""JSON and times in the spelling of Go programs, so that what reads nats-server's monitoring reads ours.

Rules: two blanks of indentation; `<`, `>` and `&` are escaped; a float without fraction is written as an
integer; text that is not valid Unicode is replaced, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from edged.core.gotime import MICROSECOND, MILLISECOND, SECOND, format_duration
from edged.server.monitoring.answers import Rows

_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def compact(value: Any) -> str:
    """On one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def indented(body: Any) -> Iterator[str]:
    """A document in pieces of bounded size: one per key, and one per entry of Rows."""
    if not isinstance(body, dict) or not body:
        yield _nested(body, "")
        return
    before = "{\n  "
    for key, value in body.items():
        yield f"{before}{json.dumps(key, ensure_ascii=False)}: ".translate(_ESCAPES)
        if isinstance(value, Rows):
            yield from _rows(value)
        else:
            yield _nested(value, "  ")
        before = ",\n  "
    yield "\n}"


def _rows(rows: Rows[Any]) -> Iterator[str]:
    before = "[\n    "
    for row in rows:
        yield before + _nested(row, "    ")
        before = ",\n    "
    yield "\n  ]" if len(rows) else "[]"


def _nested(value: Any, margin: str) -> str:
    # Line ends inside of strings are escaped, so all that are left are the encoder's own.
    text = json.dumps(value, ensure_ascii=False, indent=2).translate(_ESCAPES)
    return text.replace("\n", "\n" + margin)


def number(value: float) -> int | float:
    """A float as Go writes it: 2 and not 2.0."""
    return int(value) if value == int(value) else value


def text(value: bytes | None) -> str:
    """A subject or a name from the wire; bytes that are no UTF-8 are replaced."""
    return "" if value is None else value.decode("utf-8", "replace")


def nanoseconds(duration_s: float) -> int:
    """How Go's JSON shows a duration."""
    return round(duration_s * SECOND)


def uptime(duration_ns: int) -> str:
    """Whole seconds with the larger units that are not zero in front: "1d2h3m4s"."""
    seconds = max(0, duration_ns) // SECOND
    minutes, hours = seconds // 60, seconds // 3600
    days, years = hours // 24, hours // 24 // 365
    parts = [(years, "y"), (days % 365, "d"), (hours % 24, "h"), (minutes % 60, "m"), (seconds % 60, "s")]
    while len(parts) > 1 and parts[0][0] == 0:
        del parts[0]
    return "".join(f"{count}{unit}" for count, unit in parts)


def round_trip(duration_ns: int) -> str:
    """A round trip time; below a millisecond, nanoseconds are noise."""
    if MICROSECOND < duration_ns < MILLISECOND:
        duration_ns -= duration_ns % MICROSECOND
    return format_duration(duration_ns)
