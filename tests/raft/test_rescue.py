"""A group most of whose voters are gone for good goes on when somebody says that fewer are enough."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from hub.raft.members import Members, Rescue
from hub.raft.raft import Role
from tests.raft.cluster import Cluster

NODES = frozenset(range(1, 6))


def value_of(values: dict[int, int]) -> Callable[[int], int]:
    return lambda node: values.get(node, 0)


def decimated() -> Cluster:
    """Five voters, of which three are down and nobody leads."""
    cluster = Cluster(5)
    cluster.elect(1).propose("a")
    cluster.settle()
    for node in (1, 2, 3):
        cluster[node].crash()
    for node in (4, 5):
        cluster[node].suspect(1)
    cluster.advance(60_000)
    return cluster


def rescue(cluster: Cluster, quorum: int | None) -> None:
    for node in (4, 5):
        cluster[node].raft.set_quorum_max(quorum, cluster.now_ms)
        cluster[node].work()
    cluster.advance(10_000)


def test_nobody_leads_without_a_majority() -> None:
    cluster = decimated()
    assert not any(cluster[node].raft.leader for node in (4, 5))
    rescue(cluster, 3)
    assert not any(cluster[node].raft.leader for node in (4, 5))


def test_two_of_five_elect_a_leader_and_commit_when_two_are_enough() -> None:
    cluster = decimated()
    rescue(cluster, 2)
    leader = next(cluster[node] for node in (4, 5) if cluster[node].raft.role is Role.LEADER)
    leader.propose("b")
    cluster.settle()
    cluster.beat(leader.node)
    cluster.settle()
    assert [cluster[node].commands for node in (4, 5)] == [("a", "b"), ("a", "b")]


def test_when_those_who_are_gone_are_removed_the_rest_is_a_majority_again() -> None:
    cluster = decimated()
    rescue(cluster, 2)
    leader = next(cluster[node] for node in (4, 5) if cluster[node].raft.role is Role.LEADER)
    assert leader.change([4, 5])
    cluster.settle()
    assert leader.raft.members == Members(frozenset({4, 5}))
    rescue(cluster, None)
    leader.propose("b")
    cluster.settle()
    cluster.beat(leader.node)
    cluster.settle()
    assert [cluster[node].commands for node in (4, 5)] == [("a", "b"), ("a", "b")]


def test_leader_gives_up_when_the_rescue_ends_too_early() -> None:
    cluster = decimated()
    rescue(cluster, 2)
    rescue(cluster, None)
    cluster.advance(60_000)
    assert not any(cluster[node].raft.leader for node in (4, 5))


@given(
    voters=st.frozensets(st.sampled_from(sorted(NODES)), min_size=1),
    outgoing=st.frozensets(st.sampled_from(sorted(NODES))),
    quorum=st.integers(1, 5),
    granted=st.frozensets(st.sampled_from(sorted(NODES))),
    values=st.dictionaries(st.sampled_from(sorted(NODES)), st.integers(0, 9)),
)
def test_fewer_are_enough_and_never_more_than_a_majority(
    voters: frozenset[int],
    outgoing: frozenset[int],
    quorum: int,
    granted: frozenset[int],
    values: dict[int, int],
) -> None:
    members = Members(voters, outgoing)
    rescue = Rescue(members, quorum)
    sets = [one for one in (voters, outgoing) if one]
    assert rescue.is_quorum(granted) == all(
        len(one & granted) >= min(quorum, len(one) // 2 + 1) for one in sets
    )
    assert rescue.is_quorum(granted) or not members.is_quorum(granted)
    assert rescue.is_hopeless(granted) == (not rescue.is_quorum(members.deciding - granted))
    reached = rescue.agreed(value_of(values))
    assert rescue.is_quorum([node for node in members.deciding if values.get(node, 0) >= reached])
    assert not rescue.is_quorum([node for node in members.deciding if values.get(node, 0) > reached])
    if quorum >= 3:
        assert reached == members.agreed(value_of(values))
