"""A parsed configuration file: values with the place they were written at, and the error that names a place.

Rules: a Value never changes after it was made. A variable shares the data of the value it refers to, so a
document is a graph without cycles, and `weight` bounds its expanded size. Error texts never hold values.
Invariant: value.weight == 1 + the weights of everything inside it.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file; lines and columns count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class ConfigError(Exception):
    """The configuration is wrong; the text says where, what, and what to write instead."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message if position is None else f"{position}: {message}")
        self.message = message
        self.position = position


Data: TypeAlias = "str | bool | int | float | datetime | tuple[Value, ...] | dict[str, Pair]"


@dataclass(frozen=True, slots=True)
class Value:
    """One value; data is a plain Python value, a tuple of values, or a dict of pairs in the order written."""

    data: Data
    position: Position
    weight: int = 1

    @property
    def kind(self) -> str:
        """What was written, in words, for error texts."""
        if isinstance(self.data, bool):
            return "a boolean"
        return _KINDS[type(self.data)]


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with its value; position is that of the key."""

    key: str
    position: Position
    value: Value


@dataclass(frozen=True, slots=True)
class Document:
    """A file with its includes resolved. used holds the places of keys that a variable referred to."""

    root: dict[str, Pair]
    used: frozenset[Position]
    warnings: tuple[str, ...]

    def digest(self) -> str:
        """The same "sha256:..." that nats-server prints for an equal file: over its canonical JSON."""
        text = _json_object(self.root) + "\n"
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


_KINDS: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a decimal number",
    datetime: "a date",
    tuple: "an array",
    dict: "a block",
}


def _json_object(pairs: dict[str, Pair]) -> str:
    members = (f"{_json_string(key)}:{_json(pairs[key].value)}" for key in sorted(pairs, key=str.encode))
    return "{" + ",".join(members) + "}"


def _json(value: Value) -> str:
    data = value.data
    if isinstance(data, dict):
        return _json_object(data)
    if isinstance(data, tuple):
        return "[" + ",".join(_json(item) for item in data) + "]"
    if isinstance(data, str):
        return _json_string(data)
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, datetime):
        return _json_string(data.strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20))
    if isinstance(data, int):
        return str(data)
    return _json_float(data)


def _json_string(text: str) -> str:
    """Go's encoding: as JSON, and the characters that are special in HTML or JavaScript escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        quoted = quoted.replace(character, f"\\u{ord(character):04x}")
    return quoted


def _json_float(number: float) -> str:
    """Go's shortest form: plain digits between 1e-6 and 1e21, an exponent without padding elsewhere."""
    if number == 0 or 1e-6 <= abs(number) < 1e21:
        from decimal import Decimal

        text = format(Decimal(repr(number)), "f")
        return text.removesuffix(".0")
    mantissa, _, exponent = repr(number).partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"
