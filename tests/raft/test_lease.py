"""Leases: while a leader holds one nobody else can be elected, as far as clocks run alike (thesis, 6.4.1)."""

from __future__ import annotations

from hub.raft.messages import Heartbeat, HeartbeatReply, TransferNow, VoteReply, VoteRequest
from hub.raft.raft import Role
from tests.raft.cluster import Cluster


def confirmed(nodes: int = 3) -> Cluster:
    """A cluster whose leader, 1, has just heard from everybody."""
    cluster = Cluster(nodes)
    cluster.elect(1)
    cluster.beat(1)
    cluster.settle()
    return cluster


def holds(cluster: Cluster, node: int = 1) -> bool:
    return cluster[node].raft.holds_lease(cluster.now_ms)


def test_6_4_1_a_lease_begins_when_a_majority_has_answered_a_heartbeat() -> None:
    cluster = Cluster(5)
    cluster.elect(1)
    cluster.now_ms += cluster.options.lease_ms
    cluster.beat(1)
    cluster.deliver(kind=Heartbeat)
    cluster.deliver(kind=HeartbeatReply, sender=2)
    assert not holds(cluster)
    cluster.deliver(kind=HeartbeatReply, sender=3)
    assert holds(cluster)


def test_6_4_1_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.now_ms += cluster.options.lease_ms
    cluster.beat(1)
    cluster.now_ms += cluster.options.lease_ms - 1
    cluster.settle()
    assert holds(cluster)
    cluster.now_ms += 1
    assert not holds(cluster)


def test_6_4_1_answers_that_were_long_under_way_renew_nothing() -> None:
    cluster = confirmed()
    cluster.beat(1)
    cluster.deliver(kind=Heartbeat)
    cluster.now_ms += cluster.options.lease_ms
    assert cluster.deliver(kind=HeartbeatReply) == 2
    assert not holds(cluster)


def test_6_4_1_a_leader_without_a_majority_loses_its_lease_before_another_is_elected() -> None:
    cluster = confirmed()
    cluster.part({1}, {2, 3})
    for node in (2, 3):
        cluster[node].suspect(1)
    assert holds(cluster)
    while not any(cluster[node].raft.role is Role.LEADER for node in (2, 3)):
        cluster.advance(1)
    assert not holds(cluster)
    assert cluster.now_ms < 5000


def test_6_4_1_who_is_bound_to_a_leader_helps_nobody_though_the_link_to_it_broke() -> None:
    cluster = confirmed()
    cluster[1].crash()
    cluster[2].suspect(1)
    request = VoteRequest(2, 9, 1, is_trial=False, is_transfer=False)
    cluster[2].step(3, request)
    assert cluster.pick(kind=VoteReply) == []
    cluster.now_ms += cluster.options.promise_ms
    cluster[2].step(3, request)
    assert [one.message.is_granted for one in cluster.pick(kind=VoteReply)] == [True]


def test_6_4_1_who_starts_anew_may_be_bound_and_helps_nobody_for_that_long() -> None:
    cluster = confirmed()
    cluster[2].restart()
    request = VoteRequest(2, 9, 1, is_trial=False, is_transfer=False)
    cluster.now_ms += cluster.options.promise_ms - 1
    cluster[2].step(3, request)
    assert cluster.pick(kind=VoteReply) == []
    cluster.now_ms += 1
    cluster[2].step(3, request)
    assert [one.message.is_granted for one in cluster.pick(kind=VoteReply)] == [True]


def test_a_node_that_never_heard_of_a_leader_is_bound_to_none() -> None:
    cluster = Cluster(3)
    cluster[1].step(2, VoteRequest(1, 0, 0, is_trial=False, is_transfer=False))
    assert [one.message.is_granted for one in cluster.pick(kind=VoteReply)] == [True]


def test_a_node_that_is_told_to_campaign_waits_until_it_is_not_bound() -> None:
    cluster = confirmed()
    cluster[1].crash()
    cluster[2].raft.campaign(cluster.now_ms)
    assert cluster[2].raft.role is Role.FOLLOWER
    assert cluster[2].raft.due_ms == cluster.now_ms + cluster.options.promise_ms


def test_3_10_a_lease_ends_where_handing_over_begins() -> None:
    cluster = confirmed()
    assert holds(cluster)
    cluster.cut = {(1, 3)}
    cluster[1].transfer(3)
    assert cluster.pick(kind=TransferNow) != []
    assert not holds(cluster)


def test_a_lease_ends_when_the_members_change() -> None:
    cluster = confirmed()
    assert holds(cluster)
    cluster[1].change([1, 2])
    assert not holds(cluster)
    cluster.settle()
    cluster.beat(1)
    cluster.settle()
    assert holds(cluster)


def test_a_node_alone_always_holds_its_lease() -> None:
    cluster = Cluster(1)
    cluster.advance(5000)
    assert holds(cluster)


def test_a_quiet_leader_has_no_lease_until_somebody_wants_to_read() -> None:
    cluster = confirmed()
    cluster.now_ms += cluster.options.lease_ms
    assert not holds(cluster)
    cluster[1].read(7)
    cluster.settle()
    assert cluster[1].answers == [(7, 1)]
    assert holds(cluster)
