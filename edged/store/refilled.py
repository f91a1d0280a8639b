"""Lost messages that came back from somebody who still had them, until they are sealed.

They lie between messages that have their places, so they are beside the parts of the log and not among them.
They are kept whole: there are few, the journal has them for a restart, and the next cycle writes them to a
segment together with what is around them.

Rules: no decisions; counts of the whole stream are kept by who owns this.
Invariant: `seqs` is sorted, and has exactly the keys of the messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from edged.core.message import Message
from edged.store.code_column import Wanted
from edged.store.subject_filters import Matched


class RefilledMessage(NamedTuple):
    """A message, the number of its subject, and what it counts for."""

    message: Message
    number: int
    size: int


class Refilled:
    """Messages by seq."""

    __slots__ = ("_messages", "removed_since", "seqs")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self._messages: dict[int, RefilledMessage] = {}
        # Seqs removed since somebody began to copy the messages; None while nobody does.
        self.removed_since: set[int] | None = None

    def insert(self, message: Message, number: int, size: int) -> None:
        """One more message."""
        assert message.seq not in self._messages, message.seq
        insort(self.seqs, message.seq)
        self._messages[message.seq] = RefilledMessage(message, number, size)

    def find(self, seq: int) -> RefilledMessage | None:
        """The message with this seq."""
        return self._messages.get(seq)

    def remove(self, seq: int) -> None:
        """A message is gone."""
        del self._messages[seq]
        del self.seqs[bisect_left(self.seqs, seq)]
        if self.removed_since is not None:
            self.removed_since.add(seq)

    def forget(self, seqs: Collection[int]) -> None:
        """These messages are read elsewhere now."""
        for seq in seqs:
            self._messages.pop(seq, None)
        self.seqs = sorted(self._messages)

    def below(self, seq: int) -> list[int]:
        """The seqs before this one."""
        return self.seqs[: bisect_left(self.seqs, seq)]

    def messages(self) -> list[Message]:
        """All messages, in the order of their seqs."""
        return [self._messages[seq].message for seq in self.seqs]

    def next_wanted(self, wanted: Matched | Wanted | None, seq: int) -> int | None:
        """The first seq from here on with a wanted subject; None wants all."""
        for position in range(bisect_left(self.seqs, seq), len(self.seqs)):
            if self._is_wanted(self.seqs[position], wanted):
                return self.seqs[position]
        return None

    def previous_wanted(self, wanted: Matched | Wanted | None, seq: int) -> int | None:
        """The last seq up to here with a wanted subject; None wants all."""
        for position in range(bisect_right(self.seqs, seq) - 1, -1, -1):
            if self._is_wanted(self.seqs[position], wanted):
                return self.seqs[position]
        return None

    def count_wanted(self, wanted: Matched | Wanted | None, first: int, stop: int) -> int:
        """How many messages from `first` to before `stop` have a wanted subject; None wants all."""
        between = self.seqs[bisect_left(self.seqs, first) : bisect_left(self.seqs, stop)]
        return sum(self._is_wanted(seq, wanted) for seq in between)

    def seq_at_time(self, ts_ns: int) -> int | None:
        """The first message that is not older than this."""
        return next((seq for seq in self.seqs if self._messages[seq].message.ts_ns >= ts_ns), None)

    def cut_out(self, missing: Iterable[range]) -> Iterator[range]:
        """Ranges of seqs that other parts do not have, without those that are here."""
        for seqs in missing:
            start = seqs.start
            for position in range(bisect_left(self.seqs, start), bisect_left(self.seqs, seqs.stop)):
                yield range(start, self.seqs[position])
                start = self.seqs[position] + 1
            yield range(start, seqs.stop)

    def _is_wanted(self, seq: int, wanted: Matched | Wanted | None) -> bool:
        if wanted is None:
            return True
        wanted = wanted.wanted if isinstance(wanted, Matched) else wanted
        number = self._messages[seq].number
        if wanted.one is not None:
            return number == wanted.one
        return number < len(wanted.flags) and bool(wanted.flags[number])
