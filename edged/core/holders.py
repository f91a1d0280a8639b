"""The consumers of a stream that know messages by their seqs: they must hear when such a message goes.

A stream at its limit lets a message go with each that it takes. With many consumers, of which most have
nothing to do, none of them is asked.

Rules: `lowest` is never above a seq that one of the consumers knows; it may be below all of them. A consumer
that knows none may be in here, one that knows some must be.
"""

from __future__ import annotations

from typing import Final, Protocol

NOTHING: Final = 1 << 64
"""Above every seq."""


class Holder(Protocol):
    """What is asked of a consumer."""

    @property
    def lowest_known(self) -> int: ...


class Holders:
    """Of one stream."""

    __slots__ = ("_holders", "lowest")

    def __init__(self) -> None:
        self._holders: dict[Holder, None] = {}
        self.lowest = NOTHING

    def note(self, holder: Holder, seq: int) -> None:
        """A consumer knows a message with this seq, and maybe some above it."""
        self._holders[holder] = None
        self.lowest = min(self.lowest, seq)

    def forget(self, holder: Holder) -> None:
        """A consumer goes."""
        self._holders.pop(holder, None)

    def __contains__(self, holder: Holder) -> bool:
        return holder in self._holders

    def review(self) -> None:
        """Messages went: find out anew who knows some."""
        known = {holder: holder.lowest_known for holder in self._holders}
        self._holders = {holder: None for holder, lowest in known.items() if lowest < NOTHING}
        self.lowest = min(known.values(), default=NOTHING)
