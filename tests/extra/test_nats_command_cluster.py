"""The real `nats` command and a cluster: what operators type to see who leads, and to let others lead.

Every test runs over three nodes of nats-server as well. They are started once; each test has its own stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.extra.test_nats_command import DEADLINE_S, POLL_INTERVAL_S, Nats
from tests.hub.real_cluster import RealCluster, real_cluster

pytestmark = [pytest.mark.extra, pytest.mark.real]

CONFIGURATION = """
jetstream { store_dir: "${directory}/store", max_file_store: 256MB, max_memory_store: 64MB }
system_account: SYS
accounts {
    SYS { users: [{ user: operator, password: "o" }] }
    PLANT { users: [{ user: device, password: "d" }], jetstream: enabled }
}
"""
NAMES = {"n1", "n2", "n3"}
PEER_LIMITS = ("--peer-lag-critical", "1000", "--peer-seen-critical", "1m")


@dataclass(frozen=True, slots=True)
class Plant:
    """A cluster, somebody who uses it, and somebody who operates it."""

    cluster: RealCluster
    device: Nats
    operator: Nats

    def add_stream(self, name: str, replicas: int = 3) -> None:
        """Make a stream that takes what is sent under its name."""
        self.device.run(
            *("stream", "add", name, "--subjects", f"{name}.>", "--storage", "file"),
            *("--replicas", str(replicas), "--defaults"),
        )

    def members(self, name: str) -> list[str]:
        """Who has a stream, the leader first."""
        cluster = self.device.json("stream", "info", name, "--json")["cluster"]
        return [cluster.get("leader", ""), *(one["name"] for one in cluster.get("replicas") or ())]

    def wait_members(self, name: str, is_so: Callable[[list[str]], bool]) -> list[str]:
        """Who has a stream, once that is as it should be."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(found := self.members(name)):
            assert time.monotonic() < deadline, found
            time.sleep(POLL_INTERVAL_S)
        return found

    def wait_healthy(self) -> str:
        """What the check of all streams prints once each has a leader: others may still elect theirs."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.device.run("server", "check", "jetstream")
            except AssertionError:
                if time.monotonic() > deadline:
                    raise


@pytest.fixture(params=["nats-server", "edged-hub"], scope="module")
def plant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    directory = tmp_path_factory.mktemp("plant")
    with real_cluster(request.param, directory, text=CONFIGURATION) as cluster:
        cluster.wait_leader()
        server = cluster.nodes[0].server
        assert server is not None
        device, operator = Nats(server, directory, "device", "d"), Nats(server, directory, "operator", "o")
        yield Plant(cluster, device, operator)


def test_who_has_a_stream_is_shown_and_another_node_can_lead_it(plant: Plant) -> None:
    plant.add_stream("ORDERS")
    plant.device.run("pub", "ORDERS.new", "one", "--jetstream")
    leader, *others = plant.wait_members("ORDERS", lambda found: set(found) == NAMES)
    shown = plant.device.run("stream", "info", "ORDERS")
    assert "Cluster Information:" in shown and f"Leader: {leader}" in shown
    assert all(f"{name}, " in shown for name in others) and "not seen" not in shown
    assert "elected" in plant.device.run("stream", "cluster", "step-down", "ORDERS")
    assert plant.wait_members("ORDERS", lambda found: found[0] not in ("", leader))
    wanted = next(name for name in NAMES if name != plant.members("ORDERS")[0])
    plant.device.run("stream", "cluster", "step-down", "ORDERS", "--preferred", wanted)
    plant.wait_members("ORDERS", lambda found: found[0] == wanted)
    assert "one" in plant.device.run("stream", "get", "ORDERS", "1")


def test_a_consumer_is_shown_with_who_leads_it(plant: Plant) -> None:
    plant.add_stream("WORK")
    plant.device.run("consumer", "add", "WORK", "worker", "--pull", "--defaults")
    leader = plant.device.json("consumer", "info", "WORK", "worker", "--json")["cluster"]["leader"]
    assert leader in NAMES
    assert "Cluster Information:" in plant.device.run("consumer", "info", "WORK", "worker")
    assert "elected" in plant.device.run("consumer", "cluster", "step-down", "WORK", "worker")
    plant.device.run("pub", "WORK.new", "one", "--jetstream")
    assert "one" in plant.device.run("consumer", "next", "WORK", "worker")


def test_a_copy_goes_to_another_node(plant: Plant) -> None:
    plant.add_stream("PAIR", replicas=2)
    plant.device.run("pub", "PAIR.new", "one", "--jetstream")
    before = plant.wait_members("PAIR", lambda found: len(set(found)) == 2)
    (free,) = NAMES - set(before)
    plant.device.run("stream", "cluster", "peer-remove", "PAIR", before[1], "--force")
    plant.wait_members("PAIR", lambda found: set(found) == {before[0], free})
    assert "one" in plant.device.run("stream", "get", "PAIR", "1")
    plant.device.run("stream", "cluster", "peer-remove", "PAIR", "nobody", "--force", status=1)


def test_a_stream_gets_fewer_copies_and_more(plant: Plant) -> None:
    plant.add_stream("SCALED")
    plant.device.run("stream", "edit", "SCALED", "--replicas", "1", "--force")
    plant.wait_members("SCALED", lambda found: len(found) == 1 and found[0] in NAMES)
    plant.device.run("stream", "edit", "SCALED", "--replicas", "3", "--force")
    plant.wait_members("SCALED", lambda found: set(found) == NAMES)


def test_leaders_are_balanced(plant: Plant) -> None:
    for name in ("ONE", "TWO", "THREE"):
        plant.add_stream(name)
    plant.device.run("stream", "cluster", "balance")
    for name in ("ONE", "TWO", "THREE"):
        plant.wait_members(name, lambda found: set(found) == NAMES)


def test_reports_show_all_nodes_and_who_leads_the_catalog(plant: Plant) -> None:
    plant.add_stream("SHOWN")
    report = plant.operator.run("server", "report", "jetstream")
    assert "RAFT Meta Group Information" in report
    assert all(name in report for name in NAMES)
    assert all(name in plant.operator.run("server", "list") for name in NAMES)
    assert all(name in plant.operator.run("server", "report", "health") for name in NAMES)
    assert "SHOWN" in plant.device.run("stream", "report")


def test_another_node_leads_the_catalog(plant: Plant) -> None:
    leader = plant.cluster.wait_leader().name
    plant.operator.run("server", "raft", "step-down", "--force")
    deadline = time.monotonic() + DEADLINE_S
    while plant.cluster.wait_leader().name == leader:
        assert time.monotonic() < deadline
        time.sleep(POLL_INTERVAL_S)
    plant.add_stream("AFTERWARDS")


def test_checks_are_passed(plant: Plant) -> None:
    plant.add_stream("CHECKED")
    plant.wait_members("CHECKED", lambda found: set(found) == NAMES)
    expected = ("--peer-expect", "3", *PEER_LIMITS)
    assert "OK" in plant.device.run("server", "check", "stream", "--stream", "CHECKED", *expected)
    assert "OK" in plant.wait_healthy()
    limits = ("--lag-critical", "1000", "--seen-critical", "1m")
    assert "OK" in plant.operator.run("server", "check", "meta", "--expect", "3", *limits)
