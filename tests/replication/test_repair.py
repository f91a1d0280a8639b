"""Messages that a node has lost from its segments come back from the others, and nothing else changes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from edged.core.commands import Delete, Purge, PutConsumer
from edged.store.losses import NOWHERE
from tests.replication.cluster import Cluster, Node, messages_of, state_of
from tests.replication.test_faults import are_even, assert_equal, cluster_with_stream, publish
from tests.replication.trial import GROUPS, Trial


def sealed_cluster(seed: int, nodes: int = 3, **config: Any) -> Cluster:
    """A cluster whose nodes have most messages in segments."""
    peers = tuple(range(1, nodes + 1))
    cluster = cluster_with_stream(seed, nodes, peers)
    cluster.cycling = 1.0
    if config:
        cluster.put_stream(1, peers, subjects=["s1.>"], **config)
    while any(len(segments_of(node)) < 1 for node in cluster.nodes.values()):
        publish(cluster, 40)
        cluster.run(20_000)
    cluster.run_until(lambda: are_even(cluster, peers))
    return cluster


def segments_of(node: Node) -> list[str]:
    return [path for path in node.disk.contents() if path.endswith(".seg") and path.startswith("streams/")]


def ruin_segments(node: Node) -> None:
    """Nothing of the segments of a node that is down can be read."""
    for path in segments_of(node):
        content = dict(node.disk.files())[path].writable()
        content[:] = b"\xaa" * len(content)
    node.image = node.disk.copy()
    node.disk = node.disk.copy(is_recording=True)


def ruin_blocks(node: Node, random: Random) -> None:
    """Much of each segment is gone, so that its footer or some of its blocks are beyond repair."""
    for path in segments_of(node):
        content = dict(node.disk.files())[path].writable()
        for _ in range(3):
            start = random.randrange(len(content))
            content[start : start + 700] = random.randbytes(len(content[start : start + 700]))
    node.image = node.disk.copy()
    node.disk = node.disk.copy(is_recording=True)


def lacks(node: Node) -> bool:
    return node.store is not None and node.store.groups[1].lacks_messages


def is_whole(cluster: Cluster) -> bool:
    """All nodes are equally far, and none of them lacks anything."""
    nodes = tuple(cluster.nodes)
    if not are_even(cluster, nodes):
        return False
    return not any(lacks(node) or node.repairs.under_way for node in cluster.nodes.values())


def lose_segments(cluster: Cluster, node: Node) -> None:
    node.stop(is_power_cut=False)
    ruin_segments(node)
    node.start()
    assert lacks(node)


@pytest.mark.parametrize("seed", range(4))
def test_a_node_that_lost_its_segments_gets_every_message_back_and_does_not_lead_meanwhile(seed: int) -> None:
    cluster = sealed_cluster(seed + 200)
    node = cluster.nodes[seed % 3 + 1]
    lose_segments(cluster, node)
    index = node.replicas.status(1).applied

    def is_repaired() -> bool:
        if lacks(node):
            assert not node.replicas.leads(1)
            assert node.replicas.status(1).applied == index, "nothing is applied over a hole"
        return is_whole(cluster)

    publish(cluster, 10)
    cluster.run_until(is_repaired)
    assert_equal(cluster)
    assert cluster.repaired[node.node] > 0
    assert node.store is not None and node.store.holes == []
    # After power cuts, and when what came back is in segments, all of it is still there.
    for _ in range(3):
        node.stop(is_power_cut=True)
        node.start()
        publish(cluster, 60)
        cluster.run_until(lambda: is_whole(cluster))
        assert_equal(cluster)


@pytest.mark.parametrize("seed", range(12))
def test_power_cuts_in_the_middle_of_a_repair_lose_nothing(seed: int) -> None:
    cluster = sealed_cluster(seed + 220)
    node = cluster.nodes[seed % 3 + 1]
    if seed % 2:
        lose_segments(cluster, node)
    else:
        node.stop(is_power_cut=False)
        ruin_blocks(node, Random(seed))
        node.start()
    for _ in range(6):
        cluster.run(cluster.random.randint(1000, 60_000))
        node.stop(is_power_cut=True)
        node.start()
        publish(cluster, cluster.random.choice((1, 30)))
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster) if not unreadable(node) else read_and_wait(cluster, node)


def unreadable(node: Node, group: int = 1) -> list[int]:
    """Messages that are listed and cannot be read, found by reading."""
    assert node.store is not None
    log = node.store.stream(group).log
    found: list[int] = []
    seq = log.next_matching((), 1)
    while seq is not None:
        if log.peek(seq) is None:
            found.append(seq)
        seq = log.next_matching((), seq + 1)
    return found


def read_and_wait(cluster: Cluster, node: Node) -> None:
    cluster.run_until(lambda: not unreadable(node))
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster)


@pytest.mark.parametrize("seed", range(4))
def test_a_block_that_is_found_beyond_repair_when_somebody_reads_it_is_replaced(seed: int) -> None:
    cluster = sealed_cluster(seed + 240)
    node = cluster.nodes[seed % 3 + 1]
    node.stop(is_power_cut=False)
    for path in segments_of(node):
        content = dict(node.disk.files())[path].writable()
        # The first block, and not the footer that lists it.
        content[200:1200] = bytes(1000)
    node.image = node.disk.copy()
    node.disk = node.disk.copy(is_recording=True)
    node.start()
    cluster.run_until(lambda: is_whole(cluster))
    assert unreadable(node)
    cluster.run(200_000)
    assert not node.replicas.leads(1) or cluster.repaired
    read_and_wait(cluster, node)
    assert cluster.repaired[node.node] > 0


def test_messages_that_were_deleted_meanwhile_stay_deleted_and_limits_hold() -> None:
    cluster = sealed_cluster(260, max_msgs=200)
    node = cluster.nodes[2]
    node.stop(is_power_cut=False)
    ruin_segments(node)
    first = min(messages_of_leader(cluster))
    for seq in (first + 1, first + 7, first + 8):
        cluster.commit(1, Delete(seq, False))
    cluster.commit(1, Purge(first + 5, b"", 0))
    cluster.commit(1, PutConsumer(1, "C", {"durable_name": "C", "edged.created": 1, "ack_policy": "none"}))
    node.start()
    cluster.commit(1, Delete(first + 20, False))
    publish(cluster, 30)
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster)
    assert not {first + 7, first + 8, first + 20} & messages_of_leader(cluster).keys()
    # What those commands came to cannot be repeated without the messages.
    assert cluster.begun_anew == 1


def messages_of_leader(cluster: Cluster) -> dict[int, Any]:
    cluster.run_until(lambda: cluster.leader(1))
    leader = cluster.leader(1)
    assert leader is not None and leader.store is not None
    return messages_of(leader.store, 1)


def test_a_node_that_lies_is_not_believed_and_another_is_asked() -> None:
    cluster = sealed_cluster(270)
    leader = cluster.leader(1)
    assert leader is not None
    lies = 0

    def twist(document: dict[str, Any]) -> dict[str, Any]:
        nonlocal lies
        lies += len(document["messages"])
        for one in document["messages"]:
            one[4] = b"something else"
        return document

    # Whoever leads is asked first.
    leader.twist = twist
    node = next(one for one in cluster.nodes.values() if one is not leader)
    lose_segments(cluster, node)
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster)
    assert lies > 0 and cluster.repaired[node.node] > 0


def test_what_all_nodes_have_lost_stays_lost_and_they_lead_and_serve_again() -> None:
    cluster = sealed_cluster(280)
    before = messages_of_leader(cluster)
    for node in cluster.nodes.values():
        node.stop(is_power_cut=False)
        ruin_segments(node)
    for node in list(cluster.nodes.values())[:2]:
        node.start()
    # The third may have it: nobody leads before it has said that it has not.
    cluster.run(3_000_000)
    assert cluster.leader(1) is None
    # From here on things are as they were not before.
    cluster.seen.clear()
    cluster.nodes[3].start()
    publish(cluster, 5)
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster)
    for node in cluster.nodes.values():
        assert node.store is not None
        assert {hole.reason for hole in node.store.holes} == {NOWHERE}
    after = messages_of_leader(cluster)
    assert after.keys() - before.keys() and before.keys() - after.keys()
    # It is known after a restart as well, of one and of all, and asked for no more.
    for node in cluster.nodes.values():
        node.stop(is_power_cut=True)
    for node in list(cluster.nodes.values())[:2]:
        node.start()
    publish(cluster, 5)


def test_two_nodes_with_different_holes_help_each_other() -> None:
    cluster = sealed_cluster(290, 5)
    for number in (2, 4):
        cluster.nodes[number].stop(is_power_cut=False)
        ruin_segments(cluster.nodes[number])
    for number in (2, 4):
        cluster.nodes[number].start()
    publish(cluster, 50)
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster, (1, 2, 3, 4, 5))
    assert cluster.repaired.keys() == {2, 4}


def test_a_stream_with_a_single_copy_goes_on_without_what_is_lost() -> None:
    cluster = cluster_with_stream(300, peers=(2,))
    cluster.cycling = 1.0
    node = cluster.nodes[2]
    while not segments_of(node):
        publish(cluster, 40)
    lose_segments(cluster, node)
    cluster.seen.clear()
    publish(cluster, 5)
    store = node.store
    assert store is not None and {hole.reason for hole in store.holes} == {NOWHERE}
    assert state_of(store, 1)[1] > 5


class DamagedTrial(Trial):
    """A trial in which the disk of one node, always the same, loses segments while it is down."""

    def submit(self) -> None:
        super().submit()
        group = self.random.choice(GROUPS)
        leader = self.cluster.leader(group)
        if leader is not None and leader.store is not None and self.random.random() < 0.2:
            # Also of what was sealed long ago, so that others have deleted what one is asking for.
            seq = self.random.randint(1, max(leader.store.stream(group).log.last_seq, 1))
            self.removed[group].add(seq)
            leader.store.add(group, Delete(seq, False), self._ignored)
            leader.wake()

    def restart(self, node: Node) -> None:
        if node.node == 2 and node.store is None and self.random.random() < 0.7:
            random = Random(self.random.random())
            if random.random() < 0.5:
                ruin_segments(node)
            else:
                ruin_blocks(node, random)
        super().restart(node)

    def _is_even(self) -> bool:
        for node in self.cluster.up():
            assert node.store is not None
            for group in GROUPS:
                if node.store.groups[group].lacks_messages or unreadable(node, group):
                    return False
        return super()._is_even()


@pytest.mark.parametrize("seed", range(1, 7))
def test_under_load_and_faults_a_node_that_keeps_losing_segments_has_everything_in_the_end(seed: int) -> None:
    trial = DamagedTrial(seed, file_bytes=9000)
    trial.cluster.cycling = 1.0
    trial.run(2_000_000)
