"""Dials other nodes: every address that was configured or learnt, until this node stops.

Rules: pauses between two tries grow and vary. An address is left alone while there is a link to the node that
answered there last. Whoever has dialled the control link also dials the route. Why an address cannot be
reached is said once, and again when the reason changes.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import trio

from hub.limits import PEERS_MAX
from hub.links import hello, opening
from hub.links.addresses import Target, configured_targets, learnt_target
from hub.links.hello import CONTROL, ROUTE, Hello, Refused
from hub.links.opening import OpenFailed

if TYPE_CHECKING:
    from hub.links.control import ControlLink
    from hub.links.links import Links
    from hub.links.peer import Peer
    from hub.raft.members import NodeId

# Pauses before an address is dialled again: the first, and the longest.
RETRY_FIRST_S: Final = 0.05
RETRY_LONGEST_S: Final = 2.0


class Dialler:
    """The tasks that dial. `nursery` is there while the links run."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.nursery: trio.Nursery | None = None
        # Which node answered at an address, and the tasks that dial, by address.
        self._node_at: dict[str, NodeId] = {}
        self._dialled: dict[str, trio.CancelScope] = {}
        self._failures: dict[str, str] = {}

    @property
    def is_complete(self) -> bool:
        """Whether every address of the configuration leads to this node itself, or to one that is linked."""
        return all(self._is_found(target.address) for target in configured_targets(self._links.options))

    def _is_found(self, address: str) -> bool:
        node = self._node_at.get(address, 0)
        peer = self._links.peers.get(node)
        return node == self._links.node or (peer is not None and peer.is_up)

    def start(self, target: Target) -> None:
        """Dial a node from now on, unless that is done already."""
        if self.nursery is None or target.address in self._dialled or len(self._dialled) >= 2 * PEERS_MAX:
            return
        scope = self._dialled[target.address] = trio.CancelScope()
        self.nursery.start_soon(self._dial_forever, target, scope)

    def learn(self, node: NodeId, address: str) -> None:
        """A node can be reached at an address."""
        self._node_at[address] = node
        self.start(learnt_target(address, self._links.options))

    def forget(self, node: NodeId) -> None:
        """Dial a node no more, unless the configuration says so."""
        configured = {target.address for target in configured_targets(self._links.options)}
        for address in [address for address, found in self._node_at.items() if found == node]:
            del self._node_at[address]
            if address not in configured:
                scope = self._dialled.pop(address, None)
                if scope is not None:
                    scope.cancel()

    async def _dial_forever(self, target: Target, scope: trio.CancelScope) -> None:
        links = self._links
        failures = 0
        with scope:
            while True:
                peer = links.peers.get(self._node_at.get(target.address, 0))
                if peer is not None and peer.control is not None:
                    failures = 0
                    await peer.gone.wait()
                else:
                    is_wanted, is_linked = await self._dial_once(target)
                    if not is_wanted:
                        return
                    failures = 0 if is_linked else failures + 1
                pause_s = min(RETRY_LONGEST_S, RETRY_FIRST_S * 2 ** min(failures, 10))
                await trio.sleep(pause_s * random.uniform(0.5, 1.0))

    async def _dial_once(self, target: Target) -> tuple[bool, bool]:
        """Link with whoever is at an address, until the link ends.

        Whether to go on dialling, and whether there was a link.
        """
        links = self._links

        def wanted(theirs: Hello) -> None:
            node = theirs.introduction.node
            self._node_at[target.address] = node
            links.check_node(theirs)
            peer = links.peers.get(node)
            if peer is not None and peer.control is not None and peer.control.dialler <= links.node:
                raise Refused(hello.DUPLICATE)

        try:
            opened = await opening.dial(
                target, links.hello(CONTROL, target), links.tls, links.timeout_s, wanted
            )
        except Refused as refused:
            if refused.node:
                self._node_at[target.address] = refused.node
            if str(refused) == hello.SELF:
                self._node_at[target.address] = links.node
                links.server.log.debug("a configured route leads to this node itself", address=target.address)
                return False, False
            if str(refused) != hello.DUPLICATE:
                self._failed(target, str(refused))
            return True, False
        except OpenFailed as failure:
            self._failed(target, str(failure))
            return True, False
        self._failures.pop(target.address, None)
        peer = links.take_control(opened, links.node)
        if peer is None or peer.control is None:
            return True, False
        peer.is_configured |= target.is_configured
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._dial_route_forever, target, peer, peer.control)
            await links.serve_control(peer, peer.control, opened.first)
            nursery.cancel_scope.cancel()
        return True, True

    def _failed(self, target: Target, reason: str) -> None:
        """Say why an address cannot be linked with, when that is news."""
        if self._failures.get(target.address) != reason:
            self._failures[target.address] = reason
            self._links.server.log.warn("no link", address=target.address, reason=reason)

    async def _dial_route_forever(self, target: Target, peer: Peer, control: ControlLink) -> None:
        links = self._links
        if links.router is None:
            return

        def wanted(theirs: Hello) -> None:
            if theirs.introduction.node != peer.node:
                raise Refused("another node is there now")

        pause_s = RETRY_FIRST_S
        while control.why is None:
            try:
                opened = await opening.dial(
                    target, links.hello(ROUTE, target), links.tls, links.timeout_s, wanted
                )
            except (Refused, OpenFailed) as failure:
                links.server.log.debug("no route", peer=peer.name, reason=failure)
                pause_s = min(RETRY_LONGEST_S, 2 * pause_s)
            else:
                pause_s = RETRY_FIRST_S
                await links.serve_route(opened, did_solicit=True)
            await trio.sleep(pause_s * random.uniform(0.5, 1.0))
