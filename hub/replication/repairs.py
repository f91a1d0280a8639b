"""Which streams of this node are being repaired, and which could be led again.

Rules: a stream is under repair from the moment on at which somebody finds that messages are lost, at the
start, in a cycle or in reading, until none is missing that another node may have. Meanwhile this node does
not lead it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hub.replication.repair import Repair

if TYPE_CHECKING:
    from edged.store.group import StreamEntry
    from hub.replication.replicas import Replicas

# Told of a repair that begins, and of one that is over.
Listener = Callable[[Repair], None]


class Repairs:
    """Of one node."""

    def __init__(self, replicas: Replicas, on_begun: Listener, on_ended: Listener) -> None:
        self._replicas = replicas
        self._on_begun = on_begun
        self._on_ended = on_ended
        self.under_way: dict[int, Repair] = {}
        # By group: seqs that are listed, unreadable, and nowhere to be had.
        self._given_up: dict[int, set[int]] = {}

    def look(self) -> None:
        """Begin and end what is to be begun and ended."""
        streams = self._replicas.store.catalog.streams
        for group, repair in list(self.under_way.items()):
            if repair.is_over:
                del self.under_way[group]
                if group in streams:
                    self._replicas.set_repairing(group, False)
                self._on_ended(repair)
        self._forget_segments()
        for group, entry in list(streams.items()):
            if group not in self.under_way and self._is_wanting(group, entry):
                repair = self.under_way[group] = Repair(self._replicas, group, self._given_up_of(group))
                self._replicas.set_repairing(group, True)
                self._on_begun(repair)
        for group in self._given_up.keys() - streams.keys():
            del self._given_up[group]

    def postpone(self, repair: Repair) -> None:
        """It had its turn: let others go first."""
        if self.under_way.pop(repair.group, None) is not None:
            self.under_way[repair.group] = repair

    def _is_wanting(self, group: int, entry: StreamEntry) -> bool:
        if entry.group.replica is None:
            return False
        if entry.group.lacks_messages:
            return True
        damaged = self._replicas.store.cache.beyond_repair
        return bool(damaged) and not Repair(self._replicas, group, self._given_up_of(group)).is_over

    def _given_up_of(self, group: int) -> set[int]:
        return self._given_up.setdefault(group, set())

    def _forget_segments(self) -> None:
        """Segments that are not in use any more concern nobody."""
        damaged = self._replicas.store.cache.beyond_repair
        if damaged:
            streams = self._replicas.store.catalog.streams.values()
            used = {segment.path for entry in streams for segment in getattr(entry.log, "segments", ())}
            for path in set(damaged) - used:
                damaged.pop(path, None)
