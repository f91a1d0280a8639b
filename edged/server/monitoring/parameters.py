"""The options of monitoring requests: from an HTTP query, or from JSON as the system account gets it.

An endpoint's options are a frozen dataclass whose fields are made by `option()`, which says what the option
is called in either form. `from_query` and `from_json` read it.

Rules: an absent or empty option is its default. Values in a query are text and are read as Go reads them,
with nats-server's words for what is wrong; values in JSON have their types. Unknown options are ignored, as
requests to the system account carry filters beside them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from edged.core.gotext import quote
from edged.server.monitoring.answers import BadRequest

T = TypeVar("T")

QUERY_FIELDS_MAX = 64
# What `subs=detail` is called where it is an option; nobody can ask for it by this name.
SUBS_DETAIL = "subs=detail"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_INTEGER_RANGE = (-(2**63), 2**63 - 1)
_UNSIGNED_RANGE = (0, 2**64 - 1)


class Kind(Enum):
    """How the value of an option is read."""

    FLAG = "boolean"
    INTEGER = "int"
    UNSIGNED = "uint64"
    TEXT = "string"
    TEXTS = "list of strings"
    STATE = "state"


class ConnectionState(Enum):
    """Which connections are asked for; the values are those of the JSON form."""

    OPEN = 0
    CLOSED = 1
    ALL = 2


_STATES = {
    "open": ConnectionState.OPEN,
    "closed": ConnectionState.CLOSED,
    "any": ConnectionState.ALL,
    "all": ConnectionState.ALL,
}


def option(kind: Kind, query: str | None = None, *, json_name: str | None = None) -> Any:
    """A field of an options class. Without a query name it exists in JSON only, and the other way round."""
    metadata = {"kind": kind, "query": query, "json": json_name or query}
    return dataclasses.field(default=_DEFAULTS[kind], metadata=metadata)


_DEFAULTS: dict[Kind, Any] = {
    Kind.FLAG: False,
    Kind.INTEGER: 0,
    Kind.UNSIGNED: 0,
    Kind.TEXT: "",
    Kind.TEXTS: (),
    Kind.STATE: ConnectionState.OPEN,
}


def parse_query(query: str) -> dict[str, str]:
    """The parameters of a URL; the first of several with the same name counts, as in Go."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="replace", max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        raise BadRequest("too many query parameters") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def from_query(options: type[T], query: Mapping[str, str]) -> T:
    """Read options from the parameters of a URL, or raise BadRequest."""
    fields = dataclasses.fields(options)  # type: ignore[arg-type]
    if any(field.metadata["query"] == SUBS_DETAIL for field in fields):
        query = _with_detail(query)
    values: dict[str, Any] = {}
    for field in fields:
        name = field.metadata["query"]
        text = query.get(name, "") if name is not None else ""
        if text:
            values[field.name] = _read_text(field.metadata["kind"], name, text)
    return options(**values)


def from_json(options: type[T], document: Mapping[str, object]) -> T:
    """Read options from a JSON object, or raise BadRequest. Case does not matter in names, as in Go."""
    known = {name.lower(): value for name, value in document.items() if value is not None}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        name = field.metadata["json"]
        if name in known:
            values[field.name] = _read_value(field.metadata["kind"], name, known[name])
    return options(**values)


def _with_detail(query: Mapping[str, str]) -> dict[str, str]:
    """`subs=detail` as an option of its own; any other value of `subs` is a flag."""
    found = {name: value for name, value in query.items() if name != SUBS_DETAIL}
    if found.get("subs", "").lower() == "detail":
        del found["subs"]
        found[SUBS_DETAIL] = "1"
    return found


def _read_text(kind: Kind, name: str, text: str) -> object:
    if kind is Kind.FLAG:
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        raise BadRequest(_unreadable(name, "boolean", "ParseBool", text, "invalid syntax"))
    if kind is Kind.STATE:
        if text.lower() not in _STATES:
            raise BadRequest(f"Error decoding state for {text}")
        return _STATES[text.lower()]
    if kind is Kind.TEXTS:
        return tuple(text.split(","))
    if kind is Kind.TEXT:
        return text
    is_signed = kind is Kind.INTEGER
    function = "Atoi" if is_signed else "ParseUint"
    if (_INTEGER if is_signed else _UNSIGNED).fullmatch(text) is None:
        raise BadRequest(_unreadable(name, kind.value, function, text, "invalid syntax"))
    # 20 digits hold every 64-bit number; more are not worth converting.
    digits = text.lstrip("+-").lstrip("0")
    lowest, highest = _INTEGER_RANGE if is_signed else _UNSIGNED_RANGE
    value = int(digits or "0") if len(digits) <= 20 else highest + 1
    value = -value if text.startswith("-") else value
    if not lowest <= value <= highest:
        raise BadRequest(_unreadable(name, kind.value, function, text, "value out of range"))
    return value


def _unreadable(name: str, kind: str, function: str, text: str, problem: str) -> str:
    quoted = quote(text.encode("utf-8", "surrogateescape"))
    return f"Error decoding {kind} for '{name}': strconv.{function}: parsing {quoted}: {problem}"


def _read_value(kind: Kind, name: str, value: object) -> object:
    if kind is Kind.FLAG and isinstance(value, bool):
        return value
    if kind is Kind.TEXT and isinstance(value, str):
        return value
    if kind is Kind.TEXTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, int) and not isinstance(value, bool):
        lowest, highest = _INTEGER_RANGE if kind is Kind.INTEGER else _UNSIGNED_RANGE
        if kind is Kind.STATE:
            lowest, highest = 0, len(ConnectionState) - 1
        if kind in (Kind.INTEGER, Kind.UNSIGNED, Kind.STATE) and lowest <= value <= highest:
            return ConnectionState(value) if kind is Kind.STATE else value
    raise BadRequest(f"option {name} is not a usable {kind.value}")
