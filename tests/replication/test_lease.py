"""A leader that another has replaced without its knowing holds no lease, and says so when it is asked."""

from __future__ import annotations

import pytest

from hub.raft.options import RaftOptions
from tests.replication.cluster import Cluster
from tests.replication.test_faults import publish


def led_by_one(seed: int) -> Cluster:
    """Three nodes with the times of production; the first leads a stream."""
    cluster = Cluster(seed, 3, raft=RaftOptions())
    cluster.start()
    cluster.put_stream(1, (1, 2, 3))
    cluster.lead(1)
    publish(cluster, 5)
    return cluster


@pytest.mark.parametrize("is_quiet", [False, True], ids=["busy", "quiet"])
def test_a_leader_that_was_cut_off_holds_no_lease_when_another_leads(is_quiet: bool) -> None:
    cluster = led_by_one(911)
    if is_quiet:
        cluster.run(5_000_000)
    old = cluster.nodes[1]
    assert old.replicas.replica(1).raft.is_quiet is is_quiet
    assert old.replicas.holds_lease(1) is not is_quiet
    cluster.cut_links = {(1, 2), (1, 3), (2, 1), (3, 1)}
    for number in (2, 3):
        # The link breaks at once, but for the leader.
        cluster.nodes[number].replicas.suspect(1)
    answers: list[bool] = []
    is_wrong = []

    def another_leads() -> bool:
        is_led = any(cluster.nodes[number].replicas.leads(1) for number in (2, 3))
        is_wrong.append(is_led and old.replicas.holds_lease(1))
        return is_led

    cluster.run_until(another_leads)
    assert not any(is_wrong)
    assert old.replicas.leads(1), "it does not know yet"
    old.replicas.read(1, answers.append)
    cluster.run_until(lambda: answers)
    assert answers == [False]


def test_a_leader_that_hears_the_others_is_certain_as_soon_as_it_asks() -> None:
    cluster = led_by_one(912)
    cluster.run(5_000_000)
    leader = cluster.nodes[1]
    assert not leader.replicas.holds_lease(1)
    answers: list[bool] = []
    leader.replicas.read(1, answers.append)
    cluster.run_until(lambda: answers)
    assert answers == [True]
    assert leader.replicas.holds_lease(1)
