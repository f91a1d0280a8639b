"""Who belongs to a group, and which of them decide.

A change of voters passes through a joint state in which the voters before and the voters after decide, each
by its own majority (Raft thesis, 4.3). Learners get everything and decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

# A node is known by the number on its disk: who loses the disk comes back as another node.
NodeId = int


def _majority_has(voters: frozenset[NodeId], granted: Collection[NodeId]) -> bool:
    return sum(voter in granted for voter in voters) > len(voters) // 2


def _majority_value(voters: frozenset[NodeId], value_of: Callable[[NodeId], int]) -> int:
    """The largest value that a majority has reached."""
    values = sorted((value_of(voter) for voter in voters), reverse=True)
    return values[len(values) // 2]


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a group. Invariant: there is a voter, and a learner is not a voter."""

    voters: frozenset[NodeId]
    # The voters before, while they are being replaced; empty when nothing changes.
    outgoing: frozenset[NodeId] = frozenset()
    learners: frozenset[NodeId] = frozenset()
    # Those of the voters before that stay as learners.
    demoted: frozenset[NodeId] = frozenset()

    def __post_init__(self) -> None:
        if not self.voters:
            raise ValueError("a group needs a voter")
        if self.learners & (self.voters | self.outgoing):
            raise ValueError("a node is either a voter or a learner")
        if not self.demoted <= self.outgoing - self.voters:
            raise ValueError("only a voter that leaves can become a learner")

    @property
    def is_joint(self) -> bool:
        """Whether two sets of voters decide."""
        return bool(self.outgoing)

    @property
    def deciding(self) -> frozenset[NodeId]:
        """Everyone whose vote counts."""
        return self.voters | self.outgoing if self.outgoing else self.voters

    @property
    def everyone(self) -> frozenset[NodeId]:
        """Everyone who gets the log."""
        return self.deciding | self.learners

    def is_quorum(self, granted: Collection[NodeId]) -> bool:
        """Whether these nodes decide for the group."""
        if not _majority_has(self.voters, granted):
            return False
        return not self.outgoing or _majority_has(self.outgoing, granted)

    def is_hopeless(self, refused: Collection[NodeId]) -> bool:
        """Whether there can be no quorum any more without these nodes."""
        return not self.is_quorum(self.deciding.difference(refused))

    def agreed(self, value_of: Callable[[NodeId], int]) -> int:
        """The largest value that a quorum has reached."""
        value = _majority_value(self.voters, value_of)
        if self.outgoing:
            value = min(value, _majority_value(self.outgoing, value_of))
        return value

    def towards(self, voters: frozenset[NodeId], learners: frozenset[NodeId]) -> Members:
        """The next step on the way to these voters and learners. Only one change at a time."""
        assert not self.is_joint, self
        if voters == self.voters:
            return Members(voters, learners=learners)
        # A voter that is to be a learner is one only when the voters before have nothing to say any more.
        return Members(voters, self.voters, learners - self.voters, learners & self.voters)

    def settled(self) -> Members:
        """The members once the voters before have left."""
        return Members(self.voters, learners=self.learners | self.demoted)


@dataclass(frozen=True, slots=True)
class Rescue:
    """Fewer voters than a majority decide, because somebody who knows said so: the others never come back.

    If they do, two sets of nodes may decide differently. Nothing here can prevent that.
    """

    members: Members
    quorum_max: int

    def _needed(self, voters: frozenset[NodeId]) -> int:
        return min(self.quorum_max, len(voters) // 2 + 1)

    def _deciding(self) -> list[frozenset[NodeId]]:
        members = self.members
        return [members.voters, members.outgoing] if members.outgoing else [members.voters]

    def is_quorum(self, granted: Collection[NodeId]) -> bool:
        """Whether these nodes decide for the group."""
        return all(
            sum(voter in granted for voter in voters) >= self._needed(voters) for voters in self._deciding()
        )

    def is_hopeless(self, refused: Collection[NodeId]) -> bool:
        """Whether there can be no quorum any more without these nodes."""
        return not self.is_quorum(self.members.deciding.difference(refused))

    def agreed(self, value_of: Callable[[NodeId], int]) -> int:
        """The largest value that a quorum has reached."""
        return min(
            sorted(map(value_of, voters), reverse=True)[self._needed(voters) - 1]
            for voters in self._deciding()
        )
