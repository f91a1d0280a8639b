"""Moves leaders and copies: stepping down, new peers for a stream, nodes that leave.

Where a stream is stands in its configuration in the catalog. While it moves, `edged.peers` are the nodes it
was on and those it goes to, and `edged.target` are those it is to be on in the end. Whoever leads the stream
changes the members of its group step by step; when they are the target, the leader of the meta group is told
and writes that down. So a node gives up its copy only when it is no member any more, by a committed command.

Rules: commands to the catalog are made by the leader of the meta group only, which holds the lock of the
catalog from looking to the outcome. Before the members of a group are changed it is asked what the catalog
says by now, as whoever leads the stream may have missed something. What is said of one move, which has a
number, counts for no other. Everything here can be done again: who did not see the end of it begins from
what the catalog and the members say.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import BEFORE, MOVE, PEERS, TARGET, PutStream, assigned_to
from edged.core.stream_config import Placement, StreamConfig
from edged.ports import CallFailed
from edged.store.errors import StoreError
from hub.identity import peer_name
from hub.membership import is_settled, next_step
from hub.meta import META, caught_up
from hub.raft.members import NodeId

if TYPE_CHECKING:
    from edged.ports import Assignment
    from hub.cluster import HubCluster
    from hub.replication.replicas import Replicas
    from hub.replication.status import GroupStatus

MOVED: Final = "moved"
ROUND_S: Final = 0.5
IDLE_S: Final = 60.0
"""How often streams are looked at while none moves: for whatever was missed."""
PATIENCE_S: Final = 4.0
"""How long somebody who asked waits for another leader, or for other members."""


class Moves:
    """Of one node."""

    def __init__(self, cluster: HubCluster, replicas: Replicas) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._wake = trio.Event()

    @property
    def methods(self) -> dict[str, Any]:
        """What other nodes may call."""
        return {MOVED: self._answer_moved}

    def changed(self) -> None:
        """Leaders, members or the catalog have changed: look again soon."""
        self._wake.set()

    async def run(self) -> None:
        """Bring the members of the groups that are led here to where they belong, forever."""
        while True:
            self._wake = trio.Event()
            self._cluster.forget_removed()
            is_moving = False
            for group in list(self._cluster.jetstream.store.catalog.streams):
                if self._replicas.leads(group):
                    is_moving |= await self._advance(group)
            self._cluster.jetstream.server.flush()
            with trio.move_on_after(ROUND_S if is_moving else IDLE_S):
                await self._wake.wait()

    async def _advance(self, group: int) -> bool:
        """One step of a stream towards its nodes; False if it is where it belongs."""
        if self._is_in_place(group):
            return False
        if not await self._knows_catalog() or not self._replicas.leads(group) or self._is_in_place(group):
            return True
        config = self._cluster.jetstream.store.catalog.streams[group].config
        wanted, status = _wanted(config), self._replicas.status(group)
        if not is_settled(status.members, wanted):
            step = next_step(status.members, wanted, caught_up(status))
            if step is not None:
                self._replicas.change(group, step.voters, step.learners)
        elif status.is_agreed:
            # If it fails, whoever leads the meta group by then is told in the next round.
            with suppress(CallFailed, StoreError, ApiFailure):
                await self._tell_moved(group, config.get(MOVE, 0), wanted)
        return True

    def _is_in_place(self, group: int) -> bool:
        """Whether a stream that is led here is where it belongs, as far as this node knows."""
        config = self._cluster.jetstream.store.catalog.streams[group].config
        wanted = _wanted(config)
        is_there = is_settled(self._replicas.status(group).members, wanted)
        return not wanted or (is_there and TARGET not in config)

    async def _knows_catalog(self) -> bool:
        """Wait until this node has all that was decided of the catalog; False if that takes too long."""
        answers: list[bool] = []
        answered = trio.Event()

        def done(is_known: bool) -> None:
            answers.append(is_known)
            answered.set()

        self._cluster.make_sure(META, done)
        self._cluster.jetstream.server.flush()
        with trio.move_on_after(ROUND_S):
            await answered.wait()
        return True in answers

    async def _tell_moved(self, group: int, move: int, peers: frozenset[NodeId]) -> None:
        body = {"group": group, "move": move, "peers": sorted(peers)}
        leader = self._cluster.leader(META)
        if leader == self._cluster.node:
            await self._answer_moved(leader, body)
        elif leader:
            await self._cluster.call(leader, MOVED, body)

    async def _answer_moved(self, sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
        """The leader of a stream says that its members are what they were to be."""
        group, peers = int(body["group"]), sorted(int(node) for node in body["peers"])
        async with self._cluster.jetstream.catalog_lock:
            found = self._cluster.all_streams().get(group)
            # An earlier move may have had the same target, and the members have left it since.
            if found is not None and _is_of(found.config, int(body["move"]), peers):
                config = {name: value for name, value in found.config.items() if name not in (TARGET, BEFORE)}
                await self._put(group, {**config, PEERS: peers})
        return {}

    def _found(self, group: int) -> Assignment:
        """A stream as the catalog has it, wherever it is. Raises ApiFailure."""
        found = self._cluster.all_streams().get(group)
        if found is None:
            raise ApiFailure(api_errors.STREAM_NOT_FOUND)
        return found

    async def _put(self, group: int, config: dict[str, Any]) -> None:
        found = self._found(group)
        command = PutStream(group, found.stream_id, found.account, found.name, config)
        await self._cluster.jetstream.commit(META, command)

    # --- leaders ---

    async def stepdown(self, group: int, preferred: str) -> None:
        """Let another node lead. Raises ApiFailure."""
        if not self._replicas.leads(group):
            raise ApiFailure(api_errors.CLUSTER_NOT_LEADER)
        status = self._replicas.status(group)
        others = self._heirs(status, preferred)
        if not others:
            raise ApiFailure(api_errors.cluster_no_peers("no suitable peers for placement"))
        self._replicas.transfer(group, others[0])
        self._cluster.jetstream.server.flush()
        with trio.move_on_after(PATIENCE_S):
            while self._cluster.leader(group) in (0, self._cluster.node):
                change = self._cluster.jetstream.change
                with trio.move_on_after(ROUND_S):
                    await change.wait()

    def hand_over(self, group: int) -> bool:
        """Let whoever can lead instead of this node; False if nobody can."""
        others = self._heirs(self._replicas.status(group))
        return bool(others) and self._replicas.transfer(group, others[0])

    def _heirs(self, status: GroupStatus, preferred: str = "") -> list[NodeId]:
        """Who could lead a group instead of this node, the best one first."""
        cluster = self._cluster
        others = [node for node in sorted(status.members.voters) if node != cluster.node]
        if preferred:
            others = [node for node in others if preferred in (cluster.name_of(node), peer_name(node))]
        ready = caught_up(status)
        return sorted(others, key=lambda node: (node not in ready, not cluster.is_up(node)))

    # --- copies ---

    async def begin(self, group: int, peers: list[NodeId]) -> None:
        """Let a stream move to these nodes. Raises StoreError."""
        config = self._found(group).config
        await self._put(group, {**config, **assigned_to(config, peers)})

    async def cancel(self, group: int) -> None:
        """Let a stream stay where it was. Raises ApiFailure."""
        found = self._found(group)
        before = found.config.get(BEFORE)
        if before is None:
            raise ApiFailure(api_errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS)
        await self.begin(group, before)

    async def replace_peer(self, group: int, peer: str) -> None:
        """Let another node have the copy that a peer has. Raises ApiFailure."""
        found = self._found(group)
        node = self._node_named(peer, found.config[PEERS])
        if not node:
            raise ApiFailure(api_errors.CLUSTER_PEER_NOT_MEMBER)
        await self.begin(group, self._places_without(found.config, node))

    def _places_without(self, config: dict[str, Any], *nodes: NodeId) -> list[NodeId]:
        """Where a stream goes that leaves some nodes. Raises ApiFailure."""
        try:
            wanted = StreamConfig.stored(config)
            return self._cluster.place_without(wanted, config[PEERS], frozenset(nodes))
        except ApiFailure as failure:
            raise ApiFailure(api_errors.PEER_REMAP) from failure

    async def move(self, group: int, request: Mapping[str, Any]) -> None:
        """Let a stream move away from a server, or to servers with some tags. Raises ApiFailure."""
        found = self._found(group)
        config = {name: value for name, value in found.config.items() if name != "placement"}
        if request.get("tags") or request.get("cluster"):
            wish = Placement(str(request.get("cluster") or ""), tuple(request.get("tags") or ()))
            config["placement"] = wish.document()
        server = str(request.get("server") or "")
        leaving = (self._node_named(server, found.config[PEERS]),) if server else tuple(found.config[PEERS])
        await self.begin(group, self._places_without(config, *leaving))

    def _node_named(self, name: str, nodes: list[NodeId]) -> NodeId:
        """The node that has this name or id; 0 when none has."""
        named = (node for node in nodes if name in (self._cluster.name_of(node), peer_name(node)))
        return next(named, 0)

    # --- nodes ---

    async def remove_server(self, peer: str, peer_id: str, is_evacuated: bool) -> None:
        """Let a node be no member any more; its copies go to others. Raises ApiFailure."""
        status = self._replicas.status(META)
        node = self._node_named(peer_id or peer, sorted(status.members.everyone))
        if not node:
            raise ApiFailure(api_errors.CLUSTER_SERVER_NOT_MEMBER)
        for group, one in self._cluster.all_streams().items():
            if node in one.config.get(PEERS, ()):
                try:
                    await self.begin(group, self._places_without(one.config, node))
                except ApiFailure:
                    # There is nobody to take it. A node that is only emptied keeps it until there is.
                    if is_evacuated:
                        raise
        if is_evacuated:
            return
        self._cluster.meta.leaving.add(node)
        self._cluster.meta.changed()
        with trio.move_on_after(PATIENCE_S):
            while node in self._replicas.status(META).members.everyone:
                change = self._cluster.jetstream.change
                with trio.move_on_after(ROUND_S):
                    await change.wait()


def _wanted(config: Mapping[str, Any]) -> frozenset[NodeId]:
    """The nodes that are to have a stream in the end."""
    return frozenset(config.get(TARGET) or config.get(PEERS, ()))


def _is_of(config: Mapping[str, Any], move: int, peers: list[NodeId]) -> bool:
    """Whether a stream is moving to these nodes, and that is the move with this number."""
    return config.get(MOVE, 0) == move and sorted(config.get(TARGET) or ()) == peers
