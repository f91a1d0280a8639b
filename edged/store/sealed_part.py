"""A segment as a part of a log: its messages, less those removed since it was written.

In memory there are, for each subject in the segment, the number of the subject and how many of its
messages are left: 5 bytes, and 4 more once somebody asked for one of them and the numbers are not in order.
Which message has which subject is read from the segment when somebody searches, and some of these
columns are kept (column_cache.py).

The number of a subject that has no messages left here may belong to another by now. That does no harm:
its count is 0 and all its positions are deleted.

Rules: segments are never changed. Invariant: counts[c] is the number of live messages with code c.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple, Protocol

from edged.core.code_twins import flags_by_code
from edged.core.message import Message
from edged.core.run_twins import enter_counted, numbers_of, order_of
from edged.core.runs import SubjectColumns
from edged.store.code_column import CodeColumn, Wanted
from edged.store.column_cache import Column, ColumnCache, Columns
from edged.store.deleted import DeletedPositions
from edged.store.errors import Damaged
from edged.store.log_part import LogPart
from edged.store.subject_filters import Matched
from edged.store.subject_table import SubjectTable

# Below so many wanted numbers each is looked up; above, all subjects of the segment are.
_LOOKUPS_MAX: Final = 64


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
    def rebuilt(self) -> SealedMessages: ...
    def subject_columns(self) -> SubjectColumns: ...
    def get(self, seq: int) -> Message | None: ...
    def columns(self) -> tuple[Column | None, Column]: ...
    def sizes(self) -> Column: ...
    def read(self, seqs: Sequence[int]) -> list[Message]: ...
    def seq_at_time(self, ts_ns: int) -> int: ...


class DeadSeqs:
    """Seqs of a segment that were dead when this was taken. Any thread may ask."""

    __slots__ = ("_deleted", "_offsets", "_part")

    def __init__(self, part: SealedPart) -> None:
        self._part = part
        self._deleted = part.deleted.copy()
        self._offsets = part.offsets()

    def __contains__(self, seq: object) -> bool:
        assert isinstance(seq, int)
        offset = seq - self._part.first_seq
        return (offset if self._offsets is None else bisect_left(self._offsets, offset)) in self._deleted

    def __len__(self) -> int:
        return self._deleted.count

    def is_all_live(self, start: int, stop: int) -> bool:
        """Whether none of the messages from one position in the segment to another was dead."""
        return 0 not in self._deleted.live_flags(start, stop)

    def next_live(self, seq: int) -> int | None:
        """The first seq from here on that was not dead."""
        part, offsets = self._part, self._offsets
        position = max(seq - part.first_seq, 0)
        if offsets is not None:
            position = bisect_left(offsets, position)
        position = self._deleted.next_absent(position)
        if position >= part.count:
            return None
        return part.first_seq + (position if offsets is None else offsets[position])


class SavedPart(NamedTuple):
    """What a checkpoint says of a part: first and last seq, what was alive and its bytes, what was gone."""

    seqs: tuple[int, int]
    live: tuple[int, int]
    deleted: list[Any]


class SealedPart(LogPart):
    """The messages of one segment that are left."""

    __slots__ = (
        *("_cache", "_codes_in_order", "_columns", "_counts", "_dumped", "_is_dense", "_numbers", "_table"),
        *("segment", "was_asked"),
    )

    def __init__(
        self, segment: SealedMessages, cache: ColumnCache, table: SubjectTable, subjects: SubjectColumns
    ) -> None:
        """For adopted() and restored(), which know the numbers of the subjects."""
        super().__init__(segment.first_seq)
        self.segment = segment
        self.last_seq = segment.last_seq
        self.last_ts_ns = segment.last_ts_ns
        self.count = segment.count
        self.live_bytes = segment.message_bytes
        self._cache = cache
        self._table = table
        self._columns: Columns | None = None
        self.was_asked = False
        self._is_dense = self.last_seq - self.first_seq + 1 == self.count
        self._dumped: tuple[int, list[Any]] = (0, DeletedPositions().dump())
        self._counts = subjects.counts
        # A subject without a number has no live messages, so any will do.
        self._numbers = array("I")
        # The codes by the numbers of their subjects, once somebody looks for one; a range if they agree.
        self._codes_in_order: Sequence[int] | None = None

    @classmethod
    def adopted(cls, segment: SealedMessages, cache: ColumnCache, table: SubjectTable) -> SealedPart:
        """The part for a segment whose messages the table counts already."""
        subjects = segment.subject_columns()
        part = cls(segment, cache, table, subjects)
        part._numbers = numbers_of(table.numbers, subjects)
        return part

    @classmethod
    def restored(
        cls, segment: SealedMessages, cache: ColumnCache, table: SubjectTable, saved: SavedPart
    ) -> SealedPart:
        """The part as it was when a checkpoint was made; its messages are entered into the table."""
        subjects = segment.subject_columns()
        part = cls(segment, cache, table, subjects)
        part._load_deleted(saved)
        is_exact = not part.deleted.count
        part._numbers = enter_counted(table, subjects._replace(counts=part._counts), is_exact)
        return part

    # --- columns ---

    def columns(self) -> Columns:
        """The columns of the segment. Raises Damaged if they cannot be read."""
        columns = self._columns
        if columns is None:
            offsets, codes = self.segment.columns()
            columns = self._columns = Columns(CodeColumn.of(codes), offsets)
            self._cache.hold(self, columns.memory_bytes, len(self._table))
        self.was_asked = True
        return columns

    def let_go(self) -> None:
        """Others need the memory."""
        self._columns = None

    def column(self) -> CodeColumn:
        return self.columns().codes

    def offsets(self) -> Column | None:
        """How far each seq is from the first one, or None where none is missing."""
        return None if self._is_dense else self.columns().offsets

    def seqs(self) -> Sequence[int] | None:
        offsets = self.offsets()
        return None if offsets is None else array("Q", map(self.first_seq.__add__, offsets))

    def seq_at(self, position: int) -> int:
        offsets = self.offsets()
        return self.first_seq + (position if offsets is None else offsets[position])

    def seqs_at(self, positions: Sequence[int]) -> Sequence[int]:
        offsets, first = self.offsets(), self.first_seq
        if offsets is None:
            return super().seqs_at(positions)
        return [first + offsets[position] for position in positions]

    def position_from(self, seq: int) -> int:
        offset, offsets = seq - self.first_seq, self.offsets()
        if offset <= 0:
            return 0
        if seq > self.last_seq:
            return self.count
        return offset if offsets is None else bisect_left(offsets, offset)

    def number_of(self, code: int) -> int:
        return self._numbers[code]

    def wanted(self, matched: Matched | Wanted) -> Wanted | None:
        if isinstance(matched, Matched):
            return matched.translate(self, self._translate)
        assert matched.one is not None
        code = self._code_of(matched.one)
        return None if code is None else Wanted(code)

    def codes_of(self, numbers: Iterable[int]) -> Sequence[int]:
        return [code for code in map(self._code_of, numbers) if code is not None]

    def count_wanted(self, wanted: Wanted) -> int:
        """How many live messages there are of wanted codes, without reading anything."""
        if wanted.one is not None:
            return self._counts[wanted.one]
        return sum(compress(self._counts, wanted.flags))

    def live_counts(self) -> Iterable[tuple[int, int]]:
        """Number and count of each subject that has messages left."""
        return ((number, count) for number, count in zip(self._numbers, self._counts, strict=True) if count)

    def bytes_at(self, position: int) -> int:
        columns = self.columns()
        if columns.sizes is None:
            columns.sizes = self.segment.sizes()
            self._cache.hold(self, columns.memory_bytes, len(self._table))
        return columns.sizes[position]

    def message_at(self, position: int, names: Sequence[bytes | None]) -> Message:
        seq = self.seq_at(position)
        message = self.segment.get(seq)
        if message is None or message.seq != seq:
            raise Damaged(f"message {seq} is not in its segment", self.segment.path)
        return message

    def read(self, positions: Sequence[int], names: Sequence[bytes | None]) -> list[Message]:
        return self.segment.read(self.seqs_at(positions))

    def position_at_time(self, ts_ns: int) -> int:
        return self.deleted.next_absent(self.position_from(self.segment.seq_at_time(ts_ns)))

    def remove(self, position: int, size: int) -> None:
        code = self.column()[position]
        super().remove(position, size)
        self._counts[code] -= 1

    def remove_many(self, positions: Sequence[int], size: int) -> None:
        if positions:
            for code in self.column().at(positions):
                self._counts[code] -= 1
        super().remove_many(positions, size)

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
        self._counts = array("B", bytes(len(self._counts)))
        return removed

    # --- checkpoints ---

    def dump_deleted(self) -> list[Any]:
        """What is gone, by distance from the first seq: that stays true if some of the segment is lost."""
        if self._dumped[0] != self.deleted.count:
            offsets = self.offsets()
            self._dumped = (
                self.deleted.count,
                self.deleted.dump() if offsets is None else self._deleted_offsets(offsets).dump(),
            )
        return self._dumped[1]

    def _deleted_offsets(self, offsets: Column) -> DeletedPositions:
        deleted = DeletedPositions()
        floor = self.deleted.floor
        deleted.add_below(offsets[floor] if floor < self.count else self.last_seq + 1 - self.first_seq)
        for position in self.deleted.positions():
            deleted.add(offsets[position])
        return deleted

    def _load_deleted(self, saved: SavedPart) -> None:
        """Take over what was gone when a checkpoint was made, before anything else is removed."""
        seqs, live, dumped = saved
        offsets = DeletedPositions.load(dumped)
        if not offsets.count:
            return
        if self._is_dense and seqs == (self.first_seq, self.last_seq):
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
            self._counts = array(self._counts.typecode, [counts[code] for code in range(len(self._counts))])
        else:
            self._counts = array("B", bytes(len(self._counts)))
        if self.live_count == live[0]:
            self.live_bytes = live[1]
        else:
            self.live_bytes = sum(map(self.bytes_at, self.live_positions()))

    # --- inside ---

    def _code_of(self, number: int) -> int | None:
        """The code of a subject that has messages left here."""
        numbers, order = self._numbers, self._codes_in_order
        if order is None:
            order = self._codes_in_order = order_of(numbers)
        if isinstance(order, range):
            place = bisect_left(numbers, number)
        else:
            place = bisect_left(order, number, key=numbers.__getitem__)
        # A number may be there twice, once with a meaning that it no longer has.
        while place < len(numbers):
            code = order[place]
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
            codes = flags_by_code(flags, self._numbers, self._counts)
        return Wanted(flags=codes) if 1 in codes else None
