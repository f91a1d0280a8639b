"""A sealed segment, to be read: an immutable file with some of the messages of one stream.

Opening reads header and footer. Blocks and columns are read when they are needed and kept, decoded, in a
cache that all segments share; damage that can be repaired is repaired on the way and noted in
`repaired_offsets`. What cannot be repaired is never answered with "not there": reading it raises
MessagesLost, and what follows can still be read from the next seq on. Only what is listed in `lost` since
the segment was opened is passed over when messages are read in sequence.

Rules: nothing is ever written; any thread may read. Seqs that were removed before the segment was written
are simply not in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final

from edged.core.code_twins import running_sums
from edged.core.message import Message
from edged.core.runs import SubjectColumns
from edged.store.block_cache import COLUMNS, BlockCache
from edged.store.box import Keyring
from edged.store.errors import Damaged, is_damage
from edged.store.files import File, Files
from edged.store.segment_check import Problem, Progress, check
from edged.store.segment_columns import (
    Block,
    Column,
    Seqs,
    SubjectSummary,
    summaries_of,
    unpack_column,
    unpack_seqs,
    unpack_subject_table,
)
from edged.store.segment_footer import BlockEntry, BlockTable, Span
from edged.store.segment_format import (
    CODES,
    EXPIRIES,
    SEQS,
    SIZES,
    SUBJECTS,
    MessagesLost,
    Prelude,
    segment_name,
)
from edged.store.segment_rebuild import (
    Contents,
    Lost,
    Recount,
    block_of,
    check_block,
    column_of,
    read_block,
    read_contents,
    rebuilt_contents,
    unpack_expiries,
)
from edged.store.segment_sections import SectionFile
from edged.store.segment_writer import ROW_BYTES, Expiry

_REASON_BYTES: Final = 200  # about what a reason takes in the cache


class Segment:
    """One segment; see the module for the rules."""

    __slots__ = (
        *("_cache", "_contents", "_expires_ns", "_owner", "_recounted", "_sections", "_table"),
        *("count", "file_bytes", "first_seq", "first_ts_ns", "label", "last_seq", "last_ts_ns"),
        *("message_bytes", "path", "repaired_offsets"),
    )

    def __init__(
        self,
        sections: SectionFile,
        contents: Contents,
        cache: BlockCache,
        file_bytes: int,
        expires_ns: Expiry | None,
    ) -> None:
        whole = contents.whole
        self._sections = sections
        self._contents = contents
        self._table = contents.table
        self._cache = cache
        self._owner = cache.new_owner()
        self._expires_ns = expires_ns
        self._recounted: dict[int, bytes] | None = None
        self.path = sections.path
        self.count = whole.message_count
        self.file_bytes = file_bytes
        self.message_bytes = whole.message_bytes
        self.first_seq = whole.first_seq
        self.last_seq = whole.last_seq
        self.first_ts_ns = whole.first_ts_ns
        self.last_ts_ns = whole.last_ts_ns
        self.label = whole.label  # which key it is sealed with; `Keyring.is_current` understands it
        self.repaired_offsets: set[int] = set()  # of sections that had to be repaired when they were read

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        cache: BlockCache,
        keys: Keyring | None = None,
        expires_ns: Expiry | None = None,
        any_name: bool = False,
    ) -> Segment:
        """Open the segment at `path`; Damaged if nothing of it can be read, NotThisSegment if it is another.

        `expires_ns` computes the expiries again should their column be lost. `any_name` is for files that
        were put aside under another name.
        """
        name = None if any_name else segment_name(path)
        if name is None and not any_name:
            raise Damaged("not the name of a segment", path)
        sections = SectionFile(files, path, keys)
        contents = read_contents(sections, name, expires_ns)
        with sections.opened() as file:
            file_bytes = file.size()
        return cls(sections, contents, cache, file_bytes, expires_ns)

    @property
    def lost(self) -> tuple[Lost, ...]:
        """What is known to be missing since the segment had to be rebuilt when it was opened."""
        return self._contents.lost

    @property
    def is_rebuilt(self) -> bool:
        """Whether the footer was lost; the segment should be written anew."""
        return self._contents.footer is None

    def rebuilt(self) -> Segment:
        """The same file by its blocks alone, for when its columns are beyond repair. Raises Damaged."""
        contents = rebuilt_contents(self._sections, self._contents, self._expires_ns)
        return Segment(self._sections, contents, self._cache, self.file_bytes, self._expires_ns)

    def forget(self) -> None:
        """Leave the cache to others; for a segment that is no longer in use."""
        self._cache.drop(self._owner)

    def verify(self, progress: Progress | None = None) -> list[Problem]:
        """Read every byte, past the cache, and say what is wrong."""
        return check(self._sections, self._contents, progress)

    # --- messages ---

    def get(self, seq: int) -> Message | None:
        """The message, or None if it never was in the segment; MessagesLost if it may have been."""
        position = bisect_right(self._table.first_seqs, seq) - 1
        if position < 0 or seq > self._table.last_seqs[position]:
            self._check_lost(seq)
            return None
        try:
            block = self._block(position)
        except MessagesLost:
            if self._may_hold(seq):
                raise
            return None
        found = _find(block.seqs, seq)
        return block.message(found) if found is not None else None

    def messages(self, from_seq: int = 0) -> Iterator[Message]:
        """All messages from a seq on. At a block beyond repair MessagesLost is raised; go on after it."""
        for position in range(self._block_at(from_seq), len(self._table)):
            block = self._block(position)
            yield from block.messages(bisect_left(block.seqs, from_seq), len(block.seqs))

    def read(self, seqs: Sequence[int]) -> list[Message]:
        """The messages with these seqs, which grow; those that cannot be read are left out."""
        table = self._table
        messages: list[Message] = []
        start = 0
        while start < len(seqs):
            position = bisect_left(table.last_seqs, seqs[start])
            if position == len(table):
                break
            # All that are in one block, which is decoded once; or between two blocks, and there is nothing.
            end = bisect_right(seqs, table.last_seqs[position], start)
            with suppress(MessagesLost):
                messages += self._block(position).some_messages(seqs[start:end])
            start = end
        return messages

    def read_batch(self, from_seq: int, max_bytes: int) -> list[Message]:
        """Messages from a seq on, with at most `max_bytes` of data unless the first alone has more.

        Empty at the end. At a block beyond repair the batch ends before it, or MessagesLost is raised if
        nothing comes before it; go on after it.
        """
        batch: list[Message] = []
        for position in range(self._block_at(from_seq), len(self._table)):
            try:
                block = self._block(position)
            except MessagesLost:
                if batch:
                    return batch
                raise
            start = bisect_left(block.seqs, from_seq)
            end = bisect_right(block.bounds, block.bounds[start] + max_bytes) - 1
            if not batch:
                end = max(end, start + 1)
            batch += block.messages(start, end)
            # Messages without data take memory too.
            max_bytes -= max(block.bounds[end] - block.bounds[start], ROW_BYTES * (end - start))
            if end < len(block.seqs) or max_bytes <= 0:
                break
        return batch

    def seq_at_time(self, ts_ns: int) -> int:
        """The first seq whose message is from `ts_ns` or later and readable; one past the last if none is."""
        for position in range(bisect_left(self._table.times_ns_so_far, ts_ns), len(self._table)):
            if self._table.max_times_ns[position] < ts_ns:
                continue
            try:
                block = self._block(position)
            except MessagesLost:
                continue
            for seq, time_ns in zip(block.seqs, block.times_ns, strict=True):
                if time_ns >= ts_ns:
                    return seq
        return self.last_seq + 1

    # --- blocks ---

    @property
    def table(self) -> BlockTable:
        """Its blocks."""
        return self._table

    def messages_of_block(self, position: int) -> list[Message]:
        """All messages of a block; MessagesLost if it is beyond repair."""
        block = self._block(position)
        return block.messages(0, len(block.seqs))

    def opened(self) -> AbstractContextManager[File]:
        """The open file, for packed_block()."""
        return self._sections.opened()

    def packed_block(self, file: File, position: int) -> tuple[Prelude, bytes]:
        """The figures of a block, and what is in it, compressed; MessagesLost if it is beyond repair."""
        entry = self._table.entry(position)
        try:
            section = self._sections.section(file, Span(entry.offset, entry.size))
            check_block(self._sections, section, entry, self._contents.whole)
            return section.prelude, self._sections.body(section)
        except Damaged as error:
            raise _lost(entry, error.what, self.path) from error

    # --- columns ---

    def subject_columns(self) -> SubjectColumns:
        """All subjects; the position of each is its code. Not kept, because a log asks once."""
        return unpack_subject_table(self._column(SUBJECTS), self.first_seq)

    @property
    def subjects(self) -> list[SubjectSummary]:
        """All subjects, one by one; the position of each is its code."""
        return list(summaries_of(self.subject_columns()))

    def columns(self) -> tuple[Column | None, Column]:
        """How far each seq is from the first, or None where none is missing, and the codes of the subjects.

        These and the sizes are not kept here, because a log keeps them.
        """
        offsets = None
        if self.last_seq - self.first_seq != self.count - 1:
            distances = self._unsigned(SEQS, self.count - 1)
            if sum(distances) != self.last_seq - self.first_seq:
                raise Damaged("a column contradicts the footer", self.path)
            offsets = running_sums(distances)
        return offsets, self._unsigned(CODES, self.count)

    def sizes(self) -> Column:
        """How many bytes each message counts for."""
        return self._unsigned(SIZES, self.count)

    def codes(self) -> tuple[Seqs, Column]:
        """All seqs, and beside them the codes of their subjects."""
        return self._seqs(), self._numbers(CODES)

    def expiries(self) -> tuple[Column, Column]:
        """The seqs of messages that expire, and beside them when; Damaged if that is lost."""
        return unpack_expiries(self._column(EXPIRIES))

    def subject_code(self, seq: int) -> int | None:
        """The code of a message's subject, or None if it is not in the segment."""
        position = self._position(seq)
        return self._numbers(CODES)[position] if position is not None else None

    def size_of(self, seq: int) -> int | None:
        """How many bytes a message counts for, or None if it is not in the segment."""
        position = self._position(seq)
        return self._numbers(SIZES)[position] if position is not None else None

    # --- inside ---

    def _block_at(self, seq: int) -> int:
        """The position of the first block that has something at `seq` or after it."""
        return bisect_left(self._table.last_seqs, seq)

    def _block(self, position: int) -> Block:
        key = self._owner, position
        block: Block | str | None = self._cache.get(key)
        if isinstance(block, Block):
            return block
        entry = self._table.entry(position)
        if block is not None:
            raise _lost(entry, block, self.path)
        try:
            with self._sections.opened() as file:
                section = self._sections.section(file, Span(entry.offset, entry.size))
            block = block_of(self._sections, section, entry, self._contents.whole)
        except Damaged as error:
            # To try in vain costs much more than to read a good block, so the reason is kept in its place.
            if is_damage(error):
                self._cache.put(key, error.what, _REASON_BYTES)
            self._cache.note_damage(self.path, position)
            raise _lost(entry, error.what, self.path, error.may_pass) from error
        if section.repaired:
            self.repaired_offsets.add(entry.offset)
        self._cache.put(key, block, block.memory_bytes)
        return block

    def _position(self, seq: int) -> int | None:
        position = _find(self._seqs(), seq)
        if position is None:
            self._check_lost(seq)
        return position

    def _seqs(self) -> Seqs:
        if self.last_seq - self.first_seq == self.count - 1:
            return range(self.first_seq, self.last_seq + 1)
        seqs: Seqs | None = self._cache.get((self._owner, "seqs"))
        if seqs is None:
            seqs, _ = unpack_seqs(self._column(SEQS), 0, self.first_seq, self.count)
            self._cache.put((self._owner, "seqs"), seqs, 8 * len(seqs))
        return seqs

    def _numbers(self, kind: int) -> Column:
        key = self._owner, -kind
        column: Column | None = self._cache.get(key)
        if column is None:
            column, _ = unpack_column(self._column(kind), 0)
            self._cache.put(key, column, len(column) * column.itemsize)
        return column

    def _unsigned(self, kind: int, count: int) -> Column:
        column, _ = unpack_column(self._column(kind), 0)
        if len(column) != count or column.typecode == "q":
            raise Damaged("a column contradicts the footer", self.path)
        return column

    def _column(self, kind: int) -> bytes:
        """The raw bytes of a column, made again from the blocks if its section is beyond repair."""
        if self._recounted is not None and kind in self._recounted:
            return self._recounted[kind]
        column = self._contents.columns.get(kind)
        if column is None:
            raise Damaged("when messages expire cannot be read", self.path)
        if isinstance(column, bytes):
            return column
        reason: str | None = self._cache.get((self._owner, column))
        if reason is not None:
            raise Damaged(reason, self.path, column.offset)
        try:
            return self._read_column(kind, column)
        except Damaged as error:
            # As with blocks, a vain attempt is not repeated all the time.
            if is_damage(error):
                self._cache.put((self._owner, column), error.what, _REASON_BYTES)
            if kind != EXPIRIES:
                self._cache.note_damage(self.path, COLUMNS)
            raise

    def _read_column(self, kind: int, span: Span) -> bytes:
        try:
            with self._sections.opened() as file:
                section = self._sections.section(file, span)
            raw = column_of(self._sections, section, kind, self._contents.whole)
        except Damaged as error:
            # From the same blocks come the same columns; if a block is lost as well, this raises Damaged too.
            recounted = self._recount(error.may_pass)
            if kind not in recounted:
                raise
            self._recounted = recounted
            self.repaired_offsets.add(span.offset)
            return recounted[kind]
        if section.repaired:
            self.repaired_offsets.add(span.offset)
        return raw

    def _recount(self, may_pass: bool) -> dict[int, bytes]:
        """The raw columns from the blocks. `may_pass`: what asks for that may be readable another time."""
        recount = Recount(self._expires_ns)
        with self._sections.opened() as file:
            for entry in self._table.entries():
                try:
                    recount.add(read_block(self._sections, file, entry, self._contents.whole))
                except Damaged as error:
                    error.may_pass = error.may_pass or may_pass
                    raise
        return recount.columns()

    def _may_hold(self, seq: int) -> bool:
        try:
            return self._position(seq) is not None
        except Damaged:
            return True

    def _check_lost(self, seq: int) -> None:
        """Raise MessagesLost if a missing block may have held this message."""
        for lost in self._contents.lost:
            if lost.first_seq <= seq and (lost.last_seq is None or seq <= lost.last_seq):
                raise MessagesLost(
                    lost.first_seq,
                    lost.last_seq if lost.last_seq is not None else seq,
                    lost.reason,
                    self.path,
                    0,
                )


def _lost(entry: BlockEntry, why: str, path: str, may_pass: bool = False) -> MessagesLost:
    lost = MessagesLost(entry.first_seq, entry.last_seq, why, path, entry.offset)
    lost.may_pass = may_pass
    return lost


def _find(seqs: Seqs, seq: int) -> int | None:
    """The position of a seq."""
    if isinstance(seqs, range):
        return seq - seqs.start if seq in seqs else None
    position = bisect_left(seqs, seq)
    return position if position < len(seqs) and seqs[position] == seq else None
