"""The seams of the daemon: what the hub replaces to become a cluster.

The edge is built with the local implementations; `hub` brings its own and calls the same `daemon.serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from edged.config.options import Options
    from edged.core.commands import Command
    from edged.core.stream_config import StreamConfig
    from edged.core.wire import Publish
    from edged.server.server import Server
    from edged.store.batch import Appends, Batch, Change, Done
    from edged.store.errors import StoreError
    from edged.store.store import Store


class Surroundings(Protocol):
    """What is around a daemon: nobody at the edge, the other nodes of its cluster at the hub."""

    @property
    def router(self) -> Router:
        """Hears of interest."""

    async def open(self, server: Server) -> None:
        """Open the store and whatever else must be there before the first client connects."""

    async def run(self) -> None:
        """Whatever goes on while the daemon serves; cancelled when it ends."""

    async def leave(self) -> None:
        """The daemon is about to stop: let others take over what this one leads."""


class Committer(Protocol):
    """The one door for every change of state. `done` is told when a command is durable and applied."""

    def submit(self, group: int, command: Command, done: Done) -> None:
        """Commit a command."""

    def submit_appends(self, group: int, messages: Sequence[Publish], ts_ns: int, done: Done) -> None:
        """Commit messages for one stream."""

    @property
    def is_full(self) -> bool:
        """Whether whoever submits should wait for room first."""

    def when_there_is_room(self, call: Callable[[], None]) -> None:
        """Call back once there is room."""

    def flush(self) -> None:
        """Everything of this turn is submitted."""


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """A link to another node, for people who watch. Times are those of the clock on the wall."""

    number: int
    remote_id: str
    remote_name: str
    did_solicit: bool
    is_configured: bool
    ip: str
    port: int
    started_at_ns: int
    active_at_ns: int
    rtt_ns: int
    pending_bytes: int
    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    is_compressed: bool
    tls_version: str | None
    tls_cipher: str | None
    # What the other node listens to here: account, subject, queue.
    interest: tuple[tuple[str, bytes, bytes | None], ...]


class CallFailed(Exception):  # noqa: N818 - says what happened
    """Another node did not answer: it may or may not have done what it was asked for."""


class Assignment(Protocol):
    """A stream of which this node has no copy, as the catalog knows it."""

    @property
    def account(self) -> str:
        """Whose it is."""

    @property
    def name(self) -> str:
        """Its name in the account."""

    @property
    def stream_id(self) -> bytes:
        """What tells it from others that had its name."""

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as it is stored."""


class Cluster(Protocol):
    """The nodes of a cluster as JetStream sees them. A server that stands alone has none.

    Whoever implements it calls `JetStream.leadership_changed(group)` whenever leads() or leader() of a group
    may have changed: when leadership is lost, before anything of the next leader is applied.
    """

    node: int  # this one

    def leads(self, group: int) -> bool:
        """Whether this node leads a group, and has applied whatever earlier leaders have committed."""

    def is_sure(self, group: int) -> bool:
        """Whether no other node can lead a group that this one leads, as far as clocks run alike."""

    def make_sure(self, group: int, done: Callable[[bool], None]) -> None:
        """Tell when a majority has confirmed that this node leads a group now; False if another one may."""

    def leader(self, group: int) -> int:
        """Who leads a group; 0 when nobody is known to."""

    def leader_name(self, group: int) -> str:
        """The name of the server that leads a group; empty when nobody is known to."""

    def cluster_document(self, group: int) -> dict[str, Any]:
        """Who has a group, as infos show it: name, raft_group, leader, leader_since, replicas, ..."""

    def replicas_document(self, group: int) -> list[dict[str, Any]]:
        """All members of a group, the leader too, as advisories list them."""

    def meta_document(self) -> dict[str, Any]:
        """The group of the catalog, as monitoring shows it."""

    def assignments(self, account: str) -> Mapping[int, Assignment]:
        """The streams of an account of which this node has no copy, by the number of their group."""

    def find(self, account: str, name: str) -> int:
        """The group of such a stream by its name; 0 when there is none."""

    def place(self, config: StreamConfig, nodes: Sequence[int]) -> list[int]:
        """The nodes for a stream with this configuration, which `nodes` have now. Raises ApiFailure."""

    async def serving(self, group: int) -> None:
        """Wait until somebody leads a group."""

    def forward(self, node: int, account: str, message: Publish) -> None:
        """Deliver a message in an account of another node, and only there."""

    async def call(self, node: int, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask another node. Raises CallFailed."""

    async def stepdown(self, group: int, placement: Mapping[str, Any]) -> None:
        """Let another node lead a group that this one leads. Raises ApiFailure."""

    async def remove_peer(self, group: int, peer: str) -> None:
        """Let another node have the copy of a stream that a peer has. Raises ApiFailure."""

    async def cancel_move(self, group: int) -> None:
        """Let a stream stay where it was. Raises ApiFailure."""

    async def move(self, group: int, request: Mapping[str, Any]) -> None:
        """Let a stream move away from a server, or to other ones. Raises ApiFailure."""

    async def remove_server(self, peer: str, peer_id: str, *, is_evacuated: bool) -> None:
        """Let a server be no member of the cluster any more. Raises ApiFailure."""

    def nodes_up(self) -> list[int]:
        """The other nodes that can be reached."""

    def begin_rescue(self, quorum: int) -> tuple[int, int]:
        """Let so many nodes decide about the catalog; how many had to, and have to. Raises ApiFailure."""


class GroupReplica(Protocol):
    """Agrees with other nodes about the log of one group."""

    @property
    def leader(self) -> int:
        """The node that leads, 0 while nobody is known to."""

    @property
    def is_rejoining(self) -> bool:
        """Whether this node may have forgotten what it confirmed, until what it gets instead is applied."""

    def next_index(self) -> int | None:
        """The index that a command gets now; None if another node has to take it."""

    def take(self, entry: Appends | Change, start: int, end: int) -> None:
        """Frames with that index are in the batch that gathers, between these offsets."""

    def saved(self) -> list[Any]:
        """What a checkpoint keeps: group, hard state, term and members of the last entry that is applied."""


class Replication(Protocol):
    """Groups that several nodes have. All of it is called in the store's thread (edged/store/store.py)."""

    node: int

    def start(self, store: Store) -> None:
        """The store is recovered: take over the groups that have a log of this kind."""

    def changed(self, group: int) -> None:
        """The catalog says something new about a stream."""

    @property
    def has_work(self) -> bool:
        """Whether work() has something to do."""

    def work(self) -> None:
        """Do what can be done without the disk; what is to be written goes to the batch that gathers."""

    def carry(self, batch: Batch) -> None:
        """The batch begins a journal file: begin it with all entries that are not applied."""

    @property
    def has_unapplied(self) -> bool:
        """Whether the journal has entries that are not applied."""

    @property
    def held_bytes(self) -> int:
        """How much of what was taken here waits for other nodes."""

    def finished(self, batch: Batch) -> None:
        """A batch is durable."""

    def failed(self, batches: Sequence[Batch], error: StoreError, is_last: bool) -> None:
        """These batches could not be written. With the last of them everything begins anew from the disk."""

    def closed(self) -> None:
        """The store is closed, and everything in it is durable."""

    def needed_file(self, oldest: int) -> int:
        """The first journal file that is to stay, if those before this one may go."""

    def freed(self, files: Sequence[int]) -> None:
        """These journal files are gone, and a checkpoint is saved."""


@dataclass(frozen=True, slots=True)
class RouteTraffic:
    """Messages and payload bytes between this node and others; it never falls."""

    in_messages: int = 0
    in_bytes: int = 0
    out_messages: int = 0
    out_bytes: int = 0


class Router(Protocol):
    """Learns of every change of local interest, and tells other nodes. The edge has nobody to tell."""

    is_alone: bool
    """Whether there are no other nodes and never will be."""

    def interest_added(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """A subscription appeared in an account."""

    def interest_removed(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """A subscription of an account is gone."""

    def flush(self) -> None:
        """A turn is over: write what it produced for other nodes."""

    def leaving(self) -> None:
        """This node takes no more clients."""

    def configured(self, options: Options) -> None:
        """The server has new options. ValueError refuses them."""

    def routes(self) -> list[RouteStatus]:
        """The links to other nodes that are there now."""

    def traffic(self) -> RouteTraffic:
        """All that was ever exchanged with other nodes."""


class LocalRouter:
    """The router of a daemon that stands alone."""

    is_alone = True

    def interest_added(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """Nobody to tell."""

    def interest_removed(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """Nobody to tell."""

    def flush(self) -> None:
        """Nobody to write to."""

    def leaving(self) -> None:
        """Nobody to tell."""

    def configured(self, options: Options) -> None:
        """Nothing of them is about other nodes."""

    def routes(self) -> list[RouteStatus]:
        """There are none."""
        return []

    def traffic(self) -> RouteTraffic:
        """Nothing was."""
        return RouteTraffic()
