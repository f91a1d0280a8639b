"""Subject transforms: from the tokens of one subject to another subject.

A transform has a source pattern and a destination. In the destination, `$2` or `{{wildcard(2)}}` is the token
that the second `*` of the source matched, and the other functions compute from such tokens:

    partition(n), partition(n, i, ...)          a number below n by the hash of the subject, or of tokens i...
    split(i, separator)                         token i cut at every separator
    splitfromleft(i, k), splitfromright(i, k)   token i cut once, k bytes from its start or its end
    slicefromleft(i, k), slicefromright(i, k)   token i cut into pieces of k bytes
    left(i, k), right(i, k)                     the first or last k bytes of token i
    random(n)                                   a number below n

Rules: a transform is parsed once and never changes; chance is an argument. A `>` ends both sides or neither.
Indexes count from one; zero and less mean the first token of the subject, as in nats-server. What is too
short to be cut stays whole. A *strict* transform, which imports need, can be reversed: it uses every wildcard
of its source once, and no other function.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edged.core import subjects

# Draws a number from 0 up to, but not including, its argument.
Draw = Callable[[int], int]
# What stands at one place of the destination: a literal, the position of a token to copy, or a computation.
Part = bytes | int | Callable[[Sequence[bytes], Draw], bytes]

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1

_FUNCTION = re.compile(rb"\{\{[ \t\r\n\f]*([A-Za-z]+)[ \t\r\n\f]*\((.*)\)[ \t\r\n\f]*\}\}")
_COMMA = re.compile(rb",[ \t\r\n\f]*")
_BLANK = re.compile(rb"[ \t\r\n\f]")
_INTEGER = re.compile(rb"([+-]?)0*([0-9]{1,19})")


class TransformError(ValueError):
    """A source or destination that cannot be used; the text says which part of it and why."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function call in a destination; `indexes` are the wildcards it reads, as they were written."""

    token: bytes
    name: str
    indexes: tuple[int, ...] = ()
    number: int = 0
    separator: bytes = b""


class SubjectTransform:
    """A compiled transform. Make it with `parse`."""

    __slots__ = (
        "_is_identity",
        "_parts",
        "_source_tokens",
        "_tail_start",
        "destination",
        "needs_chance",
        "source",
    )

    def __init__(self, source: bytes, destination: bytes, calls: Sequence[Function | None]) -> None:
        """`calls` has an entry for each destination token: its function, or None where it is a literal."""
        self.source = source
        self.destination = destination
        self.needs_chance = any(call is not None and call.name == "random" for call in calls)
        self._is_identity = destination == b"" or destination == source == b">"
        self._source_tokens = source.split(b".")
        has_tail = self._source_tokens[-1] == b">"
        self._tail_start = len(self._source_tokens) - 1 if has_tail else None
        places = [place for place, token in enumerate(self._source_tokens) if token == b"*"]
        tokens = destination.split(b".")[: -1 if has_tail else None]
        # The shorter one ends this: a last `>` has a call of None and no token here.
        self._parts: list[Part] = [
            token if call is None else _compile(call, places)
            for token, call in zip(tokens, calls, strict=False)
        ]

    @classmethod
    def parse(cls, source: str | bytes, destination: str | bytes, strict: bool = False) -> SubjectTransform:
        """Check and compile a transform, or raise TransformError.

        No source means every subject; no destination means that a subject which matches stays as it is.
        """
        pattern, target = _as_bytes(source) or b">", _as_bytes(destination)
        if not subjects.valid_subscription(pattern):
            raise TransformError(f"source {_shown(pattern)} is not a valid subject")
        calls = _parse_destination(target, pattern) if target else []
        transform = cls(pattern, target, calls)
        if strict:
            transform.reverse()
        return transform

    def apply(self, subject: bytes) -> bytes | None:
        """The transformed subject; None when the source does not match or the subject is no valid literal."""
        assert not self.needs_chance, self.destination
        return self.apply_with_chance(subject, no_chance)

    def apply_with_chance(self, subject: bytes, draw: Draw) -> bytes | None:
        if self._is_identity and self.source == b">":
            return subject
        tokens = subject.split(b".")
        if b"*" in tokens or b">" in tokens or not subjects.matches_tokens(tokens, self._source_tokens):
            return None
        return subject if self._is_identity else self.build(tokens, draw)

    def build(self, tokens: Sequence[bytes], draw: Draw) -> bytes:
        """The result for the tokens of a subject that is known to be a subset of the source."""
        made: list[bytes] = []
        for part in self._parts:
            if isinstance(part, bytes):
                made.append(part)
            elif isinstance(part, int):
                made.append(tokens[part])
            else:
                made.append(part(tokens, draw))
        if self._tail_start is not None:
            made.extend(tokens[self._tail_start :])
        return b".".join(made)

    def reverse(self) -> SubjectTransform:
        """The transform that undoes this one; TransformError when there is none."""
        if self._is_identity:
            return self
        here = f"the transform from {_shown(self.source)} to {_shown(self.destination)} cannot be reversed"
        pattern: list[bytes] = []
        order: list[int] = []
        for token in self.destination.split(b"."):
            call = _parse_token(token)
            if call is not None and call.name != "wildcard":
                raise TransformError(f"{here}: it may only use wildcards, not {_shown(token)}")
            order.extend(call.indexes if call is not None else ())
            pattern.append(token if call is None else b"*")
        count = self._source_tokens.count(b"*")
        if sorted(order) != list(range(1, count + 1)):
            raise TransformError(f"{here}: it must use every wildcard of the source once")
        if any(_parse_token(token) is not None for token in self._source_tokens):
            raise TransformError(f"{here}: a token of the source would read as a function")
        place_of = {index: place for place, index in enumerate(order, start=1)}
        numbers = itertools.count(1)
        back = [b"$%d" % place_of[next(numbers)] if t == b"*" else t for t in self._source_tokens]
        return SubjectTransform.parse(b".".join(pattern), b".".join(back))


def with_placeholders(pattern: bytes) -> bytes:
    """The destination that leaves what the pattern matches as it is: `foo.*.*` gives `foo.$1.$2`."""
    numbers = itertools.count(1)
    return b".".join(b"$%d" % next(numbers) if token == b"*" else token for token in pattern.split(b"."))


def fnv1a_32(data: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = 2166136261
    for byte in data:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def _as_bytes(text: str | bytes) -> bytes:
    # Half of a surrogate pair can come out of JSON and must not raise; it is as good a token as any.
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _shown(text: bytes) -> str:
    """Text for an error message, short whatever it is."""
    return '"' + text[:80].decode("utf-8", "backslashreplace") + ('..."' if len(text) > 80 else '"')


def no_chance(bound: int) -> int:
    raise AssertionError(bound)


# Reading a destination.


def _parse_destination(destination: bytes, source: bytes) -> list[Function | None]:
    tokens = destination.split(b".")
    for place, token in enumerate(tokens):
        if token == b"":
            raise TransformError(f"destination {_shown(destination)} has an empty token")
        if token == b"*":
            raise TransformError(
                f"destination {_shown(destination)} has a `*`; write $1 or {{{{wildcard(1)}}}}"
            )
        if token == b">" and place < len(tokens) - 1:
            raise TransformError(f"destination {_shown(destination)} has a `>` before its end")
        if not _looks_like_function(token) and _BLANK.search(token):
            raise TransformError(f"destination {_shown(destination)} has a blank in {_shown(token)}")
    source_tokens = source.split(b".")
    if (tokens[-1] == b">") != (source_tokens[-1] == b">"):
        raise TransformError(
            f"source {_shown(source)} and destination {_shown(destination)} must both end in `>`, or neither"
        )
    wildcard_count = None if subjects.is_literal(source) else source_tokens.count(b"*")
    calls = [_parse_token(token) for token in tokens]
    return [None if call is None else _check_call(call, source, wildcard_count) for call in calls]


def _check_call(call: Function, source: bytes, wildcard_count: int | None) -> Function:
    """The call if the source has what it reads; `wildcard_count` is None for a literal source."""
    if wildcard_count is None:
        # There are no tokens to choose from; a partition then takes the whole subject whatever it names.
        if call.name in ("partition", "random"):
            return replace(call, indexes=())
        raise TransformError(f"{_shown(call.token)} needs a wildcard, and source {_shown(source)} has none")
    if any(index > wildcard_count for index in call.indexes):
        raise TransformError(f"{_shown(call.token)}: source {_shown(source)} does not have that wildcard")
    return call


def _looks_like_function(token: bytes) -> bool:
    return len(token) > 4 and token.startswith(b"{{") and token.endswith(b"}}")


def _parse_token(token: bytes) -> Function | None:
    """The function that a destination token calls, or None for a literal."""
    if token.startswith(b"$"):
        # Subjects that begin with $ have other uses ($JS, $KV), so only a number makes a placeholder.
        index = _integer(token[1:])
        return None if index is None else Function(token, "wildcard", (index,))
    if not _looks_like_function(token):
        return None
    found = _FUNCTION.fullmatch(token)
    name = _SPELLINGS.get(found[1]) if found else None
    if found is None or name is None:
        raise TransformError(f"{_shown(token)} is not a function that is known here")
    arguments = _COMMA.split(found[2])
    if name == "split":
        _check_count(token, arguments, 2)
        if b" " in arguments[1]:
            raise TransformError(f"{_shown(token)}: the separator may not have a blank")
        return Function(token, name, (_argument(token, arguments[0]),), separator=arguments[1])
    if name == "wildcard":
        _check_count(token, arguments, 1)
        return Function(token, name, (_argument(token, arguments[0]),))
    if name in _CUTS:
        _check_count(token, arguments, 2)
        number = _argument(token, arguments[1])
        if not -_INT32_MAX - 1 <= number <= _INT32_MAX:
            raise TransformError(f"{_shown(token)}: {number} is out of range")
        return Function(token, name, (_argument(token, arguments[0]),), number)
    if name == "random":
        _check_count(token, arguments, 1)
    number = _argument(token, arguments[0])
    if number > _INT32_MAX:
        raise TransformError(f"{_shown(token)}: {number} is out of range")
    return Function(token, name, tuple(_argument(token, argument) for argument in arguments[1:]), number)


def _check_count(token: bytes, arguments: list[bytes], wanted: int) -> None:
    given = 0 if arguments == [b""] else len(arguments)
    if given != wanted:
        raise TransformError(f"{_shown(token)} takes {wanted} argument{'s' * (wanted > 1)}, not {given}")


def _argument(token: bytes, text: bytes) -> int:
    number = _integer(text.strip(b" "))
    if number is None:
        raise TransformError(f"{_shown(token)}: {_shown(text)} is not a number in range")
    return number


def _integer(text: bytes) -> int | None:
    """A decimal number of 64 bits, or None."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    number = -int(found[2]) if found[1] == b"-" else int(found[2])
    return number if -_INT64_MAX - 1 <= number <= _INT64_MAX else None


# What the functions do.


def _compile(call: Function, wildcard_places: list[int]) -> Part:
    # Zero and less name the first token of the subject; higher ones were refused before.
    places = [wildcard_places[index - 1] if index > 0 else 0 for index in call.indexes]
    number, separator = call.number, call.separator
    if call.name == "wildcard":
        return places[0]
    if call.name == "split":
        return lambda tokens, draw: _split(tokens[places[0]], separator)
    if call.name == "random":
        # Only the lower 32 bits count, and the sign does not; a bound of nothing leaves nothing to draw.
        bound = abs((number + 2**31) % 2**32 - 2**31)
        return lambda tokens, draw: b"%d" % draw(bound) if bound else b"0"
    if call.name == "partition":
        partitions = number % 2**32
        return lambda tokens, draw: _partition(
            b"".join([tokens[place] for place in places]) if places else b".".join(tokens), partitions
        )
    cut = _CUTS[call.name]
    return lambda tokens, draw: cut(tokens[places[0]], number)


def _partition(key: bytes, partitions: int) -> bytes:
    return b"%d" % (fnv1a_32(key) % partitions) if partitions else b"0"


def _split(token: bytes, separator: bytes) -> bytes:
    """The pieces between separators; no separator means character by character, a stray byte being one."""
    if separator:
        pieces = token.split(separator)
    else:
        text = token.decode("utf-8", "surrogateescape")
        pieces = [character.encode("utf-8", "surrogateescape") for character in text]
    return b".".join([piece for piece in pieces if piece])


def _split_from_left(token: bytes, size: int) -> bytes:
    return token[:size] + b"." + token[size:] if 0 < size < len(token) else token


def _split_from_right(token: bytes, size: int) -> bytes:
    return token[:-size] + b"." + token[-size:] if 0 < size < len(token) else token


def _slice_from_left(token: bytes, size: int) -> bytes:
    if not 0 < size < len(token):
        return token
    return b".".join([token[start : start + size] for start in range(0, len(token), size)])


def _slice_from_right(token: bytes, size: int) -> bytes:
    if not 0 < size < len(token):
        return token
    first = len(token) % size
    pieces = [token[start : start + size] for start in range(first, len(token), size)]
    return b".".join([token[:first], *pieces] if first else pieces)


def _left(token: bytes, size: int) -> bytes:
    return token[:size] if 0 < size < len(token) else token


def _right(token: bytes, size: int) -> bytes:
    return token[-size:] if 0 < size < len(token) else token


# Functions of one token and a size.
_CUTS: dict[str, Callable[[bytes, int], bytes]] = {
    "split_from_left": _split_from_left,
    "split_from_right": _split_from_right,
    "slice_from_left": _slice_from_left,
    "slice_from_right": _slice_from_right,
    "left": _left,
    "right": _right,
}

# Each word of a name may begin with a capital, and no other letter is one: SliceFromLeft, sliceFromleft.
_SPELLINGS = {
    "".join(words).encode(): name
    for name in (*_CUTS, "wildcard", "partition", "split", "random")
    for words in itertools.product(*((word, word.capitalize()) for word in name.split("_")))
}
