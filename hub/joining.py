"""How nodes that know nothing yet become a cluster, and how one more joins. Pure decisions.

A cluster is begun once. Nodes that are all new begin one together: when every address of the configuration
has been reached, the node with the lowest number names all of them as the first members. It writes that
down, and so does each of them that is told, before it votes; who has written it down tells the others. As
soon as one node is not new there is a cluster, and whoever is new waits until the leader of that cluster
takes it in. So a node with a wiped disk never begins a second cluster beside the first one, whatever it
reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hub.raft.members import Members, NodeId


@dataclass(frozen=True, slots=True)
class Seen:
    """What a new node sees."""

    node: NodeId
    # Whether the configuration names other nodes, and each of its addresses leads to a node that is here.
    has_routes: bool
    is_complete: bool
    # The nodes that are connected, and which of them are new.
    is_new: Mapping[NodeId, bool]


def first_members(seen: Seen) -> Members | None:
    """The members to begin a cluster with, if that is for this node to do, and now."""
    if not seen.has_routes or not seen.is_complete or not all(seen.is_new.values()):
        return None
    everyone = frozenset({seen.node, *seen.is_new})
    return Members(everyone) if seen.node == min(everyone) else None


def why_waiting(seen: Seen) -> str:
    """What a new node waits for, for the log."""
    if not all(seen.is_new.values()):
        return "the leader of the cluster to take this node in"
    if not seen.has_routes:
        return "another node to connect: the configuration has no routes"
    if not seen.is_complete:
        return "all routes of the configuration to be connected"
    return f"node {min(seen.node, *seen.is_new)} to begin the cluster"
