"""Subjects and patterns: what is valid, what matches what.

A subject is bytes, cut into tokens at every dot. A token that is exactly `*` stands for any one token, a last
token that is exactly `>` for one or more; anywhere else these characters are ordinary: `foo*` is a literal.

Rules: every function is total: any bytes give an answer, never an error, in time linear in their length.
A subject with an empty token (`a..b`, a leading or trailing dot, nothing at all) matches nothing.
A published subject is taken as it is: in `matches(b"foo.*", ...)` the star is a token like any other, matched
by `foo.*` and `foo.>` and not by `foo.bar`. In `is_subset` and `overlaps` both sides are patterns.

The `..._tokens` forms take what `tokens()` returned, for callers that ask many questions about one subject.
"""

from __future__ import annotations

from collections.abc import Sequence

ASSET_NAME_BYTES_MAX = 255

_BLANKS = b" \t\r\n\f"
_ASSET_NAME_REFUSED = frozenset(" \t\r\n\f.*>/\\")


def tokens(subject: bytes) -> list[bytes]:
    """The tokens of a subject; the empty subject is one empty token."""
    return subject.split(b".")


def token_count(subject: bytes) -> int:
    """How many tokens the subject has; the empty subject has none."""
    return subject.count(b".") + 1 if subject else 0


def has_empty_token(subject: bytes) -> bool:
    return not subject or subject.startswith(b".") or subject.endswith(b".") or b".." in subject


def valid_subscription(subject: bytes) -> bool:
    """Whether one may subscribe to it: no empty token, no blank, and `>` only at the end."""
    if has_empty_token(subject) or len(subject.translate(None, _BLANKS)) != len(subject):
        return False
    return b">" not in subject or b">" not in subject.split(b".")[:-1]


def valid_literal(subject: bytes) -> bool:
    """Whether a strict publisher may publish to it: a valid subscription without a wildcard."""
    return valid_subscription(subject) and is_literal(subject)


def is_literal(subject: bytes) -> bool:
    """Whether no token is a wildcard; says nothing about validity."""
    if b"*" not in subject and b">" not in subject:
        return True
    parts = subject.split(b".")
    return b"*" not in parts and b">" not in parts


def matches(subject: bytes, pattern: bytes) -> bool:
    """Whether a subscription to the pattern receives what is published on the subject."""
    if b"*" not in pattern and b">" not in pattern:
        return subject == pattern and not has_empty_token(subject)
    return matches_tokens(subject.split(b"."), pattern.split(b"."))


def matches_tokens(subject: Sequence[bytes], pattern: Sequence[bytes]) -> bool:
    if not _lengths_fit(subject, pattern):
        return False
    # The lengths fit, so a last `>` stands opposite some token and agrees with whatever it is.
    last = len(pattern) - 1
    for position, wanted in enumerate(pattern):
        if wanted != subject[position] and wanted != b"*" and not (wanted == b">" and position == last):
            return False
    return b"" not in subject


def is_subset(subject_pattern: bytes, pattern: bytes) -> bool:
    """Whether every subject that the first pattern matches is matched by the second."""
    return is_subset_tokens(subject_pattern.split(b"."), pattern.split(b"."))


def is_subset_tokens(subject_pattern: Sequence[bytes], pattern: Sequence[bytes]) -> bool:
    if not _lengths_fit(subject_pattern, pattern):
        return False
    last = len(pattern) - 1
    for position, wanted in enumerate(pattern):
        given = subject_pattern[position]
        if wanted == b">" and position == last:
            break
        # `*` covers any one token, but a `>` opposite it may stand for several.
        if wanted != given and (wanted != b"*" or given == b">"):
            return False
    return b"" not in subject_pattern


def overlaps(first: bytes, second: bytes) -> bool:
    """Whether some subject is matched by both patterns."""
    return overlaps_tokens(first.split(b"."), second.split(b"."))


def overlaps_tokens(first: Sequence[bytes], second: Sequence[bytes]) -> bool:
    if b"" in first or b"" in second:
        return False
    # The shorter pattern ends the comparison; whether that is early is decided after it.
    for one, other in zip(first, second, strict=False):
        if one == b">" or other == b">":
            return True
        if one != other and one != b"*" and other != b"*":
            return False
    return len(first) == len(second)


def valid_asset_name(name: str) -> bool:
    """Whether a stream, consumer or durable may have this name; it is also a token and a file name."""
    if not name or not _ASSET_NAME_REFUSED.isdisjoint(name):
        return False
    # Half of a surrogate pair can come out of JSON; it has no bytes of its own, so it is counted as three.
    return len(name.encode("utf-8", "surrogatepass")) <= ASSET_NAME_BYTES_MAX


def _lengths_fit(subject: Sequence[bytes], pattern: Sequence[bytes]) -> bool:
    if pattern[-1] == b">":
        return len(subject) >= len(pattern)
    return len(subject) == len(pattern)
