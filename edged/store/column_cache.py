"""The columns of segments that were searched last, kept in memory within a number of bytes.

A part of a log holds its columns itself, so that asking costs nothing, and lets go of them when the cache
says so. A part that was asked since it was last considered is passed over once.

Rules: one thread. Invariant: the bytes are those of the parts that hold their columns; unless a part alone
has more, they are at most what was allowed when the last one came.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import Final, Protocol, TypeAlias

from edged.store.code_column import CodeColumn

Column: TypeAlias = "array[int]"
COLUMNS_BYTES_MAX: Final = 8 * 1024 * 1024
# A limit per subject asks about old messages all over a stream. Its subjects take some two hundred bytes each
# anyway, and with these on top the columns need not be read again and again.
COLUMNS_BYTES_PER_SUBJECT: Final = 40


class Columns:
    """What is known of the messages of a segment by position."""

    __slots__ = ("codes", "offsets", "sizes")

    def __init__(self, codes: CodeColumn, offsets: Column | None) -> None:
        self.codes = codes
        # How far each seq is from the first one; None where none is missing.
        self.offsets = offsets
        # What each counts for, once somebody asked.
        self.sizes: Column | None = None

    @property
    def memory_bytes(self) -> int:
        """How much memory they take."""
        others = [column for column in (self.codes.high, self.offsets, self.sizes) if column is not None]
        return len(self.codes.low) + sum(column.itemsize * len(column) for column in others)


class Holder(Protocol):
    """Who holds columns: a part of a log."""

    was_asked: bool

    def let_go(self) -> None: ...


class ColumnCache:
    """Who holds columns, and how many bytes of them. One may serve many logs."""

    __slots__ = ("_bytes_max", "_holders", "bytes")

    def __init__(self, bytes_max: int = COLUMNS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._holders: OrderedDict[Holder, int] = OrderedDict()
        self.bytes = 0

    def hold(self, holder: Holder, size: int, subject_count: int) -> None:
        """A part of a log with so many subjects holds so many bytes of columns now."""
        self.bytes += size - self._holders.pop(holder, 0)
        bytes_max = self._bytes_max + COLUMNS_BYTES_PER_SUBJECT * subject_count
        # Everybody is considered at most twice: those who were asked are not spared a second time.
        while self.bytes > bytes_max and self._holders:
            other, other_size = self._holders.popitem(last=False)
            if other.was_asked:
                other.was_asked = False
                self._holders[other] = other_size
            else:
                other.let_go()
                self.bytes -= other_size
        self._holders[holder] = size

    def forget(self, holder: Holder) -> None:
        """A part is no longer read."""
        self.bytes -= self._holders.pop(holder, 0)
        holder.let_go()
