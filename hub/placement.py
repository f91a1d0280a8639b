"""Which nodes get a stream: pure, from what is known of the nodes.

Rules: a node is chosen only if it is there, has JetStream, has room, and fits the tags and the cluster that
were asked for. Those with the fewest streams come first, then those with the most room. Who has the stream
already stays, as long as it fits: moving costs more than an uneven load. If not all of them can, the first
ones do. With `unique_tag`, no two of the
chosen nodes share a tag that begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hub.raft.members import NodeId

NO_PLACEMENT_TAG: Final = "!jetstream"
"""A server with this tag takes no streams."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What counts about a node."""

    node: NodeId
    name: str
    cluster: str
    tags: frozenset[str] = frozenset()
    is_up: bool = True
    has_jetstream: bool = True
    # How many streams it has, and how many bytes it could still promise, by kind of storage.
    streams: int = 0
    file_bytes_free: int = 0
    memory_bytes_free: int = 0

    def placed(self, is_up: bool, streams: int) -> NodeFacts:
        """The same node, with what others know of it."""
        return replace(self, is_up=is_up, streams=streams)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for."""

    replicas: int
    storage: str = "file"
    bytes_max: int = -1
    cluster: str = ""
    tags: tuple[str, ...] = ()
    unique_tag: str = ""
    preferred: str = ""


@dataclass(slots=True)
class NoPlacement(Exception):  # noqa: N818 - says what happened
    """Not enough nodes fit. str() is the text that clients see."""

    is_offline: bool = False
    is_excluded: bool = False
    is_full: bool = False
    is_not_unique: bool = False
    is_without_jetstream: bool = False
    tags: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        reasons = (
            (self.is_offline, "peer offline"),
            (self.is_excluded, "exclude tag set"),
            (self.is_full, "insufficient storage"),
            (self.is_not_unique, "server tag not unique"),
            (self.is_without_jetstream, "JetStream not enabled in cluster"),
            (bool(self.tags), f"tags not matched [{', '.join(repr(tag) for tag in sorted(self.tags))}]"),
        )
        return ", ".join(["no suitable peers for placement", *(text for is_so, text in reasons if is_so)])


def place(wish: Wish, nodes: Iterable[NodeFacts], now: Sequence[NodeId] = ()) -> list[NodeId]:
    """The nodes for a stream that is on those of `now`; the one to lead comes first. Raises NoPlacement."""
    trouble = NoPlacement()
    fitting = [node for node in nodes if _fits(wish, node, node.node in now, trouble)]
    rank = {node: number for number, node in enumerate(now)}
    fitting.sort(
        key=lambda node: (rank.get(node.node, len(now)), node.streams, -_free_bytes(wish, node), node.node)
    )
    chosen: list[NodeFacts] = []
    taken: set[str] = set()
    for node in fitting:
        if len(chosen) == wish.replicas:
            break
        unique = {tag for tag in node.tags if wish.unique_tag and tag.startswith(wish.unique_tag.lower())}
        if unique & taken:
            trouble.is_not_unique = True
            continue
        taken |= unique
        chosen.append(node)
    if len(chosen) < wish.replicas:
        raise trouble
    return [node.node for node in _preferred_first(wish.preferred, chosen)]


def _preferred_first(preferred: str, chosen: Sequence[NodeFacts]) -> list[NodeFacts]:
    return sorted(chosen, key=lambda node: node.name != preferred) if preferred else list(chosen)


def _fits(wish: Wish, node: NodeFacts, has_it: bool, trouble: NoPlacement) -> bool:
    if wish.cluster and node.cluster != wish.cluster:
        return False
    if not node.has_jetstream:
        trouble.is_without_jetstream = True
        return False
    if not node.is_up and not has_it:
        trouble.is_offline = True
        return False
    if NO_PLACEMENT_TAG in node.tags:
        trouble.is_excluded = True
        return False
    missing = {tag for tag in wish.tags if not _has_tag(node.tags, tag.lower())}
    if missing:
        trouble.tags |= missing
        return False
    if not has_it and wish.bytes_max > _free_bytes(wish, node):
        trouble.is_full = True
        return False
    return True


def _has_tag(tags: frozenset[str], wanted: str) -> bool:
    """Whether a server has a tag, or, if the tag begins with an exclamation mark, does not have it."""
    return wanted[1:] not in tags if wanted.startswith("!") else wanted in tags


def _free_bytes(wish: Wish, node: NodeFacts) -> int:
    return node.file_bytes_free if wish.storage == "file" else node.memory_bytes_free
