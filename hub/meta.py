"""The meta group: all nodes of a cluster, who agree on which streams there are and where.

A node without a past begins a cluster with others, or is taken into one (hub/joining.py). Whoever leads the
group takes in nodes that are new, and knows enough of all nodes to say where a stream goes.

Whoever is about to begin a cluster has the promise of all others to begin with nobody else for a while. Then
it begins, and from there on every member tells the new ones among the first members who they are, until
somebody leads: it does not matter which of them is interrupted, and when.

Rules: a node is taken in only if it is new. One that was removed is not: it has a past, and comes back with
another disk or not at all. Nothing here changes a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
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
BEGIN_S: Final = PROMISE_S / 2
"""How long the other may take until it begins. By the end of the promise it has been heard that it did."""
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
            else:
                await self._begin_others()
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
        """Another node would begin with this one, which must not see a cluster, either."""
        is_given = self.is_new and self._listens_to(sender) and self._is_everybody_new()
        if is_given:
            self._promise(sender)
        return {"is_given": is_given}

    async def _answer_begin(self, sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
        """A member says who the members are. Only a node without a past believes that."""
        # While this one is promised to somebody, that one counts on it.
        is_taken = self.is_new and self._listens_to(sender)
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
        if not await self._have_promises(members.voters - {self.node}):
            self._tell("waiting for all nodes to agree on who begins the cluster")
            return
        self._begin(members)
        await self._begin_others()

    async def _have_promises(self, others: Collection[NodeId]) -> bool:
        """Whether all of these begin with this node, and with nobody else meanwhile."""
        if not self._listens_to(self.node):
            return False
        asked_s = trio.current_time()
        self._promise(self.node)
        given: set[NodeId] = set()

        async def ask(node: NodeId) -> None:
            with suppress(CallFailed):
                answer = await self._nodes.call(node, PROMISE, {}, CALL_S)
                if answer.get("is_given"):
                    given.add(node)

        async with trio.open_nursery() as nursery:
            for node in others:
                nursery.start_soon(ask, node)
        return self.is_new and given == set(others) and trio.current_time() < asked_s + BEGIN_S

    def _listens_to(self, node: NodeId) -> bool:
        """Whether no other node counts on this one."""
        return self._promised_to in (0, node) or trio.current_time() >= self._promised_until

    def _promise(self, node: NodeId) -> None:
        self._promised_to, self._promised_until = node, trio.current_time() + PROMISE_S

    def _is_everybody_new(self) -> bool:
        """Whether every node that is connected has said that it is new."""
        return self._is_everybody_known() and all(self._new.values())

    def _is_everybody_known(self) -> bool:
        """Whether every node that is connected has said whether it is new."""
        return all(node in self._new for node, peer in self._nodes.peers.items() if peer.is_up)

    def _begin(self, members: Members) -> None:
        names = ", ".join(peer_name(node) for node in sorted(members.voters))
        self._log.info("joining a cluster", members=names)
        self._groups.begin(META, members)
        self._flush()

    async def _begin_others(self) -> None:
        """Tell the first members who they are, as long as nobody has led them."""
        status = self._groups.status(META)
        if status.leader or status.last:
            # A majority of them knows, and whoever leads tells the others.
            return
        voters: frozenset[NodeId] = status.members.voters
        await self._tell_members(dict.fromkeys(self._new_nodes() & voters, voters))

    def _new_nodes(self) -> frozenset[NodeId]:
        """Those that are connected and have no past."""
        return frozenset(node for node, is_new in self._new.items() if is_new)

    async def _tell_members(self, voters: Mapping[NodeId, frozenset[NodeId]]) -> None:
        """Tell new nodes who the voters are, each its own."""
        async with trio.open_nursery() as nursery:
            for node, others in voters.items():
                nursery.start_soon(self._tell_node, node, others)

    async def _tell_node(self, node: NodeId, voters: frozenset[NodeId]) -> None:
        try:
            await self._nodes.call(node, BEGIN, {"voters": sorted(voters)}, CALL_S)
        except CallFailed as failure:
            # It is told again in the next round.
            self._log.warn("a new node could not be taken in yet", node=node, reason=str(failure))

    # --- leading ---

    async def _take_in(self) -> None:
        """Bring nodes that are new into the group, and those that are to leave out of it."""
        status = self._groups.status(META)
        members: Members = status.members
        newcomers = self._new_nodes() - self.leaving
        await self._tell_members({node: members.voters - {node} for node in newcomers})
        # The state may have changed while others were asked.
        if not self._groups.leads(META):
            return
        status = self._groups.status(META)
        members = status.members
        wanted = (members.voters | members.learners | newcomers) - self.leaving
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
