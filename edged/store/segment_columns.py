"""The inner bytes of a segment's sections: columns of numbers, blocks of messages, the table of subjects.

Columns and blocks are packed in edged/core/rows.py; here they are unpacked.

A column is an array of numbers in as few bytes each as the largest needs. A block is made of columns too,
and of the subjects and the data, each of them together: that compresses better than message after message,
and it is encoded and decoded by a few calls for all messages instead of some for each.

Rules: nothing here reads or writes a file; counts and sizes are checked against what is there before memory
is set aside for them; what does not fit raises Damaged.
Invariant: seqs grow strictly within a block and from block to block.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

from edged.core.code_twins import running_sums
from edged.core.message import Message
from edged.core.row_twins import messages_between, pack_column, running_times
from edged.core.rows import COLUMN, BlockColumns
from edged.core.runs import SubjectColumns
from edged.store.errors import Damaged
from edged.store.segment_format import Prelude

_IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"
# Unsigned numbers in 1, 2, 4 or 8 bytes, and signed ones in 8.
_TYPECODES: Final = frozenset("BHIQq")
Column: TypeAlias = "array[int]"
Seqs: TypeAlias = Sequence[int]  # a range where no seq is missing, else an array


# --- columns ---


def unpack_column(raw: bytes, offset: int) -> tuple[Column, int]:
    """The numbers at `offset`, and where the next thing begins."""
    if offset + COLUMN.size > len(raw):
        raise Damaged("a column is missing")
    code, count = COLUMN.unpack_from(raw, offset)
    typecode = code.decode("latin-1")
    if typecode not in _TYPECODES:
        raise Damaged("a column of unknown type")
    column: Column = array(typecode)
    start = offset + COLUMN.size
    end = start + count * column.itemsize
    if end > len(raw):
        raise Damaged("a column is cut off")
    column.frombytes(raw[start:end])
    if not _IS_LITTLE_ENDIAN:
        column.byteswap()
    return column, end


def unpack_seqs(raw: bytes, offset: int, first_seq: int, count: int) -> tuple[Seqs, int]:
    """The seqs of a block or segment of `count` messages that begins with `first_seq`."""
    distances, end = unpack_column(raw, offset)
    if not distances:
        return range(first_seq, first_seq + count), end
    if len(distances) != count - 1:
        raise Damaged("seqs do not match the count")
    try:
        return array("Q", accumulate(distances, initial=first_seq)), end
    except OverflowError:
        raise Damaged("seqs run over") from None


# --- blocks ---


class Block(BlockColumns):
    """Messages, decoded as far as columns; those asked for are put together then."""

    __slots__ = ()

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return len(self.raw) + 32 * len(self.times_ns) + 64 * len(self.subjects) + 512

    def messages(self, start: int, end: int) -> list[Message]:
        """The messages from one position to another."""
        return messages_between(self, start, end)

    def some_messages(self, seqs: Sequence[int]) -> list[Message]:
        """The messages with these seqs, which grow; those that are not here are left out."""
        start = bisect_left(self.seqs, seqs[0])
        end = start + len(seqs)
        if end <= len(self.seqs) and self.seqs[start] == seqs[0] and self.seqs[end - 1] == seqs[-1]:
            return self.messages(start, end)
        positions = [bisect_left(self.seqs, seq) for seq in seqs]
        return [
            self.message(position)
            for position, seq in zip(positions, seqs, strict=True)
            if position < len(self.seqs) and self.seqs[position] == seq
        ]

    def message(self, position: int) -> Message:
        """One message."""
        return Message(
            self.seqs[position],
            self.times_ns[position],
            self.subjects[self.codes[position]],
            self.header_sizes[position],
            self.raw[self.bounds[position] : self.bounds[position + 1]],
        )


def unpack_block(raw: bytes, prelude: Prelude) -> Block:
    """A block from its raw bytes."""
    seqs, offset = unpack_seqs(raw, 0, prelude.first_seq, prelude.message_count)
    steps, offset = unpack_column(raw, offset)
    codes, offset = unpack_column(raw, offset)
    header_sizes, offset = unpack_column(raw, offset)
    sizes, offset = unpack_column(raw, offset)
    subjects, offset = _unpack_subjects(raw, offset)
    if any(len(column) != prelude.message_count for column in (steps, codes, header_sizes, sizes)):
        raise Damaged("the columns of a block differ in length")
    if not prelude.message_count or seqs[-1] != prelude.last_seq or max(codes) >= len(subjects):
        raise Damaged("a block contradicts itself")
    try:
        times_ns = running_times(steps)
        bounds = running_sums(sizes)
    except (OverflowError, TypeError):
        raise Damaged("the numbers of a block run over") from None
    if offset + bounds[-1] != len(raw):
        raise Damaged("the data of a block has another size")
    return Block(seqs, times_ns, codes, header_sizes, bounds, subjects, raw[offset:])


# --- subjects ---


@dataclass(frozen=True, slots=True)
class SubjectSummary:
    """How often a subject is in a segment, and where first and last. Its position in the list is its code."""

    subject: bytes
    count: int
    first_seq: int
    last_seq: int


def pack_subjects(columns: SubjectColumns) -> bytes:
    """The table of subjects."""
    _, joined, sizes, *figures = columns
    return b"".join((*map(pack_column, (*figures, sizes)), joined))


def unpack_subject_table(raw: bytes, first_seq: int) -> SubjectColumns:
    """The table of subjects, from its raw bytes."""
    counts, offset = unpack_column(raw, 0)
    firsts, offset = unpack_column(raw, offset)
    spans, offset = unpack_column(raw, offset)
    sizes, offset = unpack_column(raw, offset)
    columns = (sizes, counts, firsts, spans)
    if any(column.typecode == "q" or len(column) != len(sizes) for column in columns):
        raise Damaged("the table of subjects contradicts itself")
    if offset + sum(sizes) != len(raw):
        raise Damaged("the subjects have another size")
    return SubjectColumns(first_seq, raw[offset:], *columns)


def summaries_of(columns: SubjectColumns) -> Iterator[SubjectSummary]:
    """The subjects of a table, one by one."""
    first_seq, _, _, *figures = columns
    for subject, count, first, span in zip(columns.names(), *figures, strict=True):
        yield SubjectSummary(subject, count, first_seq + first, first_seq + first + span)


def _unpack_subjects(raw: bytes, offset: int) -> tuple[list[bytes], int]:
    sizes, offset = unpack_column(raw, offset)
    bounds = list(accumulate(sizes, initial=offset))
    if bounds[-1] > len(raw):
        raise Damaged("subjects are cut off")
    return [raw[low:high] for low, high in pairwise(bounds)], bounds[-1]
