"""Messages for groups that this node does not know yet, as its catalog is a moment behind.

Rules: their number and their bytes are bounded; when there are more, the oldest are dropped, and whoever sent
them does so again. What is kept does not keep the frame in memory in which it came.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from hub.limits import EARLY_BYTES_MAX, EARLY_MESSAGES_MAX
from hub.raft.members import NodeId
from hub.raft.messages import Append, Message, SnapshotPart


class Early:
    """Of one node."""

    def __init__(self) -> None:
        # (sender, group, message, bytes), the oldest first.
        self._waiting: deque[tuple[NodeId, int, Message, int]] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, sender: NodeId, group: int, message: Message) -> None:
        """Keep a message until its group is known."""
        own, size = _owned(message)
        self._waiting.append((sender, group, own, size))
        self.bytes += size
        while len(self._waiting) > EARLY_MESSAGES_MAX or self.bytes > EARLY_BYTES_MAX:
            self.bytes -= self._waiting.popleft()[3]

    def take(self, group: int) -> list[tuple[NodeId, Message]]:
        """Those for a group, in their order; they are not kept any more."""
        taken = [one for one in self._waiting if one[1] == group]
        if taken:
            self._waiting = deque(one for one in self._waiting if one[1] != group)
            self.bytes -= sum(one[3] for one in taken)
        return [(sender, message) for sender, _, message, _ in taken]


def _owned(message: Message) -> tuple[Message, int]:
    """A message with bytes of its own, and how many those are."""
    if type(message) is Append:
        blocks = tuple(
            replace(block, payload=None if block.payload is None else bytes(block.payload))
            for block in message.blocks
        )
        size = sum(len(block.payload) for block in blocks if block.payload is not None)
        return replace(message, blocks=blocks), size
    if type(message) is SnapshotPart and message.payload is not None:
        payload = bytes(message.payload)
        return replace(message, payload=payload), len(payload)
    return message, 0
