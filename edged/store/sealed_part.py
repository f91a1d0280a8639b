"""A segment as a part of a log: its messages, less those removed since it was written.

In memory there are, for each subject in the segment, the number of the subject and how many of its
messages are left: 5 bytes, or 7 if the numbers are not in order. Which message has which subject is read
from the segment when somebody searches, and a few of these columns are kept (`ColumnCache`).

The number of a subject that has no messages left here may belong to another by now. That does no harm:
its count is 0 and all its positions are deleted.

Rules: segments are never changed. Invariant: counts[c] is the number of live messages with code c.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from edged.core.message import Message
from edged.store.code_column import CodeColumn, Wanted
from edged.store.deleted import DeletedPositions
from edged.store.errors import Damaged
from edged.store.log_part import LogPart
from edged.store.subject_filters import Matched
from edged.store.subject_table import SubjectTable

Column: TypeAlias = "array[int]"
# Below so many wanted numbers each is looked up; above, all subjects of the segment are.
_LOOKUPS_MAX: Final = 64


class Summary(Protocol):
    """A subject of a segment."""

    @property
    def subject(self) -> bytes: ...
    @property
    def count(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...


class SealedMessages(Protocol):
    """What a log needs of a segment. See segment.py."""

    @property
    def path(self) -> str: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def message_bytes(self) -> int: ...
    @property
    def last_ts_ns(self) -> int: ...
    @property
    def subjects(self) -> Sequence[Summary]: ...
    def get(self, seq: int) -> Message | None: ...
    def codes(self) -> tuple[Sequence[int], Column]: ...
    def size_of(self, seq: int) -> int | None: ...
    def seq_at_time(self, ts_ns: int) -> int: ...


class Columns(NamedTuple):
    """What a search needs of a segment."""

    codes: CodeColumn
    seqs: Sequence[int]


class ColumnCache:
    """The columns of the parts that were searched last. One may serve many logs."""

    __slots__ = ("_columns", "_parts_max")

    def __init__(self, parts_max: int = 4) -> None:
        self._parts_max = parts_max
        self._columns: OrderedDict[SealedMessages, Columns] = OrderedDict()

    def get(self, segment: SealedMessages) -> Columns:
        """The columns of a segment. Raises Damaged if they cannot be read."""
        columns = self._columns.get(segment)
        if columns is not None:
            self._columns.move_to_end(segment)
            return columns
        seqs, codes = segment.codes()
        columns = self._columns[segment] = Columns(CodeColumn.of(codes), seqs)
        if len(self._columns) > self._parts_max:
            self._columns.popitem(last=False)
        return columns

    def forget(self, segment: SealedMessages) -> None:
        """The segment is no longer read."""
        self._columns.pop(segment, None)


class DeadSeqs:
    """Seqs of a segment that were dead when this was taken. Any thread may ask."""

    __slots__ = ("_deleted", "_part", "_seqs")

    def __init__(self, part: SealedPart) -> None:
        self._part = part
        self._deleted = part.deleted.copy()
        self._seqs = part.seqs()

    def __contains__(self, seq: object) -> bool:
        assert isinstance(seq, int)
        seqs = self._seqs
        return (seq - self._part.first_seq if seqs is None else bisect_left(seqs, seq)) in self._deleted

    def __len__(self) -> int:
        return self._deleted.count


class SealedPart(LogPart):
    """The messages of one segment that are left."""

    __slots__ = ("_cache", "_codes_in_order", "_counts", "_dumped", "_numbers", "segment")

    def __init__(self, segment: SealedMessages, cache: ColumnCache, table: SubjectTable) -> None:
        super().__init__(segment.first_seq)
        self.segment = segment
        self.last_seq = segment.last_seq
        self.last_ts_ns = segment.last_ts_ns
        self.count = segment.count
        self.live_bytes = segment.message_bytes
        self._cache = cache
        self._dumped: tuple[int, list[Any]] = (0, DeletedPositions().dump())
        summaries = segment.subjects
        self._counts = _smallest_array([summary.count for summary in summaries])
        self._number(summaries, table)

    def _number(self, summaries: Sequence[Summary], table: SubjectTable) -> None:
        """Learn the numbers of the subjects. One without a number has no live messages, so any will do."""
        get = table.numbers.get
        self._numbers = array("I", [get(summary.subject, 0) for summary in summaries])
        # None: the numbers grow with the codes, as they do when a log is restored in order.
        self._codes_in_order: Column | None = None
        if any(map(int.__gt__, self._numbers, self._numbers[1:])):
            order = sorted(range(len(self._numbers)), key=self._numbers.__getitem__)
            self._codes_in_order = _smallest_array(order)

    def enter(self, table: SubjectTable) -> None:
        """Add the live messages to a table that does not count them yet, when a log is restored."""
        summaries = self.segment.subjects
        is_exact = not self.deleted.count
        for summary, count in zip(summaries, self._counts, strict=True):
            if count:
                number = table.numbers.get(summary.subject)
                if number is None:
                    number = table.add(summary.subject)
                table.add_counted(number, count, summary.first_seq, summary.last_seq, is_exact)
        self._number(summaries, table)

    @property
    def subjects_bytes(self) -> int:
        """How much memory the subjects of this part take."""
        columns = (self._counts, self._numbers, self._codes_in_order or array("B"))
        return sum(column.itemsize * len(column) for column in columns)

    def column(self) -> CodeColumn:
        return self._cache.get(self.segment).codes

    def seqs(self) -> Sequence[int] | None:
        if self.last_seq - self.first_seq + 1 == self.count:
            return None
        return self._cache.get(self.segment).seqs

    def number_of(self, code: int) -> int:
        return self._numbers[code]

    def wanted(self, matched: Matched | Wanted) -> Wanted | None:
        if isinstance(matched, Matched):
            return matched.translate(self, self._translate)
        assert matched.one is not None
        code = self._code_of(matched.one)
        return None if code is None else Wanted(code)

    def count_wanted(self, wanted: Wanted) -> int:
        """How many live messages there are of wanted codes, without reading anything."""
        if wanted.one is not None:
            return self._counts[wanted.one]
        return sum(compress(self._counts, wanted.flags))

    def live_counts(self) -> Iterable[tuple[int, int]]:
        """Number and count of each subject that has messages left."""
        return ((number, count) for number, count in zip(self._numbers, self._counts, strict=True) if count)

    def bytes_at(self, position: int) -> int:
        size = self.segment.size_of(self.seq_at(position))
        assert size is not None, position
        return size

    def message_at(self, position: int, names: Sequence[bytes | None]) -> Message:
        seq = self.seq_at(position)
        message = self.segment.get(seq)
        if message is None or message.seq != seq:
            raise Damaged(f"message {seq} is not in its segment", self.segment.path)
        return message

    def position_at_time(self, ts_ns: int) -> int:
        return self.deleted.next_absent(self.position_from(self.segment.seq_at_time(ts_ns)))

    def remove(self, position: int, size: int) -> None:
        code = self.column()[position]
        super().remove(position, size)
        self._counts[code] -= 1

    def remove_below(self, position: int) -> Iterable[tuple[int, int]]:
        start = self.deleted.floor
        if position <= start:
            return []
        if position < self.count:
            live = self.deleted.live_flags(start, position)
            codes = Counter(compress(self.column().numbers(start, position), live))
            removed = super().remove_below(position)
            for code, count in codes.items():
                self._counts[code] -= count
            return removed
        # All of it goes, so nothing needs to be read.
        removed = list(self.live_counts())
        self.deleted.add_below(self.count)
        self.live_bytes = 0
        self._counts = _smallest_array([0] * len(self._counts))
        return removed

    # --- checkpoints ---

    def dump_deleted(self) -> list[Any]:
        """What is gone, by distance from the first seq: that stays true if some of the segment is lost."""
        if self._dumped[0] != self.deleted.count:
            seqs = self.seqs()
            self._dumped = (
                self.deleted.count,
                self.deleted.dump() if seqs is None else self._offsets(seqs).dump(),
            )
        return self._dumped[1]

    def _offsets(self, seqs: Sequence[int]) -> DeletedPositions:
        offsets = DeletedPositions()
        floor = self.deleted.floor
        offsets.add_below(
            seqs[floor] - self.first_seq if floor < self.count else self.last_seq + 1 - self.first_seq
        )
        for position in self.deleted.positions():
            offsets.add(seqs[position] - self.first_seq)
        return offsets

    def load_deleted(self, dumped: list[Any], seqs: tuple[int, int], live: tuple[int, int]) -> None:
        """Take over what was gone when a checkpoint was made, before anything else is removed.

        Then the segment had these first and last seqs, and so many live messages of so many bytes.
        """
        offsets = DeletedPositions.load(dumped)
        if not offsets.count:
            return
        own = self.seqs()
        if own is None and seqs == (self.first_seq, self.last_seq):
            self.deleted = offsets
        else:
            self.deleted.add_below(self.position_from(seqs[0] + offsets.floor))
            for offset in offsets.positions():
                position = self.find_live(seqs[0] + offset)
                if position >= 0:
                    self.deleted.add(position)
        if self.live_count:
            numbers = self.column().numbers(0, self.count)
            counts = Counter(compress(numbers, self.deleted.live_flags(0, self.count)))
            self._counts = _smallest_array([counts[code] for code in range(len(self._counts))])
        else:
            self._counts = _smallest_array([0] * len(self._counts))
        if self.live_count == live[0]:
            self.live_bytes = live[1]
        else:
            self.live_bytes = sum(map(self.bytes_at, self.live_positions()))

    # --- inside ---

    def _code_of(self, number: int) -> int | None:
        """The code of a subject that has messages left here."""
        numbers, order = self._numbers, self._codes_in_order
        if order is None:
            place = bisect_left(numbers, number)
        else:
            place = bisect_left(order, number, key=numbers.__getitem__)
        # A number may be there twice, once with a meaning that it no longer has.
        while place < len(numbers):
            code = place if order is None else order[place]
            if numbers[code] != number:
                return None
            if self._counts[code]:
                return code
            place += 1
        return None

    def _translate(self, wanted: Wanted) -> Wanted | None:
        flags = wanted.flags
        if flags.count(1) <= _LOOKUPS_MAX:
            codes = bytearray(len(self._numbers))
            number = flags.find(1)
            while number >= 0:
                code = self._code_of(number)
                if code is not None:
                    codes[code] = 1
                number = flags.find(1, number + 1)
        else:
            codes = bytearray(map(flags.__getitem__, self._numbers))
        return Wanted(flags=codes) if 1 in codes else None


def _smallest_array(values: Sequence[int]) -> Column:
    largest = max(values, default=0)
    typecode = next(code for code in "BHIQ" if largest < 1 << 8 * array(code).itemsize)
    return array(typecode, values)
