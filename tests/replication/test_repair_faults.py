"""What a disk refuses for a while, a damaged index or journal, a full disk: no message is given up for it."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from edged.core.commands import Delete, PutConsumer
from edged.store.errors import LeadershipLost, StoreFull
from edged.store.segment import Segment
from edged.store.segment_format import SUBJECTS
from edged.store.stream_log import StreamLog
from hub.raft.messages import SnapshotPart
from hub.repairing import Repairing
from hub.replication.questions import Answer, Question, answer
from tests.replication.cluster import Cluster, Node, messages_of
from tests.replication.test_faults import are_even, assert_equal, cluster_with_stream, publish
from tests.replication.test_repair import is_whole, lacks, ruin_segments, sealed_cluster, segments_of

# --- what the disk refuses for now ---


@pytest.mark.parametrize(
    ("refused", "code"), [("open", errno.EMFILE), ("open", errno.EIO), ("read", errno.EIO)]
)
def test_messages_that_others_cannot_read_just_now_are_not_given_up(refused: str, code: int) -> None:
    cluster = sealed_cluster(802)
    one, two, three = cluster.nodes.values()
    assert one.store is not None and two.store is not None and three.store is not None
    before = messages_of(one.store, 1)
    two.stop(is_power_cut=False)
    ruin_segments(two)
    refusals = 0

    def fault(operation: str, path: str) -> OSError | None:
        nonlocal refusals
        if operation == refused and path.startswith("streams/"):
            refusals += 1
            return OSError(code, "not now", path)
        return None

    for node in (one, three):
        # What was read before is not in memory for ever.
        node.store.cache._entries.clear()
        node.disk.fault = fault
    two.start()
    assert lacks(two)
    cluster.run(1_500_000)
    assert refusals and lacks(two)
    one.disk.fault = three.disk.fault = None
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster)
    assert before.items() <= messages_of(two.store, 1).items()
    assert cluster.begun_anew == 0


def test_an_answer_tells_what_is_lost_from_what_cannot_be_read_now() -> None:
    cluster = sealed_cluster(806)
    node = cluster.nodes[1]
    store = node.store
    assert store is not None
    before = messages_of(store, 1)
    log = store.stream(1).log
    assert isinstance(log, StreamLog)
    segment = log.segments[0]
    assert isinstance(segment, Segment)
    question = Question(1, store.stream(1).stream_id, 0, (range(1, log.last_seq + 1),))
    for code in (errno.EMFILE, errno.EIO):
        store.cache._entries.clear()
        refused = "open" if code == errno.EMFILE else "read"
        node.disk.fault = lambda operation, path, refused=refused, code=code: (  # type: ignore[misc]
            OSError(code, "not now", path) if operation == refused and path == segment.path else None
        )
        found = answered(store, question)
        assert not found.lost
        unsure = [seq for seqs in found.unsure for seq in seqs]
        assert {*unsure, *(message.seq for message in found.messages)} == before.keys()
        assert set(range(segment.first_seq, segment.last_seq + 1)) & before.keys() <= set(unsure)
    node.disk.fault = None
    assert not answered(store, question).unsure
    entry = segment.table.entry(0)
    spoil(node, [(segment.path, entry.offset, entry.size)])
    found = answered(store, question)
    assert not found.unsure
    lost = [seq for seqs in found.lost for seq in seqs]
    assert lost == [seq for seq in before if entry.first_seq <= seq <= entry.last_seq]
    assert {*lost, *(message.seq for message in found.messages)} == before.keys()


def answered(store: Any, question: Question) -> Answer:
    found = answer(store, question)
    assert found is not None and found.to == question.ranges[-1].stop - 1
    assert Answer.of_document(found.document()) == found
    return found


# --- an index that is damaged ---


def indexed_cluster(seed: int) -> Cluster:
    """A cluster whose nodes have a segment with columns that are worth reading."""
    cluster = Cluster(seed, 3, 600_000)
    cluster.start()
    cluster.put_stream(1, (1, 2, 3))
    cluster.cycling = 1.0
    while any(len(segments_of(node)) < 1 for node in cluster.nodes.values()):
        publish_many(cluster, 3000)
        last_seq = cluster.nodes[1].replicas.store.stream(1).log.last_seq
        for seq in (last_seq - 7, last_seq - 100, last_seq - 1500):
            cluster.commit(1, Delete(seq, False))
        cluster.run(20_000)
    cluster.run_until(lambda: are_even(cluster))
    return cluster


def publish_many(cluster: Cluster, count: int) -> None:
    cluster.run_until(lambda: cluster.leader(1))
    leader, random, results = cluster.leader(1), cluster.random, []  # type: ignore[var-annotated]
    assert leader is not None and leader.store is not None
    messages = [
        (b"s1.%d" % random.randint(0, 10**6), None, -1, random.randbytes(random.randint(0, 100)))
        for _ in range(count)
    ]
    leader.store.add_appends(1, messages, cluster.now_us * 1000, results.append)
    leader.wake()
    cluster.run_until(lambda: results)


def columns_of(node: Node) -> list[tuple[str, int, int]]:
    """Where the columns are that a running node reads again."""
    return [
        (segment.path, span.offset, span.size)
        for segment in segments_in(node)
        for kind, span in segment._contents.columns.items()
        if not isinstance(span, bytes) and kind != SUBJECTS
    ]


def segments_in(node: Node) -> list[Segment]:
    assert node.store is not None
    log = node.store.stream(1).log
    assert isinstance(log, StreamLog)
    return [segment for segment in log.segments if isinstance(segment, Segment)]


def first_blocks_of(node: Node) -> list[tuple[str, int, int]]:
    entries = [(segment.path, segment.table.entry(0)) for segment in segments_in(node)]
    return [(path, entry.offset, entry.size) for path, entry in entries]


def spoil(node: Node, spans: list[tuple[str, int, int]]) -> None:
    """The disk goes bad there while the node runs, and nothing of it is in memory any more."""
    for path, offset, size in spans:
        content = dict(node.disk.files())[path].writable()
        content[offset : offset + size] = b"\xaa" * size
    if node.store is not None:
        node.store.cache._entries.clear()
        for holder in list(node.store.columns._holders):
            holder.let_go()


def test_a_copy_whose_index_is_found_damaged_comes_anew() -> None:
    cluster = indexed_cluster(804)
    node = cluster.nodes[2]
    assert node.store is not None
    before = messages_of(node.store, 1)
    spoil(node, columns_of(node) + first_blocks_of(node))
    seq = segments_in(node)[0].last_seq - 50
    assert node.store.stream(1).log.peek(seq) is None
    cluster.run_until(lambda: cluster.begun_anew)
    cluster.run_until(lambda: is_whole(cluster))
    assert messages_of(node.store, 1) == before


def test_an_index_that_cannot_be_read_just_now_is_not_given_up() -> None:
    cluster = indexed_cluster(807)
    node = cluster.nodes[2]
    assert node.store is not None
    before = messages_of(node.store, 1)
    spoil(node, [])
    seq = segments_in(node)[0].last_seq - 50
    node.disk.fault = lambda operation, path: (
        OSError(errno.EIO, "not now", path) if operation == "read" and path.startswith("streams/") else None
    )
    assert node.store.stream(1).log.peek(seq) is None
    cluster.run(2_000_000)
    node.disk.fault = None
    cluster.run_until(lambda: is_whole(cluster))
    assert cluster.begun_anew == 0
    assert messages_of(node.store, 1) == before


def test_a_repair_that_begins_with_a_damaged_index_is_told_of_though_no_message_is_known_to_be_lost() -> None:
    cluster = indexed_cluster(801)
    node = cluster.nodes[2]
    assert node.store is not None
    spoil(node, columns_of(node) + first_blocks_of(node))
    assert node.store.stream(1).log.peek(segments_in(node)[0].last_seq - 50) is None
    told: list[str] = []
    log = SimpleNamespace(warn=lambda what, **_: told.append(what))
    server: Any = SimpleNamespace(log=log)
    links: Any = None
    Repairing(server, links, node.replicas)._repairs.look()
    assert not lacks(node) and len(told) == 1 and "index" in told[0]


def test_an_answer_about_a_damaged_index_tells_what_lies_beside_it_and_ends_where_it_was_not_looked() -> None:
    cluster = indexed_cluster(808)
    node = cluster.nodes[2]
    store = node.store
    assert store is not None
    publish_many(cluster, 100)
    cluster.run_until(lambda: are_even(cluster))
    before = messages_of(store, 1)
    segment = segments_in(node)[-1]
    spoil(node, columns_of(node)[-2:] + first_blocks_of(node)[-1:])
    begin, end = segment.last_seq - 100, segment.last_seq + 50
    stream_id = store.stream(1).stream_id
    found = answer(store, Question(1, stream_id, 0, (range(begin, end),)))
    assert found is not None and found.to == end - 1 and not found.unsure
    assert [message.seq for message in found.messages] == [
        seq for seq in before if segment.last_seq < seq < end
    ]
    assert [seq for seqs in found.lost for seq in seqs] == list(range(begin, segment.last_seq + 1))
    question = Question(1, stream_id, 0, (range(segment.first_seq, end), range(end, end + 10)))
    found = answer(store, question)
    assert found is not None and found.to < segment.last_seq and not found.messages


def test_a_node_starts_with_what_there_is_of_a_segment_whose_columns_and_a_block_are_damaged() -> None:
    cluster = indexed_cluster(803)
    node = cluster.nodes[2]
    assert node.store is not None
    before = messages_of(node.store, 1)
    spans = columns_of(node)
    blocks = first_blocks_of(node)
    spans += [
        (segment.path, span.offset, span.size)
        for segment in segments_in(node)
        if not isinstance(span := segment._contents.columns[SUBJECTS], bytes)
    ]
    whole = [
        seq
        for segment in segments_in(node)
        for seq in range(segment.table.entry(0).last_seq + 1, segment.last_seq + 1)
        if seq in before
    ]
    node.stop(is_power_cut=False)
    spoil(node, spans + blocks)
    node.image = node.disk.copy()
    node.disk = node.disk.copy(is_recording=True)
    node.start()
    assert lacks(node)
    assert whole and set(whole) <= messages_of(node.store, 1).keys()
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster)
    assert messages_of(node.store, 1) == before


# --- entries that a leader cannot read any more ---


@pytest.mark.parametrize("is_message", [False, True])
def test_a_follower_catches_up_though_its_leader_cannot_read_an_entry(is_message: bool) -> None:
    cluster = Cluster(603, 3)
    cluster.cycling = 1.0
    for node in cluster.nodes.values():
        node.options["tail_bytes"] = 0
    cluster.start()
    cluster.put_stream(1, (1, 2, 3))
    cluster.lead(1)
    late, leader = cluster.nodes[3], cluster.nodes[1]
    late.stop(is_power_cut=False)
    publish(cluster, 10)
    if not is_message:
        consumer = {"durable_name": "C", "edged.created": 1, "ack_policy": "none"}
        cluster.commit(1, PutConsumer(1, "C", consumer))
    replica = leader.replicas.replica(1)
    assert replica is not None
    index = replica.group.applied
    publish(cluster, 10)
    cluster.run_until(lambda: are_even(cluster, (1, 2)))
    cluster.lead(1)
    spoil_entry(leader, index)
    snapshots = 0
    send = cluster.send

    def counted(sender: Node, to: int, group: int, message: Any) -> None:
        nonlocal snapshots
        snapshots += group == 1 and type(message) is SnapshotPart and not message.offset
        send(sender, to, group, message)

    cluster.send = counted  # type: ignore[method-assign]
    late.start()
    cluster.run_until(lambda: are_even(cluster))
    # What was a message is lost now, so that another node may be the one to lead and to send entries.
    assert snapshots or is_message
    cluster.run_until(lambda: is_whole(cluster))
    assert_equal(cluster)


def spoil_entry(node: Node, index: int) -> None:
    """An entry cannot be read any more in the journal of a node."""
    replica = node.replicas.replica(1)
    assert replica is not None
    # A command is there twice.
    while (found := replica.places.stretches(index, index)) is not None:
        ((file, origin, stretch),) = found
        content = dict(node.disk.files())[f"journal/{file:020d}.log"].writable()
        content[origin + stretch.end - 1] ^= 0x55
    # What was sent last is not in memory for ever.
    replica._filling.forget()


# --- a leader that cannot write ---


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_publisher_is_told_that_nothing_is_stored_only_where_no_other_node_may_have_it(nodes: int) -> None:
    cluster = cluster_with_stream(604, peers=tuple(range(1, nodes + 1)))
    publish(cluster, 5)
    cluster.lead(1)
    leader = cluster.nodes[1]
    assert leader.store is not None
    leader.store.journal.ask_to_turn()
    leader.disk.fault = lambda operation, path: (
        OSError(errno.ENOSPC, "full", path)
        if operation in ("allocate", "create") and "journal" in path
        else None
    )
    results: list[Any] = []
    messages = [(b"s1.a", None, -1, b"the one")]
    leader.store.add_appends(1, messages, cluster.now_us * 1000, results.append)
    leader.wake()
    cluster.run_until(lambda: results)
    leader.disk.fault = None
    publish(cluster, 1)
    is_stored = b"the one" in [message[4] for message in messages_of(leader.store, 1).values()]
    assert (type(results[0]), is_stored) == ((StoreFull, False) if nodes == 1 else (LeadershipLost, True))
