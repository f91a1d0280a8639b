"""Reads that see everything that was committed when they were asked for (thesis, 6.4)."""

from __future__ import annotations

from hub.raft.messages import AppendReply, Heartbeat, HeartbeatReply, ReadReply, ReadRequest
from hub.raft.raft import Role
from tests.raft.cluster import Cluster


def test_6_4_a_read_is_answered_after_a_majority_has_answered_a_heartbeat_sent_since() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    leader.read(7)
    assert leader.answers == []
    cluster.deliver(kind=Heartbeat)
    cluster.deliver(sender=2)
    assert leader.answers == []
    cluster.deliver(sender=3)
    assert leader.answers == [(7, 2)]


def test_6_4_answers_to_earlier_heartbeats_do_not_confirm_a_read() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.beat(1)
    cluster.deliver(kind=Heartbeat)
    # The answers are under way when the read is asked for: they say nothing about now.
    leader.read(7)
    assert cluster.deliver(kind=HeartbeatReply) == 2
    assert leader.answers == []
    cluster.settle()
    assert leader.answers == [(7, 1)]


def test_6_4_a_leader_without_majority_answers_no_read_and_says_so_when_it_steps_down() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.part({1}, {2, 3})
    leader.read(7)
    cluster.settle()
    cluster.elect(2).propose("a")
    cluster.settle()
    assert leader.answers == []
    cluster.advance(2000)
    assert leader.raft.role is not Role.LEADER
    assert leader.answers == [(7, -1)]


def test_6_4_several_reads_share_a_round() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.read(1)
    leader.propose("a")
    leader.read(2)
    cluster.settle()
    assert leader.answers == [(1, 1), (2, 1)]
    leader.read(3)
    cluster.settle()
    assert leader.answers[-1] == (3, 2)


def test_6_4_before_the_first_commit_of_its_term_a_leader_does_not_know_what_is_committed() -> None:
    cluster = Cluster(3)
    old = cluster.elect(1)
    old.propose("a")
    cluster.settle()
    cluster.part({2, 3})
    cluster.now_ms += 3000
    cluster.time_out(2)
    while cluster[2].raft.role is not Role.LEADER:
        assert cluster.deliver(count=1)
    leader = cluster[2]
    leader.read(7)
    # Its leadership is confirmed, but its own entry is not committed yet.
    cluster.deliver(kind=Heartbeat)
    cluster.deliver(kind=HeartbeatReply)
    assert leader.answers == []
    cluster.settle()
    assert leader.answers == [(7, 3)]
    assert leader.commands == ("a",)


def test_6_4_a_read_that_came_too_early_is_failed_if_the_leader_never_commits() -> None:
    cluster = Cluster(3)
    cluster.now_ms = 2001
    cluster[1].tick()
    while cluster[1].raft.role is not Role.LEADER:
        assert cluster.deliver(count=1)
    cluster.flight.clear()
    cluster[1].read(7)
    cluster[1].step(2, AppendReply(5, 0, is_refused=True))
    assert cluster[1].answers == [(7, -1)]


def test_6_4_a_sole_voter_needs_nobody() -> None:
    cluster = Cluster(1, learners=[2])
    cluster[1].tick()
    cluster[1].propose("a")
    cluster[1].read(7)
    assert cluster[1].answers == [(7, 2)]


def test_6_4_learners_confirm_no_read() -> None:
    cluster = Cluster(3, learners=[4, 5])
    leader = cluster.elect(1)
    cluster.part({1, 4, 5})
    leader.read(7)
    cluster.settle()
    assert leader.answers == []


def test_6_4_in_the_joint_state_both_majorities_confirm_a_read() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.add(4)
    cluster.add(5)
    cluster.part({1, 2, 3})
    leader.change([1, 4, 5])
    leader.read(7)
    cluster.settle()
    assert leader.answers == []
    cluster.part()
    cluster.advance(500)
    assert leader.answers[0][0] == 7
    assert leader.answers[0][1] >= 1


def test_6_4_a_follower_asks_the_leader_and_answers_once_it_has_applied_as_much() -> None:
    cluster = Cluster(3, learners=[4])
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    for asker in (2, 4):
        cluster[asker].read(7)
        assert cluster[asker].answers == []
        cluster.settle()
        assert cluster[asker].answers == [(7, 2)]
        assert cluster[asker].applied >= 2


def test_6_4_a_read_without_leader_is_to_be_asked_again() -> None:
    cluster = Cluster(3)
    cluster[1].read(7)
    assert cluster[1].answers == [(7, -1)]


def test_6_4_a_read_asked_of_a_leader_that_is_none_any_more_is_to_be_asked_again() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[3].read(7)
    cluster.drop(kind=ReadRequest)
    cluster.elect(2)
    assert cluster[3].answers == [(7, -1)]


def test_6_4_a_read_is_to_be_asked_again_also_when_the_same_node_leads_a_later_term() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[3].read(7)
    cluster.drop(kind=ReadRequest)
    # Node 3 hears nothing of the election, only of its result.
    cluster[3].step(1, Heartbeat(2, 0, 1, False))
    assert cluster[3].answers == [(7, -1)]


def test_6_4_an_answer_of_an_earlier_term_and_one_that_nobody_waits_for_are_nothing() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[3].read(7)
    cluster.settle()
    assert len(cluster[3].answers) == 1
    cluster[3].step(1, ReadReply(1, 7, 1))
    cluster[3].step(1, ReadReply(0, 8, 1))
    assert len(cluster[3].answers) == 1


def test_6_4_a_follower_that_is_asked_by_another_says_nothing() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[2].step(3, ReadRequest(1, 7))
    assert cluster.flight == []


def test_6_4_a_deposed_leader_never_answers_with_what_it_had() -> None:
    cluster = Cluster(3)
    old = cluster.elect(1)
    cluster.part({1}, {2, 3})
    cluster.elect(2).propose("a")
    cluster.settle()
    old.read(7)
    cluster.part()
    cluster.settle()
    cluster.beat(1)
    cluster.settle()
    assert old.answers == [(7, -1)]
