"""How a group is on a node, for whoever looks after the cluster or shows it to people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hub.raft.members import Members, NodeId


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """How a group is, as far as this node knows. `followers`: what each has, and whether it is heard of."""

    term: int
    leader: NodeId
    is_leading: bool
    members: Members
    applied: int
    commit: int
    last: int
    is_rejoining: bool
    # Whether these members are committed.
    is_agreed: bool
    followers: dict[NodeId, tuple[int, bool]]
