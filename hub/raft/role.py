"""What a node of a group is at the moment."""

from __future__ import annotations

from enum import Enum
from typing import Final

from hub.raft.members import NodeId

NOBODY: Final[NodeId] = 0


class Role(Enum):
    """A TRIAL asks whether an election could be won before it holds one."""

    FOLLOWER = 1
    TRIAL = 2
    CANDIDATE = 3
    LEADER = 4
