"""Streams that do not wait for the disk: after kills they come back, with whatever is left anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.replication.cluster import Cluster, Node, messages_of
from tests.replication.test_faults import are_even, assert_equal, publish
from tests.replication.trial import Trial


def weak_cluster(seed: int, peers: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    cluster = Cluster(seed)
    for node in cluster.nodes.values():
        node.options["sync"] = "os"
    cluster.start()
    cluster.put_stream(1, peers)
    cluster.run_until(lambda: cluster.leader(1))
    return cluster


def test_single_copy_that_was_killed_leads_again_with_everything() -> None:
    cluster = weak_cluster(601, (2,))
    publish(cluster, 10)
    cluster.run(1_000_000)
    before = messages_of(cluster.nodes[2].store, 1)  # type: ignore[arg-type]
    cluster.nodes[2].stop(is_power_cut=False)
    cluster.nodes[2].start()
    cluster.run_until(lambda: cluster.leader(1))
    assert messages_of(cluster.nodes[2].store, 1) == before  # type: ignore[arg-type]
    publish(cluster, 1)


@pytest.mark.parametrize("killed", [(1, 2, 3), (1, 2)])
def test_copies_of_which_most_were_killed_lead_again_with_everything(killed: tuple[int, ...]) -> None:
    cluster = weak_cluster(602)
    publish(cluster, 10)
    cluster.lead(1)
    cluster.run(1_000_000)
    before = messages_of(cluster.nodes[3].store, 1)  # type: ignore[arg-type]
    for number in killed:
        cluster.nodes[number].stop(is_power_cut=False)
    for number in killed:
        cluster.nodes[number].start()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
    assert messages_of(cluster.nodes[1].store, 1) == before  # type: ignore[arg-type]
    publish(cluster, 1)


@pytest.mark.parametrize("seed", range(610, 616))
def test_what_one_copy_kept_when_the_others_lost_power_is_there_again(seed: int) -> None:
    cluster = weak_cluster(seed)
    for _ in range(3):
        publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster))
    before = messages_of(cluster.nodes[3].store, 1)  # type: ignore[arg-type]
    for number in (1, 2):
        cluster.nodes[number].stop(is_power_cut=True)
    for number in (1, 2):
        cluster.nodes[number].start()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
    assert messages_of(cluster.nodes[1].store, 1) == before  # type: ignore[arg-type]


def test_copies_that_may_have_forgotten_wait_for_one_that_may_have_not() -> None:
    cluster = weak_cluster(620)
    publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster))
    cluster.nodes[3].stop(is_power_cut=False)
    for number in (1, 2):
        cluster.nodes[number].stop(is_power_cut=True)
        cluster.nodes[number].start()
    cluster.run(10_000_000)
    assert cluster.leader(1) is None
    cluster.nodes[3].start()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def test_copy_that_is_stopped_before_it_has_rejoined_is_unsure_at_the_next_start() -> None:
    cluster = weak_cluster(630)
    publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster))
    for number in (1, 2, 3):
        cluster.nodes[number].stop(is_power_cut=number != 1)
    node = cluster.nodes[2]
    for _ in range(2):
        node.start()
        assert node.replicas.status(1).is_rejoining
        node.replicas.closed()
        node.stop(is_power_cut=False)


def test_copy_that_was_closed_in_order_is_sure() -> None:
    cluster = weak_cluster(640)
    publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster))
    node = cluster.nodes[2]
    node.replicas.closed()
    node.stop(is_power_cut=False)
    node.start()
    assert not node.replicas.status(1).is_rejoining


class LaxTrial(Trial):
    """No node waits for its disk."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        for node in self.cluster.nodes.values():
            node.options["sync"] = "os"


@pytest.mark.parametrize("seed", [5001, 5052, 5054])
def test_whatever_happens_nothing_is_lost_while_only_one_node_loses_power(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Node.stop

    def stop_or_kill(self: Node, *, is_power_cut: bool) -> None:
        stop(self, is_power_cut=is_power_cut and self.node == 1)

    monkeypatch.setattr(Node, "stop", stop_or_kill)
    LaxTrial(seed).run(1_500_000)


class LossyTrial(LaxTrial):
    """All may lose power, and with it what nobody promised to keep: then an index comes again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cluster.is_checking = False

    def _told(self, group: int, messages: list[Any]) -> Any:
        return self._ignored


@pytest.mark.parametrize("seed", [7001, 7002, 7003])
def test_whatever_happens_all_nodes_are_equal_when_power_is_back(seed: int) -> None:
    LossyTrial(seed).run(1_500_000)
