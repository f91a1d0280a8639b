"""Who decides: majorities against counting them all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.raft.members import Members

nodes = st.frozensets(st.integers(1, 7), max_size=6)
voters = st.frozensets(st.integers(1, 7), min_size=1, max_size=6)


@st.composite
def any_members(draw: st.DrawFn) -> Members:
    current, outgoing = draw(voters), draw(nodes)
    learners = draw(nodes) - current - outgoing
    demoted = draw(nodes) & (outgoing - current)
    return Members(current, outgoing, learners, demoted)


def majorities(of: frozenset[int]) -> Iterator[frozenset[int]]:
    """Every set of more than half of them."""
    for count in range(len(of) // 2 + 1, len(of) + 1):
        yield from map(frozenset, combinations(sorted(of), count))


def decides(members: Members, granted: frozenset[int]) -> bool:
    if not any(one <= granted for one in majorities(members.voters)):
        return False
    return not members.outgoing or any(one <= granted for one in majorities(members.outgoing))


@given(any_members(), nodes)
def test_a_quorum_is_a_majority_of_each_set_of_voters(members: Members, granted: frozenset[int]) -> None:
    assert members.is_quorum(granted) == decides(members, granted)


@given(any_members(), nodes, nodes)
def test_two_quorums_have_a_node_in_common(
    members: Members, one: frozenset[int], other: frozenset[int]
) -> None:
    if members.is_quorum(one) and members.is_quorum(other):
        assert one & other & members.deciding


@given(any_members(), nodes)
def test_it_is_hopeless_when_all_the_others_are_no_quorum(members: Members, refused: frozenset[int]) -> None:
    assert members.is_hopeless(refused) == (not decides(members, members.deciding - refused))


@given(any_members(), st.dictionaries(st.integers(1, 7), st.integers(0, 9)))
def test_the_agreed_value_is_the_largest_that_a_quorum_has_reached(
    members: Members, values: dict[int, int]
) -> None:
    def has_reached(value: int) -> frozenset[int]:
        return frozenset(node for node in members.deciding if values.get(node, 0) >= value)

    expected = max(value for value in range(10) if decides(members, has_reached(value)))
    assert members.agreed(lambda node: values.get(node, 0)) == expected


@given(voters, nodes, voters, nodes)
def test_a_change_ends_with_the_members_that_were_asked_for(
    old: frozenset[int], old_learners: frozenset[int], new: frozenset[int], new_learners: frozenset[int]
) -> None:
    members = Members(old, learners=old_learners - old)
    wanted = new_learners - new
    step = members.towards(new, wanted)
    assert step.is_joint == (new != old)
    assert step.settled() == Members(new, learners=wanted)
    assert step.settled().everyone == new | wanted
    # Nobody who will be a member is without the log meanwhile, and nobody stops deciding before.
    assert step.everyone >= new | wanted
    assert step.deciding >= old


@given(voters, voters, nodes, nodes)
def test_6_in_the_joint_state_no_majority_of_either_set_alone_can_decide_against_it(
    old: frozenset[int], new: frozenset[int], one: frozenset[int], other: frozenset[int]
) -> None:
    joint = Members(old).towards(new, frozenset())
    if joint.is_quorum(one):
        for alone in (Members(old), Members(new)):
            if alone.is_quorum(other):
                assert one & other


@pytest.mark.parametrize(
    "arguments",
    [
        {"voters": frozenset()},
        {"voters": frozenset((1,)), "learners": frozenset((1,))},
        {"voters": frozenset((1,)), "outgoing": frozenset((2,)), "learners": frozenset((2,))},
        {"voters": frozenset((1,)), "demoted": frozenset((2,))},
        {"voters": frozenset((1,)), "outgoing": frozenset((1,)), "demoted": frozenset((1,))},
    ],
)
def test_members_that_cannot_be_are_refused(arguments: dict[str, frozenset[int]]) -> None:
    with pytest.raises(ValueError, match="vote"):
        Members(**arguments)
