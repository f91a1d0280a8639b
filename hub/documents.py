"""What people and tools are shown of a group: who leads it, who has it, and how far each of them is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from edged.core.gotime import format_rfc3339
from hub.identity import peer_name
from hub.raft.members import NodeId

Document = dict[str, Any]
CURRENT_ENTRIES: Final = 100
"""Who lacks no more than this, and was heard of, is as good as current: something is always under way."""


def raft_group_name(group: int, config: Mapping[str, Any]) -> str:
    """The name of a stream's group, in nats-server's way: copies, storage, what tells it from others."""
    kind = "M" if config.get("storage") == "memory" else "F"
    return f"S-R{config.get('num_replicas') or 1}{kind}-{group:08d}"


def replicas_of(
    status: Any,
    name_of: Callable[[NodeId], str],
    is_up: Callable[[NodeId], bool],
    active_ns: Callable[[NodeId], int],
    left_out: NodeId | None = None,
) -> list[Document]:
    """The members besides one, which is the leader unless another is named."""
    found = []
    for node in sorted(status.members.everyone):
        if node == (status.leader if left_out is None else left_out):
            continue
        match, _ = status.followers.get(node, (status.commit, True))
        lag = max(status.commit - match, 0)
        is_current = is_up(node) and lag <= CURRENT_ENTRIES
        document: Document = {"name": name_of(node), "current": is_current}
        if not is_up(node):
            document["offline"] = True
        document["active"] = active_ns(node)
        if lag:
            document["lag"] = lag
        document["peer"] = peer_name(node)
        found.append(document)
    return found


def group_document(
    cluster: str,
    group_name: str,
    leader: str,
    leader_since_ns: int,
    system_account: str,
    replicas: list[Document],
) -> Document:
    """The `cluster` field of stream and consumer infos."""
    document: Document = {"name": cluster, "raft_group": group_name}
    if leader:
        document["leader"] = leader
        document["leader_since"] = format_rfc3339(leader_since_ns)
    document["system_account"] = True
    document["traffic_account"] = system_account
    if replicas:
        document["replicas"] = replicas
    return document
