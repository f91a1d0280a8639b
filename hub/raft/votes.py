"""The answers to a node that would lead, and whether they are enough.

A majority elects that has forgotten nothing: what was committed is on one of them, and each has seen that the
candidate has all that it has itself. A node that may lack the end of its log, and nothing else, knows what it
voted, but not what it confirmed. Its word counts where everybody says yes: then whatever is left of the log
anywhere, the candidate has it. Learners have to agree as well, as they have applied what was committed; they
are asked only then.

Invariant: the first answer of a node counts.
"""

from __future__ import annotations

from hub.raft.log import Log
from hub.raft.members import NodeId


class Votes:
    """Of one election, or of one trial."""

    __slots__ = ("_granted", "_refused", "_unsure")

    def __init__(self) -> None:
        self._granted: set[NodeId] = set()
        # Those that may lack the end of their log, and would have this node lead all the same.
        self._unsure: set[NodeId] = set()
        self._refused: set[NodeId] = set()

    @property
    def are_unsure(self) -> bool:
        """Whether somebody would have it lead whose word counts only if everybody agrees."""
        return bool(self._unsure)

    def count(self, node: NodeId, is_granted: bool, is_unsure: bool) -> None:
        """A node answers."""
        if node not in self._granted | self._unsure | self._refused:
            answers = self._refused if not is_granted else self._unsure if is_unsure else self._granted
            answers.add(node)

    def are_enough(self, log: Log) -> bool:
        """Whether the node is elected."""
        return log.quorum.is_quorum(self._granted) or log.members.everyone <= self._granted | self._unsure

    def are_hopeless(self, log: Log) -> bool:
        """Whether it cannot be elected any more."""
        return bool(self._refused) and log.quorum.is_hopeless(self._refused | self._unsure)
