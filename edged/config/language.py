"""The configuration language of NATS: text in, a Document out.

Top level: pairs, with or without braces around them (so JSON files parse). A pair is `key = value`,
`key: value`, `key value` or `key { ... }`. `#` and `//` start comments. `$name` is the value of an earlier
key in this block or an outer one, else of an environment variable, whose text is parsed as a value.
`include file` puts the pairs of another file, found relative to this one, in place.

Rules: one pass, no backtracking, time linear in the size of the text. Nesting, includes, file sizes and what
variables expand to are bounded. Only ConfigError leaves this module. Where nats-server accepts a mistake and
its meaning is lost (a missing value, an unknown size suffix, a file that ends inside its outer braces) this
refuses; a stray closing brace at the end, which costs nothing, is a warning.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from edged.config.document import ConfigError, Document, Pair, Position, Value
from edged.config.scan import Scanner

NESTING_MAX = 100
INCLUDE_DEPTH_MAX = 16
INCLUDE_FILES_MAX = 1000
FILE_BYTES_MAX = 16 * 1024 * 1024
# How many values a document may have once every variable is expanded; stops "billion laughs".
WEIGHT_MAX = 1_000_000

# What Go calls white space; Python's \s differs from it.
_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
_BLANK_OR_COMMENT = re.compile(f"(?:[{_SPACE}]++|(?:#|//)[^\\r\\n]*+)*+")
_ANY_SPACE = re.compile(f"[{_SPACE}]*+")
_LINE_SPACE = re.compile("[ \\t]*+")
_COMMENT = re.compile("(?:(?:#|//)[^\\r\\n]*+)?+")
_BARE_KEY = re.compile(f"[^,;{{}}\\[\\]/=:{_SPACE}][^=:{_SPACE}]*+")
_BARE_INCLUDE = re.compile("[^\\r\\n;} \\t']*+")
_BARE_CHUNK = re.compile("[^\\\\\\r\\n;,\\]} \\t']*+")

_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_BCRYPT_PREFIX = "2a$"
# The name that the text of an environment variable is given while it is parsed as a pair.
_ENVIRONMENT_KEY = "value"


def parse_file(path: str | Path, environment: Mapping[str, str]) -> Document:
    """The document in a file, with its includes; ConfigError when it cannot be read or is wrong."""
    session = _Session(environment)
    root = session.read(str(path), None)
    return session.document(root)


def parse_text(text: str, environment: Mapping[str, str], path: str = "<text>") -> Document:
    """The same for text in memory; relative includes are looked up beside path."""
    session = _Session(environment)
    return session.document(_Parser(session, text, path).top())


class _Session:
    """What all files of one document share: the environment, the include stack, the bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.open_files: list[str] = []
        self.open_variables: list[str] = []
        self.environment_values: dict[str, Value] = {}
        self.files = 0
        self.weight = 0
        self.used: set[Position] = set()
        self.warnings: list[str] = []

    def document(self, root: dict[str, Pair]) -> Document:
        return Document(root, frozenset(self.used), tuple(self.warnings))

    def read(self, path: str, asked_at: Position | None) -> dict[str, Pair]:
        identity = os.path.realpath(path)
        if identity in self.open_files:
            raise ConfigError("this file includes itself, directly or through others", asked_at)
        self.files += 1
        if len(self.open_files) >= INCLUDE_DEPTH_MAX or self.files > INCLUDE_FILES_MAX:
            raise ConfigError("too many files are included", asked_at)
        try:
            with Path(path).open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            reason = (
                error.strerror if isinstance(error, OSError) and error.strerror else "not a usable file name"
            )
            raise ConfigError(f"cannot read configuration file {path!r}: {reason}", asked_at) from None
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"configuration file {path!r} is larger than {FILE_BYTES_MAX} bytes", asked_at)
        self.open_files.append(identity)
        # Bytes that are no UTF-8 are harmless in comments; keys and values that hold them are refused.
        text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        root = _Parser(self, text, path).top()
        self.open_files.pop()
        return root

    def weigh(self, weight: int, position: Position) -> None:
        self.weight += weight
        if self.weight > WEIGHT_MAX:
            raise ConfigError("the configuration is too large once variables are expanded", position)

    def environment_value(self, name: str, position: Position) -> Value | None:
        known = self.environment_values.get(name)
        if known is not None or name not in self.environment:
            return known
        if name in self.open_variables:
            raise ConfigError(f"environment variable {name!r} refers to itself", position)
        if len(self.open_variables) >= NESTING_MAX:
            raise ConfigError("environment variables refer to each other too deeply", position)
        self.open_variables.append(name)
        text = self.environment[name]
        if text.strip():
            value = _Parser(self, f"{_ENVIRONMENT_KEY}={text}", f"${name}").top()[_ENVIRONMENT_KEY].value
        else:
            value = Value("", position)
        self.open_variables.pop()
        self.environment_values[name] = value
        return value


class _Parser(Scanner):
    """Pairs, blocks, arrays, variables and includes of one text."""

    def __init__(self, session: _Session, text: str, path: str) -> None:
        super().__init__(text, path)
        self.session = session
        self.nesting = 0
        self.scopes: list[dict[str, Pair]] = []

    def top(self) -> dict[str, Pair]:
        """All pairs of the text; braces around them are transparent."""
        root: dict[str, Pair] = {}
        self.scopes.append(root)
        braces: list[int] = []
        while True:
            self.skip(_BLANK_OR_COMMENT)
            character = self.next()
            if not character:
                break
            if character == "{":
                braces.append(self.at)
                self.at += 1
            elif character == "}":
                self.close_top(braces, only_at_end=True)
            else:
                self.pair(root, in_map=False)
                self.end_top_pair(braces)
        if braces:
            raise self.error("this '{' is never closed: the file may be cut off", braces[-1])
        return root

    def end_top_pair(self, braces: list[int]) -> None:
        self.skip(_LINE_SPACE)
        if self.skip(_COMMENT):
            return
        character = self.next()
        if character == "}":
            self.close_top(braces, only_at_end=False)
        elif character in ("\n", "\r", ";", ","):
            self.at += 1
        elif character:
            raise self.error(
                "expected the end of the line, ',' or ';' after this value: quote values with spaces"
            )

    def close_top(self, braces: list[int], only_at_end: bool) -> None:
        if braces:
            braces.pop()
        elif only_at_end and self.text[self.at + 1 :].strip():
            raise self.error("this '}' closes nothing")
        else:
            self.session.warnings.append(f"{self.position(self.at)}: this '}}' closes nothing and is ignored")
        self.at += 1

    def pair(self, target: dict[str, Pair], in_map: bool) -> None:
        begin = self.at
        quote = self.next()
        if quote in ("'", '"'):
            end = self.text.find(quote, begin + 1)
            if end < 0:
                raise self.error("this quoted key is never closed")
            key = self.text[begin + 1 : end]
            self.at = end + 1
        else:
            key = self.skip(_BARE_KEY)
            if not key:
                raise self.error(f"expected a key, found {quote!r}")
            if key.lower() == "include" and self.next() not in ("=", ":", ""):
                self.include(target)
                return
        position = self.position(begin)
        self.require_text(key, position)
        self.skip(_ANY_SPACE)
        if self.next() in ("=", ":"):
            self.at += 1
            self.skip(_ANY_SPACE if in_map else _LINE_SPACE)
        value = self.value()
        # A key written again moves to the end, so that reading pairs in order lets the last one win.
        target.pop(key, None)
        target[key] = Pair(key, position, value)

    def include(self, target: dict[str, Pair]) -> None:
        self.skip(_LINE_SPACE)
        begin = self.at
        quote = self.next()
        if quote in ("'", '"'):
            end = self.text.find(quote, begin + 1)
            if end < 0:
                raise self.error("this quoted file name is never closed")
            name = self.text[begin + 1 : end]
            self.at = end + 1
        elif quote.isdecimal() or quote in ("", "-", "[", "{", "(", "\\", "\n", "\r"):
            raise self.error("expected a file name after include: quote it")
        else:
            name = self.skip(_BARE_INCLUDE)
            if self.next() == "'":
                self.at += 1
        position = self.position(begin)
        self.require_text(name, position)
        if not name:
            raise ConfigError("expected a file name after include", position)
        # An absolute name is taken below the including file's directory too, as nats-server joins the two.
        path = os.path.normpath(f"{Path(self.path).parent}/{name}")
        for key, pair in self.session.read(path, position).items():
            self.session.weigh(pair.value.weight, position)
            target.pop(key, None)
            target[key] = pair

    def value(self) -> Value:
        begin = self.at
        character = self.next()
        if character == "[":
            return self.array()
        if character == "{":
            return self.map()
        position = self.position(begin)
        self.session.weigh(1, position)
        if character == '"':
            return Value(self.double_quoted(), position)
        if character == "'":
            return Value(self.single_quoted(), position)
        if character == "(":
            return Value(self.block(), position)
        if character in ("", "\n", "\r", ",", ";", "]", "}"):
            raise self.error("a value is missing here")
        if character == ".":
            raise self.error("a number must start with a digit: write 0.5, or quote the text")
        if (character == "-" or character in "0123456789") and (number := self.number(position)) is not None:
            return number
        return self.bare(position)

    def enter(self, begin: int) -> None:
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise self.error(f"blocks and arrays are nested more than {NESTING_MAX} deep", begin)
        self.at = begin + 1

    def array(self) -> Value:
        begin = self.at
        self.enter(begin)
        items: list[Value] = []
        while True:
            self.skip(_BLANK_OR_COMMENT)
            character = self.next()
            if not character:
                raise self.error("this '[' is never closed", begin)
            if character == "]":
                break
            if character in (",", "/"):
                raise self.error(
                    f"expected a value in this array, found {character!r}: quote it if it is text"
                )
            items.append(self.value())
            self.skip(_LINE_SPACE)
            if not self.skip(_COMMENT) and (character := self.next()) not in ("]", ""):
                if character not in (",", "\n", "\r"):
                    raise self.error("expected ',' or ']' after this array value: quote values with spaces")
                self.at += 1
        return self.leave(tuple(items), sum(item.weight for item in items), begin)

    def map(self) -> Value:
        begin = self.at
        self.enter(begin)
        pairs: dict[str, Pair] = {}
        self.scopes.append(pairs)
        while True:
            self.skip(_BLANK_OR_COMMENT)
            character = self.next()
            if not character:
                raise self.error("this '{' is never closed", begin)
            if character == "}":
                break
            self.pair(pairs, in_map=True)
            self.skip(_LINE_SPACE)
            if not self.skip(_COMMENT) and (character := self.next()) not in ("}", ""):
                if character not in (",", ";", "\n", "\r"):
                    raise self.error(
                        "expected ',', ';', '}' or a new line after this value: quote values with spaces"
                    )
                self.at += 1
        self.scopes.pop()
        return self.leave(pairs, sum(pair.value.weight for pair in pairs.values()), begin)

    def leave(self, data: tuple[Value, ...] | dict[str, Pair], inner_weight: int, begin: int) -> Value:
        self.at += 1
        self.nesting -= 1
        position = self.position(begin)
        self.session.weigh(1, position)
        return Value(data, position, 1 + inner_weight)

    def bare(self, position: Position) -> Value:
        """Text without quotes: a boolean, a variable, or a string."""
        parts: list[bytes] = []
        while True:
            parts.append(self.encoded(self.skip(_BARE_CHUNK), position))
            if self.next() != "\\":
                break
            parts.append(self.escape())
        if self.next() == "'":
            # nats-server lets a closing quote end text that had no opening one.
            self.at += 1
            return Value(self.decoded(parts, position), position)
        text = self.decoded(parts, position)
        if len(parts) == 1:
            if text.lower() in _BOOLEANS:
                return Value(_BOOLEANS[text.lower()], position)
            if text.startswith("$"):
                return self.variable(text[1:], position)
        return Value(text, position)

    def variable(self, name: str, position: Position) -> Value:
        if name.startswith(_BCRYPT_PREFIX):
            return Value("$" + name, position)
        for scope in reversed(self.scopes):
            if (pair := scope.get(name)) is not None:
                self.session.used.add(pair.position)
                found: Value | None = pair.value
                break
        else:
            found = self.session.environment_value(name, position)
        if found is None:
            if re.match("2[bxy]\\$", name):
                raise ConfigError("quote this password hash: '$' starts a variable", position)
            # A password that starts with '$' and lacks its quotes ends up here: do not print it.
            shown = f" {name!r}" if re.fullmatch("[A-Z][A-Z0-9_]*", name) else ""
            raise ConfigError(f"variable{shown} is defined neither above nor in the environment", position)
        self.session.weigh(found.weight - 1, position)
        return Value(found.data, position, found.weight)
