"""The subjects of a stream: for each a number, how many messages it has, and where the first and the last
one are.

A subject has its number while it has messages; then the number goes to another. So a number found beside
a message that is gone may mean another subject by now, and whoever looks at numbers asks first whether
the message is alive.

First and last are bounds. Removing the first message of a subject leaves a bound that may be too low, and
`is_first_known` says so; the one who can search the messages puts it right when somebody asks (see
message_index.py). The same for the last.

A million subjects of 26 bytes take 200 MB of resident memory, most of it in the dictionary and the
subjects themselves.
Rules: no decisions, no I/O. Invariant: counts[n] > 0 exactly for the numbers in `numbers`, but for a
moment in add().
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

_FIRST_UNSURE: Final = 1
_LAST_UNSURE: Final = 2
# New subjects wait beside the sorted ones until they are more than this, or than a sixteenth of them.
_RECENT_MIN: Final = 256
_BIRTHS_MIN: Final = 4096


class SubjectTable:
    """Columns by number, and the way from a subject to its number."""

    __slots__ = (
        "_free",
        "births",
        "counts",
        "epoch",
        "firsts",
        "lasts",
        "names",
        "numbers",
        "order",
        "unsure",
    )

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.names: list[bytes | None] = []
        self.counts = array("Q")
        self.firsts = array("Q")
        self.lasts = array("Q")
        self.unsure = bytearray()
        # Numbers in the order they were given out since the epoch began, for those who remember what matched.
        self.births: list[int] = []
        self.epoch = 0
        self.order = SubjectOrder()
        self._free = array("I")

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, subject: bytes) -> int:
        """Number a new subject. The caller adds its first message at once, or with those of a run."""
        assert subject not in self.numbers, subject
        if self._free:
            number = self._free.pop()
            self.names[number] = subject
        else:
            number = len(self.names)
            self.names.append(subject)
            self.counts.append(0)
            self.firsts.append(0)
            self.lasts.append(0)
            self.unsure.append(0)
        self.numbers[subject] = number
        self.unsure[number] = 0
        self.order.add(subject)
        self.births.append(number)
        self._bound_births()
        return number

    def add_numbered(self, subjects: list[bytes]) -> None:
        """Take in subjects that `numbers` has behind all others. The caller adds their messages at once."""
        first, added = len(self.names), len(subjects)
        self.names += subjects
        for column in (self.counts, self.firsts, self.lasts):
            column.frombytes(bytes(column.itemsize * added))
        self.unsure += bytes(added)
        self.order.add_all(subjects)
        self.births.extend(range(first, first + added))
        self._bound_births()

    def append(self, number: int, seq: int) -> None:
        """The subject has a new message, behind all others."""
        if not self.counts[number]:
            self.firsts[number] = seq
            self.unsure[number] = 0
        else:
            self.unsure[number] &= ~_LAST_UNSURE
        self.counts[number] += 1
        self.lasts[number] = seq

    def insert(self, number: int, seq: int) -> None:
        """The subject has one more message, anywhere between the others."""
        if not self.counts[number]:
            self.append(number, seq)
            return
        self.counts[number] += 1
        # What is outside the bounds is certainly the first or the last.
        if seq < self.firsts[number]:
            self.set_first(number, seq)
        if seq > self.lasts[number]:
            self.set_last(number, seq)

    def add_counted(self, number: int, count: int, first: int, last: int, is_exact: bool) -> None:
        """The subject has more messages behind all others; if exact, the first and last are at these seqs."""
        if not self.counts[number]:
            self.firsts[number] = first
            self.unsure[number] = 0 if is_exact else _FIRST_UNSURE
        self.counts[number] += count
        self.lasts[number] = last
        if is_exact:
            self.unsure[number] &= ~_LAST_UNSURE
        else:
            self.unsure[number] |= _LAST_UNSURE

    def remove(self, number: int, seq: int) -> None:
        """One message of the subject is gone."""
        count = self.counts[number] - 1
        assert count >= 0, (number, seq)
        self.counts[number] = count
        if not count:
            self._forget(number)
            return
        if seq <= self.firsts[number]:
            self.firsts[number] = seq + 1
            self.unsure[number] |= _FIRST_UNSURE
        if seq >= self.lasts[number]:
            self.lasts[number] = seq - 1
            self.unsure[number] |= _LAST_UNSURE
        if count == 1:
            # One that is left is first and last; most subjects of a key-value bucket are like that.
            if self.unsure[number] == _FIRST_UNSURE:
                self.set_first(number, self.lasts[number])
            elif self.unsure[number] == _LAST_UNSURE:
                self.set_last(number, self.firsts[number])

    def remove_below(self, number: int, count: int, seq: int) -> None:
        """Some messages of the subject are gone, and all that are left are at `seq` or behind it."""
        left = self.counts[number] - count
        assert left >= 0, (number, count)
        self.counts[number] = left
        if not left:
            self._forget(number)
        elif self.firsts[number] < seq:
            self.firsts[number] = seq
            self.unsure[number] |= _FIRST_UNSURE

    def is_first_known(self, number: int) -> bool:
        """Whether `firsts` has the first message, and not only a bound."""
        return not self.unsure[number] & _FIRST_UNSURE

    def is_last_known(self, number: int) -> bool:
        """Whether `lasts` has the last message, and not only a bound."""
        return not self.unsure[number] & _LAST_UNSURE

    def set_first(self, number: int, seq: int) -> None:
        """The first message was found."""
        self.firsts[number] = seq
        self.unsure[number] &= ~_FIRST_UNSURE

    def set_last(self, number: int, seq: int) -> None:
        """The last message was found."""
        self.lasts[number] = seq
        self.unsure[number] &= ~_LAST_UNSURE

    def with_prefix(self, prefix: bytes) -> Iterable[bytes]:
        """All subjects that begin with this, and perhaps some that are no longer there."""
        return self.order.with_prefix(prefix, self.numbers) if prefix else self.numbers

    def _bound_births(self) -> None:
        if len(self.births) > _BIRTHS_MIN and len(self.births) > len(self.numbers) // 8:
            # Whoever has not kept up looks at all subjects again.
            self.epoch += 1
            self.births = []

    def _forget(self, number: int) -> None:
        name = self.names[number]
        assert name is not None, number
        del self.numbers[name]
        self.names[number] = None
        self._free.append(number)
        self.order.forget()


class SubjectOrder:
    """The subjects in order, made when a prefix is asked for the first time and kept up from then on."""

    __slots__ = ("_forgotten", "_recent", "_sorted")

    def __init__(self) -> None:
        self._sorted: list[bytes] | None = None
        self._recent: list[bytes] = []
        self._forgotten = 0

    def add(self, subject: bytes) -> None:
        """There is a new subject."""
        if self._sorted is not None:
            self._recent.append(subject)

    def add_all(self, subjects: list[bytes]) -> None:
        """There are new subjects."""
        if self._sorted is not None:
            self._recent += subjects

    def forget(self) -> None:
        """A subject is gone. It stays here until there are many of them."""
        if self._sorted is not None:
            self._forgotten += 1
            if self._forgotten > _RECENT_MIN + (len(self._sorted) + len(self._recent)) // 2:
                self._sorted = None
                self._recent = []

    def with_prefix(self, prefix: bytes, known: Iterable[bytes]) -> list[bytes]:
        """The subjects with this prefix; one that came back may be there twice."""
        if self._sorted is None:
            self._sorted = sorted(known)
            self._recent = []
            self._forgotten = 0
        elif len(self._recent) > _RECENT_MIN + len(self._sorted) // 16:
            # Two sorted runs are merged in one pass.
            self._sorted.extend(sorted(self._recent))
            self._sorted.sort()
            self._recent = []
        start = bisect_left(self._sorted, prefix)
        stop = bisect_left(self._sorted, _behind(prefix), start)
        recent = [subject for subject in self._recent if subject.startswith(prefix)]
        return self._sorted[start:stop] + recent


def _behind(prefix: bytes) -> bytes:
    """What sorts behind everything with a prefix that ends in a dot."""
    assert prefix.endswith(b"."), prefix
    return prefix[:-1] + b"/"
