"""The meta group: all nodes of a cluster, who agree on which streams there are and where.

A node without a past begins a cluster with others, or is taken into one (hub/joining.py). Whoever leads the
group takes in nodes that are new, and knows enough of all nodes to say where a stream goes.

Rules: a node is taken in only if it is new. One that was removed is not: it has a past, and comes back with
another disk or not at all. Nothing here changes a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import trio

from edged.server.log import Log
from hub.identity import peer_name
from hub.joining import Seen, first_members, why_waiting
from hub.links.control import CallFailed
from hub.membership import next_step
from hub.placement import NodeFacts
from hub.raft.members import Members, NodeId

META: Final = 0
ROUND_S: Final = 1.0
"""How often nodes are asked for their facts, at least; after a change of links or leaders it is sooner."""
CALL_S: Final = 2.0
CATCH_UP_ENTRIES: Final = 1000
"""How many entries a newcomer may lack when it begins to vote: some come while the change is agreed on."""
PROMISE_S: Final = 10.0
"""How long a node that promised to begin with one other waits for it before it listens to the next."""
FACTS: Final = "facts"
PROMISE: Final = "promise"
BEGIN: Final = "begin"


class Nodes(Protocol):
    """What is needed of the links."""

    @property
    def peers(self) -> Mapping[NodeId, Any]:
        """Every node that is known."""

    async def call(self, node: NodeId, method: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask another node. Raises CallFailed."""


class Groups(Protocol):
    """What is needed of the replicas."""

    def has(self, group: int) -> bool: ...
    def leads(self, group: int) -> bool: ...
    def status(self, group: int) -> Any: ...
    def begin(self, group: int, members: Members) -> None: ...
    def change(self, group: int, voters: frozenset[NodeId], learners: frozenset[NodeId]) -> bool: ...


def _nothing() -> None:
    """Until somebody wants more."""


class MetaGroup:
    """This node's part in it. `own_facts` tells what the others want to know of this node."""

    def __init__(
        self,
        node: NodeId,
        nodes: Nodes,
        groups: Groups,
        own_facts: Callable[[], NodeFacts],
        routes: Callable[[], tuple[bool, bool]],
        flush: Callable[[], object],
        log: Log,
    ) -> None:
        self.node = node
        self._nodes = nodes
        self._groups = groups
        self._own_facts = own_facts
        # Whether there are routes in the configuration, and whether each of them leads to somebody.
        self._routes = routes
        self._flush = flush
        self._log = log
        self._wake = trio.Event()
        self._told = ""
        # What the nodes that are connected said of themselves last, and which of them are new.
        self.facts: dict[NodeId, NodeFacts] = {}
        self._new: dict[NodeId, bool] = {}
        # To whom this node promised to begin with it, and until when nobody else is listened to.
        self._promised_to: NodeId = 0
        self._promised_until = 0.0
        # Called in every round.
        self.on_round: Callable[[], None] = _nothing
        # Nodes that are to leave, or were told to; they are not taken in again.
        self.leaving: set[NodeId] = set()

    @property
    def methods(self) -> dict[str, Any]:
        """What other nodes may call."""
        return {FACTS: self._answer_facts, PROMISE: self._answer_promise, BEGIN: self._answer_begin}

    @property
    def is_new(self) -> bool:
        """Whether this node has no past."""
        return not self._groups.has(META)

    def changed(self) -> None:
        """Something happened to a link, a leader or the members: look again soon."""
        self._wake.set()

    async def run(self) -> None:
        """Join a cluster, then keep it together while this node leads it. Never ends."""
        while True:
            self._wake = trio.Event()
            await self._ask_everybody()
            if self.is_new:
                await self._join()
            elif self._groups.leads(META):
                await self._take_in()
            self.on_round()
            self._flush()
            with trio.move_on_after(ROUND_S):
                await self._wake.wait()

    # --- what nodes tell each other ---

    async def _ask_everybody(self) -> None:
        connected = [node for node, peer in self._nodes.peers.items() if peer.is_up]
        for gone in set(self._new) - set(connected):
            del self._new[gone]
        async with trio.open_nursery() as nursery:
            for node in connected:
                nursery.start_soon(self._ask, node)
        self.facts[self.node] = self._own_facts()

    async def _ask(self, node: NodeId) -> None:
        try:
            answer = await self._nodes.call(node, FACTS, {}, CALL_S)
            self._new[node] = bool(answer["is_new"])
            self.facts[node] = _read_facts(node, answer)
        except (CallFailed, KeyError, TypeError, ValueError):
            # It is asked again before long; until then it is neither taken in nor counted as new.
            self._new.pop(node, None)

    async def _answer_facts(self, sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
        own = self._own_facts()
        return {
            "is_new": self.is_new,
            "name": own.name,
            "cluster": own.cluster,
            "tags": sorted(own.tags),
            "has_jetstream": own.has_jetstream,
            "file_bytes_free": own.file_bytes_free,
            "memory_bytes_free": own.memory_bytes_free,
        }

    async def _answer_promise(self, sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
        """Another node would begin with this one."""
        now = trio.current_time()
        is_free = self._promised_to in (0, sender) or now >= self._promised_until
        is_given = self.is_new and is_free
        if is_given:
            self._promised_to, self._promised_until = sender, now + PROMISE_S
        return {"is_given": is_given}

    async def _answer_begin(self, sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
        """Another node says who the members are. Only a node without a past believes that."""
        is_taken = self.is_new
        if is_taken:
            self._begin(Members(frozenset(int(node) for node in body["voters"])))
        return {"is_taken": is_taken}

    # --- becoming a member ---

    async def _join(self) -> None:
        has_routes, is_complete = self._routes()
        seen = Seen(self.node, has_routes, is_complete and self._is_everybody_known(), dict(self._new))
        members = first_members(seen)
        if members is None:
            self._tell(f"waiting for {why_waiting(seen)}")
            return
        others = sorted(members.voters - {self.node})
        if not await self._have_promises(others):
            self._tell("waiting for all nodes to agree on who begins the cluster")
            return
        body = {"voters": sorted(members.voters)}
        for node in others:
            try:
                await self._nodes.call(node, BEGIN, body, CALL_S)
            except CallFailed as failure:
                # It is a member all the same, and hears of it from the leader.
                self._log.warn("a node did not answer when the cluster began", node=node, reason=str(failure))
        if self.is_new:
            self._begin(members)

    async def _have_promises(self, others: Sequence[NodeId]) -> bool:
        """Whether all of these begin with this node, and with nobody else meanwhile."""
        if self._promised_to not in (0, self.node) and trio.current_time() < self._promised_until:
            return False
        self._promised_to, self._promised_until = self.node, trio.current_time() + PROMISE_S
        for node in others:
            try:
                answer = await self._nodes.call(node, PROMISE, {}, CALL_S)
            except CallFailed:
                return False
            if not answer.get("is_given"):
                return False
        return self.is_new

    def _is_everybody_known(self) -> bool:
        """Whether every node that is connected has said whether it is new."""
        return all(node in self._new for node, peer in self._nodes.peers.items() if peer.is_up)

    def _begin(self, members: Members) -> None:
        names = ", ".join(peer_name(node) for node in sorted(members.voters))
        self._log.info("joining a cluster", members=names)
        self._groups.begin(META, members)
        self._flush()

    # --- leading ---

    async def _take_in(self) -> None:
        """Bring nodes that are new into the group, and those that are to leave out of it."""
        status = self._groups.status(META)
        members: Members = status.members
        newcomers = [node for node, is_new in self._new.items() if is_new and node not in self.leaving]
        for node in newcomers:
            body = {"voters": sorted(members.voters - {node})}
            try:
                await self._nodes.call(node, BEGIN, body, CALL_S)
            except CallFailed as failure:
                self._log.warn("a new node could not be taken in yet", node=node, reason=str(failure))
        # The state may have changed while others were asked.
        if not self._groups.leads(META):
            return
        status = self._groups.status(META)
        members = status.members
        wanted = (members.voters | members.learners | set(newcomers)) - self.leaving
        step = next_step(members, wanted or members.voters, caught_up(status))
        if step is not None and self._groups.change(META, step.voters, step.learners):
            self._log.info(
                "members of the cluster change",
                voters=", ".join(peer_name(node) for node in sorted(step.voters)),
                learners=", ".join(peer_name(node) for node in sorted(step.learners)) or "none",
            )

    def _tell(self, text: str) -> None:
        """Say it once."""
        if text != self._told:
            self._told = text
            self._log.info(text)


def caught_up(status: Any) -> set[NodeId]:
    """The followers that have about everything."""
    return {
        node
        for node, (match, is_active) in status.followers.items()
        if is_active and match + CATCH_UP_ENTRIES >= status.commit
    }


def _read_facts(node: NodeId, answer: Mapping[str, Any]) -> NodeFacts:
    return NodeFacts(
        node,
        str(answer["name"]),
        str(answer["cluster"]),
        frozenset(str(tag).lower() for tag in answer["tags"]),
        has_jetstream=bool(answer["has_jetstream"]),
        file_bytes_free=int(answer["file_bytes_free"]),
        memory_bytes_free=int(answer["memory_bytes_free"]),
    )
