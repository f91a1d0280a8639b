"""Snapshots that come from other nodes: gathered in a file, unpacked, and kept until they are installed.

Rules:
* How much of a snapshot is here is known here alone; the core is told with each part. So it asks for what
  is missing, also after a restart, and when a part could not be written.
* What arrives goes to a file of its own, without gaps. When all is there it is unpacked, a step at a time,
  and only then the core hears of the last part: from then on nothing can fail but the journal.
* What is unpacked stays until it is installed. When the INSTALL frame could not be written, it is there when
  the last part comes again. Its segments are condemned rather than removed then: a journal that nobody has
  gone on with may still speak of them.
* A part of an earlier leader, and one that comes while a state is about to take the place of the log,
  changes nothing here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from edged.store.errors import StoreError
from edged.store.group import PUT
from edged.store.install import install
from hub.replication.unpacking import Unpacking

if TYPE_CHECKING:
    from edged.store.group import Group
    from edged.store.install import Prepared
    from hub.raft.members import NodeId
    from hub.raft.messages import Snapshot, SnapshotPart
    from hub.replication.replica import Replica
    from hub.replication.replicas import Replicas

DIRECTORY: Final = "snapshots"
# The pause before what failed is tried again grows so many times.
_DOUBLINGS_MAX: Final = 5


@dataclass(slots=True)
class _Taken:
    """A snapshot that arrives, or has: `offset` bytes of it are in a file."""

    snapshot: Snapshot
    path: str
    offset: int = 0
    # Who sent the last part, and that part without its bytes, once all is here.
    sender: NodeId = 0
    last: SnapshotPart | None = None
    unpacking: Unpacking | None = None
    steps: Generator[None] | None = field(default=None, repr=False)
    # When the next step is due; how often it was begun in vain.
    due_ms: int = 0
    failures: int = 0
    # Whether an INSTALL frame that names its segments may be in the journal.
    is_written: bool = False

    @property
    def is_unpacking(self) -> bool:
        """Whether all of it is here, and the state is not."""
        return self.last is not None and self.prepared is None

    @property
    def prepared(self) -> Prepared | None:
        """The state, once it is unpacked."""
        return None if self.unpacking is None else self.unpacking.prepared


class Taking:
    """The snapshots that one node takes, at most one of each group."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._taken: dict[int, _Taken] = {}
        files = self._store.files
        files.make_directory(DIRECTORY)
        for name in files.list(DIRECTORY):
            files.remove(f"{DIRECTORY}/{name}")

    def arrived(self, replica: Replica, sender: NodeId, part: SnapshotPart) -> SnapshotPart | None:
        """A part arrived: what the core is to hear of it; None if nothing, so that it comes again."""
        log, snapshot = replica.raft.log, part.snapshot
        is_here = snapshot.index <= log.commit or log.term(snapshot.index) == snapshot.term
        if part.term < replica.raft.term or is_here:
            # It is late: the core needs nothing of it.
            return part
        if replica.is_installing:
            return None
        taken = self._taken.get(replica.number)
        if taken is not None and taken.is_unpacking:
            if taken.snapshot == snapshot:
                return _all_but_a_byte(part)
            if taken.due_ms <= self._replicas.now_ms():
                return None
        if taken is None or taken.snapshot != snapshot:
            self.forget(replica.number)
            name = f"{DIRECTORY}/{replica.number}-{snapshot.identity:x}"
            taken = self._taken[replica.number] = _Taken(snapshot, name)
        if taken.prepared is not None:
            return replace(part, kept=snapshot.size)
        payload = part.payload
        if type(payload) is not bytes or len(payload) != part.size:
            return None
        if part.offset <= taken.offset:
            try:
                self._write(taken, part.offset, payload)
            except OSError:
                # A full disk, most likely.
                taken.offset = min(taken.offset, part.offset)
                return None
        if taken.offset < snapshot.size:
            return replace(part, kept=taken.offset)
        taken.sender, taken.last = sender, replace(part, payload=None)
        self._begin(replica.number, taken)
        return _all_but_a_byte(part)

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

    # --- unpacking ---

    @property
    def due_ms(self) -> int | None:
        """When tick() is wanted."""
        return min((one.due_ms for one in self._taken.values() if one.is_unpacking), default=None)

    def tick(self) -> list[tuple[NodeId, int, SnapshotPart]]:
        """Go on with what is being unpacked; the last parts of which the cores can hear now."""
        done: list[tuple[NodeId, int, SnapshotPart]] = []
        now_ms = self._replicas.now_ms()
        for group, taken in list(self._taken.items()):
            if not taken.is_unpacking or now_ms < taken.due_ms:
                continue
            if self._is_late(group, taken):
                self.forget(group)
                continue
            self._step(group, taken)
            if taken.prepared is not None and taken.last is not None:
                self._remove(taken.path)
                done.append((taken.sender, group, taken.last))
        return done

    def _begin(self, group: int, taken: _Taken) -> None:
        taken.unpacking = Unpacking(self._store, group, taken.path, self._replicas.draw)
        taken.steps = taken.unpacking.steps()

    def _step(self, group: int, taken: _Taken) -> None:
        assert taken.unpacking is not None and taken.steps is not None, group
        try:
            next(taken.steps, None)
        except (OSError, StoreError, ValueError):
            # A full disk, most likely. All of it is tried again after a while, if nothing else comes.
            self._remove(*taken.unpacking.segments)
            self._begin(group, taken)
            taken.failures += 1
            pause_ms = self._replicas.options.election_ms << min(taken.failures, _DOUBLINGS_MAX)
            taken.due_ms = self._replicas.now_ms() + pause_ms

    # --- what is unpacked ---

    def install(self, group: int, snapshot: Snapshot) -> Prepared:
        """The state of a snapshot of which the core has heard everything: it is about to be written down."""
        taken = self._taken[group]
        assert taken.snapshot == snapshot and taken.prepared is not None, (taken, snapshot)
        taken.is_written = True
        return taken.prepared

    def installed(self, group: Group, index: int, prepared: Prepared, file: int) -> None:
        """This state is durable, in this journal file: let it take the place of what a group has."""
        store, replicas = self._store, self._replicas
        del self._taken[group.number]
        news = install(store, group, index, prepared, file)
        store.pass_over(group, index)
        store.room.follow(group.number, store.catalog.streams.get(group.number))
        for number in news:
            store.room.follow(number, store.catalog.streams.get(number))
            replicas.changed(number)
        if group.number in store.catalog.streams and store.catalog.listener is not None:
            store.catalog.listener(PUT, group.number)

    def forget(self, group: int) -> None:
        """Give up what has arrived of a snapshot. What cannot be removed now goes at the next start."""
        taken = self._taken.pop(group, None)
        if taken is None:
            return
        if taken.steps is not None:
            taken.steps.close()
        segments = [] if taken.unpacking is None else taken.unpacking.segments
        if taken.is_written:
            store = self._store
            store.condemned += [[store.journal.number + 1, path] for path in segments]
        else:
            self._remove(*segments)
        self._remove(taken.path)

    def forget_late(self) -> None:
        """Give up what nobody needs any more, as the entries came."""
        for group, taken in list(self._taken.items()):
            if self._is_late(group, taken):
                self.forget(group)

    def _is_late(self, group: int, taken: _Taken) -> bool:
        replica = self._replicas.replica(group)
        return replica is None or taken.snapshot.index <= replica.group.applied

    def _remove(self, *paths: str) -> None:
        for path in paths:
            with suppress(OSError):
                self._store.files.remove(path)


def _all_but_a_byte(part: SnapshotPart) -> SnapshotPart:
    """What the core hears until all is unpacked: no more than that is sent again meanwhile."""
    return replace(part, kept=part.snapshot.size - 1)
