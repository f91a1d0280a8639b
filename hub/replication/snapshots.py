"""Snapshots of groups that this node leads, on their way to nodes that need more than the journal has.

A snapshot is what the newest checkpoint has of a group, and its segments: a u32 with the size of what
follows, msgpack `[state of the group, sizes of its segments]`, then the bytes of the segments.

Rules:
* Sending reads files that are there anyway; they stay open until the other has all of it. Without a
  checkpoint that will do, a new one is asked for, not more often than leaders are elected.
* A node that lacks messages, or is not fit to lead for another reason, offers nothing. What it does not know
  to be bad yet goes out as it is: whoever takes it finds out (hub/replication/unpacking.py).
* So many are sent at a time; whoever finds no place waits. One that does not get on gives its place up, and
  one that is asked for anew takes that of the one before.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from edged.core.expiry import message_expires_ns
from edged.core.message import Message
from edged.store.box import LABEL_PLAIN
from edged.store.checkpoint import load_newest
from edged.store.errors import Damaged, StoreBroken, StoreError
from edged.store.install import GENERATION_MIN, GENERATIONS, GroupState
from edged.store.losses import NOWHERE
from edged.store.segment import Segment
from edged.store.segment_format import segment_name, segment_path
from edged.store.segment_writer import write_segment
from hub.limits import SNAPSHOTS_SENT_MAX
from hub.raft.messages import Snapshot, SnapshotPart
from hub.replication.records import members_of
from hub.replication.taking import Taking
from hub.replication.unpacking import packed_head

if TYPE_CHECKING:
    from edged.store.files import File
    from hub.raft.members import NodeId
    from hub.replication.replica import Replica
    from hub.replication.replicas import Replicas

IDENTITY_MAX: Final = 2**62
STUCK_ELECTIONS: Final = 3
"""Who gets no further for so many election timeouts makes room for who waits."""
_SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class _Sent:
    """A snapshot on its way to a node."""

    snapshot: Snapshot
    head: bytes
    # The segments, and how much of each; None for one of which nothing can be read.
    files: list[tuple[File | None, int]]
    # How far it was read, and when that went on last.
    reached: int = 0
    moved_ms: int = 0

    def read(self, offset: int, size: int) -> bytes:
        """Some of its bytes. Raises OSError."""
        parts = [self.head[offset : offset + size]]
        size -= len(parts[0])
        offset = max(0, offset - len(self.head))
        for file, file_bytes in self.files:
            if file is not None and size and offset < file_bytes:
                parts.append(_read(file, offset, min(size, file_bytes - offset)))
                size -= len(parts[-1])
            offset = max(0, offset - file_bytes)
        return b"".join(parts)

    def close(self) -> None:
        """It is not needed any more."""
        _close(self.files)


class Snapshots:
    """Those of one node."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._sent: dict[tuple[int, NodeId], _Sent] = {}
        self._wanted: dict[tuple[int, NodeId], None] = {}
        # What the newest checkpoint says, while somebody wants something of it.
        self._checkpoint: dict[str, Any] | None = None
        self._turn_not_before_ms = 0
        self._look_not_before_ms = 0
        # Those that come from others.
        self.taking = Taking(replicas)

    def want(self, replica: Replica, peer: NodeId) -> None:
        """A node needs a snapshot of a group that this one leads; another one, if it had been offered one."""
        self._drop(replica.number, peer)
        self._wanted[replica.number, peer] = None
        self._offer_all()

    def checkpointed(self) -> None:
        """There is a new checkpoint."""
        self._checkpoint = None
        self._offer_all()
        self.taking.forget_late()

    def tick(self) -> None:
        """Who had to wait may not have to any more."""
        now_ms = self._replicas.now_ms()
        if (self._wanted or self._sent) and now_ms >= self._look_not_before_ms:
            self._look_not_before_ms = now_ms + self._replicas.options.heartbeat_ms
            self._offer_all()

    def _offer_all(self) -> None:
        self._drop_done()
        for group, peer in list(self._wanted):
            replica = self._replicas.replica(group)
            is_gone = replica is None or peer not in replica.raft.followers
            if replica is None or is_gone or (self._has_place() and self._offer(replica, peer)):
                del self._wanted[group, peer]
        if not self._wanted:
            self._checkpoint = None

    def _drop_done(self) -> None:
        for (group, peer), sent in list(self._sent.items()):
            replica = self._replicas.replica(group)
            followers = {} if replica is None else replica.raft.followers
            if peer not in followers or followers[peer][0] >= sent.snapshot.index:
                self._drop(group, peer)

    def _drop(self, group: int, peer: NodeId) -> Snapshot | None:
        sent = self._sent.pop((group, peer), None)
        if sent is None:
            return None
        sent.close()
        return sent.snapshot

    def _has_place(self) -> bool:
        """Whether another one may be sent; one that is stuck makes room for it, and is asked for again."""
        if len(self._sent) < SNAPSHOTS_SENT_MAX:
            return True
        (group, peer), sent = min(self._sent.items(), key=lambda one: one[1].moved_ms)
        stuck_ms = self._replicas.now_ms() - sent.moved_ms
        if stuck_ms < STUCK_ELECTIONS * self._replicas.options.election_ms:
            return False
        self._lose(group, peer)
        return True

    def _lose(self, group: int, peer: NodeId) -> None:
        """Give up what is sent to a node: its leader's core asks for another one when it hears of it."""
        snapshot, replica = self._drop(group, peer), self._replicas.replica(group)
        if snapshot is not None and replica is not None:
            replica.raft.lose_snapshot(snapshot)

    def _offer(self, replica: Replica, peer: NodeId) -> bool:
        """Whether there was something to offer. If not, there may be later."""
        if not replica.holes.is_fit:
            return False
        try:
            found = GroupState.in_checkpoint(self._newest(), replica.number)
            if found is None or not _will_do(*found, replica):
                self._turn()
                return False
            index, state = found
            files = self._open(state)
        except (OSError, StoreError):
            # Whatever the disk has, it may be over soon.
            self._look_not_before_ms = self._replicas.now_ms() + self._replicas.options.election_ms
            return False
        head = packed_head(state, [size for _, size in files])
        size = len(head) + sum(size for _, size in files)
        identity = self._replicas.draw(1, IDENTITY_MAX)
        snapshot = Snapshot(index, state.term, members_of(state.members), size, identity)
        now_ms = self._replicas.now_ms()
        self._sent[replica.number, peer] = _Sent(snapshot, head, files, moved_ms=now_ms)
        replica.raft.offer_snapshot(peer, snapshot, now_ms)
        self._replicas.touch(replica)
        return True

    def _newest(self) -> dict[str, Any]:
        """What the newest checkpoint says; nothing without one that can be read."""
        if self._checkpoint is None:
            try:
                newest, _ = load_newest(self._store.files, lambda one: True, self._store.options.keys)
            except (OSError, StoreError):
                newest = None
            self._checkpoint = {} if newest is None else newest.state
        return self._checkpoint

    def _turn(self) -> None:
        """Ask for a checkpoint, unless that was done just now."""
        now_ms = self._replicas.now_ms()
        if now_ms >= self._turn_not_before_ms:
            self._turn_not_before_ms = now_ms + self._replicas.options.election_ms
            self._store.want_checkpoint()

    # --- their bytes ---

    def _open(self, state: GroupState) -> list[tuple[File | None, int]]:
        """The segments of a state, open and not encrypted. Raises OSError, StoreError."""
        files: list[tuple[File | None, int]] = []
        try:
            for path, *_ in state.log["segments"] if state.log is not None else ():
                file = self._opened(path)
                files.append((file, 0 if file is None else file.size()))
        except BaseException:
            _close(files)
            raise
        return files

    def _opened(self, path: str) -> File | None:
        """None for what is lost: whoever takes the snapshot asks the others for it."""
        files = self._store.files
        try:
            segment = Segment.open(files, path, self._store.cache, self._store.options.keys)
        except Damaged:
            return None
        except StoreBroken as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        if segment.label == LABEL_PLAIN:
            return files.open(path)
        copy = self._plain_copy(segment)
        if copy is None:
            return None
        file = files.open(copy)
        # It stays readable while it is open.
        files.remove(copy)
        return file

    def _plain_copy(self, segment: Segment) -> str | None:
        """The same without encryption, as far as it can be read; None if nothing of it can."""
        generation = GENERATION_MIN + self._replicas.draw(0, GENERATIONS)
        name = segment_name(segment.path)
        assert name is not None, segment.path
        path = segment_path(name.stream_id, segment.first_seq, generation)
        messages = _messages_of(segment)
        info = write_segment(self._store.files, path, name.stream_id, messages, None, message_expires_ns)
        return path if info.count else None

    def read(self, group: int, peer: NodeId, part: SnapshotPart) -> bytes | None:
        """The bytes of a part; None if they cannot be had any more, and the group's core is told."""
        sent = self._sent.get((group, peer))
        if sent is None or sent.snapshot.identity != part.snapshot.identity:
            replica = self._replicas.replica(group)
            if replica is not None:
                replica.raft.lose_snapshot(part.snapshot)
            return None
        with suppress(OSError):
            found = sent.read(part.offset, part.size)
            if len(found) == part.size:
                if part.offset + part.size > sent.reached:
                    sent.reached, sent.moved_ms = part.offset + part.size, self._replicas.now_ms()
                return found
        self._lose(group, peer)
        return None


def _will_do(index: int, state: GroupState, replica: Replica) -> bool:
    """Whether the entries that follow are there still, and all messages that somebody may have."""
    lost = () if state.log is None else state.log["lost"]
    is_whole = all(reason == NOWHERE for *_, reason in lost)
    return is_whole and index >= max(replica.raft.log.base_index, 1)


def _close(files: list[tuple[File | None, int]]) -> None:
    for file, _ in files:
        if file is not None:
            file.close()


def _messages_of(segment: Segment) -> Iterator[Message]:
    for position in range(len(segment.table)):
        with suppress(Damaged):
            yield from segment.messages_of_block(position)


def _read(file: File, offset: int, size: int) -> bytes:
    """Bytes of a file, with zeros for sectors that the disk does not give: damage like any other."""
    try:
        return file.read_at(offset, size)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    parts: list[bytes] = []
    end = offset + size
    while offset < end:
        stop = min(end, (offset // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
        try:
            parts.append(file.read_at(offset, stop - offset))
        except OSError:
            parts.append(bytes(stop - offset))
        offset = stop
    return b"".join(parts)
