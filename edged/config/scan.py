"""Reading the plain values of the configuration language: quoted text, blocks of text, numbers, dates.

Rules: `at` only moves forward over the text and every pattern is possessive, so reading is linear. The caller
looked at the first character and chose what to read. Only ConfigError is raised.
"""

import re
from bisect import bisect_right
from datetime import UTC, datetime

from edged.config.document import ConfigError, Position, Value

_QUOTED_CHUNK = re.compile('[^"\\\\]*+')
_DIGITS = re.compile("[0-9]++")
_ADDRESS = re.compile("[0-9.:-]*+")
_SIZE_SUFFIX = re.compile("[kmgtpe][bi]*+", re.IGNORECASE)
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_BLOCK_END = re.compile("\\n(\\))(?=\\n|\\Z)")
_HEX_PAIR = re.compile("[0-9a-fA-F]{2}")

_NUMBER_END = frozenset(["", "\n", "\r", "}", "]", ";", ",", " ", "\t"])
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", '"': b'"', "\\": b"\\"}
_INT64_MAX = 2**63 - 1


class Scanner:
    """One pass over one text. `at` is the offset of the next character to look at."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.at = 0
        self.line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
        if (nul := text.find("\0")) >= 0:
            raise self.error("a NUL character has no place in a configuration file", nul)

    def position(self, offset: int) -> Position:
        line = bisect_right(self.line_starts, offset)
        return Position(self.path, line, offset - self.line_starts[line - 1] + 1)

    def error(self, message: str, offset: int | None = None) -> ConfigError:
        return ConfigError(message, self.position(self.at if offset is None else offset))

    def skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def number(self, position: Position) -> Value | None:
        """A number, date or address; None when this is text that merely starts with a digit (10s, 1m30s)."""
        begin = self.at
        negative = self.next() == "-"
        self.at += negative
        digits = self.skip(_DIGITS)
        if not digits:
            raise self.error("expected a digit after '-': quote the value if it is text", begin)
        character = self.next()
        if character == "-" and not negative:
            return self.date(begin, position)
        if character == ".":
            return self.decimal(begin, negative, position)
        suffix = self.skip(_SIZE_SUFFIX)
        # nats-server takes a size for text when ']' follows it at once.
        if self.next() in _NUMBER_END and not (suffix and self.next() == "]"):
            return Value(self.integer(digits, negative, suffix.lower(), begin), position)
        if negative and not suffix:
            raise self.error("expected the end of the number: quote the value if it is text")
        self.at = begin
        return None

    def integer(self, digits: str, negative: bool, suffix: str, begin: int) -> int:
        significant = digits.lstrip("0") or "0"
        if len(significant) > len(str(_INT64_MAX)):
            raise self.error("this integer does not fit into 64 bits", begin)
        scale = 1
        if suffix:
            unit = suffix[1:]
            if unit not in ("", "b", "i", "ib"):
                raise self.error("unknown size suffix: write for example 64K, 64KB, 64Ki or 64KiB", begin)
            scale = (1024 if unit else 1000) ** ("kmgtpe".index(suffix[0]) + 1)
        number = int(significant) * scale
        if number > _INT64_MAX + negative:
            raise self.error("this integer does not fit into 64 bits", begin)
        return -number if negative else number

    def decimal(self, begin: int, negative: bool, position: Position) -> Value:
        self.at += 1
        if not self.skip(_DIGITS):
            raise self.error("a number needs a digit after its '.': quote the value if it is text", begin)
        if self.next() == "." and not negative:
            self.skip(_ADDRESS)
            return Value(self.text[begin : self.at], position)
        number = float(self.text[begin : self.at])
        if number in (float("inf"), float("-inf")):
            raise self.error("this number is too large", begin)
        return Value(number, position)

    def date(self, begin: int, position: Position) -> Value:
        self.at = begin
        text = self.skip(_DATE)
        try:
            moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise self.error(
                "write dates like 2026-01-31T12:00:00Z, or quote the value if it is text", begin
            ) from None
        return Value(moment, position)

    def single_quoted(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self.error("this quoted value is never closed")
        text = self.text[self.at + 1 : end]
        self.require_text(text, self.position(self.at))
        self.at = end + 1
        return text

    def double_quoted(self) -> str:
        begin = self.at
        position = self.position(begin)
        self.at += 1
        parts: list[bytes] = []
        while True:
            parts.append(self.encoded(self.skip(_QUOTED_CHUNK), position))
            character = self.next()
            if character == '"':
                self.at += 1
                return self.decoded(parts, position)
            if not character:
                raise self.error("this quoted value is never closed", begin)
            parts.append(self.escape())

    def escape(self) -> bytes:
        begin = self.at
        character = self.text[begin + 1 : begin + 2]
        self.at += 2
        if character in _ESCAPES:
            return _ESCAPES[character]
        digits = self.skip(_HEX_PAIR) if character == "x" else ""
        if not digits:
            raise self.error('unknown escape: only \\xHH, \\t, \\n, \\r, \\" and \\\\ are known', begin)
        return bytes.fromhex(digits)

    def block(self) -> str:
        begin = self.at
        found = _BLOCK_END.search(self.text, begin + 1)
        if found is None:
            raise self.error("this '(' is never closed by a ')' alone on its line", begin)
        text = self.text[begin + 1 : found.start(1)]
        self.require_text(text, self.position(begin))
        self.at = found.end(1)
        return text

    def require_text(self, text: str, position: Position) -> None:
        self.encoded(text, position)

    def encoded(self, text: str, position: Position) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise ConfigError("this text is not UTF-8", position) from None

    def decoded(self, parts: list[bytes], position: Position) -> str:
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise ConfigError("the \\x escapes of this value spell no UTF-8 text", position) from None
