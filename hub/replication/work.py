"""What a batch of the journal has of one group, and what is to be done when it is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hub.raft.messages import Block, Message

if TYPE_CHECKING:
    from edged.core.replica_records import HardRecord
    from edged.store.install import Prepared
    from hub.raft.members import NodeId
    from hub.raft.ready import Ready
    from hub.replication.held import Held
    from hub.replication.replica import Replica

# To whom, and what.
Outgoing = list[tuple["NodeId", Message]]


class Work:
    """What a batch has of one Ready, and what is to be done when it is durable."""

    __slots__ = ("cut", "hard", "held", "messages", "ready", "replica", "state")

    def __init__(self, replica: Replica, ready: Ready | None) -> None:
        self.replica = replica
        self.ready = ready
        self.hard: HardRecord | None = None
        self.cut: int | None = None
        # What takes the place of the group's state.
        self.state: Prepared | None = None
        self.held: list[Held] = []
        self.messages: Outgoing = []


def is_own(block: Block) -> bool:
    """Whether these are commands that this node itself has put into a batch."""
    return block.members is None and block.payload is None
