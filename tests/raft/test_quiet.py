"""Groups in which nothing happens fall quiet, and wake when something does."""

from __future__ import annotations

import pytest

from hub.raft.messages import Heartbeat, ReadRequest, TransferNow, VoteRequest
from hub.raft.options import RaftOptions
from hub.raft.raft import Role
from tests.raft.cluster import Cluster

OPTIONS = RaftOptions(quiet_beats=3)


def quiet(voters: int = 3, learners: tuple[int, ...] = ()) -> Cluster:
    """A group led by node 1 that fell quiet."""
    cluster = Cluster(voters, learners, options=OPTIONS)
    cluster.elect(1).propose("a")
    cluster.settle()
    cluster.advance(2000)
    assert all(node.raft.is_quiet for node in cluster.nodes.values())
    return cluster


@pytest.mark.parametrize("voters", [1, 2, 3, 5])
def test_a_group_without_work_falls_quiet_and_nobody_is_due_any_more(voters: int) -> None:
    cluster = quiet(voters)
    assert all(node.raft.due_ms is None for node in cluster.nodes.values())
    cluster.advance(3_600_000)
    assert cluster.flight == []
    assert cluster.leader().node == 1


def test_it_takes_as_many_idle_heartbeats_as_the_options_say() -> None:
    cluster = Cluster(3, options=OPTIONS)
    leader = cluster.elect(1)
    beats = 0
    while not leader.raft.is_quiet and beats < 10:
        cluster.beat(1)
        cluster.settle()
        beats += 1
    assert beats == 3


def test_with_zero_in_the_options_a_group_never_falls_quiet() -> None:
    cluster = Cluster(3, options=RaftOptions(quiet_beats=0))
    cluster.elect(1)
    cluster.advance(60_000)
    assert not any(node.raft.is_quiet for node in cluster.nodes.values())


def test_a_group_with_a_member_that_is_away_does_not_fall_quiet() -> None:
    cluster = Cluster(3, options=OPTIONS)
    cluster.elect(1)
    cluster[3].crash()
    cluster.advance(60_000)
    assert not cluster[1].raft.is_quiet
    cluster[3].start()
    cluster.advance(5000)
    assert cluster[1].raft.is_quiet
    assert cluster[3].raft.is_quiet


def test_a_group_in_which_a_read_waits_does_not_fall_quiet() -> None:
    cluster = Cluster(3, options=OPTIONS)
    leader = cluster.elect(1)
    cluster.cut = {(2, 1), (3, 1)}
    leader.read(7)
    for _ in range(4):
        cluster.beat(1)
        cluster.settle()
    assert not leader.raft.is_quiet


def test_a_proposal_wakes_the_group() -> None:
    cluster = quiet()
    cluster[1].propose("b")
    assert not cluster[1].raft.is_quiet
    assert len(cluster.pick(kind=Heartbeat)) == 2
    cluster.settle()
    assert not any(node.raft.is_quiet for node in cluster.nodes.values())
    assert {node.commands for node in cluster.nodes.values()} == {("a", "b")}
    cluster.advance(5000)
    assert all(node.raft.is_quiet for node in cluster.nodes.values())
    assert cluster[1].raft.term == 1


def test_a_proposal_after_a_long_time_does_not_make_the_leader_step_down() -> None:
    cluster = quiet()
    cluster.now_ms += 3_600_000
    cluster[1].propose("b")
    cluster[1].tick()
    cluster.settle()
    assert cluster[1].raft.role is Role.LEADER
    assert cluster[1].commands == ("a", "b")


def test_a_quiet_leader_that_is_told_the_time_all_the_same_stays_quiet() -> None:
    cluster = quiet()
    cluster.now_ms += 3_600_000
    for node in cluster.nodes.values():
        node.tick()
    assert cluster.flight == []
    assert cluster[1].raft.role is Role.LEADER
    assert all(node.raft.is_quiet for node in cluster.nodes.values())


def test_a_read_wakes_the_group_and_is_confirmed_by_the_others() -> None:
    cluster = quiet()
    cluster.now_ms += 3_600_000
    cluster[1].read(7)
    assert cluster[1].answers == []
    cluster.settle()
    assert cluster[1].answers == [(7, 2)]


def test_a_read_at_a_quiet_follower_is_answered() -> None:
    cluster = quiet()
    cluster[2].read(7)
    assert [type(one.message) for one in cluster.flight] == [ReadRequest]
    cluster.settle()
    assert cluster[2].answers == [(7, 2)]


def test_a_quiet_group_hands_over_and_changes_members() -> None:
    cluster = quiet()
    assert cluster[1].transfer(2)
    cluster.settle()
    assert cluster.leader().node == 2
    cluster.advance(5000)
    assert cluster[2].raft.is_quiet
    assert cluster[2].change([1, 2])
    cluster.settle()
    assert cluster[1].raft.members.voters == {1, 2}


def test_a_follower_told_to_lead_before_it_heard_that_the_group_is_awake_tries_until_it_leads() -> None:
    cluster = quiet()
    cluster[1].transfer(2)
    # The heartbeat that wakes gets lost, and so do the requests of the new candidate.
    cluster.drop(kind=Heartbeat)
    cluster.deliver(kind=TransferNow)
    assert cluster[2].raft.role is Role.CANDIDATE
    cluster.flight.clear()
    cluster[1].crash()
    assert not cluster[2].raft.is_quiet
    assert cluster[2].raft.due_ms is not None


def test_a_follower_that_missed_the_last_heartbeat_asks_and_wakes_the_leader() -> None:
    cluster = Cluster(3, options=OPTIONS)
    leader = cluster.elect(1)
    for _ in range(3):
        cluster.beat(1)
        if leader.raft.is_quiet:
            assert cluster.drop(to=3, kind=Heartbeat) == 1
        cluster.settle()
    assert (cluster[2].raft.is_quiet, cluster[3].raft.is_quiet) == (True, False)
    cluster.time_out(3)
    cluster.settle()
    # Its question alone wakes them, and it follows again.
    assert not leader.raft.is_quiet
    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, 1)
    assert cluster[3].raft.leader == 1
    cluster.advance(5000)
    assert all(node.raft.is_quiet for node in cluster.nodes.values())


def test_a_follower_with_a_slow_disk_does_not_fall_quiet() -> None:
    cluster = quiet()
    cluster[3].is_held = True
    cluster[1].propose("b")
    cluster.settle()
    cluster[3].step(1, Heartbeat(1, 3, 99, True))
    assert not cluster[3].raft.is_quiet


def test_a_quiet_heartbeat_that_speaks_of_more_than_is_there_is_not_believed() -> None:
    cluster = quiet()
    cluster[3].step(1, Heartbeat(1, 3, 99, True))
    assert not cluster[3].raft.is_quiet


def test_followers_whose_quiet_leader_is_gone_elect_another_once_told_to_suspect_it() -> None:
    cluster = quiet()
    cluster[1].crash()
    cluster.advance(60_000)
    assert cluster[2].raft.role is cluster[3].raft.role is Role.FOLLOWER
    cluster[2].suspect(1)
    assert not cluster[2].raft.is_quiet
    cluster.advance(5000)
    assert cluster.leader().node in (2, 3)


def test_one_node_that_asks_wakes_the_others_and_they_elect_when_the_leader_is_gone() -> None:
    cluster = quiet()
    cluster[1].crash()
    cluster[3].restart()
    cluster.time_out(3)
    assert [type(one.message) for one in cluster.pick(to=2)] == [VoteRequest]
    cluster.deliver(to=2)
    # It has no reason yet to think that the leader is gone, but listens from now on.
    assert cluster.flight == cluster.pick(to=1)
    assert not cluster[2].raft.is_quiet
    cluster.advance(5000)
    assert cluster.leader().node in (2, 3)


def test_a_quiet_leader_that_restarts_is_elected_by_its_quiet_followers() -> None:
    cluster = quiet()
    cluster[1].restart()
    cluster.advance(5000)
    assert cluster.leader().node == 1
    assert cluster.leader().raft.term == 2
    assert {node.raft.leader for node in cluster.nodes.values()} == {1}


def test_a_follower_that_restarts_in_a_quiet_group_finds_its_leader() -> None:
    cluster = quiet()
    cluster[3].restart()
    cluster.advance(5000)
    assert cluster[3].raft.leader == 1
    assert cluster[3].commands == ("a",)
    assert cluster[1].raft.term == 1
    assert all(node.raft.is_quiet for node in cluster.nodes.values())


def test_a_leader_that_suspects_a_follower_is_awake() -> None:
    cluster = quiet()
    cluster[1].suspect(3)
    assert not cluster[1].raft.is_quiet
    assert len(cluster.pick(kind=Heartbeat)) == 2


def test_learners_fall_quiet_and_wake_as_well() -> None:
    cluster = quiet(3, (4,))
    cluster[1].propose("b")
    cluster.settle()
    assert cluster[4].commands == ("a", "b")
