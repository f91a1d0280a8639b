"""Sees to it that a stream is configured as the catalog says, by a command of the stream's own log.

The catalog and a stream are different groups, so nodes hear of a change at different entries of the stream.
Only what stands in the stream's log happens at the same place on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edged.core.commands import ASSIGNED, Configure
from edged.core.stream_machine import StreamMachine
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.core.outcomes import Outcome
    from edged.store.store import Store
    from hub.replication.replica import Replica


class Configuring:
    """Of one group, while this node leads it."""

    def __init__(self, store: Store, replica: Replica) -> None:
        self._store = store
        self._replica = replica
        # In which term a command was proposed, and what it says.
        self._proposed: tuple[int, dict[str, Any]] = (0, {})

    def look(self) -> None:
        """Propose what the catalog says, if it is something new and this node leads."""
        replica = self._replica
        entry, machine = self._store.catalog.streams.get(replica.number), replica.group.machine
        if entry is None or not isinstance(machine, StreamMachine) or not replica.is_complete:
            return
        if machine.config and not replica.proposes_changes:
            return
        wanted = {key: value for key, value in entry.config.items() if key not in ASSIGNED}
        if wanted != machine.config and self._proposed != (replica.raft.term, wanted):
            self._proposed = (replica.raft.term, wanted)
            self._store.add(replica.number, Configure(wanted), self._told)

    def _told(self, outcomes: Sequence[Outcome] | StoreError) -> None:
        if isinstance(outcomes, StoreError):
            # Whoever leads next will see to it.
            self._proposed = (0, {})
