"""How many messages a consumer has before it, without counting them again and again.

Rules: the count is for messages that match from a seq on. What was stored since is counted when the number is
asked for; what was handed out is said by the caller. Only when messages are gone that may have been part of
it is everything counted anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# Inside the protocol `bytes` would be a number.
Subject = bytes


class CountedLog(Protocol):
    """What is needed of a log."""

    first_seq: int
    last_seq: int
    message_count: int

    def count_matching(self, filters: Sequence[Subject], from_seq: int = 0) -> int: ...


class PendingCount:
    """Of one consumer, whose filters these are."""

    __slots__ = ("_count", "_counted_to", "_filters", "_from_seq", "_is_known", "_log", "_removed")

    def __init__(self, log: CountedLog, filters: Sequence[bytes]) -> None:
        self._log = log
        self._filters = tuple(filters)
        self._is_known = False
        self._count = self._counted_to = self._from_seq = self._removed = 0

    def forget(self) -> None:
        """Messages are gone, or the filters mean something else: count anew."""
        self._is_known = False

    def configure(self, filters: Sequence[bytes]) -> None:
        """Other messages are wanted."""
        self._filters = tuple(filters)
        self._is_known = False

    def count(self, from_seq: int) -> int:
        """The messages from a seq on."""
        log = self._log
        removed = log.last_seq - log.message_count
        if not self._is_known or from_seq != self._from_seq or removed != self._removed:
            self._count = log.count_matching(self._filters, from_seq)
        elif log.last_seq > self._counted_to:
            self._count += log.count_matching(self._filters, max(self._counted_to + 1, from_seq))
        self._is_known = True
        self._from_seq = from_seq
        self._counted_to = log.last_seq
        self._removed = removed
        return self._count

    def passed(self, count: int, next_seq: int) -> None:
        """So many of them were handed out, and `next_seq` is where the rest begins."""
        self._count = max(self._count - count, 0)
        self._from_seq = next_seq
