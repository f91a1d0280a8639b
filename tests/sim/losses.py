"""What nodes may forget that do not wait for their disks: what none of them has any more.

Rules: an entry that was committed stays as long as one node has it, in memory or on its disk. When the last
one that had it loses its power, it is as if it had never been committed: who was told otherwise was told so
by nodes that had not promised to keep it. Nothing else is forgiven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.world import World


class Losses:
    """Of one run."""

    __slots__ = ("_world", "count")

    def __init__(self, world: World) -> None:
        self._world = world
        self.count = 0

    def look(self) -> None:
        """A node lost its memory, and maybe more."""
        world = self._world
        last_seq = world.checkers.forget(self._has)
        if last_seq is None:
            return
        world.trace("everybody forgot what is behind seq", last_seq)
        self.count += 1
        world.clients.forget(last_seq)
        for host in world.hosts.values():
            host.reads = {token: min(floor, last_seq) for token, floor in host.reads.items()}

    def _has(self, index: int, term: int) -> bool:
        return any(host.has(index, term) for host in self._world.hosts.values() if not host.is_gone)
