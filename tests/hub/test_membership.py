"""The way from some members to others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub.membership import MemberStep, is_settled, next_step
from hub.raft.members import Members

nodes = st.frozensets(st.integers(1, 7), min_size=1)


def test_newcomer_learns_before_it_decides() -> None:
    members = Members(frozenset({1, 2, 3}))
    wanted = frozenset({1, 2, 3, 4})
    assert next_step(members, wanted, {1, 2, 3}) == MemberStep(frozenset({1, 2, 3}), frozenset({4}))
    learning = Members(frozenset({1, 2, 3}), learners=frozenset({4}))
    assert next_step(learning, wanted, {1, 2, 3}) is None
    assert next_step(learning, wanted, {4}) == MemberStep(wanted, frozenset())


def test_newcomer_that_died_does_not_keep_another_from_deciding() -> None:
    wanted = frozenset({1, 2, 3, 4, 9})
    learning = Members(frozenset({1, 2, 3}), learners=frozenset({4, 9}))
    step = next_step(learning, wanted, {1, 2, 3, 4})
    assert step == MemberStep(frozenset({1, 2, 3, 4}), frozenset({9}))
    later = Members(step.voters, learners=step.learners)
    assert next_step(later, wanted, {1, 2, 3, 4}) is None
    assert next_step(later, wanted, wanted) == MemberStep(wanted, frozenset())


def test_nodes_leave_when_all_newcomers_are_there() -> None:
    wanted = frozenset({3, 4, 5})
    learning = Members(frozenset({1, 2, 3}), learners=frozenset({4, 5}))
    assert next_step(learning, wanted, {4}) == MemberStep(frozenset({1, 2, 3, 4}), frozenset({5}))
    assert next_step(learning, wanted, {4, 5}) == MemberStep(wanted, frozenset())


def test_learner_that_is_not_wanted_any_more_goes() -> None:
    learning = Members(frozenset({1, 2, 3}), learners=frozenset({4}))
    assert next_step(learning, frozenset({1, 2, 3}), ()) == MemberStep(frozenset({1, 2, 3}), frozenset())


def test_nothing_is_asked_for_while_a_change_is_under_way() -> None:
    joint = Members(frozenset({1, 2, 4}), frozenset({1, 2, 3}))
    assert next_step(joint, frozenset({1, 2, 3}), {1, 2, 3, 4}) is None


@given(nodes, nodes, st.frozensets(st.integers(1, 7)), st.data())
def test_every_way_ends_with_the_wanted_voters_and_all_of_them_caught_up(
    before: frozenset[int], wanted: frozenset[int], learners: frozenset[int], data: st.DataObject
) -> None:
    members = Members(before, learners=learners - before)
    for _ in range(10):
        caught_up = members.everyone if data.draw(st.booleans()) else members.voters
        step = next_step(members, wanted, caught_up)
        if step is not None:
            assert step.voters <= caught_up, "nobody decides who does not have everything"
            members = members.towards(step.voters, step.learners)
            if members.is_joint:
                assert next_step(members, wanted, members.everyone) is None
                members = members.settled()
    while (step := next_step(members, wanted, members.everyone)) is not None:
        members = members.towards(step.voters, step.learners)
        members = members.settled() if members.is_joint else members
    assert is_settled(members, wanted)
