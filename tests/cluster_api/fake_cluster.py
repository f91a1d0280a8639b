"""A cluster without sockets and consensus: the test says who leads; what a leader commits all members apply.

Every node is the real server, JetStream and store. In the place of replication and links stands one object
that knows everything, `FakeHub`; each node sees it through a `FakeNode`. Clients listen on all nodes at once,
and publish on the one that they are connected to; what nodes have subscribed to is routed to them.

Rules: what is submitted on a node that does not lead is refused. What a leader submits is applied on all
members with the next flush, on each by its own machine: so `assert_alike()` tells whether they decide alike.
Nothing is committed in a group that has no quorum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final, cast

import msgpack
import trio

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import AccountJetStream, AccountOptions, LoggingOptions, Options
from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import PEERS, Command, PutStream, RemoveStream
from edged.core.stream_config import StreamConfig
from edged.core.stream_machine import StreamMachine
from edged.core.wire import Publish
from edged.ports import CallFailed, LocalRouter
from edged.server.account import Account
from edged.server.jetstream.cluster_calls import answer_call
from edged.server.jetstream.jetstream import JetStream
from edged.server.jetstream.stream import Stream
from edged.server.log import Log
from edged.server.server import Server
from edged.store.batch import Done
from edged.store.errors import LeadershipLost, NotLeader
from edged.store.group import CATALOG
from edged.store.options import StoreOptions
from edged.store.store import Store
from tests.lab.fake_disk import FakeDisk

START_NS: Final = 1_800_000_000 * 10**9
ACCOUNT: Final = "A"
SYSTEM: Final = "SYS"
_GIBIBYTE: Final = 1 << 30
_DEADLINE_S: Final = 30.0

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A stream of which a node has no copy."""

    account: str
    name: str
    stream_id: bytes
    config: Document


class _Server(Server):
    """A server that reads the clock of the loop."""

    def now_ns(self) -> int:
        return START_NS + int(trio.current_time() * 1e9)

    def monotonic_ns(self) -> int:
        return self.now_ns()


class _Router(LocalRouter):
    """What a node has announced."""

    def __init__(self) -> None:
        self.announced: list[tuple[str, bytes]] = []

    def interest_added(self, account: str, subject: bytes, queue: bytes | None) -> None:
        self.announced.append((account, subject))

    def interest_removed(self, account: str, subject: bytes, queue: bytes | None) -> None:
        self.announced.remove((account, subject))


# What is submitted: for one store it is added with `done`.
_Add = Callable[[Store, Done], None]


class _Committer:
    """The door of one node."""

    flush_due_ns = None
    is_full = False
    sealing_error = None

    def __init__(self, hub: FakeHub, node: int) -> None:
        self._hub = hub
        self._node = node

    def submit(self, group: int, command: Command, done: Done) -> None:
        self._hub.propose(self._node, group, command, lambda store, one: store.add(group, command, one), done)

    def submit_appends(self, group: int, messages: Sequence[Publish], ts_ns: int, done: Done) -> None:
        kept = list(messages)
        add: _Add = lambda store, one: store.add_appends(group, kept, ts_ns, one)  # noqa: E731
        self._hub.propose(self._node, group, None, add, done)

    def flush(self) -> None:
        self._hub.apply()

    def tend(self, now_ns: int) -> None:
        """The disk is in memory."""

    def when_there_is_room(self, call: Callable[[], None]) -> None:
        call()

    def close(self) -> None:
        """Nothing is on its way."""


class FakeNode:
    """A node, and the cluster as it sees it."""

    def __init__(self, hub: FakeHub, node: int) -> None:
        self.hub = hub
        self.node = node
        self.name = f"n{node}"
        self.is_up = True
        self.router = _Router()
        self.elsewhere: dict[int, Elsewhere] = {}
        options = Options(
            server_name=self.name,
            jetstream=JetStreamOptions(max_memory=_GIBIBYTE, max_store=_GIBIBYTE),
            system_account=SYSTEM,
            accounts=(
                AccountOptions(name=ACCOUNT, jetstream=AccountJetStream()),
                AccountOptions(name=SYSTEM),
            ),
        )
        self.server = _Server(options, Log(LoggingOptions(), StringIO()), self.router, hub.nursery)
        store_options = StoreOptions(now_ns=self.server.now_ns, draw_nonce=lambda: hub.next_nonce())
        self.store = Store.open(FakeDisk(), store_options)
        assert options.jetstream is not None
        self.jetstream = JetStream(self.server, self.store, options.jetstream, "", self)
        self.jetstream.committer = cast(Any, _Committer(hub, node))
        self.server.jetstream = self.jetstream

    def account(self, name: str = ACCOUNT) -> Account:
        return self.server.accounts[name]

    # --- Cluster ---

    def leads(self, group: int) -> bool:
        return self.hub.leaders.get(group) == self.node

    def is_sure(self, group: int) -> bool:
        return group not in self.hub.unsure

    def make_sure(self, group: int, done: Callable[[bool], None]) -> None:
        self.hub.asked.append((self.node, group, done))

    def leader(self, group: int) -> int:
        return self.hub.leaders.get(group, 0)

    def leader_name(self, group: int) -> str:
        return f"n{self.leader(group)}" if self.leader(group) else ""

    def cluster_document(self, group: int) -> Document:
        document: Document = {"name": "C"}
        members = self.hub.members.get(group, [])
        if len(members) > 1:
            document["raft_group"] = f"S-R{len(members)}F-{group}"
        if self.leader(group):
            document["leader"] = self.leader_name(group)
        others = [one for one in self.replicas_document(group) if one["name"] != self.leader_name(group)]
        return {**document, "replicas": others} if others else document

    def replicas_document(self, group: int) -> list[Document]:
        return [
            {"name": f"n{one}", "current": True, "active": 0, "peer": f"peer{one}"}
            for one in self.hub.members.get(group, [])
        ]

    def meta_document(self) -> Document:
        leader = self.leader_name(CATALOG)
        return {"name": "C", **({"leader": leader} if leader else {}), "cluster_size": len(self.hub.nodes)}

    def assignments(self, account: str) -> Mapping[int, Elsewhere]:
        return {group: one for group, one in self.elsewhere.items() if one.account == account}

    def find(self, account: str, name: str) -> int:
        found = [g for g, one in self.elsewhere.items() if (one.account, one.name) == (account, name)]
        return found[0] if found else 0

    def place(self, config: StreamConfig, nodes: Sequence[int]) -> list[int]:
        count = max(config.num_replicas, 1)
        others = [node for node in self.hub.placement if node not in nodes]
        if count > len(nodes) + len(others) or config.placement is not None:
            raise ApiFailure(api_errors.cluster_no_peers("no suitable peers for placement"))
        return [*nodes, *others][:count]

    async def serving(self, group: int) -> None:
        while not self.leader(group):
            await self.jetstream.change.wait()

    def forward(self, node: int, account: str, message: Publish) -> None:
        self.hub.forwarded.append((self.node, node, message[0]))
        target = self.hub.nodes[node]
        if target.is_up:
            subject, reply, header_bytes, data = message
            target.account(account).publish(subject, reply, data, header_bytes)
            target.server.flush()

    async def call(self, node: int, method: str, body: Document) -> Document:
        assert method == "api"
        target = self.hub.nodes[node]
        if not target.is_up:
            raise CallFailed(f"{target.name} is down")
        self.hub.calls.append((self.node, node, body["what"]))
        # As much as any link can carry, and not more.
        asked = msgpack.unpackb(msgpack.packb(body))
        answer = await answer_call(target.jetstream, asked)
        await trio.lowlevel.checkpoint()
        carried: Document = msgpack.unpackb(msgpack.packb(answer))
        return carried

    async def stepdown(self, group: int, placement: Mapping[str, Any]) -> None:
        preferred = placement.get("preferred")
        others = [one for one in self.hub.members[group] if one != self.node]
        if preferred and preferred not in {f"n{one}" for one in self.hub.nodes}:
            raise ApiFailure(api_errors.cluster_no_peers(f'preferred server "{preferred}" not known'))
        chosen = [one for one in others if preferred in (None, "", f"n{one}")]
        self.hub.elect(group, chosen[0])

    async def remove_peer(self, group: int, peer: str) -> None:
        if peer not in {one["name"] for one in self.replicas_document(group)}:
            raise ApiFailure(api_errors.CLUSTER_PEER_NOT_MEMBER)
        raise ApiFailure(api_errors.PEER_REMAP)

    async def cancel_move(self, group: int) -> None:
        raise ApiFailure(api_errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS)

    async def move(self, group: int, request: Mapping[str, Any]) -> None:
        raise ApiFailure(api_errors.CLUSTER_SERVER_NOT_MEMBER)

    async def remove_server(self, peer: str, peer_id: str, *, is_evacuated: bool) -> None:
        raise ApiFailure(api_errors.CLUSTER_SERVER_NOT_MEMBER)


class FakeHub:
    """All nodes, who leads what, and what is on its way."""

    def __init__(self, nursery: trio.Nursery, count: int = 3) -> None:
        self.nursery = nursery
        self._nonce = 0
        # By group: who has it, who leads it (0: nobody), and which of them cannot commit anything.
        self.members: dict[int, list[int]] = {CATALOG: list(range(1, count + 1))}
        self.leaders: dict[int, int] = {CATALOG: 1}
        self.stuck: set[int] = set()
        # Groups of which no leader knows whether it still leads, and who waits to hear: node, group, answer.
        self.unsure: set[int] = set()
        self.asked: list[tuple[int, int, Callable[[bool], None]]] = []
        # In which order nodes are given streams.
        self.placement = list(range(1, count + 1))
        # What nodes asked each other, and what they forwarded.
        self.calls: list[tuple[int, int, str]] = []
        self.forwarded: list[tuple[int, int, bytes]] = []
        self._log: deque[tuple[int, int, Command | None, _Add, Done]] = deque()
        self._is_applying = False
        # Set, and replaced, when something was applied.
        self._applied = trio.Event()
        # The subject that is being routed, which clients have had already.
        self.routed = b""
        self.nodes = {node: FakeNode(self, node) for node in range(1, count + 1)}
        for node in self.nodes.values():
            nursery.start_soon(node.server.deadlines.run)
            nursery.start_soon(node.jetstream.run)

    def next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def close(self) -> None:
        for node in self.nodes.values():
            node.jetstream.close()

    # --- commits ---

    def propose(self, node: int, group: int, command: Command | None, add: _Add, done: Done) -> None:
        if self.leaders.get(group) != node:
            done(NotLeader())
            return
        self._log.append((node, group, command, add, done))

    def apply(self) -> None:
        """Commit what can be, and apply it everywhere."""
        if self._is_applying:
            return
        self._is_applying = True
        try:
            kept: list[tuple[int, int, Command | None, _Add, Done]] = []
            while self._log:
                entry = self._log.popleft()
                if entry[1] in self.stuck:
                    kept.append(entry)
                else:
                    self._apply(*entry)
            self._log.extend(kept)
        finally:
            self._is_applying = False
        applied, self._applied = self._applied, trio.Event()
        applied.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so because of what was applied."""
        with trio.fail_after(_DEADLINE_S):
            while not is_so():
                await self._applied.wait()

    def _apply(self, proposer: int, group: int, command: Command | None, add: _Add, done: Done) -> None:
        if isinstance(command, PutStream | RemoveStream):
            self._follow(command)
        results: list[Any] = []
        for node in self._holders(group, command):
            add(node.store, results.append if node.node == proposer else _ignore)
            node.store.settle()
        if isinstance(command, PutStream) and not self.leaders.get(command.group):
            self.elect(command.group, self.members[command.group][0])
        if isinstance(command, RemoveStream):
            self.members.pop(command.group)
            self.leaders.pop(command.group)
        if isinstance(command, PutStream | RemoveStream):
            for node in self.nodes.values():
                node.jetstream.changed()
        done(results[0] if results else [0])

    def _holders(self, group: int, command: Command | None) -> list[FakeNode]:
        """The nodes whose stores are told of a command."""
        target = command.group if isinstance(command, PutStream | RemoveStream) else group
        return [self.nodes[node] for node in self.members[target]]

    def _follow(self, command: PutStream | RemoveStream) -> None:
        """What nodes know that have no copy."""
        for node in self.nodes.values():
            if isinstance(command, RemoveStream):
                node.elsewhere.pop(command.group, None)
                continue
            highest = node.store.catalog.highest_group
            node.store.catalog.highest_group = max(highest, command.group)
            self.members.setdefault(command.group, command.config[PEERS])
            if node.node not in self.members[command.group]:
                node.elsewhere[command.group] = Elsewhere(
                    command.account, command.name, command.stream_id, command.config
                )

    # --- leaders ---

    def elect(self, group: int, leader: int) -> None:
        """Let another node lead, 0: nobody. What the last one has not committed is lost."""
        before = self.leaders.get(group, 0)
        self.leaders[group] = 0
        lost = [entry for entry in self._log if entry[1] == group]
        for node in (before, *(one for one in self.nodes if one != before)):
            if node:
                self.nodes[node].jetstream.leadership_changed(group)
        self._log = deque(entry for entry in self._log if entry[1] != group)
        for entry in lost:
            entry[4](LeadershipLost())
        self.leaders[group] = leader
        for one in self.nodes.values():
            one.jetstream.leadership_changed(group)
        self.flush()

    def flush(self) -> None:
        for node in self.nodes.values():
            node.server.flush()

    # --- what tests look at ---

    def group(self, stream: str) -> int:
        found = [one.account_group(stream) for one in map(_Lookup, self.nodes.values())]
        return max(found)

    def leading(self, stream: str) -> Stream:
        """A stream where it is led."""
        group = self.group(stream)
        return self.nodes[self.leaders[group]].jetstream.by_group[group]

    def assert_alike(self, stream: str) -> None:
        """All members have the same messages, and decide alike."""
        group = self.group(stream)
        states = []
        for node in self.members[group]:
            machine = self.nodes[node].store.catalog.streams[group].group.machine
            assert isinstance(machine, StreamMachine)
            log = machine.log
            messages = [log.get(seq) for seq in range(log.first_seq, log.last_seq + 1)]
            states.append((messages, log.last_seq, _snapshot(machine)))
        assert all(state == states[0] for state in states), states


class _Lookup:
    """Finds the group of a stream by its name on one node."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def account_group(self, stream: str) -> int:
        return self._node.jetstream.accounts[ACCOUNT].group_of(stream)


def _ignore(result: object) -> None:
    """A follower answers nobody."""


def _snapshot(machine: StreamMachine) -> Document:
    """What a machine would go on from, without what only its leader knows."""
    snapshot = machine.snapshot()
    # Consumers that are in memory have numbers of the leader's own.
    snapshot.pop("highest_consumer")
    return snapshot
