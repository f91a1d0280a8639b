"""Why a subject transform cannot be used, in nats-server's words.

`SubjectTransform.parse` decides what is a transform; this only finds the words for what it refuses.
"""

from __future__ import annotations

import re

from edged.core import subjects
from edged.core.transform import SubjectTransform, TransformError

BAD_SUBJECT = "invalid subject"

_BAD = "invalid mapping destination"
_NO_TRANSFORM = f"{_BAD}: invalid transform"
_UNKNOWN = f"{_BAD}: unknown function"
_NO_WILDCARD = f"{_BAD}: wildcard index out of range"
_TOO_FEW = f"{_BAD}: not enough arguments passed to the function"
_TOO_MANY = f"{_BAD}: too many arguments passed to the function"
_BAD_ARGUMENT = f"{_BAD}: function argument is invalid or in the wrong format"

_BLANK = re.compile("[ \t\r\n\f]")
_CALL = re.compile(r"\{\{[ \t\r\n\f]*([A-Za-z]+)[ \t\r\n\f]*\((.*)\)[ \t\r\n\f]*\}\}")
_COMMA = re.compile(",[ \t\r\n\f]*")
_NUMBER = re.compile("[+-]?[0-9]+")
# The first letter of each word of a name may be a capital.
_NAMES = re.compile(
    "[pP]artition|[wW]ildcard|[sS]plit|[rR]andom|([sS]plit[fF]rom|[sS]lice[fF]rom)?([lL]eft|[rR]ight)"
)


def mapping_reason(source: str, destination: str) -> str | None:
    """Why messages cannot be mapped from one to the other, or None when they can."""
    if not destination:
        return None
    is_behind_tail = False
    for token in destination.split("."):
        if not token or is_behind_tail:
            return _about(_NO_TRANSFORM, token)
        if _looks_like_call(token):
            call = _CALL.fullmatch(token)
            if call is None or _NAMES.fullmatch(call[1]) is None:
                return _about(_UNKNOWN, token)
        elif token == ">":
            is_behind_tail = True
        elif _BLANK.search(token):
            return _NO_TRANSFORM
    return transform_reason(source, destination)


def transform_reason(source: str, destination: str) -> str | None:
    """Why there is no transform from one to the other, or None when there is one."""
    if not destination:
        return None
    try:
        SubjectTransform.parse(source, destination)
    except TransformError:
        pattern = source or ">"
        source_tokens, tokens = pattern.split("."), destination.split(".")
        if (
            not subjects.valid_subscription(pattern.encode())
            or not all(tokens)
            or ">" in tokens[:-1]
            or "*" in tokens
            or (source_tokens[-1] == ">") != (tokens[-1] == ">")
        ):
            return BAD_SUBJECT
        is_literal = subjects.is_literal(pattern.encode())
        wildcards = None if is_literal else source_tokens.count("*")
        reasons = (_token_reason(token, wildcards) for token in tokens)
        return next((reason for reason in reasons if reason is not None), _NO_TRANSFORM)
    return None


def _about(reason: str, token: str) -> str:
    return f"{reason} in {token}" if token else reason


def _looks_like_call(token: str) -> bool:
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def _token_reason(token: str, wildcards: int | None) -> str | None:
    """What is wrong with one token; `wildcards` is None for a source that is a literal."""
    if token.startswith("$"):
        number = _number(token[1:])
        return None if number is None else _index_reason(token, [number], wildcards)
    if not _looks_like_call(token):
        return None
    call = _CALL.fullmatch(token)
    if call is None or _NAMES.fullmatch(call[1]) is None:
        return _about(_UNKNOWN, token)
    name, arguments = call[1].lower(), _COMMA.split(call[2])
    reason = _arguments_reason(name, arguments)
    if reason is not None:
        return _about(reason, token)
    if name == "random" or (name == "partition" and wildcards is None):
        return None
    indexes = arguments[1:] if name == "partition" else arguments[:1]
    return _index_reason(token, [int(index.strip(" ")) for index in indexes], wildcards)


def _arguments_reason(name: str, arguments: list[str]) -> str | None:
    if name in ("wildcard", "random"):
        if arguments == [""] and name == "wildcard":
            return _TOO_FEW
        if len(arguments) > 1:
            return _TOO_MANY if name == "wildcard" else _TOO_FEW
        numbers = arguments
    elif name == "partition":
        numbers = arguments
    else:
        if len(arguments) != 2:
            return _TOO_FEW if len(arguments) < 2 else _TOO_MANY
        numbers = arguments[:1] if name == "split" else arguments
    if any(_number(number.strip(" ")) is None for number in numbers):
        return _BAD_ARGUMENT
    if name == "split":
        return _BAD_ARGUMENT if " " in arguments[1] else None
    # Only these numbers have 32 bits; the others are indexes.
    sizes = [] if name == "wildcard" else numbers[:1] if name in ("partition", "random") else numbers[1:]
    return _BAD_ARGUMENT if any(int(size) > 2**31 - 1 for size in sizes) else None


def _index_reason(token: str, indexes: list[int], wildcards: int | None) -> str | None:
    if wildcards is None:
        return _about(_NO_WILDCARD, token)
    wrong = next((index for index in indexes if index > wildcards), None)
    return None if wrong is None else _about(_NO_WILDCARD, f"{token}: [{wrong}]")


def _number(text: str) -> int | None:
    """A decimal number of 64 bits."""
    if _NUMBER.fullmatch(text) is None or len(text) > 20:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
