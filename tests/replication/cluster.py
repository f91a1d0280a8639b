"""A cluster of real stores on fake disks, in one thread, by seed: time, network and power are events.

Rules: a batch is written some time after it was closed and finished some time after that. A power cut takes
what is not synced, also in the middle of a write; a kill takes nothing of the disk. Messages get lost, late
and out of order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from edged.core.commands import PutStream
from edged.core.stream_machine import StreamMachine
from edged.store.batch import Batch
from edged.store.errors import StoreError
from edged.store.group import CATALOG, PEERS
from edged.store.options import StoreOptions
from edged.store.store import Store
from hub.raft.members import Members
from hub.raft.options import RaftOptions
from hub.replication.questions import Question, answer
from hub.replication.repair import Repair
from hub.replication.repairs import Repairs
from hub.replication.replicas import Replicas
from tests.lab.crash_states import CrashStates
from tests.lab.fake_disk import FakeDisk

START_NS: Final = 1_700_000_000_000_000_000
OPTIONS: Final = RaftOptions(election_ms=150, heartbeat_ms=30, quiet_beats=3, append_bytes_max=8192)


class Node:
    """One node over all its starts."""

    def __init__(self, cluster: Cluster, node: int, file_bytes: int) -> None:
        self.cluster = cluster
        self.node = node
        self.file_bytes = file_bytes
        self.disk = FakeDisk(is_recording=True)
        self.image = FakeDisk()
        self.boot = 0
        self.store: Store | None = None
        self.replicas: Replicas
        self.closed: deque[Batch] = deque()
        self.is_written = False
        self.operations_before = 0
        self.is_flush_planned = False
        self.planned_us = 0
        self.options: dict[str, Any] = {}
        self.repairs: Repairs
        # What becomes of answers that this node gives to others.
        self.twist: Callable[[dict[str, Any]], dict[str, Any]] = lambda document: document

    def start(self) -> None:
        cluster = self.cluster
        self.boot += 1
        boot = self.boot
        self.closed.clear()
        self.is_written = self.is_flush_planned = False
        self.planned_us = 0
        self.replicas = Replicas(
            self.node,
            cluster.raft_options,
            lambda to, group, message: cluster.send(self, to, group, message),
            lambda: cluster.now_us // 1000,
            cluster.random.randint,
            self.wake,
        )
        options = StoreOptions(
            journal_file_bytes=self.file_bytes,
            now_ns=lambda: START_NS + cluster.now_us * 1000,
            draw_nonce=lambda: cluster.random.getrandbits(64) | 1,
            **self.options,
        )
        try:
            self.store = Store.open(self.disk, options, self.replicas)
        except BaseException as error:
            raise AssertionError(f"node {self.node} cannot start: {error}") from error
        if not self.replicas.has(CATALOG):
            self.replicas.begin(CATALOG, Members(frozenset(cluster.genesis)))
        cluster.started(self)
        cluster.after(0, self.flush, boot)
        self.repairs = Repairs(self.replicas, lambda repair: None, self._repaired)
        cluster.after(cluster.random.randint(0, 100_000), self.look_for_holes, boot, set())

    def wake(self) -> None:
        if not self.is_flush_planned:
            self.is_flush_planned = True
            self.cluster.after(self.cluster.random.randint(0, 500), self.flush, self.boot)

    def flush(self, boot: int) -> None:
        store = self.store
        if store is None or boot != self.boot:
            return
        self.is_flush_planned = False
        store.work()
        while store.has_gathered and len(self.closed) < 2:
            self.closed.append(store.close_batch())
            if len(self.closed) == 1:
                self.plan_write()
        self.plan_tick()

    def plan_write(self) -> None:
        self.cluster.after(self.cluster.random.randint(50, 3000), self.write, self.boot)

    def write(self, boot: int) -> None:
        store = self.store
        if store is None or boot != self.boot:
            return
        assert self.disk.operations is not None
        self.operations_before = len(self.disk.operations)
        store.write(self.closed[0])
        self.is_written = True
        self.cluster.after(self.cluster.random.randint(10, 1000), self.finish, self.boot)

    def finish(self, boot: int) -> None:
        store = self.store
        if store is None or boot != self.boot:
            return
        self.is_written = False
        store.finish(self.closed.popleft())
        if self.closed:
            self.plan_write()
        self.cluster.look_at(self)
        if store.is_cycle_due and self.cluster.random.random() < self.cluster.cycling:
            store.maintain()
        self.flush(boot)

    def plan_tick(self) -> None:
        due_ms = self.replicas.due_ms
        if due_ms is None:
            return
        time_us = max(due_ms * 1000, self.cluster.now_us + 1)
        if not self.planned_us or time_us < self.planned_us:
            self.planned_us = time_us
            self.cluster.after(time_us - self.cluster.now_us, self.tick, self.boot, time_us)

    def tick(self, boot: int, time_us: int) -> None:
        if self.store is None or boot != self.boot or time_us != self.planned_us:
            return
        self.planned_us = 0
        self.replicas.tick()
        self.flush(boot)

    def receive(self, boot: int, sender: int, group: int, message: Any) -> None:
        if self.store is not None and boot == self.boot:
            self.replicas.step(sender, group, message)

    # --- messages that are lost here ---

    def look_for_holes(self, boot: int, active: set[int]) -> None:
        if self.store is None or boot != self.boot:
            return
        self.repairs.look()
        for group, repair in self.repairs.under_way.items():
            if group not in active:
                active.add(group)
                repair.begin_round()
                self.ask(boot, active, repair)
        self.cluster.after(100_000, self.look_for_holes, boot, active)

    def ask(self, boot: int, active: set[int], repair: Repair) -> None:
        if self.store is None or boot != self.boot:
            return
        asked = repair.ask()
        if asked is None:
            repair.end_round(lambda: active.discard(repair.group))
            self.wake()
            return
        node, question = asked

        def next_one() -> None:
            self.cluster.after(1000, self.ask, boot, active, repair)

        def arrive(answered: dict[str, Any] | None) -> None:
            if self.store is None or boot != self.boot:
                return
            if answered is None:
                repair.failed("no answer")
                next_one()
            else:
                repair.answered(question, answered, next_one)
                self.wake()

        self.cluster.call(self, node, question.document(), arrive)

    def answer(self, sender: int, document: dict[str, Any]) -> dict[str, Any] | None:
        """What this node has of what another one lost."""
        if self.store is None:
            return None
        question = Question.of_document(document)
        self.replicas.asked(sender, question.group)
        found = answer(self.store, question)
        return None if found is None else self.twist(found.document())

    def _repaired(self, repair: Repair) -> None:
        self.cluster.begun_anew += repair.has_begun_anew
        self.cluster.repaired[self.node] = self.cluster.repaired.get(self.node, 0) + repair.put_back

    def stop(self, *, is_power_cut: bool) -> None:
        """Be gone from one moment to the next."""
        if self.store is None:
            return
        self.store = None
        self.boot += 1
        self.cluster.after(self.cluster.random.randint(100, 20_000), self.cluster.suspect, self.node)
        operations = self.disk.operations
        assert operations is not None
        if is_power_cut:
            count = len(operations)
            if self.is_written:
                count = self.cluster.random.randint(self.operations_before, count)
            self.disk = CrashStates(self.image, operations[:count]).drawn_at_end(self.cluster.random)
        self.disk.end_process()
        self.image = self.disk.copy()
        self.disk = self.disk.copy(is_recording=True)


class Cluster:
    """Some nodes, and what happens to them."""

    def __init__(
        self, seed: int, nodes: int = 3, file_bytes: int = 24_000, raft: RaftOptions = OPTIONS
    ) -> None:
        self.random = Random(seed)
        self.raft_options = raft
        self.now_us = 1_000_000
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.genesis = tuple(range(1, nodes + 1))
        self.nodes = {node: Node(self, node, file_bytes) for node in self.genesis}
        self.drop = 0.0
        self.delay_us = 500
        self.cut_links: set[tuple[int, int]] = set()
        # What (group, applied index) was like when it was first seen.
        self.seen: dict[tuple[int, int], Any] = {}
        self.messages_sent = 0
        # How many messages came back, by node.
        self.repaired: dict[int, int] = {}
        self.begun_anew = 0
        self.is_checking = True
        # How likely old journal files are sealed when they could be.
        self.cycling = 0.5

    # --- events ---

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_us + delay_us, self._count, action, arguments))

    def run(self, duration_us: int) -> None:
        end_us = self.now_us + duration_us
        while self._events and self._events[0][0] <= end_us:
            self.now_us, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)
        self.now_us = end_us

    def lead(self, number: int, group: int = 1) -> None:
        """Have this node lead a group."""

        def is_leading() -> bool:
            leader = self.leader(group)
            if leader is not None and leader.node != number:
                leader.replicas.transfer(group, number)
                leader.wake()
            return self.nodes[number].replicas.leads(group)

        self.run_until(is_leading)

    def run_until(self, is_there: Callable[[], Any], limit_us: int = 30_000_000) -> None:
        end_us = self.now_us + limit_us
        while not is_there():
            if self.now_us >= end_us:
                raise AssertionError(f"it does not come to that: {self.describe()}")
            self.run(5000)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    # --- network ---

    def send(self, sender: Node, to: int, group: int, message: Any) -> None:
        receiver = self.nodes.get(to)
        self.messages_sent += 1
        if receiver is None or (sender.node, to) in self.cut_links or self.random.random() < self.drop:
            return
        delay_us = self.random.randint(100, 100 + self.delay_us)
        self.after(delay_us, self._deliver, sender, sender.boot, receiver, group, message)

    def _deliver(self, sender: Node, boot: int, receiver: Node, group: int, message: Any) -> None:
        if boot == sender.boot:
            receiver.receive(receiver.boot, sender.node, group, message)

    def call(
        self, sender: Node, to: int, document: Any, arrive: Callable[[dict[str, Any] | None], None]
    ) -> None:
        """Ask a node, which may not answer."""
        links = {(sender.node, to), (to, sender.node)}
        is_lost = bool(links & self.cut_links) or self.random.random() < self.drop
        answered = None if is_lost else self.nodes[to].answer(sender.node, document)
        delay_us = self.random.randint(100, 100 + 2 * self.delay_us)
        self.after(delay_us if answered is not None else 200_000, arrive, answered)

    def suspect(self, gone: int) -> None:
        """The others see that their links to a node broke."""
        for node in self.up():
            if node.node != gone:
                node.replicas.suspect(gone)

    # --- looking around ---

    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.store is not None]

    def leader(self, group: int) -> Node | None:
        for node in self.up():
            if node.replicas.leads(group):
                return node
        return None

    def started(self, node: Node) -> None:
        """Told after each start."""

    def look_at(self, node: Node) -> None:
        """The same index means the same state on every node."""
        store = node.store
        if store is None or not self.is_checking:
            return
        for number, entry in store.catalog.streams.items():
            if entry.group.replica is None or entry.group.lacks_messages:
                continue
            state = state_of(store, number)
            before = self.seen.setdefault((number, entry.group.applied), state)
            assert before == state, (
                f"group {number} at {entry.group.applied} on node {node.node}:\n{before}\n{state}"
            )

    def describe(self) -> str:
        lines = []
        for node in self.nodes.values():
            if node.store is None:
                lines.append(f"node {node.node} is down")
                continue
            for number, group in sorted(node.store.groups.items()):
                if group.replica is not None:
                    raft = node.replicas._replicas[number].raft
                    log = raft.log
                    lines.append(
                        f"node {node.node} group {number}: {raft.role.name} term {raft.term}"
                        f" leader {raft.leader} applied {group.applied}"
                        f" log {log.base_index}..{log.commit}..{log.stable}..{log.last}"
                        f" rejoin {raft.must_rejoin} due {raft.due_ms} voters {sorted(raft.members.voters)}"
                    )
        return "\n".join([f"at {self.now_us // 1000} ms", *lines])

    # --- clients ---

    def commit(self, group: int, command: Any, limit_us: int = 10_000_000) -> Any:
        """Have whoever leads take a command, again until it was taken."""
        results: list[Any] = []
        asked = 0

        def is_done() -> bool:
            nonlocal asked
            if results and not isinstance(results[-1], StoreError):
                return True
            leader = self.leader(group)
            if leader is not None and leader.store is not None and len(results) == asked:
                asked += 1
                leader.store.add(group, command, results.append)
                leader.wake()
            return False

        self.run_until(is_done, limit_us)
        return results[-1][0]

    def put_stream(self, group: int, peers: tuple[int, ...], **config: Any) -> None:
        config = {"name": f"S{group}", "subjects": [f"s{group}.>"], PEERS: list(peers), **config}
        stream_id = group.to_bytes(16, "big")
        assert self.commit(CATALOG, PutStream(group, stream_id, "A", f"S{group}", config)) == 0


def state_of(store: Store, number: int) -> tuple[Any, ...]:
    """What must be equal on all nodes."""
    machine = store.groups[number].machine
    assert isinstance(machine, StreamMachine)
    log = machine.log
    return (log.first_seq, log.last_seq, log.message_count, log.bytes, machine.snapshot())


def messages_of(store: Store, number: int) -> dict[int, tuple[Any, ...]]:
    log = store.catalog.streams[number].log
    found: dict[int, tuple[Any, ...]] = {}
    seq = log.next_matching((), 1)
    while seq is not None:
        message = log.get(seq)
        assert message is not None, seq
        found[seq] = tuple(message)
        seq = log.next_matching((), seq + 1)
    return found
