"""JSON requests as nats-server reads them, and its words where they are no JSON.

`documents` gives the values of a payload one after the other: there may be none, and there may be several, of
which later ones add to what earlier ones said. Objects are dicts in the order they were written.

Rules: any bytes give values or JsonError. A number that is not written as an integer of 64 bits stays text, a
`Number`, so that an error can repeat it. What is not UTF-8 becomes U+FFFD, byte by byte, as does half of a
surrogate pair. The words are those of the Go release that nats-server is built with; positions count bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from edged.core.gotext import quote

_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
# More digits than any integer of 64 bits has; int() is not asked to read more.
_DIGITS_MAX = 20

_BLANKS = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK_BYTES = re.compile(rb"[ \t\r\n]*")
_PLAIN_BYTES = re.compile(rb'[^\x00-\x1f"\\]*')
_HEXADECIMAL = re.compile(rb"\\u[0-9A-Fa-f]{0,4}")
_DIGITS = re.compile(rb"[0-9]+")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_UNEXPECTED_END = "unexpected EOF"
_NO_END = "unexpected end of JSON input"
_OFFSET = re.compile(r" at offset \d+$")
# The depth is nats-server's; ours is less, and depends on how deep the caller is.
_TOO_DEEP = "exceeded max depth at offset 10001"


class JsonError(ValueError):
    """The payload cannot be read; the text is what follows `invalid JSON: ` in the answer."""


class Number(str):
    """A number as it was written: with a fraction, with an exponent, or too large."""

    __slots__ = ()


def documents(payload: bytes) -> Iterator[Any]:
    """Each JSON value of the payload; JsonError when the iteration comes to something that is none."""
    for value, _ in _values(payload, payload.decode("utf-8", "surrogateescape")):
        yield value


def _values(payload: bytes, text: str) -> Iterator[tuple[Any, int]]:
    """Each value, and where in the text the next one begins."""
    position = _end(_BLANKS, text, 0)
    while position < len(text):
        try:
            value, end = _DECODER.raw_decode(text, position)
            # The json module takes `1.` for a 1 and leaves the rest to the next document.
            is_cut = type(value) is int and text[end : end + 1] in (".", "e", "E")
        except RecursionError:
            raise JsonError(_TOO_DEEP) from None
        except ValueError:
            is_cut = True
        if is_cut:
            start = len(text[:position].encode("utf-8", "surrogateescape"))
            raise JsonError(_Scan(payload, start).complaint())
        position = _end(_BLANKS, text, end)
        yield value, position


def document(payload: bytes) -> Any:
    """The one JSON value of a payload; JsonError, without an offset, when it has none, or has more."""
    text = payload.decode("utf-8", "surrogateescape")
    try:
        value, end = next(_values(payload, text), (None, 0))
    except JsonError as error:
        words = str(error)
        raise JsonError(_NO_END if words == _UNEXPECTED_END else _OFFSET.sub("", words)) from None
    if not end:
        raise JsonError(_NO_END)
    if end < len(text):
        character = text[end].encode("utf-8", "surrogateescape")
        raise JsonError(f"invalid character {_quoted(character)} after top-level value")
    return value


def well_formed(text: str) -> str:
    """The text without halves of surrogate pairs."""
    return _SURROGATE.sub("\ufffd", text)


def _integer(digits: str) -> int | Number:
    if len(digits) > _DIGITS_MAX or digits == "-0":
        return Number(digits)
    number = int(digits)
    return number if _INT64_MIN <= number <= _UINT64_MAX else Number(digits)


def _no_constant(name: str) -> Any:
    # The json module reads NaN and Infinity, which are no JSON.
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=Number, parse_constant=_no_constant)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    assert found is not None, position
    return found.end()


class _Complaint(Exception):  # noqa: N818 - carries the words
    pass


class _Scan:
    """Reads a document only to find the first thing that is wrong with it."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._position = start
        # The brackets that are open, innermost last.
        self._open: list[int] = []
        self._is_first = False

    def complaint(self) -> str:
        """What is wrong; the caller knows that something is."""
        try:
            self._value()
            while self._open:
                self._member()
        except _Complaint as complaint:
            return str(complaint)
        return _UNEXPECTED_END

    def _member(self) -> None:
        """What follows a value, or an opening bracket, inside brackets: no recursion, whatever the depth."""
        is_object = self._open[-1] == ord("{")
        closing, name = (ord("}"), "object key:value pair") if is_object else (ord("]"), "array element")
        found = self._next()
        if found == closing:
            self._position += 1
            self._open.pop()
            self._is_first = False
            return
        if not self._is_first:
            if found != ord(","):
                raise self._bad_character(f"after {name}")
            self._position += 1
        self._is_first = False
        if is_object:
            if self._next() != ord('"'):
                raise self._bad_character("looking for beginning of object key string")
            self._string()
            if self._next() != ord(":"):
                raise self._bad_character("after object key")
            self._position += 1
        self._value()

    def _value(self) -> None:
        """One scalar, or the opening of brackets."""
        found = self._next()
        if found == ord('"'):
            self._string()
        elif found in _LITERALS:
            self._literal(_LITERALS[found])
        elif found == ord("-") or ord("0") <= found <= ord("9"):
            self._number()
        elif found in (ord("{"), ord("[")):
            self._position += 1
            self._open.append(found)
            self._is_first = True
        else:
            raise self._bad_character("looking for beginning of value")

    def _next(self) -> int:
        found = _BLANK_BYTES.match(self._data, self._position)
        assert found is not None
        self._position = found.end()
        return self._byte()

    def _byte(self) -> int:
        if self._position >= len(self._data):
            raise _Complaint(_UNEXPECTED_END)
        return self._data[self._position]

    def _literal(self, literal: bytes) -> None:
        for wanted in literal:
            if self._byte() != wanted:
                raise self._bad_character(
                    f"in literal {literal.decode()} (expecting {_quoted(bytes([wanted]))})"
                )
            self._position += 1

    def _number(self) -> None:
        if self._byte() == ord("-"):
            self._position += 1
        if self._byte() == ord("0"):
            self._position += 1
        else:
            self._digits()
        if self._data[self._position : self._position + 1] == b".":
            self._position += 1
            self._digits()
        if self._data[self._position : self._position + 1] in (b"e", b"E"):
            self._position += 1
            if self._byte() in b"+-":
                self._position += 1
            self._digits()

    def _digits(self) -> None:
        self._byte()
        found = _DIGITS.match(self._data, self._position)
        if found is None:
            raise self._bad_character("in numeric literal")
        self._position = found.end()

    def _string(self) -> None:
        self._position += 1
        while True:
            found = _PLAIN_BYTES.match(self._data, self._position)
            assert found is not None
            self._position = found.end()
            byte = self._byte()
            if byte == ord('"'):
                self._position += 1
                return
            if byte != ord("\\"):
                raise self._bad_character("in string")
            self._escape()

    def _escape(self) -> None:
        size = 6 if self._data[self._position + 1 : self._position + 2] == b"u" else 2
        sequence = self._data[self._position : self._position + size]
        begun = _HEXADECIMAL.fullmatch(sequence) if size == 6 else None
        if len(sequence) < size and (size == 2 or begun is not None):
            raise _Complaint(_UNEXPECTED_END)
        if begun is None and not (size == 2 and sequence[1] in rb'"\/bfnrt'):
            shown = sequence.decode("utf-8", "replace")
            words = f"`{shown}`" if shown.isprintable() and not _awkward(shown) else quote(sequence)
            end = self._position + len(sequence)
            raise _Complaint(f"invalid escape sequence {words} in string at offset {end}")
        self._position += size

    def _bad_character(self, where: str) -> _Complaint:
        # No character of UTF-8 has more than four bytes; only the first of those that are in them is shown.
        self._byte()
        following = self._data[self._position : self._position + 4].decode("utf-8", "surrogateescape")
        character = following[0].encode("utf-8", "surrogateescape")
        offset = self._position + len(character)
        return _Complaint(f"invalid character {_quoted(character)} {where} at offset {offset}")


def _awkward(shown: str) -> bool:
    return "`" in shown or "\ufffd" in shown or " " in shown


def _quoted(character: bytes) -> str:
    """A character between single quotes, as Go quotes it."""
    if character in (b"'", b'"'):
        return r"'\''" if character == b"'" else "'\"'"
    return f"'{quote(character)[1:-1]}'"
