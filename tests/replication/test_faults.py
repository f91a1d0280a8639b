"""What nodes do when their disks fail, rot or fill up, and when who has a stream changes."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from edged.core.commands import PutStream, RemoveStream
from edged.store.errors import StoreError
from edged.store.group import CATALOG, PEERS
from edged.store.journal_file import HEADER_BYTES, file_numbers
from hub.raft.members import Members
from tests.replication.cluster import Cluster, Node, messages_of, state_of


def cluster_with_stream(seed: int, nodes: int = 3, peers: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    cluster = Cluster(seed, nodes)
    cluster.start()
    cluster.put_stream(1, peers)
    cluster.run_until(lambda: cluster.leader(1))
    return cluster


def publish(cluster: Cluster, count: int, limit_us: int = 20_000_000) -> None:
    """Have whoever leads take messages, until somebody has."""
    results: list[Any] = []
    asked = 0

    def is_stored() -> bool:
        nonlocal asked
        if results and not isinstance(results[-1], StoreError):
            return True
        leader = cluster.leader(1)
        if leader is not None and leader.store is not None and len(results) == asked:
            asked += 1
            messages = [(b"s1.a", None, -1, b"m%d" % number + bytes(50)) for number in range(count)]
            leader.store.add_appends(1, messages, cluster.now_us * 1000, results.append)
            leader.wake()
        return False

    cluster.run_until(is_stored, limit_us)
    assert len(results[-1]) == count


def are_even(cluster: Cluster, nodes: tuple[int, ...] = (1, 2, 3)) -> bool:
    leader = cluster.leader(1)
    if leader is None:
        return False
    wanted = leader.replicas.status(1).last
    for node in nodes:
        one = cluster.nodes[node]
        if one.store is None or not one.replicas.has(1):
            return False
        status = one.replicas.status(1)
        if status.applied != wanted or status.is_rejoining:
            return False
    return True


def assert_equal(cluster: Cluster, nodes: tuple[int, ...] = (1, 2, 3)) -> None:
    stores = [store for node in nodes if (store := cluster.nodes[node].store) is not None]
    assert len({repr(state_of(store, 1)) for store in stores}) == 1
    assert len({repr(messages_of(store, 1)) for store in stores}) == 1


def test_a_full_disk_of_a_follower_costs_nothing_and_it_catches_up() -> None:
    cluster = cluster_with_stream(11)
    leader = cluster.leader(1)
    assert leader is not None
    follower = next(node for node in cluster.up() if node is not leader)
    refused = 0

    def fault(operation: str, path: str) -> OSError | None:
        nonlocal refused
        if operation in ("write", "allocate", "create") and "journal" in path:
            refused += 1
            return OSError(errno.ENOSPC, "full", path)
        return None

    follower.disk.fault = fault
    for _ in range(5):
        publish(cluster, 20)
    assert refused
    follower.disk.fault = None
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def test_a_leader_whose_disk_fails_tells_who_waits_and_recovers() -> None:
    cluster = cluster_with_stream(12)
    publish(cluster, 5)
    leader = cluster.leader(1)
    assert leader is not None and leader.store is not None
    failures = 0

    def fault(operation: str, path: str) -> OSError | None:
        nonlocal failures
        if operation == "sync" and "journal" in path:
            failures += 1
            return OSError(errno.EIO, "broken", path)
        return None

    leader.disk.fault = fault
    results: list[Any] = []
    messages = [(b"s1.a", None, -1, b"x")] * 3
    leader.store.add_appends(1, messages, cluster.now_us * 1000, results.append)
    leader.wake()
    cluster.run_until(lambda: results)
    cluster.run(100_000)
    assert failures
    leader.disk.fault = None
    publish(cluster, 5)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def rot(node: Node, position: float) -> bool:
    """Damage a journal file of a node that is down; False if there is nothing to damage."""
    files = [(path, one) for path, one in node.disk.files() if path.startswith("journal/0")]
    used = [one for _, one in files if any(one.content[HEADER_BYTES:])]
    if not used:
        return False
    content = used[0].writable()
    end = len(bytes(content).rstrip(b"\0"))
    place = HEADER_BYTES + int((end - HEADER_BYTES) * position)
    content[place] ^= 0x55
    return True


@pytest.mark.parametrize("seed", range(12))
def test_rot_in_a_journal_is_made_good_by_the_others(seed: int) -> None:
    cluster = cluster_with_stream(seed + 20)
    for _ in range(4):
        publish(cluster, 10)
    node = cluster.nodes[seed % 3 + 1]
    cluster.run_until(lambda: are_even(cluster))
    cluster.run(100_000)
    assert node.store is not None
    # As the daemon does when nothing happens: from then on damage is told from a write that a crash cut.
    node.store.seal_tail()
    node.stop(is_power_cut=False)
    assert rot(node, seed / 12)
    node.start()
    for _ in range(3):
        publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
    # And once more: what was damaged is still there, and what came after counts.
    node.stop(is_power_cut=False)
    node.start()
    publish(cluster, 3)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def rely_on_checkpoints(cluster: Cluster, node: Node) -> None:
    """Go on until the journal does not reach back to the beginning."""
    cluster.cycling = 1.0
    while file_numbers(node.disk.list("journal"))[0] == 1:
        publish(cluster, 40)


def lose_checkpoints(node: Node, *, are_deleted: bool) -> int:
    """Damage or delete all checkpoints of a node that is down; how many there were."""
    names = node.disk.list("checkpoints")
    for name in names:
        if are_deleted:
            node.disk.remove(f"checkpoints/{name}")
        else:
            dict(node.disk.files())[f"checkpoints/{name}"].writable()[:] = b"rotten"
    node.image = node.disk.copy()
    node.disk = node.disk.copy(is_recording=True)
    return len(names)


@pytest.mark.parametrize("are_deleted", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_node_without_readable_checkpoints_gets_everything_from_the_others(
    seed: int, are_deleted: bool
) -> None:
    cluster = cluster_with_stream(seed + 80)
    node = cluster.nodes[seed % 3 + 1]
    rely_on_checkpoints(cluster, node)
    cluster.run_until(lambda: are_even(cluster))
    node.stop(is_power_cut=False)
    assert lose_checkpoints(node, are_deleted=are_deleted)
    node.start()
    assert node.store is not None
    assert node.store.report.has_begun_anew
    assert node.store.files.list("lost+found")
    status = node.replicas.status(CATALOG)
    assert status.is_rejoining and status.members.voters == {0}
    # What it does not know yet it must not vote on, also after another start.
    node.stop(is_power_cut=True)
    node.start()
    assert not node.store.report.has_begun_anew
    assert node.replicas.status(CATALOG).is_rejoining
    cluster.run_until(lambda: node.replicas.has(1))
    publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
    cluster.run_until(lambda: not node.replicas.status(CATALOG).is_rejoining)
    # That it is complete is written down a moment later.
    cluster.run(100_000)
    node.stop(is_power_cut=True)
    node.start()
    assert not any(node.replicas.status(group).is_rejoining for group in (CATALOG, 1))


def test_a_stream_that_a_node_had_and_does_not_know_of_is_not_voted_on() -> None:
    cluster = cluster_with_stream(95)
    publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster))
    other, forgetful, absent = (cluster.nodes[number] for number in (1, 2, 3))
    rely_on_checkpoints(cluster, forgetful)
    cluster.run_until(lambda: are_even(cluster))
    absent.stop(is_power_cut=False)
    publish(cluster, 5)
    cluster.run_until(lambda: are_even(cluster, (1, 2)))
    # Only these two have the last five. One forgets them, the other is gone: nobody may decide without it.
    other.stop(is_power_cut=False)
    forgetful.stop(is_power_cut=False)
    lose_checkpoints(forgetful, are_deleted=False)
    forgetful.start()
    absent.start()
    cluster.run(5_000_000)
    assert cluster.leader(1) is None and cluster.leader(CATALOG) is None
    other.start()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def test_reads_wait_for_what_was_committed() -> None:
    cluster = cluster_with_stream(40)
    publish(cluster, 7)
    answers: list[tuple[int, bool, int]] = []
    for number, node in cluster.nodes.items():

        def done(is_current: bool, number: int = number, node: Node = node) -> None:
            assert node.store is not None
            answers.append((number, is_current, node.store.catalog.streams[1].log.last_seq))

        node.replicas.read(1, done)
    cluster.run_until(lambda: len(answers) == 3)
    assert sorted(answers) == [(1, True, 7), (2, True, 7), (3, True, 7)]


def test_a_stream_moves_to_other_nodes_and_back() -> None:
    cluster = Cluster(50, 5)
    cluster.genesis = (1, 2, 3, 4, 5)
    cluster.start()
    cluster.put_stream(1, (1, 2, 3))
    publish(cluster, 10)
    assert cluster.nodes[4].store is not None
    assert 1 in cluster.nodes[4].store.catalog.elsewhere
    for peers in ((3, 4, 5), (1, 2, 3), (2, 4, 5), (1, 2, 3)):
        move(cluster, peers)
        publish(cluster, 10)
        cluster.run_until(lambda peers=peers: are_even(cluster, peers))  # type: ignore[misc]
        assert_equal(cluster, peers)
        for number, node in cluster.nodes.items():
            assert node.store is not None
            assert (1 in node.store.catalog.streams) == (number in peers)
            assert node.replicas.has(1) == (number in peers)
    store = cluster.nodes[1].store
    assert store is not None and len(messages_of(store, 1)) == 50
    assert cluster.commit(CATALOG, RemoveStream(1)) == 0
    cluster.run(2_000_000)
    assert not any(node.replicas.has(1) for node in cluster.up())


def move(cluster: Cluster, peers: tuple[int, ...]) -> None:
    """First the new nodes have a copy, then they are the voters, then the others give up theirs."""
    leader = cluster.leader(1)
    assert leader is not None
    before = tuple(sorted(leader.replicas.status(1).members.voters))
    assign(cluster, tuple(sorted({*before, *peers})))
    wanted = frozenset(peers)

    def is_changed() -> bool:
        now = cluster.leader(1)
        if now is None:
            return False
        status = now.replicas.status(1)
        if status.members == Members(wanted) and status.commit >= status.last:
            return True
        if not status.members.is_joint:
            now.replicas.change(1, wanted, frozenset())
        return False

    cluster.run_until(is_changed)
    assign(cluster, peers)
    cluster.run_until(lambda: cluster.leader(1))
    cluster.run(1_000_000)


def assign(cluster: Cluster, peers: tuple[int, ...]) -> None:
    config = {"name": "S1", "subjects": ["s1.>"], PEERS: list(peers)}
    assert cluster.commit(CATALOG, PutStream(1, (1).to_bytes(16, "big"), "A", "S1", config)) == 0


def test_a_changed_configuration_takes_effect_at_the_same_entry_everywhere() -> None:
    cluster = cluster_with_stream(60)
    publish(cluster, 10)
    cluster.put_stream(1, (1, 2, 3), subjects=["s1.>"], max_msgs=4)
    publish(cluster, 1)
    cluster.run_until(lambda: all(_count(node) == 4 for node in cluster.up()))
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def _count(node: Node) -> int:
    assert node.store is not None
    return node.store.catalog.streams[1].log.message_count


def test_a_single_node_group_works_and_survives_power_cuts() -> None:
    cluster = cluster_with_stream(70, peers=(2,))
    for _ in range(6):
        publish(cluster, 5)
        cluster.nodes[2].stop(is_power_cut=True)
        cluster.nodes[2].start()
        cluster.run_until(lambda: cluster.leader(1))
    store = cluster.nodes[2].store
    assert store is not None and store.catalog.streams[1].log.last_seq >= 30
