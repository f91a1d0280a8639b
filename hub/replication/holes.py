"""What a group does on a node that lacks messages of it: it does not lead, and its entries wait.

Rules: entries are not applied while messages are lost that another node may have. What a command comes to
can depend on messages that are there, as limits and checks of the last seq do; decided with a hole it could
come out otherwise than on the other nodes, for good. So the group stands where it was when they were lost,
until they are back or it is known that nobody has them. The log itself goes on: entries are written,
confirmed and voted for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hub.limits import REPAIR_HELD_BYTES_MAX
from hub.raft.role import Role

if TYPE_CHECKING:
    from hub.replication.replica import Replica
    from hub.replication.replicas import Replicas


class Holes:
    """Of one group. `apply_to` is how far it may be applied otherwise."""

    def __init__(self, replicas: Replicas, replica: Replica) -> None:
        self._replicas = replicas
        self._replica = replica
        # Whether other nodes are asked for messages of it.
        self.is_repairing = False
        self.apply_to = 0

    @property
    def is_there(self) -> bool:
        """Whether messages are lost that another node may have."""
        return self._replica.group.lacks_messages

    @property
    def is_fit(self) -> bool:
        """Whether this node may lead the group. One that cannot read what it has is not, either."""
        return not self.is_repairing and not self.is_there

    def look(self) -> None:
        """Messages were lost, or came back."""
        raft = self._replica.raft
        (self._replicas.holed.add if self.is_there else self._replicas.holed.discard)(self._replica)
        if raft.is_fit != self.is_fit:
            raft.set_fit(self.is_fit, self._replicas.now_ms())
            self._replicas.touch(self._replica)

    @property
    def waiting_bytes(self) -> int:
        """Entries that wait for a repair and for nothing else: not those that this node took from clients."""
        replica = self._replica
        if not self.is_there or replica.raft.role is Role.LEADER:
            return 0
        return sum(held.size for held in replica.held)

    @property
    def is_full(self) -> bool:
        """Whether no more entries are to wait."""
        return self.waiting_bytes > REPAIR_HELD_BYTES_MAX
