"""A node of the hub: what surrounds the daemon when there are others. The only file that knows all parts.

The daemon is that of the edge. What differs stands behind its ports: interest travels to other nodes
(`ClusterRouter`), groups are decided by several nodes (`Replicas`), and JetStream knows a cluster
(`HubCluster`).
"""

from __future__ import annotations

import random
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.server.jetstream.figures import reserved_bytes
from edged.server.jetstream.resources import store_directory
from edged.store.errors import StoreBroken
from hub.cluster import HubCluster
from hub.identity import IdentityBroken, node_in
from hub.links.control import CallFailed
from hub.links.links import Links
from hub.meta import CALL_S, META, MetaGroup
from hub.moves import Moves
from hub.placement import NodeFacts
from hub.raft.members import NodeId
from hub.raft.options import RaftOptions
from hub.repairing import Repairing
from hub.replication.replicas import Replicas
from hub.rescue import MetaRescue
from hub.router import ClusterRouter

if TYPE_CHECKING:
    from edged.ports import Router
    from edged.server.server import Server

LEADS: Final = "leads"
TICK_MAX_S: Final = 0.1
"""How long consensus waits at most for what is due later: it may become due sooner."""
TICK_IDLE_S: Final = 60.0
"""How long while nothing is due. Whatever happens wakes it."""
LEAVE_S: Final = 2.0
"""How long a node that stops waits for others to take over what it leads."""


class ClusterNode:
    """Implements ports.Surroundings."""

    def __init__(self) -> None:
        self._router = ClusterRouter()
        self._server: Server
        self._links: Links
        self._nursery: trio.Nursery
        # Set when the clock of consensus is to be looked at before it is time, as nothing was due.
        self._wake = trio.Event()
        self._is_idle = False
        # None without JetStream.
        self._replicas: Replicas | None = None
        self._repairing: Repairing | None = None
        self.cluster: HubCluster | None = None

    @property
    def router(self) -> Router:
        """Tells other nodes who listens here."""
        return self._router

    # --- life ---

    async def open(self, server: Server) -> None:
        """Open the store, and know the others before the first client connects."""
        options = server.options
        assert options.cluster is not None
        node = NodeId(1 + secrets.randbelow(2**63 - 1))
        if options.jetstream is not None:
            directory = store_directory(options, options.jetstream)
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            try:
                node = node_in(directory, secrets.randbelow)
            except IdentityBroken as error:
                raise StoreBroken(str(error)) from error
        self._server = server
        self._links = Links(server, options.cluster, node, self._router)
        if options.jetstream is None:
            return
        replicas = Replicas(node, RaftOptions(), self._links.send, _now_ms, random.randint, self._wake_up)
        replicas.proposes_changes = False
        self.cluster = HubCluster(node, server, self._links, replicas)
        self.cluster.meta = MetaGroup(
            node, self._links, replicas, self._own_facts, self._routes, server.flush, server.log
        )
        self.cluster.moves = Moves(self.cluster, replicas)
        self.cluster.rescue = MetaRescue(
            replicas, lambda: replicas.status(META).members, time.monotonic, server.log
        )
        self.cluster.meta.on_round = self.cluster.rescue.look
        self._replicas = replicas
        self._repairing = Repairing(server, self._links, replicas)
        # Much code that a node without JetStream does not need.
        from edged.server.jetstream.cluster_calls import answer_call
        from edged.server.jetstream.jetstream import JetStream

        jetstream = await JetStream.open(server, self.cluster, replicas)
        server.jetstream = self.cluster.jetstream = jetstream

        async def answer_api(_sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
            return await answer_call(jetstream, body)

        self._links.methods.update(
            {
                **self.cluster.meta.methods,
                **self.cluster.moves.methods,
                **self._repairing.methods,
                LEADS: self._hear,
                "api": answer_api,
            }
        )
        self._links.on_raft = replicas.step
        self._links.on_up = self._link_up
        self._links.on_down = self._link_down
        replicas.on_leadership = self._leadership_changed
        replicas.on_members = self._members_changed

    async def run(self) -> None:
        """Link with the others, and take part in what they decide."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._links.run)
            if self._replicas is not None and self.cluster is not None:
                nursery.start_soon(self._tick_forever, self._replicas)
                nursery.start_soon(self.cluster.meta.run)
                nursery.start_soon(self.cluster.moves.run)
            if self._repairing is not None:
                nursery.start_soon(self._repairing.run)

    async def leave(self) -> None:
        """Let others lead what this node leads; not for long, as they would do it by themselves."""
        replicas, cluster = self._replicas, self.cluster
        if replicas is None or cluster is None:
            return
        groups = [META, *cluster.jetstream.store.catalog.streams]
        led = [group for group in groups if replicas.leads(group) and _has_others(replicas, group)]
        led = [group for group in led if cluster.moves.hand_over(group)]
        self._server.flush()
        with trio.move_on_after(LEAVE_S):
            while any(replicas.leads(group) for group in led):
                change = cluster.jetstream.change
                await change.wait()

    # --- time ---

    async def _tick_forever(self, replicas: Replicas) -> None:
        while True:
            due_ms = replicas.due_ms
            self._is_idle = due_ms is None
            pause_s = (
                TICK_IDLE_S if due_ms is None else min(max((due_ms - _now_ms()) / 1000, 0.0), TICK_MAX_S)
            )
            self._wake = trio.Event()
            with trio.move_on_after(pause_s):
                await self._wake.wait()
            replicas.tick()
            self._server.flush()

    def _wake_up(self) -> None:
        """Consensus has work. Whoever brought it flushes at the end of its turn; the clock may have stood."""
        if self._is_idle:
            self._look_at_clock()

    def _look_at_clock(self) -> None:
        self._is_idle = False
        self._wake.set()
        self._server.tasks_waiting = True

    # --- who leads, and who is there ---

    def _leadership_changed(self, group: int) -> None:
        replicas, cluster = self._replicas, self.cluster
        assert replicas is not None and cluster is not None
        status = replicas.status(group)
        if replicas.leads(group) or status.leader != cluster.node:
            # Whoever has been elected leads from the moment on at which it can serve.
            is_news = cluster.leaders.hear(group, status.term, status.leader)
            if is_news and replicas.leads(group):
                self._tell_everybody([[group, status.term]])
        cluster.jetstream.leadership_changed(group)
        cluster.meta.changed()
        cluster.moves.changed()

    def _members_changed(self, group: int) -> None:
        assert self.cluster is not None
        self.cluster.meta.changed()
        self.cluster.moves.changed()

    def _tell_everybody(self, groups: list[list[int]]) -> None:
        for node, peer in self._links.peers.items():
            if peer.is_up:
                self._nursery.start_soon(self._tell, node, groups)

    async def _tell(self, node: NodeId, groups: list[list[int]]) -> None:
        # Whoever does not hear it asks somebody who knows better, or hears it when the link is back.
        with suppress(CallFailed):
            await self._links.call(node, LEADS, {"groups": groups}, CALL_S)

    async def _hear(self, sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
        """Another node says what it leads."""
        assert self.cluster is not None
        for group, term in body["groups"]:
            self.cluster.leaders.hear(int(group), int(term), sender)
        return {}

    def _link_up(self, node: NodeId) -> None:
        assert self.cluster is not None
        led = [list(one) for one in self.cluster.leaders.led_by(self.cluster.node)]
        if led:
            self._nursery.start_soon(self._tell, node, led)
        self.cluster.meta.changed()

    def _link_down(self, node: NodeId) -> None:
        assert self.cluster is not None and self._replicas is not None
        self._replicas.suspect(node)
        self._look_at_clock()
        self.cluster.leaders.lost(node)
        self.cluster.meta.changed()

    # --- what others want to know ---

    def _routes(self) -> tuple[bool, bool]:
        return bool(self._links.options.routes), self._links.is_complete

    def _own_facts(self) -> NodeFacts:
        assert self.cluster is not None
        server, jetstream = self._server, self.cluster.jetstream
        options = server.options
        assert options.cluster is not None
        memory_bytes, file_bytes = reserved_bytes(jetstream.streams())
        return NodeFacts(
            self.cluster.node,
            server.name,
            options.cluster.name or "",
            frozenset(tag.lower() for tag in options.server_tags),
            file_bytes_free=jetstream.options.max_store - file_bytes,
            memory_bytes_free=jetstream.options.max_memory - memory_bytes,
        )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _has_others(replicas: Replicas, group: int) -> bool:
    return len(replicas.status(group).members.voters) > 1
