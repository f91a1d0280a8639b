"""What a node has to do after whatever happened to it. The fields stand in the order of work.

Rules for whoever does the work:
* `early` may be sent at once.
* `hard_state`, `snapshot_parts`, `install`, `truncate_from` and `append` are written in this order and made
  durable by one sync. Then, and not before, `messages` are sent, and `Raft.persisted()` is called with this
  Ready.
* Blocks and parts that are sent get their bytes when the Ready is taken, as later ones may replace them.
* Parts of a snapshot belong to it by its identity: behind those of the one to install others may follow.
* Several may be under way, but they become durable in the order in which they were taken. When one cannot be
  written, the node has to be built anew from what is on its disk.
* `apply_to` and `reads` need no wait: they speak of what is durable here, or of the state to install.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hub.raft.members import NodeId
from hub.raft.messages import Block, HardState, Message, Snapshot, SnapshotPart


@dataclass(slots=True)
class Ready:
    """The work that one node has, for one group."""

    # Messages of a leader that promise nothing about its own disk (thesis, 10.2.1).
    early: list[tuple[NodeId, Message]] = field(default_factory=list)
    # What must not be forgotten; None if it is as before.
    hard_state: HardState | None = None
    # Parts of a snapshot that arrived.
    snapshot_parts: list[SnapshotPart] = field(default_factory=list)
    # The snapshot that is complete and takes the place of the log. Entries of the same Ready follow on it.
    install: Snapshot | None = None
    # Entries from this index on are void; None if there are none.
    truncate_from: int | None = None
    append: list[Block] = field(default_factory=list)
    # Messages that promise what stands above.
    messages: list[tuple[NodeId, Message]] = field(default_factory=list)
    # Entries up to here are committed, and durable on this node: apply them.
    apply_to: int = 0
    # (token, index): who asked may be answered once `index` is applied. An index of -1: ask again.
    reads: list[tuple[int, int]] = field(default_factory=list)
    # Peers that need a snapshot: whoever has one calls Raft.offer_snapshot().
    snapshots_wanted: list[NodeId] = field(default_factory=list)
    # Counts what was taken, and the last entry there was then; for Raft.persisted().
    number: int = 0
    last_index: int = 0

    @property
    def needs_sync(self) -> bool:
        """Whether something has to be durable before the messages go."""
        return bool(
            self.hard_state is not None
            or self.append
            or self.truncate_from is not None
            or self.install is not None
            or self.snapshot_parts
        )
