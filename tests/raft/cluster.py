"""A group whose members stand on a table: the test says what arrives, which disk is slow, and who crashes.

Rules: nothing happens by itself. Messages lie in `flight` until they are delivered or dropped; a Ready is
carried out by the rules of hub/raft/ready.py, each at once or, with a slow disk, when the test says so.
Whatever happens, the cluster checks: one leader per term, one vote per term, the same command at the same
index on all nodes, nothing applied that is not durable, and that the log of the core is the one on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from hub.raft.members import Members, NodeId
from hub.raft.messages import Append, Block, Heartbeat, Message, Snapshot, SnapshotPart
from hub.raft.options import RaftOptions
from hub.raft.raft import Raft, Role
from hub.raft.ready import Ready
from tests.raft.journal import Entry, Journal, encoded

STEPS_MAX: Final = 20_000
"""After so many deliveries there is no end to it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message under way. `boot` is that of its sender."""

    sender: NodeId
    boot: int
    to: NodeId
    message: Message


class Node:
    """One member: its core, its disk, and the state that it applied."""

    def __init__(self, cluster: Cluster, node: NodeId, journal: Journal) -> None:
        self.cluster = cluster
        self.node = node
        self.durable = journal
        self.boot = 0
        self.is_up = False
        # A slow disk: what is taken waits until sync().
        self.is_held = False
        self.answers: list[tuple[int, int]] = []
        self.start()

    def start(self, *, must_rejoin: bool = False, is_unsure: bool = False) -> None:
        """Begin with what is on disk."""
        assert not self.is_up
        self.is_up = True
        self.boot += 1
        self.written = self.durable.copy()
        self.unsynced: deque[Ready] = deque()
        self.commands = self.durable.commands
        self.applied = self.durable.base_index
        self.answers.clear()
        self.wanted: list[NodeId] = []
        self.proposed: dict[int, str] = {}
        self.boots_seen: dict[NodeId, int] = {}
        self.raft = Raft(
            self.node,
            self.durable.hard_state,
            self.durable.recovered(),
            self.cluster.options,
            self._draw,
            self.cluster.now_ms,
            boot=self.boot,
            must_rejoin=must_rejoin,
            is_unsure=is_unsure,
        )
        self.work()

    def crash(self) -> None:
        """Everything is gone that is not durable."""
        self.is_up = False
        self.unsynced.clear()

    def restart(self, *, must_rejoin: bool = False) -> None:
        self.crash()
        self.start(must_rejoin=must_rejoin)

    def _draw(self, low: int, high: int) -> int:
        return self.cluster.draw(self.node, low, high)

    # --- what it is asked ---

    def propose(self, *commands: str, size: int | None = None) -> int | None:
        bytes_count = sum(map(len, commands)) if size is None else size
        first = self.raft.propose(len(commands), bytes_count, self.cluster.now_ms)
        if first is not None:
            self.proposed.update(enumerate(commands, first))
        self.work()
        return first

    def change(self, voters: Iterable[NodeId], learners: Iterable[NodeId] = ()) -> bool:
        is_begun = self.raft.change(frozenset(voters), frozenset(learners), self.cluster.now_ms)
        self.work()
        return is_begun

    def read(self, token: int) -> None:
        self.raft.read(token, self.cluster.now_ms)
        self.work()

    def transfer(self, to: NodeId) -> bool:
        is_begun = self.raft.transfer(to, self.cluster.now_ms)
        self.work()
        return is_begun

    def suspect(self, peer: NodeId) -> None:
        self.raft.suspect(peer, self.cluster.now_ms)
        self.work()

    def set_fit(self, is_fit: bool) -> None:
        self.raft.set_fit(is_fit, self.cluster.now_ms)
        self.work()

    def tick(self) -> None:
        self.raft.tick(self.cluster.now_ms)
        self.work()

    def step(self, sender: NodeId, message: Message) -> None:
        self.raft.step(sender, message, self.cluster.now_ms)
        self.work()

    def compact(self, index: int | None = None) -> None:
        """Keep the state up to an entry (up to the last one applied) in place of the log."""
        index = self.applied if index is None else index
        assert self.durable.last >= index and not self.unsynced
        self.durable.forget(index)
        self.written.forget(index)
        self.raft.forget(index)

    def offer(self, peer: NodeId, identity: int = 1) -> Snapshot:
        """Offer the state at the base of the log to a follower that wants one."""
        if peer in self.wanted:
            self.wanted.remove(peer)
        snapshot = self.durable.snapshot(identity)
        self.cluster.snapshots[identity] = encoded(self.durable.commands)
        self.raft.offer_snapshot(peer, snapshot, self.cluster.now_ms)
        self.work()
        return snapshot

    # --- the work ---

    def work(self) -> None:
        """Take what there is to do, and do it."""
        for _ in range(STEPS_MAX):
            if not self.is_up or not self.raft.has_ready:
                return
            self._take(self.raft.ready(self.cluster.now_ms))
            if not self.is_held:
                self.sync()
        raise AssertionError(f"node {self.node} always has something to do")

    def _take(self, ready: Ready) -> None:
        ready.append = [self._filled(block, self.proposed) for block in ready.append]
        self.written.carry_out(ready)
        self._check_log()
        self.cluster.note_ready(self, ready)
        self._send(ready.early)
        self.unsynced.append(ready)
        self._apply(ready)
        self.answers.extend(ready.reads)
        self.wanted.extend(ready.snapshots_wanted)

    def sync(self, count: int | None = None) -> None:
        """Everything that was taken becomes durable, or only the first few of it."""
        for _ in range(len(self.unsynced) if count is None else count):
            ready = self.unsynced.popleft()
            self.durable.carry_out(ready)
            self.cluster.note_durable(self, ready)
            self._send(ready.messages)
            self.raft.persisted(ready, self.cluster.now_ms)
        if count is not None:
            self.work()

    def release(self) -> None:
        """The disk is fast again."""
        self.is_held = False
        self.sync()
        self.work()

    def _filled(self, block: Block, commands: dict[int, str]) -> Block:
        if block.members is not None or block.payload is not None:
            return block
        return replace(block, payload=tuple(commands[index] for index in range(block.first, block.last + 1)))

    def _send(self, messages: list[tuple[NodeId, Message]]) -> None:
        for to, message in messages:
            if type(message) is Append:
                known = {entry.index: entry.command or "" for entry in self.written.entries}
                blocks = tuple(self._filled(block, known) for block in message.blocks)
                message = replace(message, blocks=blocks)
            elif type(message) is SnapshotPart:
                state = self.cluster.snapshots[message.snapshot.identity]
                message = replace(message, payload=state[message.offset : message.offset + message.size])
            self.cluster.note_sending(self, message)
            self.cluster.flight.append(Envelope(self.node, self.boot, to, message))

    def _apply(self, ready: Ready) -> None:
        if ready.install is not None:
            self.commands, self.applied = self.written.commands, self.written.base_index
        assert ready.apply_to <= max(self.durable.last, self.written.base_index), (self.node, ready)
        while self.applied < ready.apply_to:
            self.applied += 1
            entry = self.written.entry(self.applied)
            assert self.durable.entry(self.applied) == entry, (self.node, entry)
            self.cluster.note_applied(self.node, entry)
            if entry.command is not None:
                self.commands += (entry.command,)

    def _check_log(self) -> None:
        log, written = self.raft.log, self.written
        assert (log.last, log.base_index) == (written.last, written.base_index), self.node
        for entry in written.entries:
            assert log.term(entry.index) == entry.term, (self.node, entry)
        members = [entry.members for entry in written.entries if entry.members is not None]
        assert log.members == (members[-1] if members else written.members), self.node
        assert log.base_index <= log.stable <= log.last and log.base_index <= log.commit <= log.last


class Cluster:
    """Nodes 1..n, a clock, and the messages between them."""

    def __init__(
        self,
        voters: int | Iterable[NodeId] = 3,
        learners: Iterable[NodeId] = (),
        *,
        options: RaftOptions | None = None,
        logs: dict[NodeId, list[int]] | None = None,
        terms: dict[NodeId, int] | None = None,
    ) -> None:
        """`logs` has the terms of the entries that nodes begin with, `terms` the terms they are in."""
        ids = range(1, voters + 1) if isinstance(voters, int) else voters
        self.options = RaftOptions(quiet_beats=0) if options is None else options
        self.members = Members(frozenset(ids), learners=frozenset(learners))
        self.now_ms = 0
        self.flight: list[Envelope] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.draws: dict[NodeId, Callable[[int, int], int]] = {}
        self.snapshots: dict[int, bytes] = {}
        # Who wants to know what nodes take, and what has become durable.
        self.on_ready: Callable[[Node, Ready], None] | None = None
        self.on_durable: Callable[[Node, Ready], None] | None = None
        self.leaders: dict[int, NodeId] = {}
        self._applied: dict[int, Entry] = {}
        self._votes: dict[tuple[NodeId, int], NodeId] = {}
        self.nodes: dict[NodeId, Node] = {}
        for node in sorted(self.members.everyone):
            self.add(node, (logs or {}).get(node, []), (terms or {}).get(node))

    def __getitem__(self, node: NodeId) -> Node:
        return self.nodes[node]

    def add(self, node: NodeId, log: Iterable[int] = (), term: int | None = None) -> Node:
        """A node comes into being, with entries of these terms. The same index and term: the same entry."""
        journal = Journal(self.members)
        for index, entry_term in enumerate(log, 1):
            journal.entries.append(Entry(index, entry_term, f"{index}@{entry_term}"))
        last_term = journal.entries[-1].term if journal.entries else 0
        journal.hard_state = replace(journal.hard_state, term=last_term if term is None else term)
        self.nodes[node] = Node(self, node, journal)
        return self.nodes[node]

    def draw(self, node: NodeId, low: int, high: int) -> int:
        """What chance says: the number of the node more than the least, if the test says nothing else."""
        chosen = self.draws.get(node)
        return min(high, low + node) if chosen is None else chosen(low, high)

    # --- messages ---

    def deliver(
        self,
        *,
        sender: NodeId | None = None,
        to: NodeId | None = None,
        kind: type | tuple[type, ...] | None = None,
        count: int | None = None,
        keep: bool = False,
    ) -> int:
        """Deliver what is under way by now and looks like this; how many there were."""
        chosen = self.pick(sender=sender, to=to, kind=kind)[:count]
        for envelope in chosen:
            if not keep:
                self._take_out(envelope)
            self._hand_over(envelope)
        return len(chosen)

    def drop(
        self,
        *,
        sender: NodeId | None = None,
        to: NodeId | None = None,
        kind: type | tuple[type, ...] | None = None,
        count: int | None = None,
    ) -> int:
        """Lose what looks like this; how many there were."""
        chosen = self.pick(sender=sender, to=to, kind=kind)[:count]
        for envelope in chosen:
            self._take_out(envelope)
        return len(chosen)

    def pick(
        self,
        *,
        sender: NodeId | None = None,
        to: NodeId | None = None,
        kind: type | tuple[type, ...] | None = None,
    ) -> list[Envelope]:
        """What is under way and looks like this."""
        return [
            one
            for one in self.flight
            if sender in (None, one.sender)
            and to in (None, one.to)
            and (kind is None or isinstance(one.message, kind))
        ]

    def settle(self) -> None:
        """Deliver until nothing is left."""
        for _ in range(STEPS_MAX):
            if not self.flight:
                return
            self._hand_over(self.flight.pop(0))
        raise AssertionError("there is no end to it")

    def _take_out(self, envelope: Envelope) -> None:
        # By identity: two equal messages are two.
        place = next(place for place, one in enumerate(self.flight) if one is envelope)
        del self.flight[place]

    def _hand_over(self, envelope: Envelope) -> None:
        sender, to = envelope.sender, envelope.to
        node = self.nodes.get(to)
        if node is None or not node.is_up or (sender, to) in self.cut:
            return
        if envelope.boot < node.boots_seen.get(sender, 0):
            return
        node.boots_seen[sender] = envelope.boot
        node.step(sender, envelope.message)

    def part(self, *groups: Iterable[NodeId]) -> None:
        """Only nodes of the same group hear each other; without groups all do."""
        sets = [set(group) for group in groups]
        together = {(one, other) for group in sets for one in group for other in group}
        everyone = list(self.nodes)
        pairs = {(one, other) for one in everyone for other in everyone}
        self.cut = pairs - together if groups else set()

    # --- time ---

    def advance(self, time_ms: int, *, is_settling: bool = True) -> None:
        """Let time pass; who is due is told."""
        end_ms = self.now_ms + time_ms
        for _ in range(STEPS_MAX):
            due = [
                (node.raft.due_ms, node.node)
                for node in self.nodes.values()
                if node.is_up and node.raft.due_ms is not None and node.raft.due_ms <= end_ms
            ]
            if not due:
                break
            due_ms, node_id = min(due)
            assert due_ms is not None
            self.now_ms = max(self.now_ms, due_ms)
            self.nodes[node_id].tick()
            if is_settling:
                self.settle()
        else:
            raise AssertionError("there is always somebody due")
        self.now_ms = end_ms

    def time_out(self, node: NodeId) -> None:
        """Let the time pass that a node waits, and tell only that node."""
        due_ms = self[node].raft.due_ms
        assert due_ms is not None, f"node {node} waits for nothing"
        self.now_ms = max(self.now_ms, due_ms)
        self[node].tick()

    def elect(self, node: NodeId) -> Node:
        """Let a node lead, and everything else come to rest."""
        # Nobody has heard of a leader lately by then.
        self.now_ms += 2 * self.options.election_ms
        self.time_out(node)
        self.settle()
        assert self[node].raft.role is Role.LEADER, self[node].raft.role
        return self[node]

    def beat(self, node: NodeId) -> None:
        """Let a leader send its next heartbeat."""
        self.now_ms += self.options.heartbeat_ms
        self[node].tick()

    # --- what is always true ---

    def note_ready(self, node: Node, ready: Ready) -> None:
        raft = node.raft
        if raft.role is Role.LEADER:
            known = self.leaders.setdefault(raft.term, node.node)
            assert known == node.node, f"term {raft.term} has two leaders"
        if self.on_ready is not None:
            self.on_ready(node, ready)

    def note_durable(self, node: Node, ready: Ready) -> None:
        state = ready.hard_state
        if state is not None and state.vote:
            assert self._votes.setdefault((node.node, state.term), state.vote) == state.vote, "voted twice"
        if self.on_durable is not None:
            self.on_durable(node, ready)

    def note_sending(self, node: Node, message: Message) -> None:
        """A leader's word has weight once its term and its vote for itself are durable."""
        if isinstance(message, Append | Heartbeat):
            assert node.durable.hard_state.term >= message.term, (node.node, message)

    def note_applied(self, node: NodeId, entry: Entry) -> None:
        known = self._applied.setdefault(entry.index, entry)
        assert known == entry, f"node {node} applies {entry}, others applied {known}"

    def logs(self) -> dict[NodeId, list[int]]:
        """The terms of the entries that each node has."""
        return {node.node: node.written.terms() for node in self.nodes.values()}

    def leader(self) -> Node:
        """The one that leads in the highest term."""
        leading = [node for node in self.nodes.values() if node.is_up and node.raft.role is Role.LEADER]
        return max(leading, key=lambda node: node.raft.term)
