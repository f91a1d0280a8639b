"""What a segment knows of itself besides its messages: the table of blocks and the columns over all messages.

The footer holds the table, and each column itself while it is small, else where its section is. A `Tally`
gathers the columns while blocks pass, when a segment is written and when one is rebuilt from its blocks;
from the same blocks come the same bytes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import lt, sub
from typing import Final, NamedTuple, TypeAlias

from edged.core.row_twins import pack_column
from edged.core.rows import pack_seqs
from edged.core.run_twins import enter_subjects
from edged.core.runs import SubjectColumns
from edged.store.errors import Damaged
from edged.store.segment_columns import Column, pack_subjects, unpack_column
from edged.store.segment_format import CODES, COLUMN_KINDS, EXPIRIES, SEQS, SIZES, SUBJECTS

INLINE_BYTES_MAX: Final = 1024  # a larger column has a section of its own
_HERE: Final = struct.Struct("<BBI")  # kind, one, size; the column follows
_ELSEWHERE: Final = struct.Struct("<BBQI")  # kind, zero, offset and size of the section


class Span(NamedTuple):
    """A section's place in the file."""

    offset: int
    size: int


Columns: TypeAlias = Mapping[int, bytes | Span]  # by kind: the raw bytes, or where they are


class BlockEntry(NamedTuple):
    """A block, as the table knows it."""

    number: int
    first_seq: int
    last_seq: int
    message_count: int
    first_ts_ns: int
    max_ts_ns: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class BlockTable:
    """All blocks, in order of their seqs."""

    numbers: Column
    first_seqs: Column
    last_seqs: Column
    counts: Column
    first_times_ns: Column
    # Times may go back, as clocks do; the largest up to and with each block never does.
    times_ns_so_far: Column
    max_times_ns: Column
    offsets: Column
    sizes: Column

    @classmethod
    def of(cls, entries: Sequence[BlockEntry]) -> BlockTable:
        """The table of these blocks."""
        return cls.of_columns(*zip(*entries, strict=True))

    @classmethod
    def of_columns(cls, *columns: Sequence[int]) -> BlockTable:
        """The table from its columns, which are the fields of BlockEntry in order."""
        numbers, first_seqs, last_seqs, counts, first_times, max_times, offsets, sizes = columns
        return cls(
            numbers=array("I", numbers),
            first_seqs=array("Q", first_seqs),
            last_seqs=array("Q", last_seqs),
            counts=array("I", counts),
            first_times_ns=array("q", first_times),
            times_ns_so_far=array("q", accumulate(max_times, max)),
            max_times_ns=array("q", max_times),
            offsets=array("Q", offsets),
            sizes=array("I", sizes),
        )

    def __len__(self) -> int:
        return len(self.first_seqs)

    def entry(self, position: int) -> BlockEntry:
        """One block."""
        return BlockEntry(
            self.numbers[position],
            self.first_seqs[position],
            self.last_seqs[position],
            self.counts[position],
            self.first_times_ns[position],
            self.max_times_ns[position],
            self.offsets[position],
            self.sizes[position],
        )

    def entries(self) -> list[BlockEntry]:
        """All blocks."""
        return [self.entry(position) for position in range(len(self))]


def pack_footer(table: BlockTable, columns: Columns) -> bytes:
    """The raw bytes of a footer."""
    fields = (
        *(table.numbers, table.first_seqs, table.last_seqs, table.counts),
        *(table.first_times_ns, table.max_times_ns, table.offsets, table.sizes),
    )
    parts = [pack_column(field) for field in fields]
    for kind in COLUMN_KINDS:
        column = columns[kind]
        if isinstance(column, Span):
            parts.append(_ELSEWHERE.pack(kind, 0, *column))
        else:
            parts += _HERE.pack(kind, 1, len(column)), column
    return b"".join(parts)


def unpack_footer(raw: bytes) -> tuple[BlockTable, dict[int, bytes | Span]]:
    """Table and columns, from the raw bytes of a footer."""
    offset = 0
    fields = []
    for _ in BlockEntry._fields:
        field, offset = unpack_column(raw, offset)
        fields.append(field)
    columns: dict[int, bytes | Span] = {}
    try:
        table = BlockTable.of_columns(*fields)
        for _ in COLUMN_KINDS:
            kind, is_here, size = _HERE.unpack_from(raw, offset)
            if is_here:
                offset += _HERE.size + size
                columns[kind] = raw[offset - size : offset]
            else:
                kind, _, *span = _ELSEWHERE.unpack_from(raw, offset)
                columns[kind] = Span(*span)
                offset += _ELSEWHERE.size
    except (ValueError, OverflowError, struct.error) as error:
        raise Damaged(f"the footer cannot be understood ({error})") from error
    if (
        len({len(field) for field in fields}) != 1
        or offset != len(raw)
        or columns.keys() != set(COLUMN_KINDS)
        or not len(table)
    ):
        raise Damaged("the footer contradicts itself")
    return table, columns


class CodeTable:
    """The subjects of a segment: the code of each, how many messages it has, and where first and last."""

    __slots__ = ("counts", "firsts", "lasts", "numbers", "unsure")

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.counts = array("Q")
        self.firsts = array("Q")
        self.lasts = array("Q")
        # Nothing is ever unsure here; it belongs to what a table of subjects is.
        self.unsure = bytearray()

    def add(self, subject: bytes) -> int:
        """A new subject."""
        code = self.numbers[subject] = len(self.counts)
        for column in (self.counts, self.firsts, self.lasts):
            column.append(0)
        self.unsure.append(0)
        return code

    def append(self, number: int, seq: int) -> None:
        """A subject has one more message, behind all others."""
        if not self.counts[number]:
            self.firsts[number] = seq
        self.counts[number] += 1
        self.lasts[number] = seq


class Tally:
    """The columns over all messages, while the blocks pass in order."""

    __slots__ = ("_codes", "_expiries", "_expiry_seqs", "_seqs", "_sizes", "_table")

    def __init__(self) -> None:
        self._seqs = array("Q")
        self._sizes = array("I")
        self._codes = array("I")
        self._table = CodeTable()
        self._expiry_seqs = array("Q")
        self._expiries = array("Q")

    def add(self, seqs: Sequence[int], subjects: list[bytes], sizes: array[int]) -> int:
        """Take in a block; return how many bytes its messages count for, which `sizes` says of each."""
        last_seq = self._seqs[-1] if self._seqs else -1
        is_growing = isinstance(seqs, range) or all(map(lt, seqs, seqs[1:]))
        assert seqs[0] > last_seq and is_growing, (last_seq, seqs[0], seqs[-1])
        self._seqs.extend(seqs)
        self._sizes.extend(sizes)
        self._codes.extend(enter_subjects(self._table, subjects, seqs))
        return sum(sizes)

    def add_expiry(self, seq: int, expires_ns: int) -> None:
        """Remember when a message of the block expires."""
        self._expiry_seqs.append(seq)
        self._expiries.append(expires_ns)

    def columns(self) -> dict[int, bytes]:
        """The raw bytes of every column, by kind."""
        first_seq = self._seqs[0]
        table = self._table
        subjects = SubjectColumns(
            first_seq,
            b"".join(table.numbers),
            array("I", map(len, table.numbers)),
            table.counts,
            array("Q", [first - first_seq for first in table.firsts]),
            array("Q", map(sub, table.lasts, table.firsts)),
        )
        return {
            SEQS: pack_seqs(self._seqs),
            CODES: pack_column(self._codes),
            SIZES: pack_column(self._sizes),
            SUBJECTS: pack_subjects(subjects),
            EXPIRIES: pack_column(self._expiry_seqs) + pack_column(self._expiries),
        }
