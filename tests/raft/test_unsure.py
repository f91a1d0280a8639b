"""Nodes that may lack the end of their logs, and nothing else: together they elect, if nobody is left out."""

from __future__ import annotations

from hub.raft.messages import VoteReply, VoteRequest
from hub.raft.raft import Role
from tests.raft.cluster import Cluster


def committed_by(*nodes: int, learners: tuple[int, ...] = ()) -> Cluster:
    """A command that node 1 committed with these, and of which the others do not know."""
    cluster = Cluster(3, learners=learners)
    leader = cluster.elect(1)
    cluster.part(set(nodes), {1, 2, 3, *learners} - set(nodes))
    leader.propose("confirmed")
    cluster.settle()
    assert leader.commands == ("confirmed",)
    for node in cluster.nodes.values():
        node.crash()
    cluster.drop()
    cluster.part()
    return cluster


def forget(cluster: Cluster, *nodes: int) -> None:
    for node in nodes:
        del cluster[node].durable.entries[-1:]


def leaders(cluster: Cluster) -> list[int]:
    return [node.node for node in cluster.nodes.values() if node.is_up and node.raft.role is Role.LEADER]


def test_single_voter_leads_with_what_it_has() -> None:
    cluster = Cluster(1)
    cluster.elect(1).propose("a")
    cluster[1].crash()
    cluster[1].start(is_unsure=True)
    cluster.advance(10)
    assert cluster[1].raft.role is Role.LEADER
    assert not cluster[1].raft.must_rejoin
    assert cluster[1].commands == ("a",)


def test_the_one_that_has_most_leads_when_all_are_unsure() -> None:
    cluster = committed_by(1, 2)
    forget(cluster, 2)
    for node in (1, 2, 3):
        cluster[node].start(is_unsure=True)
    cluster.advance(30_000)
    assert cluster[1].raft.role is Role.LEADER
    assert {node.commands for node in cluster.nodes.values()} == {("confirmed",)}
    assert not any(node.raft.must_rejoin for node in cluster.nodes.values())


def test_nobody_leads_while_one_is_missing_that_may_have_more() -> None:
    cluster = committed_by(1, 2)
    forget(cluster, 2)
    cluster[2].start(is_unsure=True)
    cluster[3].start()
    cluster.advance(30_000)
    assert not leaders(cluster)
    cluster[1].start(is_unsure=True)
    cluster.advance(30_000)
    assert {node.commands for node in cluster.nodes.values()} == {("confirmed",)}


def test_a_majority_that_is_sure_needs_no_other() -> None:
    cluster = committed_by(1, 2)
    forget(cluster, 2)
    cluster[1].start()
    cluster[3].start()
    cluster.advance(30_000)
    assert cluster[1].raft.role is Role.LEADER
    cluster[2].start(is_unsure=True)
    cluster.advance(10_000)
    assert cluster[2].commands == ("confirmed",)
    assert not cluster[2].raft.must_rejoin


def test_one_that_lost_more_than_the_end_agrees_with_nobody() -> None:
    cluster = committed_by(1, 2)
    forget(cluster, 2)
    cluster[1].start(is_unsure=True)
    cluster[2].start(must_rejoin=True, is_unsure=True)
    cluster[3].start(is_unsure=True)
    cluster.advance(30_000)
    assert not leaders(cluster)


def test_it_says_that_it_is_unsure() -> None:
    cluster = committed_by(1, 2)
    cluster[2].start(is_unsure=True)
    cluster.now_ms += cluster.options.promise_ms
    cluster[2].step(1, VoteRequest(2, 99, 1, True, is_transfer=False))
    assert [one.message for one in cluster.pick(kind=VoteReply)] == [VoteReply(2, True, True, is_unsure=True)]


def test_a_learner_that_has_more_than_all_voters_leads_until_one_of_them_has_it() -> None:
    cluster = committed_by(1, 2, 4, learners=(4,))
    forget(cluster, 1, 2)
    for node in (1, 2, 3):
        cluster[node].start(is_unsure=True)
    cluster[4].start()
    cluster.advance(60_000)
    assert {node.commands for node in cluster.nodes.values()} == {("confirmed",)}
    assert cluster[4].raft.role is Role.FOLLOWER
    assert leaders(cluster)


def test_voters_that_are_unsure_wait_for_a_learner_that_may_have_more() -> None:
    cluster = committed_by(1, 2, 4, learners=(4,))
    forget(cluster, 1, 2)
    for node in (1, 2, 3):
        cluster[node].start(is_unsure=True)
    cluster.advance(30_000)
    assert not leaders(cluster)
