"""One group on this node: its consensus core, its entries that wait, and what the disk is known to have.

Rules:
* Entries are put into batches in the order of their indexes; what the core wants cut off is cut off in the
  same order. Before a command of this node is taken, everything before it is in the batch.
* A message that promises something leaves when the batch is durable in which that is; an early one at once.
* Entries are applied in order, when they are committed and durable here. Whoever waits for one is told what
  it came to even if another node leads by then, and that nobody knows if it was cut off.
* When a batch could not be written, the core is built anew from `durable` and `places`, which only know what
  was finished.

Invariant: applied < first entry held; the entries held follow on each other up to `placed`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edged.core.frames import CUT, HARD_STATE, INSTALL
from edged.core.replica_records import RESUMED, HardRecord
from edged.core.stream_machine import StreamMachine
from edged.store.batch import Appends, Change
from edged.store.errors import LeadershipLost, StoreError
from edged.store.install import Prepared
from edged.store.stretch import Stretch
from hub.raft.log import Log, Recovered
from hub.raft.messages import Block, HardState, Snapshot
from hub.raft.raft import Raft
from hub.raft.role import NOBODY, Role
from hub.replication.configuring import Configuring
from hub.replication.filling import Filling
from hub.replication.held import Held, add_members, held_again, tell_lost
from hub.replication.holes import Holes
from hub.replication.places import Place, Places
from hub.replication.reads import Done, Reads
from hub.replication.records import record_of, recovered_of
from hub.replication.work import Work, is_own

if TYPE_CHECKING:
    from edged.store.batch import Batch
    from edged.store.found_log import FoundLog
    from edged.store.group import Group
    from hub.raft.members import NodeId
    from hub.raft.ready import Ready
    from hub.replication.replicas import Replicas


class Replica:
    """Implements `GroupReplica` of edged/ports.py."""

    def __init__(self, replicas: Replicas, group: Group, found: FoundLog) -> None:
        self._replicas = replicas
        self._store = store = replicas.store
        self.group = group
        self.number = group.number
        self._tag_bytes = store.options.tag_bytes
        recovered = recovered_of(found)
        # What is durable: the hard state, the log, and where its entries are.
        self.hard = self._hard_written = found.hard
        self.durable = Log(recovered)
        self.places = Places(self.number, store.reads, self._tag_bytes)
        self._filling = Filling(self, replicas.snapshots, self._tag_bytes)
        self.held: deque[Held] = deque()
        for block in found.blocks:
            if block.members is None:
                self.places.add(block.first, block.last, block.file, block.start, block.end)
            if block.last > group.applied:
                content = block.members or block.stretch
                assert content is not None, block
                self._hold(Held(block.first, block.last, content, None, block.start, block.end, block.file))
        # The last entry that is in a batch, and the first one of this node that the core has not told of yet.
        self.placed = found.last
        self._unready = 0
        # That it may have forgotten something must not be forgotten.
        self._is_resuming = found.is_broken or found.hard.is_rejoining
        # Until where the log has to be applied before nothing of what was forgotten is missing; 0: unknown.
        self._complete_at = 0
        # The batches with its work that are not finished, oldest first.
        self._under_way: deque[Batch] = deque()
        self._reads = Reads(self)
        # What others were last told.
        self.known: tuple[NodeId, bool] = (NOBODY, False)
        self.planned_ms: int | None = None
        self.configuring = Configuring(store, self)
        self.holes = Holes(replicas, self)
        self.raft = self._make_raft(recovered)

    def _make_raft(self, recovered: Recovered) -> Raft:
        replicas, hard = self._replicas, self.hard
        raft = Raft(
            replicas.node,
            HardState(hard.term, hard.vote),
            recovered,
            replicas.options,
            replicas.draw,
            replicas.now_ms(),
            boot=replicas.draw(1, 2**62),
            must_rejoin=hard.is_rejoining,
            is_unsure=self.number in replicas.unsure,
        )
        raft.log.quorum_max = replicas.quorums_max.get(self.number)
        raft.is_fit = self.holes.is_fit
        return raft

    # --- what the store asks ---

    @property
    def leader(self) -> NodeId:
        """The node that leads, 0 while nobody is known to."""
        return self.raft.leader

    @property
    def is_rejoining(self) -> bool:
        """Whether this node may have forgotten what it confirmed, until what it gets instead is applied."""
        return self._hard_written.is_rejoining

    @property
    def leads(self) -> bool:
        """Whether this node leads, everything of earlier terms is applied, and the stream is configured."""
        machine = self.group.machine
        return self.is_complete and (not isinstance(machine, StreamMachine) or bool(machine.config))

    @property
    def is_complete(self) -> bool:
        """Whether this node leads, and everything of earlier terms is applied."""
        raft = self.raft
        return raft.role is Role.LEADER and raft.log.term(self.group.applied) == raft.term

    @property
    def proposes_changes(self) -> bool:
        """Whether a changed configuration is told to the stream from here, and not by whoever serves it."""
        return self._replicas.proposes_changes

    def next_index(self) -> int | None:
        """The index that a command gets now; None if another node has to take it."""
        raft = self.raft
        if raft.can_propose and raft.log.last != self.placed:
            # Entries that come before are to be written first.
            self.work()
        return raft.log.last + 1 if raft.can_propose and raft.log.last == self.placed else None

    def take(self, entry: Appends | Change, start: int, end: int) -> None:
        """Frames with that index are in the batch that gathers, between these offsets."""
        first = entry.first_index
        count = 1 if isinstance(entry, Change) else len(entry.messages)
        found = self.raft.propose(count, end - start, self._replicas.now_ms())
        assert found == first, (self.number, found, first)
        self._hold(Held(first, first + count - 1, entry, self._store.gathering, start, end))
        self.placed = first + count - 1
        self.group.next_index = self.placed + 1
        self._unready = self._unready or first
        self._replicas.touch(self)

    def read(self, done: Done) -> None:
        """Tell when the state may be read as of now."""
        self.raft.read(self._reads.ask(done), self._replicas.now_ms())

    def write_genesis(self) -> None:
        """Say in the journal who the members are before the first entry."""
        work = self._begin_work(None)
        members = record_of(self.raft.members, 0)
        add_members(self._store.gathering, self.number, 0, members)
        self._write_hard(work, self.hard)

    def saved(self) -> list[Any]:
        """What a checkpoint keeps: group, hard state, term and members of the last entry that is applied."""
        # Not as the core sees it: a state that comes from another node counts when it is durable.
        hard, log, applied = self.hard, self.durable, self.group.applied
        term = log.term(applied)
        assert term is not None, (self.number, applied, log.base_index, log.last)
        members = record_of(log.members_at(applied), term).listed()
        return [self.number, [hard.term, hard.vote, hard.is_rejoining], term, members]

    # --- the work ---

    def work(self) -> None:
        """Carry out what the core wants."""
        raft = self.raft
        if self._is_resuming:
            self._resume()
        if self.holes.apply_to > self.group.applied:
            self.apply(self.holes.apply_to)
        while raft.has_ready and raft is self.raft:
            self._carry_out(raft.ready(self._replicas.now_ms()))
        if self.is_rejoining and not self.raft.must_rejoin:
            self._end_rejoining()

    def _end_rejoining(self) -> None:
        """The core has everything; it may be forgotten that something was when that is applied, too."""
        raft = self.raft
        if not self._complete_at:
            self._complete_at = raft.log.last
        if self.group.applied >= min(self._complete_at, raft.log.last):
            self._write_hard(self._begin_work(None), HardRecord(raft.term, raft.vote))

    def _resume(self) -> None:
        """The log is not what it was: say so in the journal, and that it goes on from here."""
        self._is_resuming = False
        work = self._begin_work(None)
        self._write_hard(work, self.hard)
        for _ in range(2):
            self._store.gathering.buffer.add(CUT, self.number, self.placed + 1, RESUMED)

    def _carry_out(self, ready: Ready) -> None:
        cut = ready.truncate_from
        if self._unready:
            own = [block for block in ready.append if is_own(block)]
            if not own:
                # They were cut off before anybody was told of them.
                cut = self._unready if cut is None else min(cut, self._unready)
            else:
                assert (own[0].first, own[-1].last) == (self._unready, self.placed), (own, self._unready)
            self._unready = 0
        is_written = bool(ready.hard_state or ready.append or ready.install or cut is not None)
        work = None
        lost: list[Held] = []
        if is_written:
            work = self._begin_work(ready)
            if ready.hard_state is not None:
                term, vote = ready.hard_state.term, ready.hard_state.vote
                self._write_hard(work, HardRecord(term, vote, self.is_rejoining))
            if ready.install is not None:
                lost = self._write_install(work, ready.install)
            elif cut is not None:
                lost = self._write_cut(work, cut)
            for block in ready.append:
                self._write_block(work, block)
        self._replicas.send_all(self.number, self._filling.fill(ready.early, self.held))
        outgoing = self._filling.fill(ready.messages, self.held)
        if work is None and self._under_way:
            work = Work(self, ready)
            self._under_way[-1].work.append(work)
        if work is not None:
            work.messages = outgoing
        else:
            self._replicas.send_all(self.number, outgoing)
            self.raft.persisted(ready, self._replicas.now_ms())
        for held in lost:
            held.tell(LeadershipLost())
        if ready.apply_to:
            self.apply(ready.apply_to)
        for token, index in ready.reads:
            self._reads.answer(token, index)
        for peer in ready.snapshots_wanted:
            self._replicas.snapshots.want(self, peer)

    def _begin_work(self, ready: Ready | None) -> Work:
        batch = self._store.gathering
        work = Work(self, ready)
        batch.work.append(work)
        if not self._under_way or self._under_way[-1] is not batch:
            self._under_way.append(batch)
        return work

    def _write_hard(self, work: Work, hard: HardRecord) -> None:
        batch = self._store.gathering
        work.hard = self._hard_written = hard
        for _ in range(2):
            batch.buffer.add(HARD_STATE, self.number, 0, hard.encode())
        batch.is_sync_needed = True

    def _write_install(self, work: Work, snapshot: Snapshot) -> list[Held]:
        """A state takes the place of the log; the entries that somebody may wait for."""
        batch = self._store.gathering
        work.state = self._replicas.snapshots.taking.install(self.number, snapshot)
        batch.buffer.add(INSTALL, self.number, snapshot.index, work.state.found.encode())
        batch.is_sync_needed = True
        batch.frees_space = False
        lost = self._drop_held(0)
        self.placed = snapshot.index
        self.group.next_index = self.placed + 1
        return lost

    def _write_cut(self, work: Work, cut: int) -> list[Held]:
        """Cut off entries that are in batches; those of them that somebody may wait for."""
        if cut > self.placed:
            return []
        batch = self._store.gathering
        for _ in range(2):
            batch.buffer.add(CUT, self.number, cut, b"")
        batch.is_sync_needed = True
        work.cut = cut
        return self._drop_held(cut)

    def _write_block(self, work: Work, block: Block) -> None:
        batch = self._store.gathering
        if is_own(block):
            own: list[Held] = []
            for held in reversed(self.held):
                if held.first < block.first:
                    break
                own.append(held)
            work.held += reversed(own)
            return
        start = len(batch.buffer)
        content: Any = block.payload
        if block.members is not None:
            content = record_of(block.members, block.term)
            add_members(batch, self.number, block.first, content)
            batch.is_sync_needed = True
        else:
            assert isinstance(content, Stretch) and len(content) == block.count, block
            start, content = content.place(batch.buffer, self._tag_bytes)
            batch.frees_space = False
            batch.is_sync_needed = batch.is_sync_needed or self._store.waits_for_disk(self.number)
        held = Held(block.first, block.last, content, batch, start, len(batch.buffer))
        self._hold(held)
        work.held.append(held)
        assert block.first == self.placed + 1, (block, self.placed)
        self.placed = block.last
        self.group.next_index = self.placed + 1

    # --- a batch is durable, or not ---

    def finished(self, work: Work, batch: Batch) -> None:
        """What a batch has of one Ready is durable."""
        ready = work.ready
        if work.hard is not None:
            self.hard = work.hard
        if work.state is not None and ready is not None and ready.install is not None:
            self._install(ready.install, work.state, batch.position.file)
        if work.cut is not None:
            self._cut_durable(work.cut)
        if ready is not None:
            for block in ready.append:
                self.durable.append(replace(block, payload=None))
        for held in work.held:
            if not held.names_members:
                place = held.place
                self.places.add(held.first, held.last, *place, place.offset + held.size)
        self._replicas.send_all(self.number, work.messages)
        if ready is not None:
            self.raft.persisted(ready, self._replicas.now_ms())
        self._replicas.touch(self)

    def _install(self, snapshot: Snapshot, state: Prepared, file: int) -> None:
        self.durable.commit = min(self.durable.commit, snapshot.index - 1)
        self.durable.reset(snapshot.index, snapshot.term, snapshot.members)
        self.places.clear()
        self._replicas.snapshots.taking.installed(self.group, snapshot.index, state, file)
        self.holes.look()
        self._reads.answer_due()

    @property
    def is_installing(self) -> bool:
        """Whether a state is on its way to the disk that takes the place of everything here."""
        return self.raft.log.base_index > self.group.applied

    def _cut_durable(self, cut: int) -> None:
        if cut <= self.durable.last:
            self.durable.truncate(cut)
        self.places.cut(cut)

    def leave(self, batch: Batch) -> None:
        """A batch is finished; whatever it had of this group was dealt with."""
        if self._under_way and self._under_way[0] is batch:
            self._under_way.popleft()

    def moved(self, batch: Batch) -> None:
        """A batch that begins a file is durable: entries that are in it again are there from now on."""
        moved: list[Place] = []
        for held in self.held:
            if held.move(batch) and held.last <= self.durable.last and not held.names_members:
                place = held.place
                moved.append((held.first, held.last, *place, place.offset + held.size))
        self.places.move(moved)

    def shift(self, batch: Batch, size: int) -> None:
        """Something was put before all that a batch had."""
        for held in reversed(self.held):
            if held.batch is not batch:
                break
            held.start += size
            held.end += size

    def forget_places(self, void: Sequence[Batch]) -> None:
        """These batches were not written: entries are not in them again."""
        for held in self.held:
            held.again = [one for one in held.again if not any(one[0] is batch for batch in void)]

    def forget(self, files: Collection[int]) -> None:
        """Journal files are gone: the entries in them are applied, and in a checkpoint."""
        last = min(self.places.forget(files), self.group.applied)
        if last > self.raft.log.base_index:
            self.raft.forget(last)
        if last > self.durable.base_index:
            self.durable.commit = max(self.durable.commit, last)
            self.durable.forget(last)

    def carry(self, batch: Batch) -> None:
        """Write all entries again that are not applied and not in this batch."""
        for held in self.held:
            if held.batch is not batch:
                held.write_again(batch, self.number, self._tag_bytes)

    @property
    def is_waiting_for_disk(self) -> bool:
        """Whether something of it is in a batch that is not finished."""
        return bool(self._under_way or self._unready)

    def rebuild(self, error: StoreError, void: Sequence[Batch]) -> None:
        """Nothing counts that was not finished: these batches were not."""
        log = self.durable
        log.commit = max(log.commit, min(self.group.applied, log.last))
        lost: list[Held] = []
        kept: deque[Held] = deque()
        everyone = self.raft.members.everyone | log.members.everyone
        sent_to = 0 if everyone == {self._replicas.node} else (self._unready or self.placed + 1) - 1
        for held in self.held:
            self._let_go(held)
            is_durable = not any(held.batch is batch for batch in void)
            (kept if is_durable and held.last <= log.last else lost).append(held)
        self._under_way.clear()
        self._unready = 0
        self._filling.forget()
        self.held = deque()
        self._hard_written = self.hard
        self.placed = log.last
        self.group.next_index = self.placed + 1
        expected = self.group.applied + 1
        for held in kept:
            held.again.clear()
            if held.first >= expected:
                self._hold_durable(expected, held.first - 1)
                self._hold(held)
                expected = held.last + 1
        self._hold_durable(expected, log.last)
        blocks = log.take(log.base_index + 1, 1 << 62) if log.last > log.base_index else ()
        base_members = log.members_at(log.base_index)
        recovered = Recovered(log.base_index, log.base_term, base_members, blocks, self.group.applied)
        self._reads.fail()
        self.raft = self._make_raft(recovered)
        tell_lost(lost, error, sent_to)
        self._replicas.touch(self)

    def _hold_durable(self, first: int, last: int) -> None:
        """Read entries from the journal again that were cut off in memory only."""
        for held in held_again(self.durable, self.places, first, last):
            self._hold(held)

    # --- entries that wait ---

    def _hold(self, held: Held) -> None:
        assert not self.held or held.first == self.held[-1].last + 1, (held.first, self.held[-1].last)
        self.held.append(held)
        self._replicas.count_held(held.size)

    def _drop_held(self, index: int) -> list[Held]:
        """Forget entries from an index on; those of them that somebody may wait for."""
        lost: list[Held] = []
        while self.held and self.held[-1].last >= index:
            held = self.held.pop()
            self._let_go(held)
            if held.first < index:
                held.give_up(self.number, self._tag_bytes, LeadershipLost())
                self._hold(held.part(held.first, index - 1))
                break
            lost.insert(0, held)
        self.placed = min(self.placed, max(index - 1, self.group.applied))
        self._filling.forget()
        return lost

    def _let_go(self, held: Held) -> None:
        self._replicas.count_held(-held.size)

    def apply(self, index: int) -> None:
        """Apply entries up to this one; later, while messages are lost that what they do may depend on."""
        self.holes.apply_to = index
        if self.holes.is_there:
            return
        while self.held and self.held[0].first <= index:
            held = self.held.popleft()
            self._let_go(held)
            if held.last > index:
                # Another node leads, which has the first of them only.
                held.give_up(self.number, self._tag_bytes, LeadershipLost())
                rest = held.part(index + 1, held.last)
                held = held.part(held.first, index)
                self.held.appendleft(rest)
                self._replicas.count_held(rest.size)
            held.apply(self._store, self.number)
            if held.names_members:
                self._replicas.on_members(self.number)
        self._reads.answer_due()

    def end(self) -> None:
        """The group is gone from this node."""
        self._replicas.snapshots.taking.forget(self.number)
        held, self.held = self.held, deque()
        for one in held:
            self._let_go(one)
        self._under_way.clear()
        for one in held:
            one.tell(LeadershipLost())
        self._reads.fail()
