"""How the members of a group become those that are wanted, one safe step at a time. Pure.

Newcomers get everything first and decide nothing (learners); those that are as far as the others become
voters, by joint consensus, whatever becomes of the rest. So a group never waits for a node that has nothing
yet. Nodes leave when all newcomers are there, and decide until they are not needed any more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hub.raft.members import Members, NodeId


@dataclass(frozen=True, slots=True)
class MemberStep:
    """The members to ask for next."""

    voters: frozenset[NodeId]
    learners: frozenset[NodeId]


def next_step(
    members: Members, wanted: frozenset[NodeId], caught_up: Collection[NodeId]
) -> MemberStep | None:
    """The next change towards these voters; None while one is under way, or when nothing is to be done.

    `caught_up` are the nodes that have about everything the leader has.
    """
    assert wanted, "a group needs a voter"
    if members.is_joint:
        return None
    newcomers = wanted - members.voters
    if not newcomers <= members.learners or not members.learners <= newcomers:
        return MemberStep(members.voters, newcomers)
    late = newcomers.difference(caught_up)
    voters = members.voters | (newcomers - late) if late else wanted
    return MemberStep(voters, late) if voters != members.voters else None


def is_settled(members: Members, wanted: frozenset[NodeId]) -> bool:
    """Whether these are the members, and no others."""
    return members == Members(wanted)
