"""Snapshots of groups: sent to nodes that need more than the journal has, and taken from others.

A snapshot is what the newest checkpoint has of a group, and its segments: a u32 with the size of what
follows, msgpack `[state of the group, sizes of its segments]`, then the bytes of the segments.

Rules:
* Sending reads files that are there anyway; they stay open until the other has all of it. Without a
  checkpoint that will do, one is asked for.
* What arrives goes to a file of its own, without gaps. When all is there its messages are written to
  segments of this node, and only then the core hears of the last part: from then on nothing can fail.
* Both directions are bounded; whoever finds no place waits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgpack

from edged.core.expiry import message_expires_ns
from edged.core.message import Message
from edged.store.box import LABEL_PLAIN
from edged.store.checkpoint import load_newest
from edged.store.errors import StoreError
from edged.store.group import CATALOG
from edged.store.install import GENERATION_MIN, GENERATIONS, GroupState
from edged.store.message_index import LostRange
from edged.store.segment import Segment
from edged.store.segment_format import segment_name, segment_path
from edged.store.segment_writer import write_segment
from edged.store.stream_log import UNREADABLE, StreamLog, joined, moved_snapshot
from hub.limits import SNAPSHOTS_SENT_MAX
from hub.raft.messages import Snapshot, SnapshotPart
from hub.replication.records import members_of

if TYPE_CHECKING:
    from edged.store.files import File
    from hub.raft.members import NodeId
    from hub.replication.replica import Replica
    from hub.replication.replicas import Replicas

DIRECTORY: Final = "snapshots"
IDENTITY_MAX: Final = 2**62
_SIZE: Final = struct.Struct("<I")
_READ_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class _Sent:
    """A snapshot on its way to a node."""

    snapshot: Snapshot
    head: bytes
    files: list[tuple[File, int]]

    def read(self, offset: int, size: int) -> bytes:
        """Some of its bytes. Raises OSError."""
        parts = [self.head[offset : offset + size]]
        size -= len(parts[0])
        offset = max(0, offset - len(self.head))
        for file, file_bytes in self.files:
            if size and offset < file_bytes:
                parts.append(file.read_at(offset, min(size, file_bytes - offset)))
                size -= len(parts[-1])
            offset = max(0, offset - file_bytes)
        return b"".join(parts)

    def close(self) -> None:
        """It is not needed any more."""
        for file, _ in self.files:
            file.close()


@dataclass(slots=True)
class _Taken:
    """A snapshot that arrives, or has: its state then names segments of this node."""

    snapshot: Snapshot
    path: str
    offset: int = 0
    state: GroupState | None = None
    segments: list[str] = field(default_factory=list)


class Snapshots:
    """Those of one node."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._sent: dict[tuple[int, NodeId], _Sent] = {}
        self._wanted: dict[tuple[int, NodeId], None] = {}
        self._taken: dict[int, _Taken] = {}
        # The newest checkpoint, while somebody wants something of it.
        self._checkpoint: dict[str, Any] | None = None
        files = self._store.files
        files.make_directory(DIRECTORY)
        for name in files.list(DIRECTORY):
            files.remove(f"{DIRECTORY}/{name}")

    # --- sending ---

    def want(self, replica: Replica, peer: NodeId) -> None:
        """A node needs a snapshot of a group that this one leads."""
        self._wanted[replica.number, peer] = None
        self._offer_all()

    def checkpointed(self) -> None:
        """There is a new checkpoint."""
        self._checkpoint = None
        self._offer_all()

    def _offer_all(self) -> None:
        self._drop_done()
        for group, peer in list(self._wanted):
            replica = self._replicas.replica(group)
            is_gone = replica is None or peer not in replica.raft.followers
            is_place = len(self._sent) < SNAPSHOTS_SENT_MAX
            if replica is None or is_gone or (is_place and self._offer(replica, peer)):
                del self._wanted[group, peer]
        if not self._wanted:
            self._checkpoint = None

    def _drop_done(self) -> None:
        for (group, peer), sent in list(self._sent.items()):
            replica = self._replicas.replica(group)
            followers = {} if replica is None else replica.raft.followers
            if peer not in followers or followers[peer][0] >= sent.snapshot.index:
                sent.close()
                del self._sent[group, peer]

    def _offer(self, replica: Replica, peer: NodeId) -> bool:
        """Whether there was something to offer. If not, there will be after the next checkpoint."""
        found = None
        if self._checkpoint is None:
            newest, _ = load_newest(self._store.files, lambda one: True, self._store.options.keys)
            self._checkpoint = {} if newest is None else newest.state
        if self._checkpoint:
            found = GroupState.in_checkpoint(self._checkpoint, replica.number)
        if found is None or found[0] < max(replica.raft.log.base_index, 1):
            self._store.want_checkpoint()
            return False
        index, state = found
        try:
            files = self._open(state)
        except (OSError, StoreError):
            self._store.want_checkpoint()
            return False
        body = msgpack.packb([state.encode(), [size for _, size in files]])
        head = _SIZE.pack(len(body)) + body
        size = len(head) + sum(size for _, size in files)
        identity = self._replicas.draw(1, IDENTITY_MAX)
        snapshot = Snapshot(index, state.term, members_of(state.members), size, identity)
        before = self._sent.pop((replica.number, peer), None)
        if before is not None:
            before.close()
        self._sent[replica.number, peer] = _Sent(snapshot, head, files)
        replica.raft.offer_snapshot(peer, snapshot, self._replicas.now_ms())
        self._replicas.touch(replica)
        return True

    def _open(self, state: GroupState) -> list[tuple[File, int]]:
        """The segments of a state, open and not encrypted."""
        store = self._store
        files: list[tuple[File, int]] = []
        for path, *_ in state.log["segments"] if state.log is not None else ():
            segment = Segment.open(store.files, path, store.cache, store.options.keys)
            if segment.label != LABEL_PLAIN:
                path = self._plain_copy(segment)
            file = store.files.open(path)
            files.append((file, file.size()))
            if segment.label != LABEL_PLAIN:
                # It stays readable while it is open.
                store.files.remove(path)
        return files

    def _plain_copy(self, segment: Segment) -> str:
        generation = GENERATION_MIN + self._replicas.draw(0, GENERATIONS)
        name = segment_name(segment.path)
        assert name is not None, segment.path
        path = segment_path(name.stream_id, segment.first_seq, generation)
        messages = _messages_of(segment)
        write_segment(self._store.files, path, name.stream_id, messages, None, message_expires_ns)
        return path

    def read(self, group: int, peer: NodeId, part: SnapshotPart) -> bytes | None:
        """The bytes of a part; None if they cannot be had any more, and the group's core is told."""
        sent = self._sent.get((group, peer))
        if sent is not None and sent.snapshot.identity == part.snapshot.identity:
            with suppress(OSError):
                found = sent.read(part.offset, part.size)
                if len(found) == part.size:
                    return found
            sent.close()
            del self._sent[group, peer]
        replica = self._replicas.replica(group)
        if replica is not None:
            replica.raft.lose_snapshot(part.snapshot)
        return None

    # --- taking ---

    def keep(self, replica: Replica, part: SnapshotPart) -> bool:
        """A part arrived; False if it could not be kept, and has to come again."""
        if part.snapshot.index <= replica.raft.log.commit:
            # It is late: the core needs nothing of it.
            return True
        taken = self._taken.get(replica.number)
        if taken is None or taken.snapshot.identity != part.snapshot.identity:
            self._forget(replica.number)
            name = f"{DIRECTORY}/{replica.number}-{part.snapshot.identity:x}"
            taken = self._taken[replica.number] = _Taken(part.snapshot, name)
        if taken.state is not None:
            return True
        payload = part.payload
        if type(payload) is not bytes or len(payload) != part.size or part.offset > taken.offset:
            return False
        try:
            self._write(taken, part.offset, payload)
            if taken.offset == taken.snapshot.size:
                self._unpack(replica, taken)
        except (OSError, StoreError, ValueError):
            # A full disk, most likely. The part comes again, and with the last one all of it is tried again.
            taken.offset = min(taken.offset, part.offset)
            self._remove(f"{taken.path}.seg", *taken.segments)
            taken.segments.clear()
            return False
        return True

    def _write(self, taken: _Taken, offset: int, payload: bytes) -> None:
        files = self._store.files
        if not taken.offset:
            self._remove(taken.path)
        file = files.open(taken.path) if taken.offset else files.create(taken.path)
        try:
            file.write_at(offset, payload)
        finally:
            file.close()
        taken.offset = max(taken.offset, offset + len(payload))

    def _unpack(self, replica: Replica, taken: _Taken) -> None:
        """Write the messages of a snapshot to segments of this node."""
        store = self._store
        file = store.files.open(taken.path)
        try:
            (size,) = _SIZE.unpack(file.read_at(0, _SIZE.size))
            body, sizes = msgpack.unpackb(file.read_at(_SIZE.size, size))
            state = GroupState.decode(body)
            log, start = state.log, _SIZE.size + size
            is_catalog = replica.number == CATALOG
            if is_catalog != (log is None) or len(sizes) != (0 if log is None else len(log["segments"])):
                raise ValueError("not the snapshot of this group")
            if log is not None:
                stream_id = store.catalog.streams[replica.number].stream_id
                kept = {**log, "segments": []}
                for one, size in zip(log["segments"], sizes, strict=True):
                    kept = self._take_segment(taken, stream_id, kept, one, file, start, size)
                    start += size
                state = replace(state, log=kept)
        finally:
            file.close()
        self._remove(taken.path)
        taken.state = state

    def _take_segment(
        self,
        taken: _Taken,
        stream_id: bytes,
        log: dict[str, Any],
        saved: list[Any],
        file: File,
        start: int,
        size: int,
    ) -> dict[str, Any]:
        """Write what is alive of a segment to one of this node; the log with it."""
        store = self._store
        copy = f"{taken.path}.seg"
        target = store.files.create(copy)
        try:
            for offset in range(0, size, _READ_BYTES):
                target.write_at(offset, file.read_at(start + offset, min(_READ_BYTES, size - offset)))
        finally:
            target.close()
        reads = store.reads
        one = {**log, "segments": [[copy, *saved[1:]]], "lost": [], "missing": 0}
        alive = StreamLog.restore(
            one,
            lambda _: Segment.open(store.files, copy, store.cache, any_name=True),
            stream_id,
            *(reads.read_hot, reads.decode_frame),
        )
        # What the sender cannot read, which it may not know yet, is lost here, too: others are asked for it.
        unreadable: list[int] = []
        # Another one each time: what an earlier attempt made may be in use.
        generation = GENERATION_MIN + self._replicas.draw(0, GENERATIONS)
        path = segment_path(stream_id, saved[1][0], generation)
        keys = store.options.keys
        messages = _alive(alive, unreadable)
        info = write_segment(store.files, path, stream_id, messages, keys, message_expires_ns)
        store.files.remove(copy)
        lost = [*alive.lost, *joined([LostRange(seq, seq, UNREADABLE) for seq in unreadable])]
        # Among the seqs of a range may be some without a message, so they are counted by themselves.
        counted = {**log, "missing": log.get("missing", 0) + alive.missing_count + len(unreadable)}
        log = {**counted, "lost": sorted([*log["lost"], *map(list, lost)])} if lost else log
        if not info.count:
            return log
        taken.segments.append(path)
        new = Segment.open(store.files, path, store.cache, keys, expires_ns=message_expires_ns)
        return moved_snapshot(log, (), new)

    def take(self, group: int, snapshot: Snapshot) -> GroupState:
        """The state of a snapshot of which the core has heard everything."""
        taken = self._taken.pop(group)
        assert taken.snapshot == snapshot and taken.state is not None, (taken, snapshot)
        return taken.state

    def _forget(self, group: int) -> None:
        """Give up what has arrived of a snapshot. What cannot be removed now goes at the next start."""
        taken = self._taken.pop(group, None)
        if taken is not None:
            self._remove(taken.path, *taken.segments)

    def _remove(self, *paths: str) -> None:
        for path in paths:
            with suppress(OSError):
                self._store.files.remove(path)


def _messages_of(segment: Segment) -> Iterator[Message]:
    seq = segment.first_seq
    while batch := segment.read_batch(seq, _READ_BYTES):
        yield from batch
        seq = batch[-1].seq + 1


def _alive(log: StreamLog, unreadable: list[int]) -> Iterator[Message]:
    """The messages of a log; the seqs of those that are beyond repair are added to a list."""
    seq = log.next_matching((), 0)
    while seq is not None:
        message = log.peek(seq)
        if message is not None:
            yield message
        else:
            unreadable.append(seq)
        seq = log.next_matching((), seq + 1)
