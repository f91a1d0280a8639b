"""Snapshots that are interrupted, cannot be written, or come from a disk that has lost something."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import hub.replication.snapshots as snapshots_module
import hub.replication.taking as taking_module
from edged.store.store import Store
from edged.store.stream_log import StreamLog
from hub.raft.messages import SnapshotPart
from hub.raft.options import RaftOptions
from hub.replication.replica import Replica
from hub.replication.taking import Taking
from tests.replication.cluster import OPTIONS, Cluster, Node
from tests.replication.test_faults import are_even, assert_equal, publish
from tests.replication.test_repair import segments_of

# A snapshot has many parts.
SMALL = RaftOptions(
    election_ms=150,
    heartbeat_ms=30,
    quiet_beats=3,
    append_bytes_max=8192,
    snapshot_part_bytes=300,
    snapshot_parts_max=2,
)


def cluster_of(seed: int, nodes: int = 3, raft: RaftOptions = SMALL) -> Cluster:
    cluster = Cluster(seed, nodes, raft=raft)
    cluster.start()
    cluster.put_stream(1, tuple(range(1, nodes + 1)))
    cluster.lead(1)
    return cluster


def base_of(node: Node) -> int:
    replica = node.replicas.replica(1)
    assert replica is not None
    return replica.raft.log.base_index


def outrun(cluster: Cluster, nodes: tuple[int, ...] = (1, 2), index: int = 20) -> None:
    """Go on until these nodes do not have the entries up to there any more."""
    cluster.cycling = 1.0
    while any(base_of(cluster.nodes[number]) <= index for number in nodes):
        publish(cluster, 40)
        cluster.run(50_000)
    cluster.run_until(lambda: are_even(cluster, nodes))


def cluster_with_late_node(seed: int, raft: RaftOptions = SMALL) -> tuple[Cluster, Node]:
    """Node 1 leads; node 3 is down, and needs a snapshot when it comes back."""
    cluster = cluster_of(seed, raft=raft)
    late = cluster.nodes[3]
    late.stop(is_power_cut=False)
    outrun(cluster)
    cluster.lead(1)
    return cluster, late


def offset_of(node: Node) -> int:
    """How much of a snapshot has arrived."""
    taken = node.replicas.snapshots.taking._taken.get(1)
    return 0 if taken is None or taken.prepared is not None else taken.offset


def parts_sent(cluster: Cluster) -> list[tuple[int, SnapshotPart]]:
    """The parts for the stream from now on, each with its sender."""
    parts: list[tuple[int, SnapshotPart]] = []
    send = cluster.send

    def spy(sender: Node, to: int, group: int, message: Any) -> None:
        if group == 1 and type(message) is SnapshotPart:
            parts.append((sender.node, message))
        send(sender, to, group, message)

    cluster.send = spy  # type: ignore[method-assign]
    return parts


# --- interruptions ---


def test_a_node_that_is_restarted_in_the_middle_of_a_snapshot_gets_it_all_the_same() -> None:
    cluster, late = cluster_with_late_node(514)
    late.start()
    cluster.run_until(lambda: offset_of(late) >= 600)
    late.stop(is_power_cut=False)
    late.start()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def test_a_late_part_of_a_deposed_leader_does_not_stop_the_snapshot_of_the_new_one() -> None:
    cluster, late = cluster_with_late_node(501)
    parts = parts_sent(cluster)
    late.start()
    cluster.run_until(lambda: offset_of(late) >= 600)
    assert {node for node, _ in parts} == {1}
    old = parts[-1][1]
    cluster.nodes[1].replicas.transfer(1, 2)
    cluster.nodes[1].wake()
    cluster.run_until(lambda: parts[-1][0] == 2 and offset_of(late) >= 600)
    late.replicas.step(1, 1, old)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def test_a_snapshot_of_a_new_leader_that_comes_before_the_last_one_is_installed_changes_nothing() -> None:
    cluster, late = cluster_with_late_node(511)
    kept: list[tuple[int, SnapshotPart]] = []
    send = cluster.send

    def spy(sender: Node, to: int, group: int, message: Any) -> None:
        if group == 1 and to == 3 and type(message) is SnapshotPart:
            if sender.node == 2:
                kept.append((2, message))
            elif message.offset + message.size == message.snapshot.size:
                # The last part stays on its way for a while.
                kept.append((1, message))
                cluster.cut_links |= {(1, 3), (2, 3)}
                return
        send(sender, to, group, message)

    cluster.send = spy  # type: ignore[method-assign]
    late.start()
    cluster.run_until(lambda: kept)
    cluster.run(50_000)
    sender, first = kept[0]
    cluster.lead(2)
    outrun(cluster, (2,), first.snapshot.index)
    cluster.lead(2)
    # Of the new leader it hears nothing but that, and at the same time.
    cluster.cut_links = {(1, 3)}
    step = late.replicas.step
    late.replicas.step = lambda *message: None if message[1] == 1 else step(*message)  # type: ignore
    cluster.run(300_000)
    step(sender, 1, first)
    while not any(node == 2 and part.offset == 0 for node, part in kept):
        late.replicas.step = (  # type: ignore[method-assign]
            lambda *message: None if type(message[2]) is SnapshotPart else step(*message)
        )
        cluster.run(5000)
    newer = next(part for node, part in kept if node == 2 and part.offset == 0)
    late.replicas.step = step  # type: ignore[method-assign]
    while late.replicas.snapshots.taking._taken[1].prepared is None:
        late.replicas.tick()
    step(2, 1, newer)
    late.wake()
    cluster.cut_links = set()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


# --- places ---


def test_a_node_that_leads_again_sends_its_snapshots_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOTS_SENT_MAX", 1)
    cluster, late = cluster_with_late_node(502)
    late.start()
    cluster.run_until(lambda: offset_of(late) >= 600)
    cluster.lead(2)
    cluster.lead(1)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def test_a_node_that_is_gone_does_not_keep_another_from_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOTS_SENT_MAX", 1)
    cluster = cluster_of(503, 5)
    four, five = cluster.nodes[4], cluster.nodes[5]
    four.stop(is_power_cut=False)
    five.stop(is_power_cut=False)
    outrun(cluster, (1, 2, 3))
    four.start()
    cluster.run_until(lambda: offset_of(four) >= 600)
    four.stop(is_power_cut=False)
    five.start()
    cluster.run_until(lambda: are_even(cluster, (1, 2, 3, 5)))


# --- a journal that cannot be written ---


class FullJournal:
    """The disk of a node has no room for its journal from the moment on at which a state is to be written."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._node = node
        original = Taking.install

        def install(taking: Taking, *arguments: Any) -> Any:
            if taking is node.replicas.snapshots.taking:
                self.count += 1
                node.disk.fault = self._fault
            return original(taking, *arguments)

        monkeypatch.setattr(Taking, "install", install)

    def _fault(self, operation: str, path: str) -> OSError | None:
        is_hit = operation in ("write", "sync", "allocate", "create") and "journal" in path
        return OSError(errno.ENOSPC, "full", path) if is_hit else None

    def end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There is room again."""
        monkeypatch.undo()
        self._node.disk.fault = None


@pytest.mark.parametrize("raft", [SMALL, OPTIONS])
def test_a_state_that_could_not_be_written_down_is_when_there_is_room_and_takes_no_more_till_then(
    raft: RaftOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, late = cluster_with_late_node(512, raft)
    late.start()
    journal = FullJournal(late, monkeypatch)
    cluster.run_until(lambda: journal.count == 7)
    cluster.run(200_000)
    assert len(segments_of(late)) <= 2 * len(segments_of(cluster.nodes[1]))
    journal.end(monkeypatch)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
    late.stop(is_power_cut=True)
    late.start()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def test_what_another_leader_sends_takes_the_place_of_a_state_that_could_not_be_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, late = cluster_with_late_node(513)
    late.start()
    journal = FullJournal(late, monkeypatch)
    cluster.run_until(lambda: journal.count == 2)
    cluster.lead(2)
    cluster.run(500_000)
    journal.end(monkeypatch)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
    # What was given up goes, too, after some checkpoints.
    outrun(cluster, (1, 2, 3), late.replicas.status(1).applied + 400)
    store = late.store
    assert store is not None
    log = store.stream(1).log
    assert isinstance(log, StreamLog)
    left = set(segments_of(late)) - {segment.path for segment in log.segments}
    assert not left - {path for _, path in store.condemned}


def test_a_state_is_installed_while_no_file_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, late = cluster_with_late_node(923, OPTIONS)
    late.start()
    original, calls = taking_module.install, 0

    def install(store: Store, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if store is late.store:
            late.disk.fault = lambda operation, path: OSError(errno.EMFILE, "too many", path)
        try:
            return original(store, *arguments)
        finally:
            late.disk.fault = None

    monkeypatch.setattr(taking_module, "install", install)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
    assert calls


def test_a_snapshot_for_which_there_is_no_room_is_unpacked_again_when_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, late = cluster_with_late_node(515, OPTIONS)
    late.start()
    refused = 0

    def fault(operation: str, path: str) -> OSError | None:
        nonlocal refused
        if operation != "write" or not path.startswith("streams/"):
            return None
        refused += 1
        return OSError(errno.ENOSPC, "full", path)

    late.disk.fault = fault
    cluster.run_until(lambda: refused >= 3)
    assert not segments_of(late)
    late.disk.fault = None
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


# --- under load ---


def test_under_steady_load_and_over_a_slow_link_a_late_node_catches_up_with_one_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raft = RaftOptions(
        election_ms=1000,
        heartbeat_ms=100,
        quiet_beats=3,
        append_bytes_max=8192,
        snapshot_part_bytes=100,
        snapshot_parts_max=2,
    )
    cluster, late = cluster_with_late_node(522, raft)
    installed = 0
    original = Replica._write_install

    def write_install(replica: Replica, *arguments: Any) -> Any:
        nonlocal installed
        installed += replica._store is late.store and replica.number == 1
        return original(replica, *arguments)

    monkeypatch.setattr(Replica, "_write_install", write_install)
    late.start()
    cluster.delay_us = 20_000
    least = 1 << 62
    for _ in range(60):
        for _ in range(3):
            publish(cluster, 40)
        cluster.run(50_000)
        leader = cluster.leader(1)
        if leader is not None:
            least = min(least, leader.replicas.status(1).applied - late.replicas.status(1).applied)
    assert least < 80 and installed == 1
    # What stayed for it goes, too.
    cluster.delay_us = 500
    outrun(cluster, (1,), cluster.nodes[1].replicas.status(1).applied)
    assert len(cluster.nodes[1].disk.list("journal")) < 10
