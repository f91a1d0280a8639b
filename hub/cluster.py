"""The cluster as JetStream sees it: who leads, who has what, and how another node is asked.

What it answers comes from four places: consensus on this node (`replicas`), what other nodes said of who
leads (`leaders`), the links, and the catalog, which all nodes share.

Rules: nothing here decides about messages. Where a stream is changes by a command to the catalog only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import PEERS
from edged.core.stream_config import StreamConfig
from edged.ports import CallFailed
from hub.documents import Document, group_document, raft_group_name, replicas_of
from hub.identity import peer_name
from hub.leaders import NOBODY, Leaders
from hub.links.control import CallFailed as LinkFailed
from hub.meta import META, MetaGroup
from hub.placement import NodeFacts, NoPlacement, Wish, place
from hub.raft.members import NodeId

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.ports import Assignment
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.server import Server
    from hub.links.links import Links
    from hub.moves import Moves
    from hub.replication.replicas import Replicas
    from hub.rescue import MetaRescue

CALL_S: Final = 4.0
"""How long another node may take to answer: a little less than clients wait."""


class HubCluster:
    """Of one node. `jetstream` is set once the store is open."""

    jetstream: JetStream
    meta: MetaGroup
    moves: Moves
    rescue: MetaRescue

    def __init__(self, node: NodeId, server: Server, links: Links, replicas: Replicas) -> None:
        self.node = node
        self._server = server
        self._links = links
        self._replicas = replicas
        self.leaders = Leaders(self._leader_changed)
        # Since when the present leader of a group leads, as far as this node knows.
        self._led_since_ns: dict[int, int] = {}
        self._change = trio.Event()

    # --- who leads ---

    def leads(self, group: int) -> bool:
        """Whether this node leads a group, and may serve it."""
        return self._replicas.leads(group)

    def is_sure(self, group: int) -> bool:
        """Whether no other node can lead a group that this one leads, as far as clocks run alike."""
        return self._replicas.holds_lease(group)

    def make_sure(self, group: int, done: Callable[[bool], None]) -> None:
        """Tell when a majority has confirmed that this node leads a group now; False if another one may."""
        self._replicas.read(group, done)

    def leader(self, group: int) -> NodeId:
        """Who leads a group; 0 when nobody is known to."""
        return self.leaders.leader(group)

    def leader_name(self, group: int) -> str:
        """The name of the server that leads a group; empty when nobody is known to."""
        leader = self.leader(group)
        return self.name_of(leader) if leader else ""

    def name_of(self, node: NodeId) -> str:
        """The name of a node's server, or its number if nothing is known of it."""
        if node == self.node:
            return self._server.name
        peer = self._links.peers.get(node)
        facts = self.meta.facts.get(node)
        return peer.name if peer is not None else facts.name if facts is not None else peer_name(node)

    def is_up(self, node: NodeId) -> bool:
        """Whether a node can be reached."""
        if node == self.node:
            return True
        peer = self._links.peers.get(node)
        return peer is not None and peer.is_up

    def _active_ns(self, node: NodeId) -> int:
        """How long ago something was heard of a node; 0 if that was never."""
        peer = self._links.peers.get(node)
        if peer is None:
            return 0
        if peer.control is not None:
            return max(1, self._server.monotonic_ns() - peer.control.heard_ns)
        return max(1, self._server.now_ns() - peer.since_ns)

    def _leader_changed(self, group: int) -> None:
        self._led_since_ns[group] = self._server.now_ns()
        change, self._change = self._change, trio.Event()
        change.set()
        self._server.tasks_waiting = True
        self.jetstream.leadership_changed(group)

    def forget_removed(self) -> None:
        """Forget who led streams that are gone. Of new ones it may be heard before the catalog has them."""
        known, highest = self.all_streams(), self.jetstream.store.catalog.highest_group
        for group in self.leaders.groups():
            if group != META and group <= highest and group not in known:
                self.leaders.forget(group)
                self._led_since_ns.pop(group, None)

    async def serving(self, group: int) -> None:
        """Wait until somebody leads a group."""
        while self.leader(group) == NOBODY:
            await self._change.wait()

    # --- what is shown ---

    def cluster_document(self, group: int) -> Document:
        """Who has a group, as infos show it."""
        name = self._cluster_name
        status = self._replicas.status(group) if self._replicas.has(group) else None
        if status is None or (group != META and len(status.members.everyone) == 1):
            # One node alone has nobody to agree with: there is nothing to show of a group.
            return {"name": name, "leader": self.leader_name(group)}
        replicas = replicas_of(status, self.name_of, self.is_up, self._active_ns)
        catalog = self.jetstream.store.catalog
        stream = catalog.streams.get(group) or catalog.elsewhere.get(group)
        group_name = "_meta_" if stream is None else raft_group_name(group, stream.config)
        led = self.leader_name(group), self._led_since_ns.get(group, 0)
        return group_document(name, group_name, *led, self._server.system_account_name or "", replicas)

    @property
    def _cluster_name(self) -> str:
        options = self._server.options.cluster
        return "" if options is None else options.name or ""

    def replicas_document(self, group: int) -> list[Document]:
        """All members of a group, the leader too, as advisories list them."""
        if not self._replicas.has(group):
            return []
        status = self._replicas.status(group)
        leader = status.leader
        found = replicas_of(status, self.name_of, self.is_up, self._active_ns)
        if leader:
            found.insert(
                0, {"name": self.name_of(leader), "current": True, "active": 0, "peer": peer_name(leader)}
            )
        return found

    def meta_document(self) -> Document:
        """The group of the catalog, as monitoring shows it."""
        shown: Document = {"name": self._cluster_name}
        leader = self.leader(META)
        if leader:
            shown |= {"leader": self.name_of(leader), "peer": peer_name(leader)}
        if self._replicas.has(META):
            # Who does not know a leader may be about to be one, and shows itself, too.
            left_out = self.node if leader else NOBODY
            status = self._replicas.status(META)
            shown["replicas"] = replicas_of(status, self.name_of, self.is_up, self._active_ns, left_out)
        shown["cluster_size"] = len(self._members())
        if self._replicas.has(META):
            shown["quorum_needed"] = self.rescue.quorum_needed
        if self.rescue.is_active:
            shown["rescue"] = True
        shown["pending"] = 0
        return shown

    def _members(self) -> frozenset[NodeId]:
        """All nodes of the cluster."""
        if not self._replicas.has(META):
            return frozenset()
        return self._replicas.status(META).members.everyone

    # --- where streams are ---

    def all_streams(self) -> dict[int, Assignment]:
        """Every stream of the cluster, by the number of its group."""
        catalog = self.jetstream.store.catalog
        return {**catalog.streams, **catalog.elsewhere}

    def assignments(self, account: str) -> Mapping[int, Assignment]:
        """The streams of an account of which this node has no copy, by the number of their group."""
        elsewhere = self.jetstream.store.catalog.elsewhere
        return {group: one for group, one in elsewhere.items() if one.account == account}

    def find(self, account: str, name: str) -> int:
        """The group of such a stream by its name; 0 when there is none."""
        for group, one in self.jetstream.store.catalog.elsewhere.items():
            if one.account == account and one.name == name:
                return group
        return 0

    def place(self, config: StreamConfig, nodes: Sequence[int]) -> list[int]:
        """The nodes for a stream with this configuration, which `nodes` have now. Raises ApiFailure."""
        return self.place_without(config, nodes, frozenset())

    def place_without(self, config: StreamConfig, nodes: Sequence[int], refused: frozenset[int]) -> list[int]:
        """The same, but on none of some nodes."""
        asked, options = config.placement, self.jetstream.options
        wish = Wish(
            max(config.num_replicas, 1),
            config.storage,
            config.max_bytes,
            asked.cluster if asked is not None else "",
            asked.tags if asked is not None else (),
            options.unique_tag or "",
            asked.preferred if asked is not None else "",
        )
        candidates = [facts for facts in self._facts() if facts.node not in refused]
        try:
            return place(wish, candidates, [node for node in nodes if node not in refused])
        except NoPlacement as error:
            raise ApiFailure(api_errors.cluster_no_peers(str(error))) from None

    def _facts(self) -> list[NodeFacts]:
        """What is known of all members."""
        members = self._members()
        counts: dict[NodeId, int] = {}
        for one in self.all_streams().values():
            for node in one.config.get(PEERS, ()):
                counts[node] = counts.get(node, 0) + 1
        return [
            facts.placed(self.is_up(node), counts.get(node, 0))
            for node, facts in sorted(self.meta.facts.items())
            if node in members
        ]

    # --- other nodes ---

    def forward(self, node: NodeId, account: str, message: Publish) -> None:
        """Deliver a message in an account of another node, and only there."""
        self._links.forward(node, account, message)

    async def call(self, node: NodeId, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask another node. Raises CallFailed."""
        try:
            return await self._links.call(node, method, body, CALL_S)
        except LinkFailed as failure:
            raise CallFailed(str(failure)) from failure

    # --- what operators ask for ---

    async def stepdown(self, group: int, placement: Mapping[str, Any]) -> None:
        """Let another node lead a group that this one leads. Raises ApiFailure."""
        await self.moves.stepdown(group, str(placement.get("preferred") or ""))

    async def remove_peer(self, group: int, peer: str) -> None:
        """Let another node have the copy of a stream that a peer has. Raises ApiFailure."""
        await self.moves.replace_peer(group, peer)

    async def cancel_move(self, group: int) -> None:
        """Let a stream stay where it was. Raises ApiFailure."""
        await self.moves.cancel(group)

    async def move(self, group: int, request: Mapping[str, Any]) -> None:
        """Let a stream move away from a server, or to other ones. Raises ApiFailure."""
        await self.moves.move(group, request)

    def nodes_up(self) -> list[int]:
        """The other nodes that can be reached."""
        return [node for node, peer in self._links.peers.items() if peer.is_up]

    def begin_rescue(self, quorum: int) -> tuple[int, int]:
        """Let so many nodes decide about the catalog; how many had to, and have to. Raises ApiFailure."""
        found = self.rescue.begin(quorum)
        self._server.flush()
        return found

    async def remove_server(self, peer: str, peer_id: str, *, is_evacuated: bool) -> None:
        """Let a server be no member of the cluster any more. Raises ApiFailure."""
        await self.moves.remove_server(peer, peer_id, is_evacuated)
