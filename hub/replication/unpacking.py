"""From the bytes of a snapshot to a state whose messages are in segments of this node.

What the sender cannot read is taken from this node's own log where that has it: an entry that is applied
somewhere is applied everywhere, so a message with the same seq is the same message. What neither has is lost
here, and the other nodes are asked for it.

Rules:
* A snapshot speaks of an entry behind all that this node has applied. So a message of this node is taken only
  where the snapshot says that there is one: by its seq, or by the number of messages that a range of lost
  seqs had. Otherwise it may have been deleted meanwhile.
* What nobody has any more (NOWHERE) stays lost: the group went on without it.
* A step takes as long as a block of a segment; between two of them others have their turn.
* Nothing counts before all of it is durable and open: who installs the state cannot fail.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from heapq import merge
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgpack

from edged.core.expiry import message_expires_ns
from edged.core.message import Message, counted_bytes
from edged.store.errors import Damaged, is_damage
from edged.store.group import CATALOG
from edged.store.install import GENERATION_MIN, GENERATIONS, GroupState, Prepared, prepare
from edged.store.losses import NOWHERE
from edged.store.message_index import LostRange
from edged.store.segment import Segment
from edged.store.segment_format import segment_path
from edged.store.segment_writer import Draft, blocks_of, finish_drafts, sync_names
from edged.store.stream_log import UNREADABLE, StreamLog, joined, moved_snapshot

if TYPE_CHECKING:
    from edged.store.files import File, Files
    from edged.store.store import Store

SIZE: Final = struct.Struct("<I")
_READ_BYTES: Final = 256 * 1024
# A sync takes no longer than for so many blocks.
_BLOCKS_SYNCED: Final = 64


def packed_head(state: GroupState, sizes: list[int]) -> bytes:
    """What a snapshot begins with: the state of the group, and the sizes of the segments that follow."""
    body: bytes = msgpack.packb([state.encode(), sizes])
    return SIZE.pack(len(body)) + body


class Unpacking:
    """Of one snapshot of a group, from a file at `path`."""

    def __init__(self, store: Store, group: int, path: str, draw: Callable[[int, int], int]) -> None:
        self._store = store
        self._group = group
        self._path = path
        self._draw = draw
        # The segments that were written, and the state when all is there.
        self.segments: list[str] = []
        self.prepared: Prepared | None = None
        # What of the lost messages was found here.
        self._found: list[range] = []

    def steps(self) -> Generator[None]:
        """Do it, one step at a time. Raises OSError, StoreError, and ValueError for what is no snapshot."""
        store = self._store
        file = store.files.open(self._path)
        try:
            (size,) = SIZE.unpack(file.read_at(0, SIZE.size))
            body, sizes = msgpack.unpackb(file.read_at(SIZE.size, size))
            state = GroupState.decode(body)
            log = state.log
            if (self._group == CATALOG) != (log is None) or len(sizes) != len(log["segments"] if log else ()):
                raise ValueError("not the snapshot of this group")
            if log is not None:
                kept, start = {**log, "segments": []}, SIZE.size + size
                # What the sender knows to be lost, as far as this node has it.
                listed = self._own_of([LostRange(*one) for one in log["lost"]], log.get("missing", 0))
                for saved, size in zip(log["segments"], sizes, strict=True):
                    copy = _File(store.files, f"{self._path}.seg")
                    try:
                        yield from copy.take(file, start, size)
                        kept = yield from self._take_segment(
                            kept, copy.path, saved, _up_to(listed, saved[1][1])
                        )
                    finally:
                        copy.remove()
                    listed = _behind(listed, saved[1][1])
                    start += size
                if listed:
                    kept = yield from self._write(kept, StreamLog(b"", *self._reads), listed)
                state = replace(state, log=_without(kept, self._found))
        finally:
            file.close()
        self.prepared = prepare(store, self._group, state)

    @property
    def _reads(self) -> tuple[Any, Any]:
        return self._store.reads.read_hot, self._store.reads.decode_frame

    @property
    def _own(self) -> StreamLog:
        """What this node has of the stream."""
        log = self._store.catalog.streams[self._group].log
        assert isinstance(log, StreamLog), self._group
        return log

    def _own_of(self, lost: list[LostRange], missing: int) -> list[range]:
        """Ranges in which every message of this node is one that the sender lost."""
        own = self._own
        ranges = [range(one.first_seq, one.last_seq + 1) for one in lost if one.reason != NOWHERE]
        if not ranges or sum(map(len, ranges)) == missing:
            return ranges
        # Among the seqs are some without a message. It is known which if this node has that many, and all.
        if own.lost or ranges[-1].stop - 1 > own.last_seq:
            return []
        try:
            counts = [own.count_matching((), one.start) - own.count_matching((), one.stop) for one in ranges]
        except Damaged:
            return []
        return ranges if sum(counts) == missing else []

    def _take_segment(
        self, log: dict[str, Any], copy: str, saved: list[Any], listed: list[range]
    ) -> Generator[None, None, dict[str, Any]]:
        """Write what is alive of a segment to one of this node; the log with it."""
        alive = StreamLog.restore(
            {**log, "segments": [[copy, *saved[1:]]], "lost": [], "missing": 0},
            self._opened,
            b"",
            *self._reads,
        )
        # The sender may not know of it yet.
        lost, missing = alive.lost, alive.missing_count
        log = {**log, "lost": [*log["lost"], *map(list, lost)], "missing": log.get("missing", 0) + missing}
        return (yield from self._write(log, alive, [*self._own_of(lost, missing), *listed]))

    def _opened(self, path: str) -> Segment:
        """A segment of the snapshot, of which it is known what is in it. Raises Damaged."""
        segment = Segment.open(self._store.files, path, self._store.cache, any_name=True)
        try:
            segment.columns()
        except Damaged:
            return segment.rebuilt()
        return segment

    def _write(
        self, log: dict[str, Any], alive: StreamLog, listed: list[range]
    ) -> Generator[None, None, dict[str, Any]]:
        """Write the messages of a log, and those of this node in some ranges; the log with that segment."""
        store = self._store
        files, keys = store.files, store.options.keys
        stream_id = store.catalog.streams[self._group].stream_id
        # Another one each time: what an earlier attempt made may be in use.
        generation = GENERATION_MIN + self._draw(0, GENERATIONS)
        path = segment_path(stream_id, min([alive.first_seq, *(one.start for one in listed)]), generation)
        unreadable: list[int] = []
        seqs = merge(_seqs_of(alive), *(_seqs_known(self._own, one) for one in listed))
        draft = Draft.begin(files, path, stream_id, keys, message_expires_ns)
        self.segments.append(path)
        try:
            for count, block in enumerate(blocks_of(self._messages(seqs, alive, unreadable)), 1):
                draft.add(block)
                if count % _BLOCKS_SYNCED == 0:
                    draft.sync()
                yield
            draft.end()
        except BaseException:
            draft.drop()
            raise
        finish_drafts([draft])
        if unreadable:
            lost = joined([LostRange(seq, seq, UNREADABLE) for seq in unreadable])
            missing = log.get("missing", 0) + len(unreadable)
            log = {**log, "lost": [*log["lost"], *map(list, lost)], "missing": missing}
        if not draft.info.count:
            self.segments.pop()
            return log
        sync_names(files, [path])
        new = Segment.open(files, path, store.cache, keys, expires_ns=message_expires_ns)
        return moved_snapshot(log, (), new)

    def _messages(self, seqs: Iterable[int], alive: StreamLog, unreadable: list[int]) -> Iterator[Message]:
        """Messages of a snapshot; those of this node where that has none or it is beyond repair."""
        own = self._own
        before = 0
        for seq in seqs:
            if seq == before:
                continue
            before = seq
            is_there = alive.has(seq)
            message = _message_of(alive, seq)
            if message is None:
                message = _message_of(own, seq)
                if message is None or (is_there and not _is_as_listed(alive, message)):
                    if is_there:
                        unreadable.append(seq)
                    continue
                if not is_there:
                    self._note_found(seq)
            yield message

    def _note_found(self, seq: int) -> None:
        if self._found and self._found[-1].stop == seq:
            self._found[-1] = range(self._found[-1].start, seq + 1)
        else:
            self._found.append(range(seq, seq + 1))


class _File:
    """A file of its own for what is a part of another one."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def take(self, file: File, start: int, size: int) -> Generator[None]:
        """Copy some bytes."""
        self.remove()
        target = self._files.create(self.path)
        try:
            for offset in range(0, size, _READ_BYTES):
                target.write_at(offset, file.read_at(start + offset, min(_READ_BYTES, size - offset)))
                yield
        finally:
            target.close()

    def remove(self) -> None:
        """It is not needed any more; what cannot be removed now goes at the next start."""
        with suppress(OSError):
            self._files.remove(self.path)


def _seqs_of(log: StreamLog, first: int = 0) -> Iterator[int]:
    seq = log.next_matching((), first)
    while seq is not None:
        yield seq
        seq = log.next_matching((), seq + 1)


def _seqs_known(log: StreamLog, within: range) -> Iterator[int]:
    """The seqs of messages between two, as far as the log can tell."""
    with suppress(Damaged):
        yield from takewhile(within.__contains__, _seqs_of(log, within.start))


def _message_of(log: StreamLog, seq: int) -> Message | None:
    """A message; None if there is none, or it is damaged. Raises Damaged if the disk may give it later."""
    try:
        return log.get(seq) if log.has(seq) else None
    except Damaged as error:
        if not is_damage(error):
            raise
        return None


def _is_as_listed(log: StreamLog, message: Message) -> bool:
    """Whether what the index of a log still knows of a message is true of this one."""
    found = counted_bytes(len(message.subject), message.header_bytes, len(message.data))
    with suppress(Damaged):
        return log.bytes_of(message.seq) == found
    return True


def _up_to(ranges: list[range], seq: int) -> list[range]:
    """What of some ranges is not behind a seq."""
    return [range(one.start, min(one.stop, seq + 1)) for one in ranges if one.start <= seq]


def _behind(ranges: list[range], seq: int) -> list[range]:
    """What of some ranges is behind a seq."""
    return [range(max(one.start, seq + 1), one.stop) for one in ranges if one.stop > seq + 1]


def _without(log: dict[str, Any], found: list[range]) -> dict[str, Any]:
    """The log of a snapshot when these seqs of it are not lost any more."""
    lost = [LostRange(*one) for one in log["lost"]]
    for seqs in found:
        lost = [part for one in lost for part in _cut(one, seqs)]
    missing = max(log.get("missing", 0) - sum(map(len, found)), 0)
    return {**log, "lost": sorted(map(list, lost)), "missing": missing}


def _cut(lost: LostRange, seqs: range) -> Iterator[LostRange]:
    """A range without some seqs."""
    if lost.first_seq < seqs.start:
        yield lost._replace(last_seq=min(lost.last_seq, seqs.start - 1))
    if lost.last_seq >= seqs.stop:
        yield lost._replace(first_seq=max(lost.first_seq, seqs.stop))
