"""The log as the core sees it: which term each entry has, how large it is, where the members changed.

Rules: the commands are elsewhere. Memory is O(terms + changes + bytes / MARK_BYTES), not O(entries).
Invariants: base_index <= stable <= last; base_index <= commit <= last; terms never fall; nothing that is
committed is ever cut off.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

from hub.raft.members import Members, Rescue
from hub.raft.messages import Block

MARK_BYTES: Final = 16 * 1024
"""How exactly sizes are known."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log as it was found after a start. `base` is the entry before the first one, whose state is there."""

    base_index: int
    base_term: int
    members: Members
    blocks: tuple[Block, ...] = ()
    # Applied entries were committed.
    applied: int = 0


class Log:
    """Terms, sizes and members by index."""

    def __init__(self, recovered: Recovered, mark_bytes: int = MARK_BYTES) -> None:
        self._mark_bytes = mark_bytes
        self.base_index = recovered.base_index
        self.base_term = recovered.base_term
        self.last = recovered.base_index
        # Everything up to here is durable on this node.
        self.stable = recovered.base_index
        self.commit = recovered.base_index
        # Where each term begins, and which it is.
        self._starts: list[int] = []
        self._terms: list[int] = []
        # The entries that say who the members are; before the first one those of the base.
        self._change_indexes: list[int] = []
        self._changes: list[Members] = []
        self._base_members = recovered.members
        # Up to the entry at _marks[i] the log has _sizes[i] bytes.
        self._marks: list[int] = []
        self._sizes: list[int] = []
        self._size = 0
        # The bytes of what was forgotten.
        self._forgotten_size = 0
        # How many voters are enough at most; None: a majority, as it should be.
        self.quorum_max: int | None = None
        for block in recovered.blocks:
            self.append(block)
        self.stable = self.last
        self.commit = max(self.base_index, recovered.applied)
        assert self.commit <= self.last, (self.commit, self.last)

    # --- reading ---

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self._terms[-1] if self._terms else self.base_term

    @property
    def members(self) -> Members:
        """The members by the last entry that names them, committed or not (paper, 6)."""
        return self._changes[-1] if self._changes else self._base_members

    @property
    def quorum(self) -> Members | Rescue:
        """Who decides."""
        return self.members if self.quorum_max is None else Rescue(self.members, self.quorum_max)

    @property
    def change_index(self) -> int:
        """Where the members were named last."""
        return self._change_indexes[-1] if self._change_indexes else self.base_index

    @property
    def possible_members(self) -> list[Members]:
        """The members that are committed, and all that may still become so."""
        known = bisect_right(self._change_indexes, self.commit)
        committed = self._changes[known - 1] if known else self._base_members
        return [committed, *self._changes[known:]]

    def members_at(self, index: int) -> Members:
        """The members by the entries up to this one."""
        assert self.base_index <= index <= self.last, (self.base_index, index, self.last)
        known = bisect_right(self._change_indexes, index)
        return self._changes[known - 1] if known else self._base_members

    def term(self, index: int) -> int | None:
        """The term of an entry; None if it is not known, as it is not there or not there any more."""
        if index == self.base_index:
            return self.base_term
        if not self.base_index < index <= self.last:
            return None
        return self._terms[bisect_right(self._starts, index) - 1]

    def is_behind(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends there is at least as complete as this one (paper, 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last)

    def last_not_above(self, index: int, term: int) -> int:
        """The last index up to `index` whose term is at most `term`: where logs may still agree."""
        index = min(index, self.last)
        place = bisect_right(self._starts, index) - 1
        while place >= 0 and self._terms[place] > term:
            index = self._starts[place] - 1
            place -= 1
        return max(index, self.base_index)

    def agrees_to(self, first: int, last: int, term: int) -> int:
        """Up to which of these entries the log has them already, if all of them are of this term."""
        assert self.base_index < first <= last, (self.base_index, first, last)
        if first > self.last:
            return first - 1
        place = bisect_right(self._starts, first) - 1
        if self._terms[place] != term:
            return first - 1
        end = self._starts[place + 1] - 1 if place + 1 < len(self._starts) else self.last
        return min(end, last)

    def take(self, first: int, bytes_max: int) -> tuple[Block, ...]:
        """Entries from `first` on, about this many bytes, at least one; others fill in the payload."""
        assert self.base_index < first <= self.last + 1, (self.base_index, first, self.last)
        blocks: list[Block] = []
        end = self._end_within(first, bytes_max)
        while first <= end:
            place = bisect_right(self._starts, first) - 1
            last = self._starts[place + 1] - 1 if place + 1 < len(self._starts) else self.last
            last = min(last, end)
            change = bisect_left(self._change_indexes, first)
            members = None
            if change < len(self._change_indexes) and self._change_indexes[change] <= last:
                if self._change_indexes[change] == first:
                    members, last = self._changes[change], first
                else:
                    last = self._change_indexes[change] - 1
            size = max(0, self._size_to(last) - self._size_to(first - 1))
            blocks.append(Block(first, last - first + 1, self._terms[place], size, members))
            first = last + 1
        return tuple(blocks)

    def _size_to(self, index: int) -> int:
        """The bytes up to an entry, as exactly as they are known."""
        if index >= self.last:
            return self._size
        place = bisect_right(self._marks, index) - 1
        return self._sizes[place] if place >= 0 else self._forgotten_size

    def _end_within(self, first: int, bytes_max: int) -> int:
        before = self._size_to(first - 1)
        if self._size - before <= bytes_max:
            return self.last
        place = bisect_right(self._sizes, before + bytes_max) - 1
        if place >= 0 and self._marks[place] >= first:
            return self._marks[place]
        # Not even the next mark is within reach.
        place = bisect_left(self._marks, first)
        return self._marks[place] if place < len(self._marks) else self.last

    # --- changing ---

    def append(self, block: Block) -> None:
        """Put entries behind the last one."""
        assert block.first == self.last + 1, (block, self.last)
        assert block.count > 0, block
        assert block.term >= self.last_term, (block, self.last_term)
        if block.term != self.last_term or not self._terms:
            self._starts.append(block.first)
            self._terms.append(block.term)
        if block.members is not None:
            assert block.count == 1, block
            self._change_indexes.append(block.first)
            self._changes.append(block.members)
        self.last = block.last
        self._size += block.size
        if self._size - (self._sizes[-1] if self._sizes else self._forgotten_size) >= self._mark_bytes:
            self._marks.append(self.last)
            self._sizes.append(self._size)

    def truncate(self, index: int) -> None:
        """Cut off the entry at `index` and all behind it."""
        assert self.commit < index <= self.last, (self.commit, index, self.last)
        self.last = index - 1
        self.stable = min(self.stable, self.last)
        for starts, values in ((self._starts, self._terms), (self._change_indexes, self._changes)):
            place = bisect_left(starts, index)
            del starts[place:], values[place:]
        place = bisect_left(self._marks, index)
        del self._marks[place:], self._sizes[place:]
        self._size = self._sizes[-1] if self._sizes else self._forgotten_size

    def forget(self, index: int) -> None:
        """Entries up to `index` are applied, and their state is kept in another way."""
        assert self.base_index <= index <= self.commit, (self.base_index, index, self.commit)
        term = self.term(index)
        assert term is not None, index
        self._base_members = self.members_at(index)
        self.base_index, self.base_term = index, term
        self.stable = max(self.stable, index)
        place = bisect_right(self._starts, index) - 1
        if place >= 0:
            del self._starts[:place], self._terms[:place]
            self._starts[0] = index + 1
            if index == self.last:
                self._starts.clear()
                self._terms.clear()
            elif len(self._starts) > 1 and self._starts[1] == index + 1:
                del self._starts[0], self._terms[0]
        place = bisect_right(self._change_indexes, index)
        del self._change_indexes[:place], self._changes[:place]
        place = bisect_right(self._marks, index)
        if place:
            self._forgotten_size = self._sizes[place - 1]
            del self._marks[:place], self._sizes[:place]

    def reset(self, index: int, term: int, members: Members) -> None:
        """A snapshot takes the place of everything."""
        assert index > self.commit, (index, self.commit)
        self.base_index = self.last = self.stable = self.commit = index
        self.base_term = term
        self._base_members = members
        for entries in (
            self._starts,
            self._terms,
            self._change_indexes,
            self._changes,
            self._marks,
            self._sizes,
        ):
            entries.clear()
        self._size = self._forgotten_size = 0
