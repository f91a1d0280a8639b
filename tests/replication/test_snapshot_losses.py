"""Snapshots from disks that have lost something, and starts from checkpoints that a disk does not give."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from edged.config.jetstream_options import SegmentOptions
from edged.store.checkpoint import load_newest
from edged.store.deleted import DeletedPositions
from edged.store.install import GroupState
from edged.store.losses import NOWHERE
from edged.store.stream_log import UNREADABLE
from hub.replication.snapshots import Snapshots
from hub.replication.unpacking import Unpacking, packed_head
from tests.replication.cluster import OPTIONS, Cluster, Node, messages_of
from tests.replication.test_faults import are_even, assert_equal, publish, rely_on_checkpoints
from tests.replication.test_repair import is_whole, lacks, segments_of
from tests.replication.test_snapshot_faults import cluster_of, cluster_with_late_node, outrun

# --- a sender whose disk has lost something ---


def spoil(node: Node, *, is_whole_file: bool) -> None:
    """Damage the segments of a running node: a block of each, and not the footer that lists it; or all."""
    for path in segments_of(node):
        content = dict(node.disk.files())[path].writable()
        if is_whole_file:
            content[:] = b"\xaa" * len(content)
        else:
            content[200:1200] = bytes(1000)


@pytest.mark.parametrize("is_whole_file", [False, True])
def test_messages_that_the_sender_cannot_read_are_taken_from_the_log_that_is_here(
    is_whole_file: bool,
) -> None:
    cluster = Cluster(701)
    for node in cluster.nodes.values():
        # Segments are as large as they get: they are not merged, and so not read.
        node.options["segment"] = SegmentOptions(bytes_max=1)
    cluster.start()
    cluster.put_stream(1, (1, 2, 3))
    cluster.cycling = 1.0
    while any(len(segments_of(node)) < 1 for node in cluster.nodes.values()):
        publish(cluster, 40)
        cluster.run(20_000)
    cluster.run_until(lambda: are_even(cluster))
    one, two, three = (cluster.nodes[number] for number in (1, 2, 3))
    assert one.store is not None and three.store is not None
    before = messages_of(one.store, 1)
    assert before and messages_of(three.store, 1) == before
    two.stop(is_power_cut=False)
    two.start()
    spoil(two, is_whole_file=is_whole_file)
    # Nobody is asked for anything: two other streams are being repaired.
    looks = [(node, node.repairs.look) for node in cluster.nodes.values()]
    for node, _ in looks:
        node.repairs.look = lambda: None  # type: ignore[method-assign]
    for node in (three, one):
        # It is away for a while, and comes back with all it had; then whoever lost something leads.
        last = node.replicas.status(1).last
        node.stop(is_power_cut=False)
        cluster.lead(2)
        outrun(cluster, (2,), last)
        cluster.lead(2)
        node.start()
        node.repairs.look = lambda: None  # type: ignore[method-assign]
        cluster.run_until(lambda: are_even(cluster, (1, 2, 3)))
        assert node.store is not None
        assert not lacks(node)
        assert before.items() <= messages_of(node.store, 1).items()
    for node, _ in looks:
        del node.repairs.look
    cluster.run_until(lambda: is_whole(cluster))


def test_a_leader_whose_segments_cannot_be_read_hands_over_and_turns_no_journals() -> None:
    cluster, late = cluster_with_late_node(521, OPTIONS)
    leader = cluster.nodes[1]
    spoil(leader, is_whole_file=True)
    cluster.run(2_000_000)
    assert leader.store is not None
    before = leader.store.journal.number
    late.start()
    cluster.run_until(lambda: are_even(cluster) and is_whole(cluster))
    cluster.run(5_000_000)
    assert leader.store.journal.number - before < 10
    assert_equal(cluster)


def test_a_segment_that_the_disk_does_not_give_while_it_is_sent_stops_no_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, late = cluster_with_late_node(525, OPTIONS)
    leader = cluster.nodes[1]
    original, refused = Snapshots.read, 0

    def fault(operation: str, path: str) -> OSError | None:
        nonlocal refused
        if operation != "read" or not path.startswith("streams/"):
            return None
        refused += 1
        return OSError(errno.EIO, "bad sector", path)

    def read(snapshots: Snapshots, *arguments: Any) -> Any:
        leader.disk.fault = fault if snapshots is leader.replicas.snapshots else None
        try:
            return original(snapshots, *arguments)
        finally:
            leader.disk.fault = None

    monkeypatch.setattr(Snapshots, "read", read)
    late.start()
    cluster.run_until(lambda: are_even(cluster) and is_whole(cluster))
    assert refused and cluster.repaired[late.node]
    assert_equal(cluster)


def test_a_checkpoint_that_lists_messages_as_lost_is_offered_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, late = cluster_with_late_node(526, OPTIONS)
    leader = cluster.nodes[1]
    assert leader.store is not None
    before, number = leader.store.report, leader.store.journal.number
    original = GroupState.in_checkpoint

    def in_checkpoint(state: dict[str, Any], group: int) -> tuple[int, GroupState] | None:
        found = original(state, group)
        store = leader.store
        if found is None or found[1].log is None or store is None or store.journal.number > number:
            return found
        # As it was before they came back from another node.
        log = {**found[1].log, "lost": [[1, 3, UNREADABLE]], "missing": 3}
        return found[0], replace(found[1], log=log)

    monkeypatch.setattr(GroupState, "in_checkpoint", in_checkpoint)
    late.start()
    cluster.run_until(lambda: lacks(late) or are_even(cluster))
    assert not lacks(late) and leader.store.report is before
    assert leader.store.journal.number > number
    assert_equal(cluster)


# How many of ten messages in a row the sender says it lost, why, and whether those that are here are taken.
LISTED = [(10, UNREADABLE, True), (9, UNREADABLE, False), (10, NOWHERE, False)]


@pytest.mark.parametrize(("missing", "reason", "are_taken"), LISTED)
def test_messages_that_the_sender_lists_as_lost_are_taken_from_here_if_it_is_known_which(
    missing: int, reason: str, are_taken: bool
) -> None:
    cluster = cluster_of(530, raft=OPTIONS)
    outrun(cluster, (1, 2, 3))
    node = cluster.nodes[3]
    store = node.store
    assert store is not None
    newest, _ = load_newest(store.files, lambda one: True)
    assert newest is not None
    found = GroupState.in_checkpoint(newest.state, 1)
    assert found is not None and found[1].log is not None
    log = found[1].log
    for path, seqs, live, gone in log["segments"]:
        assert live[0] == seqs[1] - seqs[0] + 1, (path, gone)
    last = log["segments"][-1][1][1]
    lost = [[last - 9, last, reason]]
    # The sender deleted the last ten where its segments are concerned, and says that it lost them.
    *others, (path, seqs, live, _) = log["segments"]
    deleted = DeletedPositions()
    for seq in range(last - 9, last + 1):
        deleted.add(seq - seqs[0])
    segments = [*others, [path, seqs, [live[0] - 10, 0], deleted.dump()]]
    state = replace(found[1], log={**log, "segments": segments, "lost": lost, "missing": missing})
    contents = [dict(node.disk.files())[one[0]].content for one in segments]
    file = store.files.create("snapshots/test")
    file.write_at(0, packed_head(state, [len(content) for content in contents]) + b"".join(contents))
    file.close()
    unpacking = Unpacking(store, 1, "snapshots/test", cluster.random.randint)
    for _ in unpacking.steps():
        assert unpacking.prepared is None
    prepared = unpacking.prepared
    assert prepared is not None and prepared.log is not None
    own = messages_of(store, 1)
    there = {seq for seq in range(1, last + 1) if prepared.log.has(seq)}
    assert all(tuple(prepared.log.peek(seq) or ()) == own[seq] for seq in there)
    wanted = range(1, last + 1) if are_taken else range(1, last - 9)
    assert there == set(wanted)
    assert [list(one) for one in prepared.log.lost] == ([] if are_taken else lost)


def test_a_leader_that_cannot_read_its_newest_checkpoint_makes_another_one_for_who_needs_it() -> None:
    cluster, late = cluster_with_late_node(921, OPTIONS)
    leader = cluster.nodes[1]
    bad = newest_checkpoint(leader)
    leader.disk.fault = lambda operation, path: (
        OSError(errno.EIO, "bad sector", path) if (operation, path) == ("read", bad) else None
    )
    late.start()
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


def newest_checkpoint(node: Node) -> str:
    return "checkpoints/" + max(name for name in node.disk.list("checkpoints") if name.endswith(".ckpt"))


# --- a start from checkpoints that the disk does not give ---


def stopped_node(cluster: Cluster) -> Node:
    node = cluster.nodes[2]
    rely_on_checkpoints(cluster, node)
    cluster.run_until(lambda: are_even(cluster))
    node.stop(is_power_cut=False)
    return node


def refuse(node: Node, *paths: str) -> None:
    node.disk.fault = lambda operation, path: (
        OSError(errno.EIO, "bad sector", path) if operation == "read" and path in paths else None
    )


def test_a_node_whose_newest_checkpoint_cannot_be_read_starts_with_the_one_before() -> None:
    cluster = cluster_of(922, raft=OPTIONS)
    node = stopped_node(cluster)
    bad = newest_checkpoint(node)
    refuse(node, bad)
    node.start()
    assert node.store is not None
    assert [path for path, _ in node.store.report.bad_checkpoints] == [bad]
    assert not node.store.report.has_begun_anew and not lacks(node)
    publish(cluster, 3)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)


@pytest.mark.parametrize("is_journal_gone", [False, True])
def test_a_node_does_not_start_from_less_than_it_had_and_does_when_the_disk_gives_that(
    is_journal_gone: bool,
) -> None:
    cluster = cluster_of(924, raft=OPTIONS)
    node = stopped_node(cluster)
    if is_journal_gone:
        # What follows on the older checkpoint is not there any more.
        number = int(min(node.disk.list("checkpoints")).removesuffix(".ckpt"))
        name = next(name for name in node.disk.list("journal") if int(name.partition(".")[0]) == number)
        node.disk.remove(f"journal/{name}")
        refuse(node, newest_checkpoint(node))
    else:
        refuse(node, *(f"checkpoints/{name}" for name in node.disk.list("checkpoints")))
    with pytest.raises(AssertionError, match="cannot start"):
        node.start()
    assert not node.disk.list("lost+found")
    node.disk.fault = None
    node.disk.end_process()
    node.start()
    publish(cluster, 3)
    cluster.run_until(lambda: are_even(cluster))
    assert_equal(cluster)
