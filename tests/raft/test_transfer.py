"""Handing over (thesis, 3.10), and nodes that are not fit to lead."""

from __future__ import annotations

from hub.raft.messages import Append, TransferNow, VoteReply, VoteRequest
from hub.raft.raft import Role
from tests.raft.cluster import Cluster


def test_3_10_a_follower_that_has_everything_leads_at_once() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    before_ms = cluster.now_ms
    assert leader.transfer(3)
    assert [type(one.message) for one in cluster.flight] == [TransferNow]
    cluster.settle()
    assert cluster.now_ms == before_ms
    assert (cluster.leader().node, cluster.leader().raft.term) == (3, 2)
    assert leader.raft.leader == 3


def test_3_10_the_election_needs_no_trial_and_is_not_refused_by_those_that_hear_of_the_leader() -> None:
    cluster = Cluster(3)
    cluster.elect(1).transfer(2)
    cluster.deliver(kind=TransferNow)
    assert {one.message for one in cluster.flight} == {VoteRequest(2, 1, 1, False, is_transfer=True)}
    cluster.deliver(to=3)
    assert cluster.flight[-1].message == VoteReply(2, is_trial=False, is_granted=True)


def test_3_10_a_follower_that_lacks_something_gets_it_first() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.drop(to=3, kind=Append)
    cluster.settle()
    assert leader.transfer(3)
    assert cluster.pick(kind=TransferNow) == []
    cluster.advance(900)
    assert cluster.leader().node == 3
    assert cluster[3].commands == ("a",)


def test_3_10_commands_are_refused_meanwhile() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    assert (leader.raft.can_propose, cluster[2].raft.can_propose) == (True, False)
    leader.transfer(3)
    assert not leader.raft.can_propose
    assert leader.propose("a") is None
    assert not leader.change([1, 2])


def test_3_10_an_heir_that_does_not_take_over_in_time_leaves_a_group_that_elects() -> None:
    """The leader does not go on: the heir may still be elected by those who are bound to this leader."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster[3].crash()
    leader.transfer(3)
    cluster.advance(cluster.options.election_ms - 1)
    assert leader.raft.role is Role.LEADER
    assert leader.propose("a") is None
    cluster.advance(1)
    assert leader.raft.role is Role.FOLLOWER
    cluster.advance(2 * cluster.options.election_ms)
    assert cluster.leader().propose("b") is not None
    cluster.settle()
    assert leader.commands == ("b",)


def test_3_10_the_last_that_is_named_is_to_lead() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.cut = {(1, 2)}
    leader.transfer(2)
    leader.transfer(3)
    cluster.settle()
    assert cluster.leader().node == 3


def test_3_10_only_another_voter_can_take_over() -> None:
    cluster = Cluster(3, learners=[4])
    leader = cluster.elect(1)
    assert [leader.transfer(node) for node in (1, 4, 9)] == [False, False, False]
    assert not cluster[2].transfer(3)
    assert leader.propose("a") == 2


def test_3_10_an_old_request_to_take_over_is_nothing_in_a_later_term() -> None:
    cluster = Cluster(3)
    cluster.elect(1).transfer(2)
    late = cluster.pick(kind=TransferNow)[0].message
    cluster.flight.clear()
    cluster.elect(3)
    cluster[2].step(1, late)
    assert cluster[2].raft.role is Role.FOLLOWER


def test_3_10_an_heir_that_leaves_the_group_is_none_any_more() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.part({1, 2}, {3})
    leader.change([1, 2])
    assert not leader.transfer(3)
    assert leader.propose("a") is not None


def test_3_10_a_learner_told_to_take_over_does_not() -> None:
    cluster = Cluster(3, learners=[4])
    cluster.elect(1)
    cluster[4].step(1, TransferNow(1))
    assert cluster[4].raft.role is Role.FOLLOWER


# --- fit to lead ---


def test_a_leader_that_is_not_fit_hands_over_to_the_follower_that_has_most() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.drop(to=2, kind=Append)
    cluster.settle()
    leader.set_fit(False)
    cluster.settle()
    assert cluster.leader().node == 3
    assert leader.raft.leader == 3


def test_a_node_that_is_not_fit_votes_but_holds_no_elections() -> None:
    cluster = Cluster(3)
    cluster[1].set_fit(False)
    assert cluster[1].raft.due_ms is None
    cluster[3].crash()
    assert cluster.elect(2).raft.role is Role.LEADER
    assert cluster[1].raft.vote == 2


def test_a_node_that_is_not_fit_is_not_handed_anything() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster[3].set_fit(False)
    leader.transfer(3)
    cluster.settle()
    assert cluster[3].raft.role is Role.FOLLOWER
    cluster.advance(4000)
    assert cluster.leader().node in (1, 2)


def test_a_node_that_is_fit_again_holds_elections() -> None:
    cluster = Cluster(3)
    cluster[1].set_fit(False)
    cluster.now_ms = 5000
    cluster[1].set_fit(True)
    assert cluster.elect(1).raft.term == 1


def test_a_candidate_that_is_not_fit_any_more_does_not_lead_with_the_votes_that_come() -> None:
    cluster = Cluster(3)
    for is_trial in (True, False):
        cluster.time_out(1)
        if not is_trial:
            cluster[1].step(2, VoteReply(1, is_trial=True, is_granted=True))
        cluster[1].set_fit(False)
        cluster.settle()
        assert cluster[1].raft.role is Role.FOLLOWER
        cluster[1].set_fit(True)
    assert cluster.leaders == {}


def test_a_leader_that_is_not_fit_and_cannot_hand_over_steps_down() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.drop()
    # The heir is told, but that gets lost.
    leader.set_fit(False)
    assert cluster.drop(kind=TransferNow) == 1
    cluster.advance(cluster.options.election_ms)
    assert leader.raft.role is Role.FOLLOWER
    cluster.advance(3000)
    assert cluster.leader().node in (2, 3)


def test_a_sole_voter_that_is_not_fit_does_not_lead() -> None:
    cluster = Cluster(1)
    cluster[1].tick()
    cluster[1].set_fit(False)
    assert (cluster[1].raft.role, cluster[1].raft.due_ms) == (Role.FOLLOWER, None)
    assert cluster[1].propose("a") is None
    cluster[1].set_fit(True)
    cluster.time_out(1)
    assert cluster[1].propose("a") is not None
