"""What a log of either kind knows of its messages without reading them: which are there, on which subjects.

The messages are in parts, in the order of their seqs; a query finds the part, and the part the message.
This is the half that file logs and memory logs share; stream_log.py and memory_log.py add how messages
come in.

Rules: no decisions; everything happens in one thread; time is an argument. Seqs only grow.
Invariants: first_seq is the first live message, or last_seq + 1 when there is none. message_count, bytes
and the subject table count live messages only. Parts do not overlap. Timestamps are expected not to
decrease; where they do, seq_at_time() is off by as much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from edged.core.message import Message
from edged.store.code_column import Wanted
from edged.store.errors import Damaged, StoreError
from edged.store.log_part import LogPart
from edged.store.refilled import Refilled
from edged.store.sealed_part import SealedPart
from edged.store.subject_filters import FilterCache, Filters, Matched, is_everything, is_literal
from edged.store.subject_table import SubjectTable

DELETED_LIMIT: Final = 1_000_000
SKIP_MAX: Final = 1 << 62  # So that there are seqs for what follows: they have 63 bits.


@dataclass(frozen=True, slots=True)
class Removed:
    """What went."""

    count: int
    bytes: int


class LostRange(NamedTuple):
    """Seqs whose messages were stored and cannot be read any more; those of them that were there."""

    first_seq: int
    last_seq: int
    reason: str

    def without(self, seq: int) -> list[LostRange]:
        """What is left of the range when a seq is not lost any more."""
        if not self.first_seq <= seq <= self.last_seq:
            return [self]
        parts = self._replace(last_seq=seq - 1), self._replace(first_seq=seq + 1)
        return [part for part in parts if part.first_seq <= part.last_seq]


class MessageIndex:
    """Queries and removals over the parts of a log."""

    def __init__(self) -> None:
        self.first_seq = 1
        self.last_seq = 0
        self.message_count = 0
        self.bytes = 0
        self.last_ts_ns = 0
        self.lost: list[LostRange] = []
        self.table = SubjectTable()
        self._filters = FilterCache(self.table)
        self._parts: list[LogPart] = []
        self._starts: list[int] = []  # first_seq of each part
        self._refilled: Refilled | None = None
        self._first_ts: tuple[int, int] = (0, 0)  # a seq and its time, for first_ts_ns

    # --- figures ---

    @property
    def deleted_count(self) -> int:
        """How many seqs between the first and the last have no message."""
        return self.last_seq + 1 - self.first_seq - self.message_count

    @property
    def subject_count(self) -> int:
        """How many subjects have messages."""
        return len(self.table)

    @property
    def first_ts_ns(self) -> int:
        """The time of the first message; 0 without one. Read when asked for, once per first message."""
        if not self.message_count:
            return 0
        if self._first_ts[0] != self.first_seq:
            try:
                message = self.get(self.first_seq)
                assert message is not None, self.first_seq
                self._first_ts = self.first_seq, message.ts_ns
            except Damaged:
                # Nobody can know it; the last time that was known is nearer than none.
                self._first_ts = self.first_seq, self._first_ts[1]
        return self._first_ts[1]

    def deleted_seqs(self, limit: int = DELETED_LIMIT) -> list[int]:
        """The seqs without a message between the first and the last, the lowest `limit` of them."""
        found: list[int] = []
        for missing in self._missing() if self._refilled is None else self._refilled.cut_out(self._missing()):
            if len(missing) >= limit - len(found):
                found.extend(missing[: limit - len(found)])
                break
            found.extend(missing)
        return found

    def _missing(self) -> Iterator[range]:
        if not self.message_count:
            return
        end = self.first_seq
        for part in self._parts[self._part_index(self.first_seq) :]:
            yield range(end, part.first_seq)
            yield from part.missing(self.first_seq)
            end = max(end, part.last_seq + 1)
        yield range(end, self.last_seq + 1)

    # --- one message ---

    def get(self, seq: int) -> Message | None:
        """A message, or None if there is none. Raises Damaged when it should be there and cannot be read."""
        if self.first_seq <= seq <= self.last_seq and self._parts:
            part = self._parts[self._part_index(seq)]
            position = part.find_live(seq)
            if position >= 0:
                return part.message_at(position, self.table.names)
        if self._refilled is not None:
            found = self._refilled.find(seq)
            if found is not None:
                return found.message
        for lost in self.lost:
            if lost.first_seq <= seq <= lost.last_seq:
                raise Damaged(f"message {seq} is lost, {lost.reason}")
        return None

    def peek(self, seq: int) -> Message | None:
        """A message, or None if there is none or it cannot be read."""
        try:
            return self.get(seq)
        except Damaged:
            return None

    def has(self, seq: int) -> bool:
        """Whether there is a message with this seq."""
        if not self.first_seq <= seq <= self.last_seq:
            return False
        if self._parts and self._parts[self._part_index(seq)].find_live(seq) >= 0:
            return True
        return self._refilled is not None and self._refilled.find(seq) is not None

    def bytes_of(self, seq: int) -> int | None:
        """What a message counts for, or None if there is none."""
        if not self.first_seq <= seq <= self.last_seq:
            return None
        part = self._parts[self._part_index(seq)] if self._parts else None
        position = -1 if part is None else part.find_live(seq)
        if part is not None and position >= 0:
            return part.bytes_at(position)
        found = None if self._refilled is None else self._refilled.find(seq)
        return None if found is None else found.size

    def remove(self, seq: int) -> int | None:
        """Remove a message; the bytes it counted for, or None if it is not there."""
        if self.lost:
            # If it is lost, it is also gone for good: nobody wants it back.
            self._not_lost(seq)
        if not self.first_seq <= seq <= self.last_seq:
            return None
        part = self._parts[self._part_index(seq)] if self._parts else None
        position = -1 if part is None else part.find_live(seq)
        if part is not None and position >= 0:
            size = part.bytes_at(position)
            number = part.number_of(part.column()[position])
            part.remove(position, size)
        else:
            found = None if self._refilled is None else self._refilled.find(seq)
            if self._refilled is None or found is None:
                return None
            number, size = found.number, found.size
            self._refilled.remove(seq)
        self.table.remove(number, seq)
        self.message_count -= 1
        self.bytes -= size
        if seq == self.first_seq:
            self._advance(seq + 1)
        return size

    def drop_first(self) -> None:
        """Remove the oldest message, as a limit asks for; whatever was before it is gone with it."""
        seq = self.first_seq
        self.remove(seq)
        self._forget_lost(seq + 1)

    def compact_to(self, seq: int) -> Removed:
        """Remove all messages below a seq."""
        count, size = self.message_count, self.bytes
        if seq > self.first_seq:
            for part in self._parts[self._part_index(self.first_seq) :]:
                if part.first_seq >= seq:
                    break
                self._compact_part(part, seq)
            for one in () if self._refilled is None else self._refilled.below(seq):
                self.remove(one)
            self._advance(min(seq, self.last_seq + 1))
        self._forget_lost(seq)
        return Removed(count - self.message_count, size - self.bytes)

    def seq_freeing(self, size: int) -> int:
        """Up to which seq all must go so that so many bytes are free; the last one if that is not enough."""
        for part in self._parts:
            if part.live_bytes < size:
                size -= part.live_bytes
                continue
            for position in part.live_positions():
                size -= part.bytes_at(position)
                if size <= 0:
                    return part.seq_at(position)
        return self.last_seq

    def skip_to(self, seq: int) -> None:
        """Let `seq` be the last one, without a message; nothing happens if it is not higher."""
        if seq > self.last_seq:
            self.last_seq = min(seq, SKIP_MAX)
            if not self.message_count:
                self.first_seq = self.last_seq + 1

    def lose(self, first_seq: int, last_seq: int, reason: str = "its record is damaged") -> None:
        """Messages behind all others were stored and are lost. Their seqs are not used again."""
        assert first_seq > self.last_seq, (first_seq, self.last_seq)
        self.skip_to(last_seq)
        self.lost.append(LostRange(first_seq, last_seq, reason))

    def refill(self, message: Message, message_bytes: int) -> str | None:
        """Put a message back that is lost or cannot be read; if it is neither, why it is not wanted."""
        seq = message.seq
        try:
            self.get(seq)
        except (StoreError, OSError):
            try:
                # One that is listed and cannot be read gives way.
                self.remove(seq)
            except (StoreError, OSError) as error:
                return f"nothing can be put in its place ({error})"
        else:
            return "the message is not lost"
        number = self.table.numbers.get(message.subject)
        if number is None:
            number = self.table.add(message.subject)
        self.table.insert(number, seq)
        if self._refilled is None:
            self._refilled = Refilled()
        self._refilled.insert(message, number, message_bytes)
        self.first_seq = min(seq, self.first_seq) if self.message_count else seq
        self.message_count += 1
        self.bytes += message_bytes
        if seq == self.last_seq:
            self.last_ts_ns = message.ts_ns
        self._first_ts = 0, 0
        self._not_lost(seq)
        # Filters remember where there was nothing for them.
        self._filters = FilterCache(self.table)
        return None

    # --- subjects ---

    def first_of(self, subject: bytes) -> int | None:
        """The first message on a subject."""
        number = self.table.numbers.get(subject)
        return None if number is None else self._first_of_number(number)

    def last_of(self, subject: bytes) -> int | None:
        """The last message on a subject."""
        number = self.table.numbers.get(subject)
        return None if number is None else self._last_of_number(number)

    def count_of(self, subject: bytes) -> int:
        """How many messages are on a subject."""
        number = self.table.numbers.get(subject)
        return 0 if number is None else self.table.counts[number]

    def subjects(self, filters: Sequence[bytes] = ()) -> Iterator[tuple[bytes, int]]:
        """The subjects that match, each with its number of messages."""
        table = self.table
        matched = self._match(tuple(filters))
        if matched is None:
            for name, number in table.numbers.items():
                yield name, table.counts[number]
        elif isinstance(matched, Matched):
            for number in matched.numbers(table):
                found = table.names[number]
                if found is not None:
                    yield found, table.counts[number]
        elif matched.one is not None:
            yield filters[0], table.counts[matched.one]

    def next_matching(self, filters: Sequence[bytes], seq: int) -> int | None:
        """The first message from `seq` on whose subject matches."""
        seq = max(seq, self.first_seq)
        if seq > self.last_seq:
            return None
        matched = self._match(tuple(filters))
        if matched is None:
            return self._next_live(seq)
        if isinstance(matched, Matched):
            return self._next_of_many(matched, seq)
        number = matched.one
        if number is None or seq > self.table.lasts[number]:
            return None
        if seq <= self.table.firsts[number]:
            return self._first_of_number(number)
        return self._search(matched, seq)

    def previous_matching(self, filters: Sequence[bytes], seq: int) -> int | None:
        """The last message up to `seq` whose subject matches."""
        seq = min(seq, self.last_seq)
        if seq < self.first_seq:
            return None
        matched = self._match(tuple(filters))
        if matched is None:
            return self._previous_live(seq)
        if isinstance(matched, Wanted):
            number = matched.one
            if number is None or seq < self.table.firsts[number]:
                return None
            if seq >= self.table.lasts[number]:
                return self._last_of_number(number)
            return self._search_back(matched, seq)
        low, high = matched.bounds(self.table)
        return self._search_back(matched, min(seq, high)) if seq >= low else None

    def count_matching(self, filters: Sequence[bytes], from_seq: int = 0) -> int:
        """How many messages from a seq on have a subject that matches."""
        matched = self._match(tuple(filters))
        total = self.message_count
        if isinstance(matched, Matched):
            total = matched.count(self.table)
        elif matched is not None:
            total = 0 if matched.one is None else self.table.counts[matched.one]
        if from_seq <= self.first_seq or not total:
            return total
        if from_seq > self.last_seq:
            return 0
        # The shorter side is counted.
        if from_seq - self.first_seq < self.last_seq - from_seq:
            return total - self._count_between(matched, self.first_seq, from_seq)
        return self._count_between(matched, from_seq, self.last_seq + 1)

    def seq_at_time(self, ts_ns: int) -> int:
        """The first message that is not older than this; last_seq + 1 if all are."""
        for index in range(self._part_index(self.first_seq), len(self._parts)):
            part = self._parts[index]
            if part.last_ts_ns >= ts_ns and part.deleted.count < part.count:
                position = part.position_at_time(ts_ns)
                seq = part.seq_at(position) if position < part.count else part.last_seq + 1
                found = self._next_in_parts(seq)
                seq = self.last_seq + 1 if found is None else found
                return min(seq, self._refilled_at_time(ts_ns))
        return self._refilled_at_time(ts_ns)

    # --- inside ---

    def _refilled_at_time(self, ts_ns: int) -> int:
        found = None if self._refilled is None else self._refilled.seq_at_time(ts_ns)
        return self.last_seq + 1 if found is None else found

    def _add_part(self, part: LogPart) -> None:
        assert not self._parts or part.first_seq > self._parts[-1].last_seq
        self._parts.append(part)
        self._starts.append(part.first_seq)

    def _part_index(self, seq: int) -> int:
        """The part that has the seq, or the one before the gap that it is in."""
        return max(bisect_right(self._starts, seq) - 1, 0)

    def _advance(self, seq: int) -> None:
        """Everything before `seq` is gone."""
        found = self._next_live(seq) if self.message_count else None
        self.first_seq = self.last_seq + 1 if found is None else found

    def _forget_lost(self, seq: int) -> None:
        """What is below `seq` was to go anyway: that it was lost before matters no more."""
        if self.lost:
            self.lost = [
                lost._replace(first_seq=max(lost.first_seq, seq))
                for lost in self.lost
                if lost.last_seq >= seq
            ]

    def _not_lost(self, seq: int) -> None:
        self.lost = [part for lost in self.lost for part in lost.without(seq)]

    def _compact_part(self, part: LogPart, seq: int) -> None:
        before = part.live_bytes
        for number, count in part.remove_below(part.position_from(seq)):
            self.table.remove_below(number, count, seq)
            self.message_count -= count
        self.bytes -= before - part.live_bytes

    def _match(self, filters: Filters) -> Matched | Wanted | None:
        """What a filter means here: None is everything; a Wanted without a number is nothing."""
        if len(filters) == 1 and is_literal(filters[0]):
            return Wanted(self.table.numbers.get(filters[0]))
        return None if is_everything(filters) else self._filters.get(filters)

    def _first_of_number(self, number: int) -> int:
        table = self.table
        if not table.is_first_known(number):
            found = self._search(Wanted(number), max(table.firsts[number], self.first_seq))
            assert found is not None, number
            table.set_first(number, found)
        return table.firsts[number]

    def _last_of_number(self, number: int) -> int:
        table = self.table
        if not table.is_last_known(number):
            found = self._search_back(Wanted(number), min(table.lasts[number], self.last_seq))
            assert found is not None, number
            table.set_last(number, found)
        return table.lasts[number]

    def _next_live(self, seq: int) -> int | None:
        found = self._next_in_parts(seq)
        refilled = None if self._refilled is None else self._refilled.next_wanted(None, seq)
        return found if refilled is None or (found is not None and found < refilled) else refilled

    def _next_in_parts(self, seq: int) -> int | None:
        for index in range(self._part_index(seq), len(self._parts)):
            found = self._parts[index].next_live(seq)
            if found is not None:
                return found
        return None

    def _previous_live(self, seq: int) -> int | None:
        refilled = None if self._refilled is None else self._refilled.previous_wanted(None, seq)
        for part in reversed(self._parts[: self._part_index(seq) + 1]):
            found = part.previous_live(seq)
            if found is not None:
                return found if refilled is None else max(found, refilled)
        return refilled

    def _next_of_many(self, matched: Matched, seq: int) -> int | None:
        """As _search(), without looking again where there was nothing before."""
        start = seq
        if matched.gap_start <= seq < matched.gap_stop:
            start, seq = matched.gap_start, matched.gap_stop
            if seq > self.last_seq:
                return None
        low, high = matched.bounds(self.table)
        found = self._search(matched, max(seq, low)) if seq <= high else None
        matched.gap_start = start
        matched.gap_stop = self.last_seq + 1 if found is None else found
        return found

    def _search(self, matched: Matched | Wanted, seq: int) -> int | None:
        refilled = None if self._refilled is None else self._refilled.next_wanted(matched, seq)
        for index in range(self._part_index(seq), len(self._parts)):
            part = self._parts[index]
            if part.deleted.count < part.count:
                wanted = part.wanted(matched)
                found = None if wanted is None else part.next_matching(wanted, seq)
                if found is not None:
                    return found if refilled is None else min(found, refilled)
        return refilled

    def _search_back(self, matched: Matched | Wanted, seq: int) -> int | None:
        refilled = None if self._refilled is None else self._refilled.previous_wanted(matched, seq)
        for part in reversed(self._parts[: self._part_index(seq) + 1]):
            if part.last_seq < self.first_seq:
                break
            if part.deleted.count < part.count:
                wanted = part.wanted(matched)
                found = None if wanted is None else part.previous_matching(wanted, seq)
                if found is not None:
                    return found if refilled is None else max(found, refilled)
        return refilled

    def _count_between(self, matched: Matched | Wanted | None, first: int, stop: int) -> int:
        count = 0
        if self._refilled is not None:
            count = self._refilled.count_wanted(matched, first, stop)
        for index in range(self._part_index(first), len(self._parts)):
            part = self._parts[index]
            if part.first_seq >= stop:
                break
            if part.last_seq < first or part.deleted.count == part.count:
                continue
            start, end = part.position_from(first), part.position_from(stop)
            if matched is None:
                count += part.count_live(start, end)
                continue
            wanted = part.wanted(matched)
            if wanted is None:
                continue
            if isinstance(part, SealedPart) and end == part.count and start <= part.deleted.floor:
                count += part.count_wanted(wanted)
            else:
                count += part.count_matching(wanted, start, end)
        return count
