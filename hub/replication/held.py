"""Entries that are in the journal, or on their way there, and not applied yet.

Rules: what this node proposed has somebody who waits for it; what came from others is frames. An entry may be
in the journal twice, when a new file was begun: the later place counts once it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from edged.core.frames import MEMBERS
from edged.core.replica_records import MembersRecord
from edged.store.batch import Appends, Change
from edged.store.errors import LeadershipLost, StoreBroken, StoreError
from edged.store.journal import Position
from edged.store.stretch import Stretch
from hub.replication.places import walk
from hub.replication.records import record_of

if TYPE_CHECKING:
    from edged.store.batch import Batch
    from edged.store.store import Store
    from hub.raft.log import Log
    from hub.replication.places import Places

# A command or messages of this node, entries as frames, or an entry that names members.
Content = Appends | Change | Stretch | MembersRecord


class Held:
    """Entries that lie next to each other, between `start` and `end` of a batch, or of a journal file."""

    __slots__ = ("again", "batch", "content", "end", "file", "first", "last", "start")

    def __init__(
        self,
        first: int,
        last: int,
        content: Content,
        batch: Batch | None,
        start: int,
        end: int,
        file: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.content = content
        # Without a batch they were found at the start, at offsets of this file.
        self.batch = batch
        self.start = start
        self.end = end
        self.file = file
        # Batches on their way that begin a new file: where in each they are as well, and how.
        self.again: list[tuple[Batch, int, int, Content]] = []

    @property
    def names_members(self) -> bool:
        """Whether it is an entry that names members."""
        return isinstance(self.content, MembersRecord)

    @property
    def size(self) -> int:
        """Of its frames."""
        return self.end - self.start

    @property
    def place(self) -> Position:
        """Where the first frame is in the journal, once it is durable."""
        if self.batch is None:
            return Position(self.file, self.start)
        position = self.batch.position
        return Position(position.file, position.offset + self.start)

    def write_again(self, batch: Batch, group: int, tag_bytes: int) -> None:
        """Put it into a batch that begins a file as well."""
        content, start = self.content, len(batch.buffer)
        if isinstance(content, MembersRecord):
            add_members(batch, group, self.first, content)
        elif isinstance(content, Stretch):
            start, content = content.place(batch.buffer, tag_bytes)
        else:
            assert self.batch is not None
            batch.buffer.add_raw(self.batch.buffer.bytes_at(self.start, self.size))
        self.again.append((batch, start, len(batch.buffer), content))

    def move(self, batch: Batch) -> bool:
        """A batch is durable; True if this is there from now on."""
        if not self.again or self.again[0][0] is not batch:
            return False
        self.batch, self.start, self.end, self.content = self.again.pop(0)
        return True

    def stretch(self, group: int, tag_bytes: int) -> Stretch:
        """Its frames; not for an entry that names members."""
        if isinstance(self.content, Stretch):
            return self.content
        assert self.batch is not None and not isinstance(self.content, MembersRecord), self.content
        data = self.batch.buffer.bytes_at(self.start, self.size)
        return framed(data, group, self.first, self.last, tag_bytes)

    def tell(self, error: StoreError) -> None:
        """Whoever waits is told why there is no outcome."""
        if isinstance(self.content, Appends | Change):
            self.content.done(error)

    def give_up(self, group: int, tag_bytes: int, error: StoreError) -> None:
        """Nobody waits any more; what it is stays."""
        content = self.content
        if isinstance(content, Appends | Change):
            self.content = self.stretch(group, tag_bytes)
            self.again = [(batch, start, end, self.content) for batch, start, end, _ in self.again]
            content.done(error)

    def part(self, first: int, last: int) -> Held:
        """Some of its entries. It is a stretch."""
        assert isinstance(self.content, Stretch), self.content
        part = self.content.between(first, last)
        start = self.start + part.offset - self.content.offset
        found = Held(first, last, part, self.batch, start, start + part.end - part.offset, self.file)
        for batch, again, _, content in self.again:
            assert isinstance(content, Stretch), content
            moved = content.between(first, last)
            moved_to = again + moved.offset - content.offset
            found.again.append((batch, moved_to, moved_to + moved.end - moved.offset, moved))
        return found

    def apply(self, store: Store, group: int) -> None:
        """Apply it, and tell whoever waits. It is committed and durable, and all before it is applied."""
        content, place = self.content, self.place
        target = store.groups[group]
        if isinstance(content, MembersRecord):
            store.pass_over(target, self.last)
        elif isinstance(content, Stretch):
            store.apply_frames(target, content, Position(place.file, place.offset - content.offset))
        elif isinstance(content, Change):
            content.done(store.apply(content, place))
        else:
            start = Position(place.file, place.offset - content.offsets[0])
            content.done(store.apply(content, start))


def add_members(batch: Batch, group: int, index: int, record: MembersRecord) -> None:
    """Write an entry that names members, twice: nobody could do without it."""
    body = record.encode()
    for _ in range(2):
        batch.buffer.add(MEMBERS, group, index, body)


def held_again(log: Log, places: Places, first: int, last: int) -> Iterator[Held]:
    """Entries of a log, read from the journal. Raises StoreBroken."""
    while first <= last:
        block = log.take(first, 1)[0]
        end = min(block.last, last)
        if block.members is not None:
            yield Held(first, end, record_of(block.members, block.term), None, 0, 0)
        else:
            found = places.stretches(first, end)
            if found is None:
                raise StoreBroken(f"entries {first} to {end} of a group cannot be read")
            for file, origin, stretch in found:
                start, stop = origin + stretch.offset, origin + stretch.end
                yield Held(stretch.first, stretch.last, stretch, None, start, stop, file)
        first = end + 1


def tell_lost(lost: Iterable[Held], error: StoreError, sent_to: int) -> None:
    """Entries could not be written here. What became of those that were sent to other nodes nobody knows."""
    for held in lost:
        held.tell(LeadershipLost() if held.first <= sent_to else error)


def framed(data: bytes, group: int, first: int, last: int, tag_bytes: int) -> Stretch:
    """Bytes of a batch that hold these entries and nothing else."""
    if not tag_bytes:
        return Stretch.received(data, group, first, last - first + 1)
    frames = list(walk(data, tag_bytes))
    return Stretch(data, frames, 0, len(frames), first, last, tag_bytes)
