"""The snapshots that a node offers to others, and those that arrive in parts.

Rules: the parts of a snapshot carry its whole state, and count only when all of its bytes came, in their
order. Parts are kept by the identity of their snapshot: those of a later one may come before an earlier one
is to be installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hub.raft.messages import Snapshot, SnapshotPart
from tests.sim.checkers import Violation
from tests.sim.machine import State

if TYPE_CHECKING:
    from tests.sim.host import Host

OFFERED_MAX: Final = 16


class Snapshots:
    """Those of one node, since its start."""

    __slots__ = ("_host", "_incoming", "_offered")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._offered: dict[int, State] = {}
        # By identity: how many bytes are there, and what they say.
        self._incoming: dict[int, tuple[int, State]] = {}

    def offered(self, identity: int) -> State | None:
        """What a part of this snapshot carries; None if it is gone."""
        return self._offered.get(identity)

    def plan(self, peer: int) -> None:
        """Offer the state of now to a peer, in a while."""
        host = self._host
        delay_us = host.world.random.randint(0, 20_000)
        host.world.events.after(delay_us, self._offer, host.boot, peer, host.machine.state())

    def _offer(self, boot: int, peer: int, state: State) -> None:
        host, world = self._host, self._host.world
        raft = host.raft
        if raft is None or boot != host.boot:
            return
        if host.is_paused and host.is_held(self._offer, boot, peer, state):
            return
        world.snapshots += 1
        parts = world.random.randint(1, 6)
        size = parts * world.scenario.options.snapshot_part_bytes - world.random.randint(0, 9)
        snapshot = Snapshot(state.index, state.term, state.members, size, world.snapshots)
        # Which of them the core took, and is done with, it does not say.
        if len(self._offered) > OFFERED_MAX:
            del self._offered[next(iter(self._offered))]
        self._offered[snapshot.identity] = state
        raft.offer_snapshot(peer, snapshot, host.clock.now_ms())
        host.pump()

    def keep(self, part: SnapshotPart) -> None:
        """A part arrived."""
        identity = part.snapshot.identity
        covered = self._incoming[identity][0] if identity in self._incoming else 0
        if part.offset > covered or part.payload is None:
            raise Violation(f"node {self._host.node} keeps {part} and has {covered} bytes of it")
        self._incoming[identity] = (max(covered, part.offset + part.size), part.payload)

    def take(self, snapshot: Snapshot) -> State:
        """All of it is there."""
        covered, state = self._incoming.pop(snapshot.identity, (0, self._host.disk.image.checkpoint))
        if covered < snapshot.size:
            raise Violation(f"node {self._host.node} installs {snapshot} and has {covered} bytes of it")
        if (state.index, state.term, state.members) != (snapshot.index, snapshot.term, snapshot.members):
            raise Violation(f"node {self._host.node} installs {snapshot} with another state")
        return state
