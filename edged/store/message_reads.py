"""Reading many messages of a log at once, and the last message of each of many subjects.

For consumers that replay a stream, and for requests that ask for a batch. A block is decoded once for all its
messages, and what does not match is passed over by its subject's number, without being read.

Rules: see message_index.py. A message that should be there and cannot be read is named, not passed over in
silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import itemgetter
from typing import Final, NamedTuple

from edged.core.message import Message
from edged.store.code_column import Wanted
from edged.store.errors import Damaged
from edged.store.log_part import LogPart
from edged.store.subject_filters import Matched
from edged.store.subject_trim import SubjectTrim

# So many messages are read from a part at once, or fewer if they are large.
_CHUNK_MESSAGES: Final = 512
# Below so many subjects the last message of each is searched for by itself.
_SUBJECTS_FEW: Final = 16
_data_of: Final = itemgetter(4)


class ReadBatch(NamedTuple):
    """Some messages, the seq to go on with, and the seqs before it that match and cannot be read."""

    messages: list[Message]
    next_seq: int
    unreadable: list[int]


class MessageReads(SubjectTrim):
    """A log whose messages are read many at a time."""

    def messages(self, filters: Sequence[bytes], from_seq: int, count_max: int, bytes_max: int) -> ReadBatch:
        """Messages from a seq on whose subjects match: so many, and with so many bytes of data, at most.

        The first one may have more bytes than that.
        """
        assert count_max > 0, count_max
        batch = _Batch(count_max, bytes_max)
        seq = max(from_seq, self.first_seq)
        if self._refilled is not None:
            return self._one_by_one(batch, filters, seq)
        matched = self._match(tuple(filters))
        if isinstance(matched, Wanted) and matched.one is None:
            return batch.result(self.last_seq + 1)
        names = self.table.names
        for part in self._parts[self._part_index(seq) :]:
            if part.deleted.count == part.count:
                continue
            wanted = None if matched is None else part.wanted(matched)
            if matched is not None and wanted is None:
                continue
            position = part.position_from(seq)
            while position < part.count:
                positions = part.positions(wanted, position, batch.room_for(part))
                if not positions:
                    break
                batch.take(part.seqs_at(positions), part.read(positions, names))
                if batch.end is not None:
                    return batch.result(batch.end)
                position = positions[-1] + 1
        return batch.result(self.last_seq + 1)

    def _one_by_one(self, batch: _Batch, filters: Sequence[bytes], seq: int) -> ReadBatch:
        """The same where messages were put back that lie between the parts."""
        found = self.next_matching(filters, seq)
        while found is not None:
            try:
                message = self.get(found)
                batch.take([found], [] if message is None else [message])
            except Damaged:
                batch.take([found], [])
            if batch.end is not None:
                return batch.result(batch.end)
            found = self.next_matching(filters, found + 1)
        return batch.result(self.last_seq + 1)

    # --- the last of each subject ---

    def last_seqs(self, filters: Sequence[bytes], to_seq: int | None = None) -> list[int]:
        """For each subject that matches, its last message, or its last up to a seq; in the order of seqs."""
        table = self.table
        end = self.last_seq if to_seq is None else min(to_seq, self.last_seq)
        found: list[int] = []
        earlier: list[int] = []
        for number in self._matching_numbers(tuple(filters)):
            if table.lasts[number] <= end:
                found.append(self._last_of_number(number))
            elif table.firsts[number] <= end:
                earlier.append(number)
        if len(earlier) <= _SUBJECTS_FEW or self._refilled is not None:
            for number in earlier:
                seq = self._search_back(Wanted(number), end)
                if seq is not None:
                    found.append(seq)
        else:
            found += self._lasts_before(set(earlier), end)
        return sorted(found)

    def _matching_numbers(self, filters: tuple[bytes, ...]) -> Iterable[int]:
        matched = self._match(filters)
        if matched is None:
            return list(self.table.numbers.values())
        if isinstance(matched, Matched):
            counts = self.table.counts
            return [number for number in matched.numbers(self.table) if counts[number]]
        return [] if matched.one is None else [matched.one]

    def _lasts_before(self, wanted: set[int], end: int) -> list[int]:
        """The last messages up to a seq with these numbers, from one walk back over the parts."""
        found: list[int] = []
        for part in reversed(self._parts[: self._part_index(end) + 1]):
            if not wanted or part.last_seq < self.first_seq:
                break
            stop = part.position_from(end + 1)
            floor = part.deleted.floor
            live = part.deleted.live_flags(floor, stop)
            # Of a code that comes more than once, a dict keeps the last position.
            last_of = dict(
                zip(
                    compress(part.column().numbers(floor, stop), live),
                    compress(range(floor, stop), live),
                    strict=True,
                )
            )
            for code, position in last_of.items():
                number = part.number_of(code)
                if number in wanted:
                    wanted.discard(number)
                    found.append(part.seq_at(position))
        return found


class _Batch:
    """A batch while it is filled. `end` is the seq to go on with once it is full."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_left = count_max
        self._bytes_left = bytes_max
        self._messages: list[Message] = []
        self._unreadable: list[int] = []
        self.end: int | None = None

    def room_for(self, part: LogPart) -> int:
        """How many messages of a part to read at once, by the size they have on average."""
        average = part.live_bytes // max(part.live_count, 1) + 1
        return max(1, min(self._count_left, self._bytes_left // average, _CHUNK_MESSAGES))

    def take(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        """Messages that were read, of these seqs."""
        size = sum(map(len, map(_data_of, messages)))
        if len(messages) == len(seqs) <= self._count_left and size <= self._bytes_left:
            self._messages += messages
            self._count_left -= len(messages)
            self._bytes_left -= size
            if self._count_left <= 0 or self._bytes_left <= 0:
                self.end = messages[-1].seq + 1
            return
        if len(messages) < len(seqs):
            there = {message.seq for message in messages}
            missing = [seq for seq in seqs if seq not in there]
        else:
            missing = []
        for message in messages:
            size = len(message.data)
            if size > self._bytes_left and self._messages:
                self._stop_at(message.seq, missing)
                return
            self._messages.append(message)
            self._bytes_left -= size
            self._count_left -= 1
            if self._count_left <= 0 or self._bytes_left <= 0:
                self._stop_at(message.seq + 1, missing)
                return
        self._unreadable += missing

    def _stop_at(self, seq: int, missing: list[int]) -> None:
        self.end = seq
        self._unreadable += [one for one in missing if one < seq]

    def result(self, next_seq: int) -> ReadBatch:
        """What was gathered."""
        return ReadBatch(self._messages, next_seq, self._unreadable)
