"""Servers that disturb, and leaders that nobody hears (thesis, 4.2.3, 6.2 and 9.6)."""

from __future__ import annotations

import pytest

from hub.raft.messages import Heartbeat, HeartbeatReply, VoteReply, VoteRequest
from hub.raft.raft import Role
from tests.raft.cluster import Cluster


def test_9_6_a_trial_changes_neither_term_nor_vote_of_anyone() -> None:
    cluster = Cluster(3, terms={1: 4, 2: 4, 3: 4})
    cluster.time_out(1)
    requests = [one.message for one in cluster.flight]
    assert requests == [VoteRequest(5, 0, 0, is_trial=True, is_transfer=False)] * 2
    cluster.deliver()
    assert [(node.raft.term, node.raft.vote) for node in cluster.nodes.values()] == [(4, 0)] * 3
    assert [one.message for one in cluster.flight] == [VoteReply(5, is_trial=True, is_granted=True)] * 2


def test_9_6_a_node_that_is_alone_does_not_count_up_its_term() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.part({1, 2}, {3})
    cluster.advance(60_000)
    assert cluster[3].raft.term == 1
    cluster.part()
    cluster.advance(5000)
    assert cluster.leader().node == 1
    assert cluster[3].raft.leader == 1
    assert cluster[1].raft.term == 1


def test_9_6_a_node_with_an_old_log_does_not_get_as_far_as_an_election() -> None:
    cluster = Cluster(3, logs={1: [1, 1], 2: [1, 1], 3: [1]})
    cluster.time_out(3)
    cluster.settle()
    assert cluster[3].raft.role is Role.FOLLOWER
    assert {node.raft.term for node in cluster.nodes.values()} == {1}


def test_9_6_a_trial_that_is_refused_by_a_later_term_brings_that_term() -> None:
    cluster = Cluster(3, terms={1: 1, 2: 5, 3: 5})
    cluster.time_out(1)
    cluster.settle()
    assert (cluster[1].raft.term, cluster[1].raft.role) == (5, Role.FOLLOWER)


def test_9_6_an_answer_to_an_earlier_trial_does_not_count_for_a_later_term() -> None:
    cluster = Cluster(3)
    cluster.time_out(1)
    cluster[1].step(2, Heartbeat(3, 0, 1, False))
    cluster.time_out(1)
    assert cluster[1].raft.role is Role.TRIAL
    cluster[1].step(2, VoteReply(1, is_trial=True, is_granted=True))
    cluster[1].step(2, VoteReply(3, is_trial=True, is_granted=True))
    assert cluster[1].raft.role is Role.TRIAL
    cluster[1].step(2, VoteReply(4, is_trial=True, is_granted=True))
    assert (cluster[1].raft.role, cluster[1].raft.term) == (Role.CANDIDATE, 4)


def test_9_6_a_trial_is_no_vote_and_a_vote_no_trial() -> None:
    cluster = Cluster(3)
    cluster.time_out(1)
    cluster[1].step(2, VoteReply(0, is_trial=False, is_granted=True))
    assert cluster[1].raft.role is Role.TRIAL
    cluster[1].step(2, VoteReply(1, is_trial=True, is_granted=True))
    cluster[1].step(3, VoteReply(1, is_trial=True, is_granted=True))
    assert cluster[1].raft.role is Role.CANDIDATE


def test_9_6_several_may_be_granted_a_trial_and_only_one_wins() -> None:
    cluster = Cluster(3)
    cluster.now_ms = 2000
    for node in (1, 2, 3):
        cluster[node].tick()
    cluster.settle()
    cluster.advance(5000)
    assert len([node for node in cluster.nodes.values() if node.raft.role is Role.LEADER]) == 1


@pytest.mark.parametrize("is_trial", [True, False], ids=["trial", "election"])
def test_4_2_3_who_heard_of_a_leader_lately_does_not_even_look_at_another_candidate(is_trial: bool) -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    request = VoteRequest(9, 99, 8, is_trial, is_transfer=False)
    for node in (1, 2):
        cluster[node].step(3, request)
        assert (cluster[node].raft.term, cluster[node].raft.leader) == (1, 1)
    assert cluster.flight == []
    cluster.now_ms += cluster.options.election_ms - 1
    cluster[2].step(3, request)
    assert cluster.flight == []
    cluster.now_ms += 1
    cluster[2].step(3, request)
    assert [one.message.is_granted for one in cluster.flight] == [True]


def test_4_2_3_a_removed_server_that_was_not_told_disturbs_nobody() -> None:
    cluster = Cluster(4)
    leader = cluster.elect(1)
    cluster.part({1, 2, 3}, {4})
    leader.change([1, 2, 3])
    cluster.settle()
    cluster.part()
    assert cluster[4].raft.members.voters == {1, 2, 3, 4}
    cluster.advance(60_000)
    assert {cluster[node].raft.term for node in (1, 2, 3)} == {1}
    assert cluster.leader().node == 1


def test_6_2_a_leader_that_no_majority_answers_steps_down() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    cluster.part({1, 2}, {3, 4, 5})
    cluster.advance(3 * cluster.options.election_ms)
    assert leader.raft.role is not Role.LEADER
    assert leader.propose("a") is None
    cluster.advance(2000)
    assert cluster.leader().node in (3, 4, 5)


def test_6_2_a_leader_that_a_majority_answers_stays() -> None:
    cluster = Cluster(5)
    cluster.elect(1)
    cluster.part({1, 2, 3})
    cluster.advance(60_000)
    assert (cluster.leader().node, cluster.leader().raft.term) == (1, 1)


def test_6_2_a_leader_heard_by_all_that_hears_nobody_steps_down() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.cut = {(2, 1), (3, 1)}
    cluster.advance(2 * cluster.options.election_ms)
    assert leader.raft.role is not Role.LEADER
    cluster.advance(5000)
    assert cluster.leader().node in (2, 3)


def test_a_node_that_came_into_a_later_term_brings_a_leader_of_an_earlier_one_along() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.part({1, 2}, {3})
    # As if it had voted for somebody who is gone since.
    cluster[3].step(9, Heartbeat(7, 0, 1, False))
    cluster.now_ms += 1000
    cluster.part()
    cluster.advance(5000)
    terms = {node.raft.term for node in cluster.nodes.values()}
    assert len(terms) == 1
    assert terms.pop() > 7
    cluster.leader().propose("a")
    cluster.settle()
    assert all(node.commands == ("a",) for node in cluster.nodes.values())


def test_a_link_that_breaks_in_one_direction_only_leads_to_one_new_leader() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    # Node 3 hears nothing of the leader, but everything else works.
    cluster.cut = {(1, 3)}
    cluster.advance(30_000)
    # It asks the others in vain, as they hear of the leader.
    assert (cluster.leader().node, cluster.leader().raft.term) == (1, 1)


def test_a_node_that_suspects_its_leader_waits_until_it_is_not_bound_and_less_than_a_heartbeat() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].crash()
    for node in (2, 3):
        cluster[node].suspect(1)
    assert cluster[2].raft.due_ms == cluster.now_ms + cluster.options.promise_ms + 2
    cluster.advance(cluster.options.promise_ms + cluster.options.heartbeat_ms)
    assert cluster.leader().node in (2, 3)


def test_a_wrong_suspicion_of_one_node_changes_nothing() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[2].suspect(1)
    cluster.advance(5000)
    assert (cluster.leader().node, cluster.leader().raft.term) == (1, 1)


def test_suspecting_another_than_the_leader_changes_nothing() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    due_ms = cluster[2].raft.due_ms
    cluster[2].suspect(3)
    assert cluster[2].raft.due_ms == due_ms


def test_a_leader_that_was_away_and_leads_no_more_follows() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.part({1}, {2, 3})
    cluster.elect(2)
    # Its clock stood still: it still thinks that it leads.
    assert cluster[1].raft.role is Role.LEADER
    cluster.part()
    cluster.beat(1)
    cluster.settle()
    assert (cluster[1].raft.role, cluster[1].raft.term) == (Role.FOLLOWER, 2)
    cluster.beat(2)
    cluster.settle()
    assert cluster[1].raft.leader == 2


def test_answers_to_heartbeats_of_an_earlier_term_are_nothing() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.step(2, HeartbeatReply(0, 99))
    assert leader.raft.role is Role.LEADER
