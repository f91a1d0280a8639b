"""All groups that this node has together with others, behind its store. Implements `Replication`.

Rules: one thread; nothing here waits. Whatever happens to a group is only made known to its core; work() then
does what the cores want, for all groups to which something happened. `wake` says that somebody has to call
it, as the committer does when it is flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from edged.core.frame_twins import FrameBuffer
from edged.core.replica_records import MembersRecord
from edged.store.batch import Appends
from edged.store.found_log import FoundLog
from edged.store.group import PUT
from edged.store.options import SYNC_ALWAYS
from edged.store.stretch import Stretch
from hub.limits import CATCH_UP_FILES_MAX
from hub.raft.messages import Append, Message, SnapshotPart
from hub.replication.early import Early
from hub.replication.records import record_of
from hub.replication.replica import Replica
from hub.replication.snapshots import Snapshots
from hub.replication.status import GroupStatus
from hub.replication.work import Outgoing, Work

if TYPE_CHECKING:
    from edged.store.batch import Batch
    from edged.store.errors import StoreError
    from edged.store.group import Group
    from edged.store.store import Store
    from hub.raft.members import Members, NodeId
    from hub.raft.options import RaftOptions


CLOSED: Final = "closed"
"""A file of the store that is there while it is closed, if that happened in order."""


def _nobody_listens(group: int) -> None:
    """Until somebody does."""


class Replicas:
    """The groups of one node. `now_ms` is a clock that only goes forward, `draw` a number of a range."""

    def __init__(
        self,
        node: NodeId,
        options: RaftOptions,
        send: Callable[[NodeId, int, Message], None],
        now_ms: Callable[[], int],
        draw: Callable[[int, int], int],
        wake: Callable[[], None],
    ) -> None:
        self.node = node
        self.options = options
        self.now_ms = now_ms
        self.draw = draw
        self._send = send
        self._wake = wake
        self.store: Store
        self.snapshots: Snapshots
        self._replicas: dict[int, Replica] = {}
        # Those to which something happened, in that order.
        self._touched: dict[Replica, None] = {}
        self._is_working = False
        # (when, group): for each at least the earliest time at which it wants a tick.
        self._due: list[tuple[int, int]] = []
        self._early = Early()
        self._held_bytes = 0
        # How many voters are enough in groups that are rescued; None in those that were.
        self.quorums_max: dict[int, int | None] = {}
        # Those that lack messages.
        self.holed: set[Replica] = set()
        # Those that may lack the end of their log since the store was opened, until they have rejoined.
        self.unsure: set[int] = set()
        self._void: list[Batch] = []
        # Whether a stream that the catalog configures otherwise is told so from here; False when whoever
        # serves it does that, as it may have to wait for what is on its way. New streams always are.
        self.proposes_changes = True
        # leads(group) or leader(group) has changed; the members of a group have.
        self.on_leadership: Callable[[int], None] = _nobody_listens
        self.on_members: Callable[[int], None] = _nobody_listens

    # --- what the links and the daemon tell ---

    def step(self, sender: NodeId, group: int, message: Message) -> None:
        """Another node said something about a group. What makes no sense is dropped."""
        replica = self._replicas.get(group)
        if replica is None:
            self._early.keep(sender, group, message)
            return
        if type(message) is Append and message.blocks:
            if replica.holes.is_full:
                # Its sender tries again, as if it had got lost.
                return
            try:
                blocks = [
                    block
                    if block.members is not None
                    else replace(
                        block, payload=Stretch.received(block.payload, group, block.first, block.count)
                    )
                    for block in message.blocks
                ]
            except (TypeError, ValueError):
                return
            message = replace(message, blocks=tuple(blocks))
        elif type(message) is SnapshotPart:
            part = self.snapshots.taking.arrived(replica, sender, message)
            if part is None:
                # Its sender tries again.
                return
            message = part
        replica.raft.step(sender, message, self.now_ms())
        self._happened(replica)

    @property
    def due_ms(self) -> int | None:
        """When tick() is wanted."""
        due_ms = self.snapshots.taking.due_ms
        if not self._due or (due_ms is not None and due_ms < self._due[0][0]):
            return due_ms
        return self._due[0][0]

    def tick(self) -> None:
        """Do what is due."""
        now_ms = self.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            _, number = heappop(self._due)
            replica = self._replicas.get(number)
            if replica is None:
                continue
            replica.planned_ms = None
            due_ms = replica.raft.due_ms
            if due_ms is not None and due_ms <= now_ms:
                replica.raft.tick(now_ms)
                self._happened(replica)
            else:
                self._plan(replica)
        for sender, number, part in self.snapshots.taking.tick():
            self.step(sender, number, part)
        self.snapshots.tick()

    def suspect(self, node: NodeId) -> None:
        """The link to a node broke."""
        for replica in self._replicas.values():
            if node in replica.raft.members.everyone:
                replica.raft.suspect(node, self.now_ms())
                self._happened(replica)

    def has(self, group: int) -> bool:
        """Whether this node has a group together with others."""
        return group in self._replicas

    def begin(self, group: int, members: Members) -> None:
        """Have a group with these members, which has no entries yet. Streams begin by their assignment."""
        target = self.store.groups[group]
        if target.replica is None:
            target.found = FoundLog(target, record_of(members, 0), base_index=target.applied)
            self._adopt(target).write_genesis()
            self._wake_up()

    def end(self, group: int) -> None:
        """Have nothing to do with a group any more."""
        replica = self._replicas.pop(group, None)
        if replica is not None:
            self._touched.pop(replica, None)
            self.holed.discard(replica)
            self.unsure.discard(group)
            replica.end()
            if group in self.store.groups:
                self.store.groups[group].replica = None

    def campaign(self, group: int) -> None:
        """Hold an election now, if this node could win it."""
        replica = self._replicas[group]
        replica.raft.campaign(self.now_ms())
        self._happened(replica)

    def change(self, group: int, voters: frozenset[NodeId], learners: frozenset[NodeId]) -> bool:
        """Have these members; False if not the leader, or while an earlier change is under way."""
        replica = self._replicas[group]
        is_begun = replica.raft.change(voters, learners, self.now_ms())
        self._happened(replica)
        return is_begun

    def transfer(self, group: int, to: NodeId) -> bool:
        """Have another voter lead; False if this is not the leader or the other cannot."""
        replica = self._replicas[group]
        is_begun = replica.raft.transfer(to, self.now_ms())
        self._happened(replica)
        return is_begun

    def set_fit(self, group: int, is_fit: bool) -> None:
        """Say whether this node could lead a group: not while it lacks messages that it had."""
        replica = self._replicas[group]
        replica.raft.set_fit(is_fit, self.now_ms())
        self._happened(replica)

    def set_quorum_max(self, group: int, quorum_max: int | None) -> None:
        """Let so many voters of a group be enough, though they are no majority; None: that is over."""
        replica = self._replicas[group]
        self.quorums_max[group] = quorum_max
        replica.raft.set_quorum_max(quorum_max, self.now_ms())
        self._happened(replica)

    def set_repairing(self, group: int, is_repairing: bool) -> None:
        """Say whether other nodes are asked for messages of a group; this one does not lead it meanwhile."""
        replica = self._replicas.get(group)
        if replica is not None:
            replica.holes.is_repairing = is_repairing
            self.mended(group)

    def asked(self, node: NodeId, group: int) -> None:
        """A node asks for messages of a group. If this one leads it, the other may have to hear of that."""
        replica = self._replicas.get(group)
        if replica is not None and replica.leads:
            replica.raft.suspect(node, self.now_ms())
            self._happened(replica)

    def mended(self, group: int) -> None:
        """Lost messages are back, or given up: go on if those were all."""
        replica = self._replicas.get(group)
        if replica is not None:
            replica.holes.look()
            self._happened(replica)

    def begin_anew(self, group: int) -> None:
        """This node's copy of a group is void by now: rejoin, and get another from whoever leads."""
        replica, target = self._replicas.get(group), self.store.groups.get(group)
        if replica is None or target is None:
            return
        genesis = MembersRecord(0, self.store.catalog.streams[group].genesis)
        hard = replace(replica.hard, is_rejoining=True)
        self.end(group)
        target.found = FoundLog(target, genesis, hard)
        self._happened(self._adopt(target))
        if self.store.catalog.listener is not None:
            self.store.catalog.listener(PUT, group)

    def leader(self, group: int) -> NodeId:
        """Who leads a group; 0 while nobody is known to."""
        replica = self._replicas.get(group)
        return 0 if replica is None else replica.raft.leader

    def leads(self, group: int) -> bool:
        """Whether this node leads a group, and has applied everything of earlier terms."""
        replica = self._replicas.get(group)
        return replica is not None and replica.leads

    def holds_lease(self, group: int) -> bool:
        """Whether no other node can lead a group that this one leads, as far as clocks run alike."""
        replica = self._replicas.get(group)
        return replica is not None and replica.raft.holds_lease(self.now_ms())

    def status(self, group: int) -> GroupStatus:
        """How a group is. KeyError without it."""
        replica = self._replicas[group]
        raft = replica.raft
        log = raft.log
        return GroupStatus(
            raft.term,
            raft.leader,
            replica.leads,
            raft.members,
            replica.group.applied,
            log.commit,
            log.last,
            raft.must_rejoin,
            log.commit >= log.change_index,
            raft.followers,
        )

    def read(self, group: int, done: Callable[[bool], None]) -> None:
        """Tell when the state of this node may be read as of now; False if that has to be asked again."""
        replica = self._replicas.get(group)
        if replica is None:
            done(False)
            return
        replica.read(done)
        self._happened(replica)

    # --- what the store tells ---

    def start(self, store: Store) -> None:
        """The store is recovered."""
        self.store = store
        self.snapshots = Snapshots(self)
        is_sure = self._was_closed() or not store.report.replay.files
        for number, group in sorted(store.groups.items()):
            if group.found is None:
                continue
            is_weak = number in store.catalog.streams and store.sync_of(number) != SYNC_ALWAYS
            if is_weak and not is_sure:
                # It may have confirmed what only the operating system had: the end of the log, nothing else.
                self.unsure.add(number)
            replica = self._adopt(group)
            if store.report.has_begun_anew:
                replica.write_genesis()

    def _was_closed(self) -> bool:
        """Whether the store was closed in order; the next start is told only if that happens again."""
        files = self.store.files
        if CLOSED not in files.list(""):
            return False
        files.remove(CLOSED)
        files.sync_directory("")
        return True

    def closed(self) -> None:
        """The store is closed, and everything in it is durable."""
        if self.unsure:
            # What they have forgotten they lack at the next start, too.
            return
        files = self.store.files
        with suppress(OSError):
            # Without it the next start is more careful than it would have to be.
            files.create(CLOSED).close()
            files.sync_directory("")

    def changed(self, group: int) -> None:
        """The catalog says something new about a stream."""
        target = self.store.groups.get(group)
        replica = self._replicas.get(group)
        if replica is not None and (target is None or target is not replica.group):
            self.end(group)
        if target is not None and target.found is not None:
            self._adopt(target)
            if self.store.catalog.streams[group].genesis[:1] == (self.node,):
                # A new stream need not wait until somebody misses a leader: the first of its nodes begins.
                self.campaign(group)
        elif replica is not None:
            self.touch(replica)
            # It may be that other nodes are to have it.
            self.on_members(group)

    def _adopt(self, group: Group) -> Replica:
        assert group.found is not None
        replica = self._replicas[group.number] = Replica(self, group, group.found)
        group.found, group.replica = None, replica
        replica.holes.look()
        self.touch(replica)
        for sender, message in self._early.take(group.number):
            self.step(sender, group.number, message)
        return replica

    @property
    def has_work(self) -> bool:
        """Whether work() has something to do."""
        return bool(self._touched)

    def work(self) -> None:
        """Do what the cores want."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._touched:
                replica = next(iter(self._touched))
                del self._touched[replica]
                replica.work()
                self._look_at(replica)
        finally:
            self._is_working = False

    def carry(self, batch: Batch) -> None:
        """The batch begins a journal file: begin it with all entries that are not applied."""
        # A checkpoint is to count on it, whatever is in there, and some of that was durable before.
        batch.is_sync_needed = True
        behind, tag_bytes = batch.buffer, self.store.options.tag_bytes
        batch.buffer = FrameBuffer(tag_bytes, len(behind) + self._held_bytes)
        for replica in self._replicas.values():
            replica.carry(batch)
        shift = len(batch.buffer)
        if not shift:
            batch.buffer = behind
            return
        batch.buffer.add_raw(behind.bytes_at(0, len(behind)))
        for replica in self._replicas.values():
            replica.shift(batch, shift)
        for place, entry in enumerate(batch.entries):
            if isinstance(entry, Appends):
                batch.entries[place] = entry._replace(offsets=[offset + shift for offset in entry.offsets])

    @property
    def has_unapplied(self) -> bool:
        """Whether the journal has entries that are not applied."""
        return any(replica.held for replica in self._replicas.values())

    @property
    def held_bytes(self) -> int:
        """How much waits for other nodes; not what waits for a repair here, as nobody is to wait for that."""
        return self._held_bytes - sum(replica.holes.waiting_bytes for replica in self.holed)

    def count_held(self, size: int) -> None:
        """So much more waits, or less."""
        self._held_bytes += size

    def finished(self, batch: Batch) -> None:
        """A batch is durable."""
        if batch.begins_file:
            for replica in self._replicas.values():
                replica.moved(batch)
        for replica, works in self._by_replica([batch]).items():
            for work in works:
                replica.finished(work, batch)
            replica.leave(batch)

    def failed(self, batches: Sequence[Batch], error: StoreError, is_last: bool) -> None:
        """These batches could not be written. With the last of them everything begins anew from the disk."""
        self._void += batches
        if is_last:
            void, self._void = self._void, []
            for replica in list(self._replicas.values()):
                if replica.is_waiting_for_disk:
                    replica.rebuild(error, void)
                    self._look_at(replica)
                else:
                    replica.forget_places(void)
            self._wake_up()

    def needed_file(self, oldest: int) -> int:
        """The first journal file that is to stay, if those before this one may go: some have to catch up."""
        store = self.store
        if store.room.governor.is_full:
            return oldest
        least: int = store.journal.number - CATCH_UP_FILES_MAX
        found = (one.places.file_from(one.raft.needed_from) for one in self._replicas.values())
        return max(min((file for file in found if file is not None), default=oldest), least)

    def freed(self, files: Sequence[int]) -> None:
        """These journal files are gone, and a checkpoint is saved."""
        gone = frozenset(files)
        for replica in self._replicas.values():
            replica.forget(gone)
            # What could not be read when it was to be moved is lost from now on.
            replica.holes.look()
        self.snapshots.checkpointed()

    def _by_replica(self, batches: Sequence[Batch]) -> dict[Replica, list[Work]]:
        """The work of batches for groups that are still here."""
        found: dict[Replica, list[Work]] = {}
        for batch in batches:
            for work in batch.work:
                replica: Replica = work.replica
                if self._replicas.get(replica.number) is replica:
                    found.setdefault(replica, []).append(work)
        return found

    # --- what replicas ask ---

    def replica(self, group: int) -> Replica | None:
        """One of them."""
        return self._replicas.get(group)

    def touch(self, replica: Replica) -> None:
        """Something happened to a group, and work() will be called."""
        self._touched[replica] = None

    def send_all(self, group: int, messages: Outgoing) -> None:
        """Put messages on their way."""
        for to, message in messages:
            self._send(to, group, message)

    # --- inside ---

    def _happened(self, replica: Replica) -> None:
        self.touch(replica)
        self._wake_up()

    def _wake_up(self) -> None:
        if not self._is_working:
            self._wake()

    def _look_at(self, replica: Replica) -> None:
        """After its work: who leads, and when it wants to be looked at again."""
        if self._replicas.get(replica.number) is not replica:
            return
        replica.configuring.look()
        if not replica.raft.must_rejoin:
            self.unsure.discard(replica.number)
        known = (replica.raft.leader, replica.leads)
        if known != replica.known:
            replica.known = known
            self.on_leadership(replica.number)
        self._plan(replica)

    def _plan(self, replica: Replica) -> None:
        due_ms = replica.raft.due_ms
        if due_ms is not None and (replica.planned_ms is None or due_ms < replica.planned_ms):
            replica.planned_ms = due_ms
            heappush(self._due, (due_ms, replica.number))
