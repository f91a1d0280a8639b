"""Several nodes agree: what is acknowledged is on all of them."""

from __future__ import annotations

from typing import Any

import pytest

from edged.store.group import CATALOG
from tests.replication.cluster import Cluster, messages_of, state_of
from tests.replication.trial import trouble_of


def publish(cluster: Cluster, group: int, count: int, size: int = 10) -> list[Any]:
    """Have the leader take messages; what they came to is in the list some time."""
    leader = cluster.leader(group)
    assert leader is not None and leader.store is not None
    results: list[Any] = []
    messages = [(b"s1.a", None, -1, b"m%d" % number + bytes(size)) for number in range(count)]
    leader.store.add_appends(group, messages, cluster.now_us * 1000, results.append)
    leader.wake()
    return results


def test_three_nodes_elect_a_leader_and_store_messages() -> None:
    cluster = Cluster(1)
    cluster.start()
    cluster.run_until(lambda: cluster.leader(CATALOG))
    cluster.put_stream(1, (1, 2, 3))
    cluster.run_until(lambda: cluster.leader(1))
    results = publish(cluster, 1, 5)
    cluster.run_until(lambda: results)
    assert list(results[0]) == [1, 2, 3, 4, 5]
    cluster.run(500_000)
    states = [state_of(node.store, 1) for node in cluster.up() if node.store is not None]
    assert states[0] == states[1] == states[2]
    found = [messages_of(node.store, 1) for node in cluster.up() if node.store is not None]
    assert found[0] == found[1] == found[2] and len(found[0]) == 5


@pytest.mark.parametrize("seed", range(1, 7))
def test_whatever_happens_nothing_acknowledged_is_lost_and_all_nodes_are_equal(seed: int) -> None:
    assert not trouble_of(seed, 1_500_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_the_same_for_longer_and_with_more_seeds(seed: int) -> None:
    assert not trouble_of(seed, 3_000_000)
