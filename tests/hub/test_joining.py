"""Who begins a cluster, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub.joining import Seen, first_members, why_waiting
from hub.raft.members import Members


def seen(node: int, others: dict[int, bool], has_routes: bool = True, is_complete: bool = True) -> Seen:
    return Seen(node, has_routes, is_complete, others)


def test_node_with_the_lowest_number_begins_with_everybody() -> None:
    assert first_members(seen(1, {2: True, 3: True})) == Members(frozenset({1, 2, 3}))
    assert first_members(seen(2, {1: True, 3: True})) is None
    assert why_waiting(seen(2, {1: True, 3: True})) == "node 1 to begin the cluster"


def test_nobody_begins_beside_a_cluster_that_exists() -> None:
    wiped = seen(1, {2: False, 3: True})
    assert first_members(wiped) is None
    assert why_waiting(wiped) == "the leader of the cluster to take this node in"


def test_nobody_begins_before_all_routes_are_connected() -> None:
    early = seen(1, {2: True}, is_complete=False)
    assert first_members(early) is None
    assert why_waiting(early) == "all routes of the configuration to be connected"


def test_node_without_routes_waits_to_be_found() -> None:
    lonely = seen(1, {}, has_routes=False)
    assert first_members(lonely) is None
    assert "no routes" in why_waiting(lonely)


def test_route_to_itself_alone_makes_a_cluster_of_one() -> None:
    assert first_members(seen(1, {})) == Members(frozenset({1}))


@given(st.frozensets(st.integers(1, 9), min_size=1, max_size=5))
def test_of_nodes_that_see_each_other_one_begins(nodes: frozenset[int]) -> None:
    begun = [first_members(seen(node, dict.fromkeys(nodes - {node}, True))) for node in nodes]
    assert [members for members in begun if members is not None] == [Members(nodes)]
