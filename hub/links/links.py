"""All links of a node: who is there, which of them can be reached, and what they are told.

Between two nodes there is one control link and one route. Whoever has dialled the control link dials the
route as well; the route ends with the control link. When two nodes dial each other at the same time, the link
that the node with the smaller number dialled stays, and both ends find that out by themselves.

Rules: an address that was configured or learnt is dialled until this node stops, with pauses that vary, and
not while there is a link to the node behind it. Nodes tell each other whom they are linked with, so that one
configured route is enough to find all.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.config.options import ClusterOptions
from edged.server import passwords
from edged.server.listener import bind
from edged.server.transport import PlainTransport, Transport
from hub.limits import PEERS_MAX, WELCOMES_MAX
from hub.links import hello, opening
from hub.links.addresses import Target, client_urls, configured_targets, own_address, seen_from
from hub.links.control import CallFailed, ControlLink, Method
from hub.links.dialler import Dialler
from hub.links.frames import FrameError, Kind
from hub.links.hello import CONTROL, ROUTE, Hello, Introduction, Refused
from hub.links.opening import Opened, OpenFailed, TlsContexts
from hub.links.peer import Peer
from hub.links.tls import accepting_context, dialling_context, names_known_host
from hub.raft.members import NodeId
from hub.raft.messages import Message

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.server import Server
    from hub.router import ClusterRouter

# The layout of journal frames; nodes with different ones cannot follow each other.
FRAMES_VERSION: Final = 1
# What a reload cannot change: other sockets, another cluster, other rules for what was announced.
FIXED_OPTIONS: Final = ("name", "host", "port", "permissions", "compression")
HANDSHAKE_TIMEOUT_S: Final = 2.0
PING_S: Final = 2.0
# A link on which nothing arrived for so many pings is dead.
PINGS_MISSED_MAX: Final = 3
# With no file descriptors left accept() fails at once and for a while: a pause instead of a busy loop.
_DESCRIPTORS_PAUSE_S: Final = 0.1


def _nothing(*_: object) -> None:
    """What nobody has asked to be told."""


class Links:
    """The links of one node. `run()` is its task; `on_…` and `methods` are set before it starts."""

    def __init__(
        self,
        server: Server,
        options: ClusterOptions,
        node: NodeId,
        router: ClusterRouter | None = None,
        frames_version: int = FRAMES_VERSION,
    ) -> None:
        self.server = server
        self.options = options
        self.node = node
        self.router = router
        self.on_raft: Callable[[NodeId, int, Message], None] = _nothing
        self.on_up: Callable[[NodeId], None] = _nothing
        self.on_down: Callable[[NodeId], None] = _nothing
        self.methods: dict[str, Method] = {}
        self.port = 0
        self._frames_version = frames_version
        self._peers: dict[NodeId, Peer] = {}
        self._dirty: list[ControlLink] = []
        self._queued = trio.Event()
        self._dialler = Dialler(self)
        self.tls = None if options.tls is None else _tls_contexts(options)
        self._limiter = passwords.new_limiter()
        self._welcomes = 0
        self._has_met = False
        if router is not None:
            router.attach(server, self)

    # --- what the hub uses ---

    @property
    def peers(self) -> Mapping[NodeId, Peer]:
        """Who is known, linked or not."""
        return self._peers

    @property
    def is_complete(self) -> bool:
        """Whether every route of the configuration leads somewhere."""
        return self._dialler.is_complete

    def send(self, node: NodeId, group: int, message: Message) -> None:
        """Queue a message of consensus. It may be lost; consensus copes with that."""
        peer = self._peers.get(node)
        if peer is not None and peer.control is not None:
            peer.control.send_raft(group, message)
            self.wants_flush(peer.control)

    def flush(self) -> None:
        """Write what was queued: at the end of each turn, or as soon as somebody wants it out."""
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            for link in dirty:
                link.is_listed = False
                link.flush()

    async def call(
        self, node: NodeId, method: str, body: dict[str, Any], timeout_s: float = 5.0
    ) -> dict[str, Any]:
        """Ask another node, or this one. CallFailed when there is no answer, or it is an error."""
        if node == self.node:
            found = self.methods.get(method)
            if found is None:
                raise CallFailed(f"{method} is not known here")
            with trio.move_on_after(timeout_s):
                return await found(node, body)
            raise CallFailed(f"{method}: no answer within {timeout_s:g} s", is_unknown=True)
        peer = self._peers.get(node)
        if peer is None or peer.control is None:
            raise CallFailed(f"there is no link to node {node}")
        return await peer.control.call(method, body, timeout_s)

    def forward(self, node: NodeId, account: str, message: Publish) -> bool:
        """Deliver a message at one node only, to the handlers there that are not announced.

        False when there is no route to the node, or it does not know the account.
        """
        if self.router is None:
            return False
        if node == self.node:
            return self.router.deliver_here(account, message)
        peer = self._peers.get(node)
        return peer is not None and peer.route is not None and peer.route.forward(account, message)

    def forget(self, node: NodeId) -> None:
        """A node has left the cluster for good: dial it no more, unless the configuration says so."""
        peer = self._peers.pop(node, None)
        if peer is None:
            return
        if peer.control is not None:
            peer.control.close("it has left the cluster")
        self._dialler.forget(node)

    def configure(self, options: ClusterOptions | None) -> None:
        """Take over a changed cluster block. ValueError when that needs a restart; TlsConfigError.

        New routes are dialled and new credentials asked for; links that are there stay.
        """
        if options == self.options:
            self.announce()
            return
        for name in FIXED_OPTIONS:
            if options is None or getattr(options, name) != getattr(self.options, name):
                raise ValueError(f"cluster.{name} cannot be changed by a reload; restart the daemon")
        assert options is not None
        if (options.tls is None) != (self.options.tls is None):
            raise ValueError("cluster.tls cannot be switched by a reload; restart the daemon")
        self.tls = None if options.tls is None else _tls_contexts(options)
        self.options = options
        for target in configured_targets(options):
            self._dialler.start(target)
        self.announce()

    # --- life ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and dial until cancelled. ListenError when the cluster port cannot be had."""
        listening = bind(self.options.host, self.options.port) if self.options.port != 0 else None
        try:
            async with trio.open_nursery() as nursery:
                self._dialler.nursery = nursery
                if listening is not None:
                    self.port = self.server.info.cluster_port = listening.getsockname()[1]
                    self.server.log.info(
                        f"Listening for route connections on {self.options.host}:{self.port}", node=self.node
                    )
                    nursery.start_soon(self._listen, listening, nursery)
                self._advertise()
                for target in configured_targets(self.options):
                    self._dialler.start(target)
                nursery.start_soon(self._ping_forever)
                nursery.start_soon(self._flush_forever)
                task_status.started()
        finally:
            self._dialler.nursery = None
            if listening is not None:
                listening.close()
            for peer in self._peers.values():
                if peer.control is not None:
                    peer.control.close("the node stops")

    async def _listen(self, listening: socket.socket, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listening)
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, ConnectionError):
                continue
            except OSError as error:
                self.server.log.error("cannot accept a link", error=error)
                await trio.sleep(_DESCRIPTORS_PAUSE_S)
                continue
            if self._welcomes >= WELCOMES_MAX:
                accepted.close()
                continue
            self._welcomes += 1
            nursery.start_soon(self._welcome, accepted)

    async def _ping_forever(self) -> None:
        interval_s = self.options.ping_interval_s or PING_S
        missed_max = self.options.ping_max or PINGS_MISSED_MAX
        while True:
            await trio.sleep(interval_s)
            dead_at = trio.current_time() - interval_s * missed_max
            for peer in list(self._peers.values()):
                for link in (peer.control, peer.route):
                    if link is None:
                        continue
                    if link.received_at < dead_at:
                        link.close(f"silent for {interval_s * missed_max:g} s")
                    else:
                        link.ping()
            self.server.flush()

    # --- opening ---

    def hello(self, link: str, target: Target | None = None) -> Hello:
        mode = self.options.compression.mode
        return Hello(
            link,
            self.options.name or "",
            self.introduction,
            self._frames_version,
            {"accept": "accept", "off": "off", "not supported": "off"}.get(mode, "on"),
            None if target is None else target.user,
            None if target is None else target.password,
        )

    @property
    def introduction(self) -> Introduction:
        """What this node tells about itself."""
        urls, websocket_urls = self._own_urls()
        return Introduction(
            self.node,
            self.server.id,
            self.server.name,
            own_address(self.options, self.port) if self.port else "",
            urls,
            websocket_urls,
        )

    @property
    def timeout_s(self) -> float:
        tls_s = 0.0 if self.options.tls is None else self.options.tls.timeout_s
        return (self.options.auth_timeout_s or HANDSHAKE_TIMEOUT_S) + tls_s

    async def _welcome(self, accepted: socket.socket) -> None:
        """Find out who has dialled, and serve the link."""
        wire = PlainTransport(accepted)
        ip = wire.remote_ip
        try:
            opened = await opening.accept(
                wire, lambda theirs: self.hello(theirs.link), self.tls, self.timeout_s, self._check
            )
        except Refused as refused:
            if str(refused) not in (hello.DUPLICATE, hello.NOT_LINKED, hello.SELF):
                self.server.log.warn("a link was refused", ip=ip, reason=refused)
            return
        except OpenFailed as failure:
            self.server.log.warn("a link did not come about", ip=ip, reason=failure)
            return
        finally:
            self._welcomes -= 1
        theirs = opened.hello
        if theirs.link == CONTROL:
            peer = self.take_control(opened, theirs.introduction.node)
            if peer is not None and peer.control is not None:
                await self.serve_control(peer, peer.control, opened.first)
        else:
            await self.serve_route(opened, did_solicit=False)

    async def _check(self, theirs: Hello, transport: Transport) -> None:
        """Refused unless a node that dialled may link with this one."""
        options = self.options
        if options.user is not None:
            is_right = await passwords.check(theirs.password or "", options.password or "", self._limiter)
            if theirs.user != options.user or not is_right:
                raise Refused(hello.BAD_CREDENTIALS)
        if options.tls is not None and options.tls.verify_cert_and_check_known_urls:
            hosts = frozenset(target.host.lower() for target in configured_targets(options))
            if not names_known_host(transport.peer_certificate_der, hosts):
                raise Refused("its certificate names no node that is known here")
        self.check_node(theirs)
        node = theirs.introduction.node
        peer = self._peers.get(node)
        if theirs.link == CONTROL and peer is not None and peer.control is not None:
            if peer.control.dialler < node:
                raise Refused(hello.DUPLICATE, self.node)
        elif theirs.link == ROUTE and (
            peer is None or peer.control is None or peer.control.dialler != node or self.router is None
        ):
            raise Refused(hello.NOT_LINKED)

    def check_node(self, theirs: Hello) -> None:
        """Refused when the other end is no node that this one can work with."""
        hello.check(self.hello(theirs.link), theirs)
        name, node = theirs.introduction.name, theirs.introduction.node
        if name == self.server.name or any(
            peer.is_up and peer.name == name for peer in self._peers.values() if peer.node != node
        ):
            raise Refused(f"another node has its name {name!r}")
        known = self._peers.get(node)
        if known is not None and known.is_up and known.name != name:
            # A copied disk: both would take the place of each other for ever.
            raise Refused(f"{known.name!r} has its number {node}")
        if known is None and len(self._peers) >= PEERS_MAX:
            raise Refused("there are too many nodes")

    # --- links that are there ---

    def take_control(self, opened: Opened, dialler: NodeId) -> Peer | None:
        """Use a control link from now on; None when there is a better one already."""
        theirs = opened.hello.introduction
        transport = opened.transport
        known = self._learn(self._reachable(theirs, transport.remote_ip))
        if known is None:
            transport.close()
            return None
        before = known.control
        if before is not None and before.dialler < dialler:
            transport.close()
            return None
        deadline_s = self.options.write_deadline_s or self.server.options.write_deadline_s
        link = ControlLink(self.server, transport, known.introduction, dialler, self, deadline_s)
        known.control = link
        known.gone = trio.Event()
        if before is not None:
            before.close("another link to the same node takes its place")
            if known.route is not None:
                known.route.close("it ends with its control link")
        known.since_ns = self.server.now_ns()
        self.server.log.info(
            "linked", peer=known.name, node=known.node, address=known.address, did_dial=dialler == self.node
        )
        self._tell_everyone_of(known)
        link.ping()
        self._advertise()
        if before is None:
            self.on_up(known.node)
        return known

    async def serve_control(self, peer: Peer, link: ControlLink, first: bytes) -> None:
        try:
            await link.run(first)
        finally:
            if peer.control is link:
                self._lost(peer, link)

    def _lost(self, peer: Peer, link: ControlLink) -> None:
        """The control link to a node is gone, and no other has taken its place."""
        peer.control = None
        peer.since_ns = self.server.now_ns()
        self.server.log.warn("link lost", peer=peer.name, node=peer.node, reason=link.why)
        if peer.route is not None:
            peer.route.close("it ends with its control link")
        self._advertise()
        peer.gone.set()
        self.on_down(peer.node)

    async def serve_route(self, opened: Opened, did_solicit: bool) -> None:
        peer = self._peers.get(opened.hello.introduction.node)
        if peer is None or peer.control is None or self.router is None:
            opened.transport.close()
            return
        if peer.route is not None:
            peer.route.close("another route to the same node takes its place")
        route = peer.route = self.router.open_route(peer, opened, did_solicit)
        try:
            await route.run(opened.first)
        finally:
            self.router.route_closed(route)
            if peer.route is route:
                peer.route = None

    # --- what links report ---

    def raft_received(self, node: NodeId, group: int, message: Message) -> None:
        self.on_raft(node, group, message)

    def wants_flush(self, link: ControlLink) -> None:
        if not link.is_listed:
            link.is_listed = True
            if not self._dirty:
                self._queued.set()
            self._dirty.append(link)

    async def _flush_forever(self) -> None:
        """Write what was queued outside of any turn, by whoever forgot to flush, as by a timer."""
        while True:
            await self._queued.wait()
            self._queued = trio.Event()
            self.flush()

    def gossip_received(self, link: ControlLink, document: object) -> None:
        if not isinstance(document, list) or len(document) > PEERS_MAX:
            raise FrameError("gossip has the wrong shape")
        for one in document:
            introduction = Introduction.read(one)
            if introduction.node == link.node:
                self._learn(self._reachable(introduction, link.transport.remote_ip))
                self._advertise()
            elif introduction.node != self.node:
                known = self._peers.get(introduction.node)
                # Of a node that is linked with this one nobody knows better than itself.
                if known is None or not known.is_up:
                    self._learn(introduction)

    # --- who is there ---

    def _reachable(self, introduction: Introduction, remote_ip: str) -> Introduction:
        address = seen_from(introduction.address, remote_ip)
        return replace(introduction, address=address)

    def _learn(self, introduction: Introduction) -> Peer | None:
        """Remember what is said about a node, and dial it from now on; None when there are too many."""
        peer = self._peers.get(introduction.node)
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                return None
            peer = self._peers[introduction.node] = Peer(introduction)
        else:
            peer.introduction = introduction
        address = introduction.address
        if address:
            self._dialler.learn(introduction.node, address)
        return peer

    def _tell_everyone_of(self, joined: Peer) -> None:
        """Tell a new peer who is there, and those who are there of the new peer."""
        others = [peer for peer in self._peers.values() if peer.control is not None and peer is not joined]
        if joined.control is not None and others:
            joined.control.send(Kind.GOSSIP, [peer.introduction.document() for peer in others])
        for peer in others:
            assert peer.control is not None
            peer.control.send(Kind.GOSSIP, [joined.introduction.document()])
            peer.control.flush()

    def announce(self, is_told: bool = True) -> None:
        """Tell peers what has changed about this node, such as where clients reach it; and clients."""
        for peer in self._peers.values():
            if peer.control is not None:
                peer.control.send(Kind.GOSSIP, [self.introduction.document()])
                peer.control.flush()
        self._advertise(is_told)

    def _own_urls(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Where clients reach this node, as others are told; nothing when it is not to be advertised."""
        server, options = self.server, self.server.options
        if self.options.no_advertise or server.is_lame_duck:
            return (), ()
        urls = client_urls(options.client_advertise, options.host, server.info.port)
        websocket = options.websocket
        if websocket is None:
            return urls, ()
        return urls, client_urls(websocket.advertise, websocket.host, server.info.websocket_port)

    def _advertise(self, is_told: bool = True) -> None:
        """Tell clients where else they can go, when that has changed; or let them find out later.

        As with nats-server, nothing is said before there was another node for the first time.
        """
        self._has_met |= any(peer.is_up for peer in self._peers.values())
        if self.options.no_advertise or not self._has_met:
            return
        urls, websocket_urls = self._own_urls()
        for peer in self._peers.values():
            if peer.is_up:
                urls += peer.introduction.client_urls
                websocket_urls += peer.introduction.websocket_urls
        self.server.advertise(tuple(dict.fromkeys(urls)), tuple(dict.fromkeys(websocket_urls)), is_told)


def _tls_contexts(options: ClusterOptions) -> TlsContexts:
    tls = options.tls
    assert tls is not None
    return TlsContexts(accepting_context(tls), dialling_context(tls), tls.timeout_s, tls.pinned_certs)
