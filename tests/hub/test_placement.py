"""Which nodes get a stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.placement import NodeFacts, NoPlacement, Wish, place


def node(number: int, **facts: object) -> NodeFacts:
    given_facts = {"file_bytes_free": 1000, "memory_bytes_free": 100, **facts}
    return NodeFacts(number, f"n{number}", "C", **given_facts)  # type: ignore[arg-type]


THREE = [node(1), node(2), node(3)]


def refusal(wish: Wish, nodes: list[NodeFacts]) -> str:
    with pytest.raises(NoPlacement) as caught:
        place(wish, nodes)
    return str(caught.value)


def test_stream_goes_to_the_nodes_with_the_fewest_streams_and_then_the_most_room() -> None:
    nodes = [
        node(1, streams=5),
        node(2, streams=1),
        node(3, streams=1, file_bytes_free=2000),
        node(4, streams=9),
    ]
    assert place(Wish(1), nodes) == [3]
    assert place(Wish(3), nodes) == [3, 2, 1]


def test_nodes_that_have_the_stream_keep_it() -> None:
    nodes = [node(1, streams=9), node(2), node(3), node(4)]
    assert set(place(Wish(3), nodes, now=[1, 4])) == {1, 4, 2}
    assert place(Wish(1), nodes, now=[1]) == [1]


def test_node_that_has_the_stream_keeps_it_while_it_is_away_or_full() -> None:
    nodes = [node(1, is_up=False, file_bytes_free=0), node(2), node(3)]
    assert set(place(Wish(3, bytes_max=500), nodes, now=[1, 2, 3])) == {1, 2, 3}


def test_of_the_nodes_that_have_the_stream_the_first_ones_keep_it() -> None:
    assert place(Wish(1), [node(1), node(2), node(3)], now=[3, 1, 2]) == [3]
    assert place(Wish(2), [node(1), node(2), node(3)], now=[2, 3, 1]) == [2, 3]


def test_preferred_node_comes_first_if_it_is_chosen() -> None:
    assert place(Wish(3, preferred="n3"), THREE)[0] == 3
    assert place(Wish(1, preferred="n9"), THREE) == [1]


def test_too_few_nodes_are_a_refusal_that_says_why() -> None:
    assert refusal(Wish(5), THREE) == "no suitable peers for placement"
    away = [node(1), node(2, is_up=False), node(3)]
    assert refusal(Wish(3), away) == "no suitable peers for placement, peer offline"
    off = [node(1), node(2), node(3, has_jetstream=False)]
    assert refusal(Wish(3), off) == "no suitable peers for placement, JetStream not enabled in cluster"
    excluded = [node(1), node(2), node(3, tags=frozenset({"!jetstream"}))]
    assert refusal(Wish(3), excluded) == "no suitable peers for placement, exclude tag set"
    assert refusal(Wish(1, bytes_max=5000), THREE) == "no suitable peers for placement, insufficient storage"
    small = Wish(1, storage="memory", bytes_max=500)
    assert refusal(small, THREE) == "no suitable peers for placement, insufficient storage"
    assert refusal(Wish(1, cluster="D"), THREE) == "no suitable peers for placement"


def test_all_tags_have_to_be_there_whatever_their_case_and_an_excluded_one_not() -> None:
    nodes = [node(1, tags=frozenset({"ssd", "eu"})), node(2, tags=frozenset({"ssd"})), node(3)]
    assert place(Wish(1, tags=("SSD", "eu")), nodes) == [1]
    assert place(Wish(1, tags=("ssd", "!eu")), nodes) == [2]
    assert (
        refusal(Wish(1, tags=("gpu",)), nodes) == "no suitable peers for placement, tags not matched ['gpu']"
    )


def test_unique_tag_spreads_over_zones() -> None:
    zones = [
        node(1, tags=frozenset({"az:a"})),
        node(2, tags=frozenset({"az:a"})),
        node(3, tags=frozenset({"az:b"})),
    ]
    assert place(Wish(2, unique_tag="az:"), zones) == [1, 3]
    assert "server tag not unique" in refusal(Wish(3, unique_tag="az:"), zones)


@given(
    st.lists(
        st.builds(
            node,
            st.integers(1, 9),
            streams=st.integers(0, 9),
            is_up=st.booleans(),
            file_bytes_free=st.integers(0, 10),
        ),
        unique_by=lambda one: one.node,
    ),
    st.integers(1, 5),
    st.sets(st.integers(1, 9), max_size=5),
)
def test_chosen_nodes_are_distinct_there_and_have_room(
    nodes: list[NodeFacts], replicas: int, now: set[int]
) -> None:
    fitting = [one for one in nodes if one.node in now or (one.is_up and one.file_bytes_free >= 5)]
    try:
        chosen = place(Wish(replicas, bytes_max=5), nodes, now)
    except NoPlacement:
        assert len(fitting) < replicas
        return
    assert len(set(chosen)) == replicas
    assert set(chosen) <= {one.node for one in fitting}
    kept = now & {one.node for one in fitting}
    assert set(chosen) <= kept or kept <= set(chosen)
