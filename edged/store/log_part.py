"""A part of a stream's log: a stretch of messages that are in one place, and which of them are gone.

Messages have positions from 0 within their part. Either the seqs have no holes and a position is a
difference, or there is a column of seqs. What a part holds is never changed, except at the end of the one
that grows; what is removed is in `deleted`.

Rules: no decisions; counts of the whole stream are kept by who owns the parts.
Invariant: live_count == count - deleted.count, and live_bytes is what those messages count for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress, pairwise

from edged.core.message import Message
from edged.store.code_column import CodeColumn, Wanted
from edged.store.deleted import DeletedPositions
from edged.store.errors import Damaged
from edged.store.subject_filters import Matched


class LogPart(ABC):
    """Messages with seqs from `first_seq` to `last_seq`."""

    __slots__ = ("count", "deleted", "first_seq", "last_seq", "last_ts_ns", "live_bytes", "removed_since")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.last_ts_ns = 0
        self.count = 0
        self.live_bytes = 0
        self.deleted = DeletedPositions()
        # Seqs removed one by one since somebody began to copy this part; None while nobody does.
        self.removed_since: list[int] | None = None

    # --- what kinds of parts differ in ---

    @abstractmethod
    def column(self) -> CodeColumn:
        """The subjects of the messages, in codes of this part."""

    @abstractmethod
    def seqs(self) -> Sequence[int] | None:
        """The seqs by position, or None where none is missing."""

    @abstractmethod
    def number_of(self, code: int) -> int:
        """The number in the subject table that a code stands for. Of live messages only."""

    @abstractmethod
    def wanted(self, matched: Matched | Wanted) -> Wanted | None:
        """What to look for in the column; None if nothing can be found."""

    @abstractmethod
    def codes_of(self, numbers: Iterable[int]) -> Sequence[int]:
        """The codes of these numbers, as far as they have live messages here; or more than those."""

    @abstractmethod
    def bytes_at(self, position: int) -> int:
        """What a message counts for."""

    @abstractmethod
    def message_at(self, position: int, names: Sequence[bytes | None]) -> Message:
        """A message that is alive; `names` are the subjects by number. Raises Damaged."""

    @abstractmethod
    def position_at_time(self, ts_ns: int) -> int:
        """Where the first live message is that is not older, or where dead ones begin that it is behind."""

    # --- what they have in common ---

    @property
    def live_count(self) -> int:
        """How many messages are left."""
        return self.count - self.deleted.count

    def seq_at(self, position: int) -> int:
        """The seq of a message."""
        seqs = self.seqs()
        return self.first_seq + position if seqs is None else seqs[position]

    def seqs_at(self, positions: Sequence[int]) -> Sequence[int]:
        """The seqs of some messages, one behind the other."""
        seqs, first = self.seqs(), self.first_seq
        if seqs is not None:
            return [seqs[position] for position in positions]
        if positions[-1] - positions[0] == len(positions) - 1:
            return range(first + positions[0], first + positions[-1] + 1)
        return [first + position for position in positions]

    def position_from(self, seq: int) -> int:
        """The position of the first message with this seq or a higher one; `count` if there is none."""
        if seq <= self.first_seq:
            return 0
        if seq > self.last_seq:
            return self.count
        seqs = self.seqs()
        return seq - self.first_seq if seqs is None else bisect_left(seqs, seq)

    def find_live(self, seq: int) -> int:
        """The position of the message with this seq, or -1 if it is not here, or gone."""
        if not self.first_seq <= seq <= self.last_seq:
            return -1
        position = self.position_from(seq)
        return position if self.seq_at(position) == seq and position not in self.deleted else -1

    def next_live(self, seq: int) -> int | None:
        """The first seq from here on whose message is alive."""
        position = self.deleted.next_absent(self.position_from(seq))
        return self.seq_at(position) if position < self.count else None

    def previous_live(self, seq: int) -> int | None:
        """The last seq up to here whose message is alive."""
        position = self.deleted.previous_absent(self.position_from(seq + 1) - 1)
        return self.seq_at(position) if position >= 0 else None

    def next_matching(self, wanted: Wanted, seq: int) -> int | None:
        """The first seq from here on whose message is alive and has a wanted code."""
        column, deleted, count = self.column(), self.deleted, self.count
        position = deleted.next_absent(self.position_from(seq))
        while position < count:
            position = column.find(wanted, position, count)
            if position < 0:
                return None
            if position not in deleted:
                return self.seq_at(position)
            position = deleted.next_absent(position)
        return None

    def previous_matching(self, wanted: Wanted, seq: int) -> int | None:
        """The last seq up to here whose message is alive and has a wanted code."""
        column, deleted = self.column(), self.deleted
        position = deleted.previous_absent(self.position_from(seq + 1) - 1)
        while position >= 0:
            position = column.find_last(wanted, deleted.floor, position + 1)
            if position < 0:
                return None
            if position not in deleted:
                return self.seq_at(position)
            position = deleted.previous_absent(position)
        return None

    def positions(self, wanted: Wanted | None, start: int, limit: int) -> array[int]:
        """The first positions, at most `limit`, that are alive and have a wanted code; None wants all."""
        return self.column().positions(wanted, start, self.count, self.deleted, limit)

    def read(self, positions: Sequence[int], names: Sequence[bytes | None]) -> list[Message]:
        """The messages at these positions, in order; those that cannot be read are left out."""
        found: list[Message] = []
        for position in positions:
            # The caller sees by the seqs what is missing.
            with suppress(Damaged):
                found.append(self.message_at(position, names))
        return found

    def count_live(self, start: int, stop: int) -> int:
        """How many messages between two positions are alive."""
        return stop - start - self.deleted.count_below(stop) + self.deleted.count_below(start)

    def count_matching(self, wanted: Wanted, start: int, stop: int) -> int:
        """How many messages between two positions are alive and have a wanted code."""
        return self.column().count(wanted, start, stop, self.deleted)

    def remove(self, position: int, size: int) -> None:
        """A message of this size is gone."""
        is_new = self.deleted.add(position)
        assert is_new, position
        self.live_bytes -= size
        if self.removed_since is not None:
            self.removed_since.append(self.seq_at(position))

    def remove_many(self, positions: Sequence[int], size: int) -> None:
        """Live messages of this size all together are gone."""
        for position in positions:
            self.deleted.add(position)
        self.live_bytes -= size
        if self.removed_since is not None:
            self.removed_since.extend(map(self.seq_at, positions))

    def remove_below(self, position: int) -> Iterable[tuple[int, int]]:
        """All messages before a position are gone; the numbers of their subjects, and how many of each."""
        start = self.deleted.floor
        if position <= start:
            return []
        live = self.deleted.live_flags(start, position)
        codes = Counter(compress(self.column().numbers(start, position), live))
        self.live_bytes -= sum(map(self.bytes_at, compress(range(start, position), live)))
        self.deleted.add_below(position)
        return [(self.number_of(code), count) for code, count in codes.items()]

    def live_positions(self) -> Iterator[int]:
        """The positions of what is left."""
        start = self.deleted.floor
        return compress(range(start, self.count), self.deleted.live_flags(start, self.count))

    def missing(self, from_seq: int) -> Iterator[range]:
        """The seqs without a message, in order, from `from_seq` or the start of this part to its end."""
        seqs = self.seqs()
        if seqs is None:
            first = self.first_seq
            yield range(max(from_seq, first), first + self.deleted.floor)
            gone = (first + position for position in self.deleted.positions())
            yield from (range(seq, seq + 1) for seq in gone if seq >= from_seq)
            return
        live = [seqs[position] for position in self.live_positions() if seqs[position] >= from_seq]
        if not live:
            yield range(max(from_seq, self.first_seq), self.last_seq + 1)
            return
        yield range(max(from_seq, self.first_seq), live[0])
        yield from (range(one + 1, other) for one, other in pairwise(live))
        yield range(live[-1] + 1, self.last_seq + 1)


class GrowingPart(LogPart):
    """A part that messages are appended to, with the table's numbers as codes and its own times."""

    __slots__ = ("_seqs", "numbers", "page_times_ns")

    PAGE = 512

    def __init__(self, first_seq: int) -> None:
        super().__init__(first_seq)
        self.numbers = CodeColumn()
        # The seqs, from the first hole on for as long as this part grows.
        self._seqs: Sequence[int] | None = None
        # The time of the first message of each page; never less than the one before.
        self.page_times_ns: list[int] = []

    @abstractmethod
    def timestamp_at(self, position: int) -> int:
        """When a message came. Raises Damaged."""

    def column(self) -> CodeColumn:
        return self.numbers

    def seqs(self) -> Sequence[int] | None:
        return self._seqs

    def number_of(self, code: int) -> int:
        return code

    def codes_of(self, numbers: Iterable[int]) -> Sequence[int]:
        return list(numbers)

    def wanted(self, matched: Matched | Wanted) -> Wanted | None:
        return matched if isinstance(matched, Wanted) else matched.wanted

    def position_at_time(self, ts_ns: int) -> int:
        page = bisect_left(self.page_times_ns, ts_ns) - 1
        if page < 0:
            return 0
        start = page * self.PAGE
        stop = min(start + self.PAGE, self.count)
        candidates = list(compress(range(start, stop), self.deleted.live_flags(start, stop)))
        low, high = 0, len(candidates)
        while low < high:
            middle = (low + high) // 2
            try:
                is_older = self.timestamp_at(candidates[middle]) < ts_ns
            except Damaged:
                # The time of a message that cannot be read is unknown; its neighbours will do.
                del candidates[middle]
                high -= 1
                continue
            if is_older:
                low = middle + 1
            else:
                high = middle
        return candidates[low] if low < len(candidates) else stop
