"""Whether some consumer of a stream wants a subject: asked before storing, with interest retention.

Rules: without consumers nobody wants anything. Answers are remembered until the filters change, for as many
subjects as SUBJECTS_MAX; then they are found out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from edged.core.subjects import matches

SUBJECTS_MAX: Final = 10_000


class Interest:
    """The filters of all consumers of a stream."""

    __slots__ = ("_filters", "_known", "_source")

    def __init__(self) -> None:
        # None when they have changed since somebody asked last.
        self._filters: tuple[bytes, ...] | None = None
        self._known: dict[bytes, bool] = {}
        self._source: Callable[[], Iterable[bytes]] = tuple

    @classmethod
    def in_filters(cls, filters: tuple[bytes, ...]) -> Interest:
        """That of one consumer, whose filters stay."""
        interest = cls()
        interest._filters = filters
        return interest

    def follow(self, filters: Callable[[], Iterable[bytes]]) -> None:
        """These are the filters from now on. Many streams never ask for them, so they are collected then."""
        self._source = filters
        self._filters = None
        self._known.clear()

    def wants(self, subject: bytes) -> bool:
        """Whether one of the filters matches."""
        known = self._known.get(subject)
        if known is None:
            if self._filters is None:
                self._filters = tuple(sorted(set(self._source())))
            known = any(matches(subject, one) for one in self._filters)
            if len(self._known) >= SUBJECTS_MAX:
                self._known.clear()
            self._known[subject] = known
        return known
