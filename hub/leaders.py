"""Who leads which group, as far as this node has heard: of its own groups from Raft, of others from nodes.

Whoever leads a group says so to everybody, and says all that it leads to whoever connects. A word of a later
term counts; one of the same term is the same. So a node that has no copy of a stream still knows where to
send what clients ask of it. The answer may be out of date: whoever is asked and does not lead says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hub.raft.members import NodeId

NOBODY: Final[NodeId] = 0


class Leaders:
    """By group: the term and the leader that was heard of last. `changed` is told of every other leader."""

    def __init__(self, changed: Callable[[int], None]) -> None:
        self._changed = changed
        self._heard: dict[int, tuple[int, NodeId]] = {}

    def leader(self, group: int) -> NodeId:
        """Who leads, 0: nobody that is known."""
        return self._heard.get(group, (0, NOBODY))[1]

    def hear(self, group: int, term: int, node: NodeId) -> bool:
        """Somebody leads in a term, or, with 0, nobody does any more; whether that is news."""
        known_term, known = self._heard.get(group, (0, NOBODY))
        if term < known_term or (term == known_term and node == known):
            return False
        if term == known_term and node != NOBODY and known != NOBODY:
            # Two leaders of one term there are not: the first word stays.
            return False
        self._heard[group] = term, node
        if node != known:
            self._changed(group)
        return True

    def lost(self, node: NodeId) -> None:
        """A node is out of reach: what it led has no leader, until somebody says otherwise."""
        for group, (term, leader) in list(self._heard.items()):
            if leader == node:
                self._heard[group] = term, NOBODY
                self._changed(group)

    def forget(self, group: int) -> None:
        """A group is gone."""
        self._heard.pop(group, None)

    def groups(self) -> list[int]:
        """The groups that somebody was heard of to lead."""
        return list(self._heard)

    def led_by(self, node: NodeId) -> Iterable[tuple[int, int]]:
        """The groups that a node leads, each with its term."""
        return [(group, term) for group, (term, leader) in self._heard.items() if leader == node]
