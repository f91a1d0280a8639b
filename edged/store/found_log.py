"""The log of a group that several nodes have, as a replay finds it in the journal.

Rules:
* An entry is applied when a batch record says that it was. What is left at the end of the journal are entries
  of which nobody here knows whether they are committed.
* Entries that come again are the same, written again at the beginning of a file: the last place counts.
  Entries that were cut off come with other content, and a CUT stands between.
* While messages of the group are lost that other nodes may have, nothing is applied: entries wait.
* A log in which something is missing ends there, whatever follows, until the journal says that it went on
  from there. It may lack what this node confirmed to others, which `is_rejoining` says.

Invariant: the blocks follow on each other and on `base_index`; those up to the group's `applied` have no
stretch any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from edged.core.replica_records import RESUMED, HardRecord, MembersRecord
from edged.store.stretch import Stretch, apply_stretch

if TYPE_CHECKING:
    from edged.core.commands import Command
    from edged.store.group import Group

FORGOT_NOTHING: Final = HardRecord()
EXTENT_BYTES: Final = 64 * 1024
"""Applied entries are remembered in pieces of about this size: where in a file they are, and how many."""


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """Entries of one term that lie in one journal file, or one entry that names the members.

    Between `start` and `end` of the file are their frames, and possibly others.
    """

    first: int
    last: int
    term: int
    size: int
    file: int
    start: int
    end: int
    members: MembersRecord | None = None
    stretch: Stretch | None = field(default=None, repr=False)

    def between(self, first: int, last: int) -> FoundBlock:
        """Some of its entries, which are not applied."""
        if (first, last) == (self.first, self.last):
            return self
        assert self.stretch is not None and self.members is None, self
        origin = self.start - self.stretch.offset
        part = self.stretch.between(first, last)
        start, end = origin + part.offset, origin + part.end
        return replace(self, first=first, last=last, size=end - start, start=start, end=end, stretch=part)


class FoundLog:
    """Of one group. `base_*` is the entry before the first one that is kept, whose state is in the group."""

    __slots__ = (*("base_index", "base_members", "base_term", "blocks", "group", "hard", "is_broken"),)

    def __init__(
        self,
        group: Group,
        members: MembersRecord,
        hard: HardRecord = FORGOT_NOTHING,
        base_index: int = 0,
        base_term: int = 0,
    ) -> None:
        self.group = group
        self.hard = hard
        self.base_index = base_index
        self.base_term = base_term
        self.base_members = members
        self.blocks: list[FoundBlock] = []
        # Something is missing behind the last entry.
        self.is_broken = False

    @classmethod
    def restored(cls, group: Group, saved: list[Any]) -> FoundLog:
        """From a checkpoint, see saved()."""
        _, hard, base_term, members = saved
        return cls(group, MembersRecord.of_list(members), HardRecord(*hard), group.applied, base_term)

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.blocks[-1].last if self.blocks else self.base_index

    def term_at(self, index: int) -> int:
        """The term of an entry, or of the one that would follow on the last."""
        for block in reversed(self.blocks):
            if block.first <= index:
                return block.term
        return self.base_term

    def members_at(self, index: int) -> MembersRecord:
        """The members by the entries up to this one."""
        for block in reversed(self.blocks):
            if block.first <= index and block.members is not None:
                return block.members
        return self.base_members

    # --- what the journal says ---

    def take_hard(self, record: HardRecord) -> None:
        """A hard state. While something is missing nobody is believed that nothing is."""
        self.hard = replace(record, is_rejoining=record.is_rejoining or self.is_broken)

    def cut(self, index: int, body: bytes = b"") -> None:
        """Entries from this index on are void."""
        if body == RESUMED:
            self.is_broken = False
            index = max(index, self.group.applied + 1)
        if self.is_broken:
            return
        if index <= self.group.applied:
            self.stop()
            return
        while self.blocks and self.blocks[-1].last >= index:
            block = self.blocks.pop()
            if block.first < index:
                self.blocks.append(block.between(block.first, index - 1))

    def take_members(self, index: int, record: MembersRecord, file: int, start: int, end: int) -> None:
        """An entry that names the members."""
        if index == 0:
            if not self.last:
                self.base_members = record
            return
        self._take(FoundBlock(index, index, record.term, end - start, file, start, end, record))

    def take_stretch(self, stretch: Stretch, file: int) -> None:
        """Other entries; `stretch` is of the file from its beginning."""
        start, end = stretch.offset, stretch.end
        term = self.term_at(stretch.first)
        block = FoundBlock(stretch.first, stretch.last, term, end - start, file, start, end, stretch=stretch)
        self._take(block)

    def _take(self, block: FoundBlock) -> None:
        applied = self.group.applied
        if self.is_broken or block.last <= applied:
            return
        if block.first > self.last + 1:
            self.stop()
            return
        if block.first <= applied:
            block = block.between(applied + 1, block.last)
        behind: list[FoundBlock] = []
        while self.blocks and self.blocks[-1].last >= block.first:
            old = self.blocks.pop()
            if old.last > block.last:
                behind.insert(0, old.between(max(old.first, block.last + 1), old.last))
            if old.first < block.first:
                self.blocks.append(old.between(old.first, block.first - 1))
                break
        self.blocks += [block, *behind]

    def stop(self) -> None:
        """Something is missing: the log ends with what is applied, and nobody is to rely on this node."""
        self.is_broken = True
        self.hard = replace(self.hard, is_rejoining=True)
        while self.blocks and self.blocks[-1].last > self.group.applied:
            block = self.blocks.pop()
            if block.first <= self.group.applied:
                self.blocks.append(block.between(block.first, self.group.applied))

    def reset(self, index: int, term: int, members: MembersRecord) -> None:
        """A state takes the place of the log, which is complete again."""
        self.base_index, self.base_term, self.base_members = index, term, members
        self.blocks.clear()
        self.is_broken = False

    def apply(self, index: int, change: Callable[[Group, Command], object]) -> None:
        """The entries up to here were applied once, and are so again."""
        group = self.group
        if self.is_broken or index <= group.applied:
            return
        if index > self.last:
            self.stop()
            return
        if group.lacks_messages:
            # What is decided with a hole may come out differently than on the other nodes.
            return
        waiting: list[FoundBlock] = []
        while self.blocks and self.blocks[-1].last > group.applied:
            waiting.append(self.blocks.pop())
        while waiting and waiting[-1].first <= index:
            block = waiting.pop()
            if block.last > index:
                waiting.append(block.between(index + 1, block.last))
                block = block.between(block.first, index)
            if block.stretch is not None:
                origin = block.start - block.stretch.offset
                apply_stretch(group, block.stretch, block.file, origin, change)
            group.applied = block.last
            self._keep_applied(replace(block, stretch=None))
        self.blocks += reversed(waiting)

    def _keep_applied(self, block: FoundBlock) -> None:
        before = self.blocks[-1] if self.blocks else None
        if (
            before is not None
            and before.members is None
            and block.members is None
            and (before.term, before.file) == (block.term, block.file)
            and before.end <= block.start
            and block.end - before.start <= EXTENT_BYTES
        ):
            size = before.size + block.size
            self.blocks[-1] = replace(before, last=block.last, size=size, end=block.end)
        else:
            self.blocks.append(block)

    def let_go(self) -> None:
        """Let go of the bytes of the journal, but for those of entries that are not applied."""
        for place, block in enumerate(self.blocks):
            found = block.stretch
            if found is not None and len(found.data) != found.end - found.offset:
                self.blocks[place] = replace(block, stretch=found.owned())

    def finish(self) -> None:
        """At the end of the journal."""
        self.let_go()
        self.group.next_index = self.last + 1
