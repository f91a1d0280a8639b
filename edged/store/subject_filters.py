"""Which subjects of a stream a filter matches, remembered and kept current.

A filter is a tuple of patterns; none, or one that is `>`, is everything. What it matches is a byte for
each subject number, so that asking about one message is one look-up. Subjects that came since are looked
at when somebody asks next.

Rules: a literal pattern is the subject itself; wildcards are as in edged/core/subjects.py. What is
remembered is bounded: beyond FLAGS_BYTES_MAX the filter that was made first is forgotten, which costs
time and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any, Final, TypeAlias

from edged.core import subjects
from edged.store.code_column import Wanted
from edged.store.subject_table import SubjectTable

Filters: TypeAlias = tuple[bytes, ...]
FLAGS_BYTES_MAX: Final = 16 * 1024 * 1024
FILTERS_MIN: Final = 4
FILTERS_MAX: Final = 4096
# How many parts of the log a filter remembers its translation for.
_TRANSLATIONS_MAX: Final = 8
_FEW_MAX: Final = 16
_SEQ_MAX: Final = 2**64 - 1

_TOKEN: Final = rb"[^.]+"
_TOKENS: Final = rb"[^.]+(?:\.[^.]+)*"


def is_everything(filters: Filters) -> bool:
    """Whether a filter leaves nothing out."""
    return not filters or b">" in filters


def is_literal(pattern: bytes) -> bool:
    """Whether a pattern is a subject."""
    return (b"*" not in pattern and b">" not in pattern) or subjects.is_literal(pattern)


def literal_prefix(pattern: bytes) -> bytes:
    """The tokens before the first wildcard, with their last dot; nothing if the first token is a wildcard."""
    parts = subjects.tokens(pattern)
    count = 0
    while count < len(parts) and parts[count] not in (b"*", b">"):
        count += 1
    return b"".join(part + b"." for part in parts[:count])


def compile_pattern(pattern: bytes) -> Callable[[bytes], Any]:
    """A test whether a subject matches: the answers of subjects.matches(), several times faster."""
    parts = subjects.tokens(pattern)
    pieces = [_TOKEN if part == b"*" else re.escape(part) for part in parts]
    if parts[-1] == b">":
        pieces[-1] = _TOKENS
    if b"" in parts:
        return lambda _: None
    return re.compile(rb"\.".join(pieces)).fullmatch


class Matched:
    """The subjects that a filter matches: one number, or flags by number."""

    __slots__ = (
        "_births_seen",
        "_epoch",
        "_few",
        "_tests",
        "gap_start",
        "gap_stop",
        "translations",
        "wanted",
    )

    def __init__(self, filters: Filters, table: SubjectTable) -> None:
        self._tests = [compile_pattern(pattern) for pattern in filters]
        self._epoch = table.epoch
        self._births_seen = len(table.births)
        flags = bytearray(len(table.names))
        numbers = table.numbers
        for pattern, test in zip(filters, self._tests, strict=True):
            if is_literal(pattern):
                if pattern in numbers:
                    flags[numbers[pattern]] = 1
                continue
            for subject in filter(test, table.with_prefix(literal_prefix(pattern))):
                number = numbers.get(subject)
                if number is not None:
                    flags[number] = 1
        self.wanted = Wanted(flags=flags)
        # The numbers, while they are so few that it pays to ask the table about each.
        self._few: set[int] | None = None
        if flags.count(1) <= _FEW_MAX:
            self._few = set(compress(range(len(flags)), flags))
        # No message with a seq from gap_start and before gap_stop matches, nor ever will.
        self.gap_start = 0
        self.gap_stop = 0
        # What the filter means in the codes of a segment, by part of the log.
        self.translations: dict[object, Wanted | None] = {}

    def catch_up(self, table: SubjectTable) -> bool:
        """Look at the subjects that are new; False if they are too many."""
        births = table.births
        if self._epoch != table.epoch:
            return False
        if self._births_seen != len(births):
            for number in births[self._births_seen :]:
                name = table.names[number]
                self._set(number, name is not None and any(test(name) for test in self._tests))
            self._births_seen = len(births)
        return True

    def _set(self, number: int, is_wanted: bool) -> None:
        self.wanted.set(number, is_wanted)
        if self._few is not None:
            if is_wanted:
                self._few.add(number)
            else:
                self._few.discard(number)
            if len(self._few) > _FEW_MAX:
                self._few = None

    def bounds(self, table: SubjectTable) -> tuple[int, int]:
        """Between which seqs all messages that match are: wide for many subjects, empty for none."""
        if self._few is None:
            return 0, _SEQ_MAX
        alive = [number for number in self._few if table.counts[number]]
        firsts, lasts = map(table.firsts.__getitem__, alive), map(table.lasts.__getitem__, alive)
        return min(firsts, default=_SEQ_MAX), max(lasts, default=0)

    def translate(self, part: object, make: Callable[[Wanted], Wanted | None]) -> Wanted | None:
        """The filter in a part's own codes, made once while it is remembered; None: nothing matches."""
        if part in self.translations:
            return self.translations[part]
        if len(self.translations) >= _TRANSLATIONS_MAX:
            del self.translations[next(iter(self.translations))]
        wanted = self.translations[part] = make(self.wanted)
        return wanted

    def numbers(self, table: SubjectTable) -> Iterable[int]:
        """The numbers of the subjects it matches, and perhaps of some that are gone."""
        if self._few is not None:
            return sorted(self._few)
        return compress(range(len(table.names)), self.wanted.flags)

    def count(self, table: SubjectTable) -> int:
        """How many messages match."""
        if self._few is not None:
            return sum(map(table.counts.__getitem__, self._few))
        return sum(compress(table.counts, self.wanted.flags))


class FilterCache:
    """What filters match, for those that were asked about."""

    __slots__ = ("_matched", "_table")

    def __init__(self, table: SubjectTable) -> None:
        self._table = table
        self._matched: dict[Filters, Matched] = {}

    def get(self, filters: Filters) -> Matched:
        """The subjects that a filter matches, as of now. Not for everything, nor for a single subject."""
        matched = self._matched.get(filters)
        if matched is not None and matched.catch_up(self._table):
            return matched
        if matched is not None:
            del self._matched[filters]
        flags_bytes = max(256, len(self._table.names))
        limit = min(FILTERS_MAX, max(FILTERS_MIN, FLAGS_BYTES_MAX // flags_bytes))
        while len(self._matched) >= limit:
            del self._matched[next(iter(self._matched))]
        matched = self._matched[filters] = Matched(filters, self._table)
        return matched

    def forget_part(self, part: object) -> None:
        """A part of the log is no longer read."""
        for matched in self._matched.values():
            matched.translations.pop(part, None)
