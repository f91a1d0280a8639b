"""What a field of a request may hold, and nats-server's words when it holds something else.

A shape turns a value of `gojson.documents` into a typed one: `read(value, place, strict)`. A structure gives
a dict with the fields that were there; null counts as not there, except for an enumeration, which refuses it.

Rules: the first thing that is wrong, in the order of the document, is what the error names. Names of fields
are found whatever the case of their letters. A strict reader refuses fields it does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from edged.core.api_errors import ApiFailure, invalid_json
from edged.core.gojson import JsonError, Number, document, documents, well_formed
from edged.core.gojson_time import Instant, parse_instant
from edged.core.gotext import quote

_EPOCH = Instant(0)
# Half of a surrogate pair that does not stand for a byte which is no UTF-8.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class Shape(Protocol):
    """How to read one field. `zero` is what a null inside a list becomes."""

    @property
    def go_type(self) -> str: ...

    @property
    def zero(self) -> Any: ...

    def read(self, value: Any, place: str, strict: bool) -> Any: ...


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    go_type: str = "string"
    zero: str = ""

    def read(self, value: Any, place: str, strict: bool) -> str:
        if not isinstance(value, str) or isinstance(value, Number):
            raise _mismatch(value, place, self.go_type)
        return well_formed(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    go_type: str = "bool"
    zero: bool = False

    def read(self, value: Any, place: str, strict: bool) -> bool:
        if not isinstance(value, bool):
            raise _mismatch(value, place, self.go_type)
        return value


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds."""

    go_type: str
    minimum: int
    maximum: int
    zero: int = 0

    def read(self, value: Any, place: str, strict: bool) -> int:
        if value == "-0" and isinstance(value, Number) and self.minimum < 0:
            return 0
        if isinstance(value, bool) or not isinstance(value, int | Number):
            raise _mismatch(value, place, self.go_type)
        if isinstance(value, Number) or not self.minimum <= value <= self.maximum:
            raise _mismatch(value, place, self.go_type, shown=f" {value}")
        return value


@dataclass(frozen=True, slots=True)
class Time:
    """An instant in RFC 3339."""

    go_type: str = "time.Time"
    zero: Instant = _EPOCH

    def read(self, value: Any, place: str, strict: bool) -> Instant:
        if not isinstance(value, str) or isinstance(value, Number):
            raise _mismatch(value, place, self.go_type)
        try:
            return parse_instant(well_formed(value))
        except ValueError as error:
            raise JsonError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Enumeration:
    """One of a few words. `words` says what each one written in a request stands for."""

    words: Mapping[str, str]
    any_case: bool = False
    go_type: str = ""
    zero: str = ""

    def read(self, value: Any, place: str, strict: bool) -> str:
        if isinstance(value, str) and not isinstance(value, Number):
            found = self.words.get(value.lower() if self.any_case else value)
            if found is not None:
                return found
        try:
            text = written(value)
        except RecursionError:
            # What is so deep is longer than anyone reads.
            text = "[" if isinstance(value, list) else "{"
        raise JsonError(f"can not unmarshal {quote(text.encode('utf-8', 'surrogateescape'))}")


@dataclass(frozen=True, slots=True)
class Compression:
    """An enumeration that has words of its own for what it does not know."""

    words: tuple[str, ...]
    go_type: str = "string"
    zero: str = ""

    def read(self, value: Any, place: str, strict: bool) -> str:
        text = "" if value is None else Text().read(value, "", strict)
        if text not in self.words:
            raise JsonError("unknown compression algorithm")
        return text


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; `pointer` tells that its type is written with a star."""

    item: Shape
    pointer: bool = False
    zero: tuple[Any, ...] = ()

    @property
    def go_type(self) -> str:
        return f"[]{'*' * self.pointer}{self.item.go_type}"

    def read(self, value: Any, place: str, strict: bool) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _mismatch(value, place, self.go_type)
        return tuple(
            self.item.zero if item is None else self.item.read(item, f"{place}.{index}", strict)
            for index, item in enumerate(value)
        )


@dataclass(frozen=True, slots=True)
class TextMap:
    """Strings by string."""

    go_type: str = "map[string]string"
    zero: Mapping[str, str] = field(default_factory=dict)

    def read(self, value: Any, place: str, strict: bool) -> dict[str, str]:
        if not isinstance(value, dict):
            raise _mismatch(value, place, self.go_type)
        text = Text()
        return {
            well_formed(key): "" if item is None else text.read(item, f"{place}.{key}", strict)
            for key, item in value.items()
        }


@dataclass(frozen=True, slots=True)
class Structure:
    """An object with known fields. `zero` is an object without any."""

    go_type: str
    fields: Mapping[str, Shape]
    zero: Mapping[str, Any] = field(default_factory=dict)

    def read(self, value: Any, place: str, strict: bool) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(value, place, self.go_type)
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = key if key in self.fields else self._spelled_otherwise(key)
            if name is None:
                if strict:
                    raise JsonError(f"json: unknown field {quote(well_formed(key).encode())}")
                continue
            shape = self.fields[name]
            if item is not None or isinstance(shape, Enumeration | Compression):
                found[name] = shape.read(item, f"{place}.{key}", strict)
        return found

    def _spelled_otherwise(self, key: str) -> str | None:
        folded = key.casefold()
        return next((name for name in self.fields if name.casefold() == folded), None)


def read_request(payload: bytes, shape: Structure, strict: bool) -> dict[str, Any]:
    """The fields of a request; ApiFailure when it is no JSON or has something that is not of its shape.

    A payload may be empty or null, which says nothing. It may have several objects: later fields count. What
    the strict would refuse is read once more by those who are not, as a single object.
    """
    try:
        return _fields_of(payload, shape, strict)
    except JsonError as error:
        raise ApiFailure(invalid_json(str(error))) from None


def _fields_of(payload: bytes, shape: Structure, strict: bool) -> dict[str, Any]:
    place = shape.go_type.rpartition(".")[2]
    fields: dict[str, Any] = {}
    try:
        for value in documents(payload):
            if value is not None:
                fields.update(shape.read(value, place, strict=True))
    except JsonError:
        if strict:
            raise
        value = document(payload)
        return {} if value is None else shape.read(value, place, strict=False)
    return fields


TEXT = Text()
FLAG = Flag()
INT32 = Integer("int32", -(2**31), 2**31 - 1)
INT64 = Integer("int64", -(2**63), 2**63 - 1)
INT = Integer("int", -(2**63), 2**63 - 1)
UINT64 = Integer("uint64", 0, 2**64 - 1)
DURATION = Integer("time.Duration", -(2**63), 2**63 - 1)
TIME = Time()


def _mismatch(value: Any, place: str, go_type: str, shown: str = "") -> JsonError:
    """`place` is the path of names from the request's type on; a path of one name is the request itself."""
    last = place.rpartition(".")[2]
    if "." not in place:
        target = "Go value"
    elif last and not last.strip("0123456789"):
        # The path does not tell a number that is a key from one that is an index.
        target = place
    else:
        target = f"Go struct field {place}"
    return JsonError(f"json: cannot unmarshal {_kind(value)}{shown} into {target} of type {go_type}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | Number):
        return "number"
    return "array" if isinstance(value, list | tuple) else "object" if isinstance(value, dict) else "string"


def written(value: Any) -> str:
    """The value as JSON. How it was written is no longer known; without blanks and escapes is most likely."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    return _HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False))
