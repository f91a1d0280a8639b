"""Elections: terms, votes, and who may win (paper, 5.1, 5.2, 5.4.1, 5.6)."""

from __future__ import annotations

import pytest

from hub.raft.members import Members
from hub.raft.messages import (
    Append,
    AppendReply,
    Block,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    ReadReply,
    Snapshot,
    SnapshotPart,
    SnapshotReply,
    TransferNow,
    VoteReply,
    VoteRequest,
)
from hub.raft.raft import Role
from tests.raft.cluster import Cluster

SNAPSHOT = Snapshot(1, 1, Members(frozenset((1, 2, 3))), 1, 1)


def answers(cluster: Cluster, sender: int) -> list[Message]:
    return [envelope.message for envelope in cluster.pick(sender=sender)]


@pytest.mark.parametrize(
    "message",
    [
        Append(5, 0, 0, (), 0),
        AppendReply(5, 0),
        Heartbeat(5, 0, 1, False),
        HeartbeatReply(5, 1),
        SnapshotPart(5, SNAPSHOT, 0, 0, b""),
        SnapshotReply(5, 1, 1, 0),
        VoteReply(5, False, False),
        VoteReply(5, True, False),
        ReadReply(5, 1, 1),
    ],
    ids=lambda message: type(message).__name__,
)
@pytest.mark.parametrize("role", ["follower", "trial", "candidate", "leader"])
def test_5_1_a_message_of_a_later_term_ends_every_role_and_is_the_term_from_then_on(
    role: str, message: Message
) -> None:
    cluster = Cluster(3)
    node = cluster[1]
    if role == "leader":
        cluster.elect(1)
    elif role != "follower":
        cluster.time_out(1)
        if role == "candidate":
            cluster.deliver()
            cluster.deliver()
    assert node.raft.role.name.lower() == role
    node.step(2, message)
    assert (node.raft.term, node.raft.vote, node.raft.role) == (5, 0, Role.FOLLOWER)
    assert node.durable.hard_state == HardState(5, 0)
    is_of_leader = isinstance(message, Append | Heartbeat | SnapshotPart)
    assert node.raft.leader == (2 if is_of_leader else 0)


def test_5_1_a_candidate_of_a_later_term_ends_a_leader_that_handed_over() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.step(2, VoteRequest(2, 1, 1, is_trial=False, is_transfer=True))
    assert (leader.raft.role, leader.raft.term, leader.raft.vote) == (Role.FOLLOWER, 2, 2)


@pytest.mark.parametrize(
    "message",
    [
        Append(1, 0, 0, (Block(1, 1, 1, 1, payload=("old",)),), 1),
        Heartbeat(1, 1, 1, False),
        SnapshotPart(1, SNAPSHOT, 0, 1, b"x"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_5_1_a_leader_of_an_earlier_term_is_refused_and_told_the_term(message: Message) -> None:
    cluster = Cluster(3, terms={1: 4, 2: 4, 3: 4})
    cluster[1].step(2, message)
    assert answers(cluster, 1) == [AppendReply(4, 0, is_refused=True)]
    assert cluster[1].raft.leader == 0
    assert cluster[1].written.entries == []


def test_5_1_a_candidate_of_an_earlier_term_is_refused_and_told_the_term() -> None:
    cluster = Cluster(3, terms={1: 4, 2: 4, 3: 4})
    cluster[1].step(2, VoteRequest(3, 9, 3, is_trial=False, is_transfer=False))
    assert answers(cluster, 1) == [VoteReply(4, is_trial=False, is_granted=False)]
    assert cluster[1].raft.vote == 0


@pytest.mark.parametrize(
    "message", [AppendReply(1, 9), HeartbeatReply(1, 9), VoteReply(1, False, True), TransferNow(1)]
)
def test_5_1_other_messages_of_an_earlier_term_are_nothing(message: Message) -> None:
    cluster = Cluster(3, terms={1: 4, 2: 4, 3: 4})
    cluster[1].step(2, message)
    assert cluster.flight == []
    assert (cluster[1].raft.term, cluster[1].raft.role) == (4, Role.FOLLOWER)


def test_5_2_nodes_begin_as_followers_and_hold_an_election_after_a_time_without_leader() -> None:
    cluster = Cluster(3)
    assert {node.raft.role for node in cluster.nodes.values()} == {Role.FOLLOWER}
    assert [node.raft.due_ms for node in cluster.nodes.values()] == [1001, 1002, 1003]
    cluster.now_ms = 1000
    cluster[1].tick()
    assert cluster[1].raft.role is Role.FOLLOWER
    cluster.now_ms = 1001
    cluster[1].tick()
    assert cluster[1].raft.role is Role.TRIAL


def test_5_2_the_time_that_a_follower_waits_is_drawn_between_once_and_twice_the_election_time() -> None:
    cluster = Cluster(3)
    asked: list[tuple[int, int]] = []

    def draw(low: int, high: int) -> int:
        asked.append((low, high))
        return high

    cluster.draws[1] = draw
    cluster[1].step(2, Heartbeat(1, 0, 1, False))
    assert set(asked) == {(1000, 2000)}
    assert cluster[1].raft.due_ms == 2000


def test_5_2_a_leader_keeps_the_others_from_elections() -> None:
    cluster = Cluster(5)
    cluster.elect(1)
    cluster.advance(60_000)
    assert {node.raft.term for node in cluster.nodes.values()} == {1}
    assert cluster.leader().node == 1


@pytest.mark.parametrize(
    ("voters", "granting", "role"),
    [
        (1, [], Role.LEADER),
        (2, [2], Role.LEADER),
        (2, [], Role.CANDIDATE),
        (3, [2], Role.LEADER),
        (3, [], Role.CANDIDATE),
        (4, [2, 3], Role.LEADER),
        (4, [2], Role.CANDIDATE),
        (5, [2, 3], Role.LEADER),
        (5, [2], Role.CANDIDATE),
    ],
)
def test_5_2_a_candidate_leads_with_the_votes_of_a_majority(
    voters: int, granting: list[int], role: Role
) -> None:
    cluster = Cluster(voters)
    cluster.time_out(1)
    # The trial is granted by all.
    for other in range(2, voters + 1):
        cluster[1].step(other, VoteReply(1, is_trial=True, is_granted=True))
    for other in granting:
        cluster[1].step(other, VoteReply(1, is_trial=False, is_granted=True))
    assert cluster[1].raft.role is role
    assert cluster[1].raft.term == 1


def test_5_2_a_vote_counts_once_even_if_it_comes_twice() -> None:
    cluster = Cluster(5)
    cluster.time_out(1)
    for other in (2, 3):
        cluster[1].step(other, VoteReply(1, is_trial=True, is_granted=True))
    for _ in range(3):
        cluster[1].step(2, VoteReply(1, is_trial=False, is_granted=True))
    assert cluster[1].raft.role is Role.CANDIDATE


def test_5_2_a_candidate_that_a_majority_refused_waits_as_a_follower() -> None:
    cluster = Cluster(3)
    cluster.time_out(1)
    cluster[1].step(2, VoteReply(1, is_trial=True, is_granted=True))
    assert cluster[1].raft.role is Role.CANDIDATE
    for other in (2, 3):
        cluster[1].step(other, VoteReply(1, is_trial=False, is_granted=False))
    assert (cluster[1].raft.role, cluster[1].raft.term, cluster[1].raft.vote) == (Role.FOLLOWER, 1, 1)


def test_5_2_a_candidate_follows_the_leader_that_it_hears_of_in_its_term() -> None:
    cluster = Cluster(3)
    cluster.time_out(1)
    cluster[1].step(2, VoteReply(1, is_trial=True, is_granted=True))
    cluster[1].step(3, Heartbeat(1, 0, 1, False))
    assert (cluster[1].raft.role, cluster[1].raft.leader, cluster[1].raft.vote) == (Role.FOLLOWER, 3, 1)


def test_5_2_one_vote_per_term_for_who_asks_first() -> None:
    cluster = Cluster(3)
    request = VoteRequest(1, 0, 0, is_trial=False, is_transfer=False)
    for sender in (2, 3, 2):
        cluster[1].step(sender, request)
    assert [(one.to, one.message.is_granted) for one in cluster.flight] == [(2, True), (3, False), (2, True)]


def test_5_2_a_vote_is_remembered_over_a_restart() -> None:
    cluster = Cluster(3)
    request = VoteRequest(1, 0, 0, is_trial=False, is_transfer=False)
    cluster[1].step(2, request)
    cluster.flight.clear()
    cluster[1].restart()
    cluster.now_ms += cluster.options.promise_ms
    cluster[1].step(3, request)
    cluster[1].step(2, request)
    assert [(one.to, one.message.is_granted) for one in cluster.flight] == [(3, False), (2, True)]


def test_5_2_a_vote_is_told_only_when_it_is_durable() -> None:
    cluster = Cluster(3)
    cluster[1].is_held = True
    cluster[1].step(2, VoteRequest(1, 0, 0, is_trial=False, is_transfer=False))
    assert cluster.flight == []
    cluster[1].restart()
    assert cluster[1].raft.term == 0
    cluster[1].step(3, VoteRequest(1, 0, 0, is_trial=False, is_transfer=False))
    cluster[1].release()
    assert answers(cluster, 1) == [VoteReply(1, is_trial=False, is_granted=True)]


def test_5_2_who_voted_waits_anew_before_it_holds_an_election() -> None:
    cluster = Cluster(3)
    cluster.now_ms = 900
    cluster[1].step(2, VoteRequest(1, 0, 0, is_trial=False, is_transfer=False))
    assert cluster[1].raft.due_ms == 1901


def test_5_2_split_votes_end_as_waiting_times_differ() -> None:
    cluster = Cluster(4)
    for node in (1, 2):
        cluster.now_ms = 2000
        cluster[node].tick()
    # Both trials are granted, then each candidate gets the vote of one other node only.
    cluster.deliver(kind=VoteRequest)
    cluster.deliver(kind=VoteReply)
    assert [cluster[node].raft.role for node in (1, 2)] == [Role.CANDIDATE, Role.CANDIDATE]
    cluster.deliver(sender=1, to=3)
    cluster.deliver(sender=2, to=4)
    cluster.settle()
    assert not any(node.raft.role is Role.LEADER for node in cluster.nodes.values())
    cluster.advance(2000)
    assert cluster.leader().raft.term == 2
    assert {node.raft.leader for node in cluster.nodes.values()} == {cluster.leader().node}


@pytest.mark.parametrize(
    ("ours", "theirs", "is_granted"),
    [
        ([1], [1], True),
        ([1], [1, 1], True),
        ([1, 1], [1], False),
        ([1, 1, 1], [2], True),
        ([2], [1, 1, 1], False),
        ([1, 2], [1, 2], True),
        ([1, 3], [2, 2], False),
        ([], [], True),
        ([], [1], True),
        ([1], [], False),
    ],
)
@pytest.mark.parametrize("is_trial", [True, False], ids=["trial", "election"])
def test_5_4_1_votes_go_only_to_logs_that_are_at_least_as_complete(
    ours: list[int], theirs: list[int], is_granted: bool, is_trial: bool
) -> None:
    cluster = Cluster(3, logs={1: ours}, terms={1: 3})
    cluster.now_ms += cluster.options.promise_ms
    request = VoteRequest(4, len(theirs), theirs[-1] if theirs else 0, is_trial, is_transfer=False)
    cluster[1].step(2, request)
    term = 3 if is_trial and not is_granted else 4
    assert answers(cluster, 1) == [VoteReply(term, is_trial, is_granted)]
    assert cluster[1].raft.vote == (2 if is_granted and not is_trial else 0)


def test_5_4_1_the_log_that_counts_is_the_one_that_is_durable_when_the_answer_goes() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    follower = cluster[2]
    follower.is_held = True
    cluster[1].propose("a")
    cluster.deliver(kind=Append)
    cluster.flight.clear()
    cluster.now_ms += 1000
    # It has the entry in memory only, and refuses who lacks it: both wait for the same disk.
    follower.step(3, VoteRequest(2, 1, 1, is_trial=False, is_transfer=False))
    assert cluster.flight == []
    follower.release()
    assert answers(cluster, 2) == [AppendReply(1, 2), VoteReply(2, is_trial=False, is_granted=False)]


def test_5_6_a_cluster_without_leader_works_again_within_a_few_election_times() -> None:
    cluster = Cluster(5)
    for leader in (1, 2):
        cluster.elect(leader).propose(f"by {leader}")
        cluster.settle()
        cluster[leader].crash()
        cluster.now_ms += 1000
    cluster.advance(2 * cluster.options.election_ms)
    assert cluster.leader().node in (3, 4, 5)
    cluster.leader().propose("by another")
    cluster.settle()
    assert cluster.leader().commands == ("by 1", "by 2", "by another")


def test_5_6_elections_work_with_every_pace_of_the_clocks() -> None:
    cluster = Cluster(3)
    for node in (1, 2, 3):
        cluster.draws[node] = lambda low, high: low
    cluster[1].step(2, Heartbeat(1, 0, 1, False))
    # All draw the same; who is told first wins all the same.
    cluster.advance(10_000)
    assert cluster.leader().raft.term <= 3


def test_a_sole_voter_leads_at_once_but_not_before_its_vote_is_durable() -> None:
    cluster = Cluster(1)
    node = cluster[1]
    assert node.raft.due_ms == 0
    node.is_held = True
    node.tick()
    assert node.raft.role is Role.CANDIDATE
    assert node.durable.hard_state == HardState(0, 0)
    node.release()
    assert node.raft.role is Role.LEADER
    assert node.durable.hard_state == HardState(1, 1)
    assert node.applied == 1


def test_a_sole_voter_that_crashes_before_its_vote_is_durable_never_leads_a_term_twice() -> None:
    cluster = Cluster(1)
    node = cluster[1]
    node.is_held = True
    node.tick()
    node.restart()
    node.is_held = False
    node.tick()
    assert (node.raft.role, node.raft.term) == (Role.LEADER, 1)
    node.restart()
    assert node.raft.due_ms == cluster.now_ms
    node.tick()
    assert (node.raft.role, node.raft.term) == (Role.LEADER, 2)


def test_a_sole_voter_keeps_its_commands_over_restarts() -> None:
    cluster = Cluster(1)
    for number in range(3):
        cluster[1].tick()
        cluster[1].propose(f"{number}")
        cluster[1].restart()
    cluster[1].tick()
    assert cluster[1].commands == ("0", "1", "2")


def test_an_own_vote_of_an_earlier_candidacy_that_becomes_durable_late_does_not_count_for_the_next() -> None:
    cluster = Cluster(2)
    node = cluster[1]
    node.is_held = True
    cluster.time_out(1)
    node.step(2, VoteReply(1, is_trial=True, is_granted=True))
    assert (node.raft.role, node.raft.term) == (Role.CANDIDATE, 1)
    cluster.time_out(1)
    node.step(2, VoteReply(2, is_trial=True, is_granted=True))
    assert (node.raft.role, node.raft.term) == (Role.CANDIDATE, 2)
    node.step(2, VoteReply(2, is_trial=False, is_granted=True))
    votes = [place for place, ready in enumerate(node.unsynced, 1) if ready.hard_state is not None]
    node.sync(votes[0])
    assert node.durable.hard_state == HardState(1, 1)
    assert node.raft.role is Role.CANDIDATE
    node.sync(votes[1] - votes[0])
    assert node.raft.role is Role.LEADER
