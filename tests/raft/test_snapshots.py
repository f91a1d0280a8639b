"""Snapshots, in parts, for followers that lack what the leader no longer has (paper, 7; thesis, 5)."""

from __future__ import annotations

import pytest

from hub.raft.members import Members
from hub.raft.messages import Append, AppendReply, Snapshot, SnapshotPart, SnapshotReply, VoteRequest
from hub.raft.options import RaftOptions
from tests.raft.cluster import Cluster

# Small parts, two of which may be under way.
OPTIONS = RaftOptions(quiet_beats=0, snapshot_part_bytes=8, snapshot_parts_max=2)
COMMANDS = tuple(f"command {number}" for number in range(10))


def behind(logs: dict[int, list[int]] | None = None, terms: dict[int, int] | None = None) -> Cluster:
    """Node 3 has nothing, or nothing of use, and node 1 leads with a log that begins later."""
    cluster = Cluster(3, options=OPTIONS, logs=logs, terms=terms)
    cluster.part({1, 2}, {3})
    leader = cluster.elect(1)
    for command in COMMANDS:
        leader.propose(command)
    cluster.settle()
    leader.compact()
    cluster.part()
    cluster.beat(1)
    while 3 not in leader.wanted:
        assert cluster.deliver(count=1)
    cluster.settle()
    return cluster


def test_5_the_log_before_a_snapshot_is_forgotten() -> None:
    cluster = behind()
    assert cluster[1].written.entries == []
    assert cluster[1].commands == COMMANDS
    cluster[1].restart()
    assert cluster[1].commands == COMMANDS
    assert (cluster[1].raft.log.base_index, cluster[1].raft.log.commit) == (11, 11)


def test_5_a_follower_that_is_too_far_behind_gets_a_snapshot_in_parts_and_what_follows() -> None:
    cluster = behind()
    leader = cluster[1]
    leader.propose("later")
    cluster.settle()
    snapshot = leader.offer(3)
    assert [one.message.offset for one in cluster.pick(kind=SnapshotPart)] == [0, 8]
    cluster.settle()
    assert cluster[3].commands == (*COMMANDS, "later")
    assert cluster[3].durable.base_index == snapshot.index == 11
    cluster[3].restart()
    cluster.advance(1000)
    assert cluster[3].commands == (*COMMANDS, "later")


def test_5_nothing_is_sent_before_somebody_offers_a_snapshot_and_it_is_asked_for_once() -> None:
    cluster = behind()
    cluster.advance(2000)
    assert cluster[1].wanted == [3]
    assert cluster.pick(kind=(SnapshotPart, Append), to=3) == []


def test_5_one_whose_bytes_are_gone_is_asked_for_again_at_the_next_heartbeat() -> None:
    cluster = behind()
    leader = cluster[1]
    gone = leader.offer(3)
    leader.wanted.clear()
    leader.raft.lose_snapshot(gone)
    leader.work()
    assert leader.wanted == []
    cluster.advance(2000)
    assert leader.wanted == [3]
    leader.offer(3)
    cluster.settle()
    assert cluster[3].commands == COMMANDS


def test_5_no_more_parts_are_under_way_than_the_options_say() -> None:
    cluster = behind()
    snapshot = cluster[1].offer(3)
    most = 0
    while cluster.flight:
        most = max(most, len(cluster.pick(kind=SnapshotPart)))
        cluster.deliver(count=1)
    assert most == 2
    assert snapshot.size > 3 * 8
    assert cluster[3].commands == COMMANDS


@pytest.mark.parametrize("lost", range(8))
def test_5_a_part_that_gets_lost_is_sent_again(lost: int) -> None:
    cluster = behind()
    cluster[1].offer(3)
    seen = 0
    while cluster.flight:
        if isinstance(cluster.flight[0].message, SnapshotPart):
            seen += 1
            if seen == lost + 1:
                del cluster.flight[0]
                continue
        cluster.deliver(count=1)
    assert seen > lost
    cluster.advance(1500)
    assert cluster[3].commands == COMMANDS


@pytest.mark.parametrize("kind", [SnapshotReply, AppendReply], ids=["of a part", "of the end"])
def test_5_an_answer_that_gets_lost_is_asked_for_again(kind: type) -> None:
    cluster = behind()
    cluster[1].offer(3)
    while not cluster.pick(sender=3, kind=kind):
        assert cluster.deliver(count=1)
    cluster.drop(sender=3, kind=kind)
    cluster.settle()
    cluster[1].propose("later")
    cluster.advance(1500)
    assert cluster[3].commands == (*COMMANDS, "later")


def test_5_parts_that_come_twice_or_in_another_order_change_nothing() -> None:
    cluster = behind()
    cluster[1].offer(3)
    for _ in range(3):
        cluster.deliver(kind=SnapshotPart, keep=True)
        cluster.flight.reverse()
        cluster.deliver(kind=SnapshotReply)
        del cluster.flight[100:]
    cluster.settle()
    cluster.advance(1500)
    assert cluster[3].commands == COMMANDS
    assert cluster[3].durable.received == {}


def test_5_a_follower_that_restarts_in_the_middle_gets_it_from_the_beginning() -> None:
    cluster = behind()
    cluster[1].offer(3)
    for _ in range(2):
        cluster.deliver(kind=SnapshotPart)
        cluster.deliver(kind=SnapshotReply)
    assert len(cluster[3].durable.received[1]) == 32
    cluster[3].restart()
    # The next part that comes shows it; nobody has to wait for a heartbeat.
    cluster.settle()
    assert cluster[3].commands == COMMANDS


def test_5_the_log_may_be_compacted_further_meanwhile() -> None:
    cluster = behind()
    leader = cluster[1]
    leader.offer(3)
    cluster.deliver(kind=SnapshotPart)
    leader.propose("later", "and later")
    while leader.applied < 13:
        assert cluster.deliver(to=2) + cluster.deliver(sender=2)
    leader.compact()
    cluster.settle()
    # The snapshot is there, what follows on it is gone: another one is wanted.
    assert cluster[3].commands == COMMANDS
    assert leader.wanted == [3]
    leader.offer(3, identity=2)
    cluster.settle()
    assert cluster[3].commands == (*COMMANDS, "later", "and later")


def test_5_a_snapshot_that_is_older_than_the_log_is_no_use() -> None:
    cluster = behind()
    leader = cluster[1]
    old = leader.durable.snapshot(1)
    leader.propose("later")
    while leader.applied < 12:
        assert cluster.deliver(to=2) + cluster.deliver(sender=2)
    leader.compact()
    leader.wanted.clear()
    leader.raft.offer_snapshot(3, old, cluster.now_ms)
    leader.work()
    assert cluster.pick(kind=SnapshotPart) == []
    assert leader.wanted == [3]


def test_5_a_snapshot_for_somebody_who_needs_none_is_not_sent() -> None:
    cluster = behind()
    cluster[1].offer(2)
    cluster[1].offer(9)
    cluster[2].offer(3)
    assert cluster.pick(kind=SnapshotPart) == []


def test_5_a_snapshot_of_another_leader_begins_anew_even_if_it_is_of_the_same_index() -> None:
    cluster = behind()
    cluster[1].offer(3, identity=1)
    cluster.deliver(kind=SnapshotPart)
    assert len(cluster[3].durable.received[1]) == 16
    cluster.flight.clear()
    cluster.part({1, 2}, {3})
    cluster[1].transfer(2)
    cluster.settle()
    leader = cluster[2]
    leader.compact(11)
    cluster.part()
    cluster.advance(1000)
    assert leader.wanted == [3]
    leader.offer(3, identity=2)
    assert cluster.deliver(kind=SnapshotPart, count=1) == 1
    assert len(cluster[3].durable.received[2]) == 8
    cluster.settle()
    assert cluster[3].durable.base_index == 11
    assert cluster[3].commands == COMMANDS


def test_5_a_follower_that_has_everything_takes_no_snapshot() -> None:
    cluster = Cluster(3, options=OPTIONS)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    leader.compact()
    part = SnapshotPart(1, leader.durable.snapshot(1), 0, 3, b"abc")
    cluster[3].step(1, part)
    assert [one.message for one in cluster.flight] == [AppendReply(1, 2)]
    assert cluster[3].durable.entries != []


def test_7_a_follower_whose_log_agrees_keeps_it_and_knows_what_is_committed() -> None:
    cluster = Cluster(3, logs={3: [1, 1, 1]}, options=OPTIONS)
    snapshot = Snapshot(2, 1, cluster.members, 1, 1)
    cluster[3].step(1, SnapshotPart(1, snapshot, 0, 1, b"x"))
    assert cluster[3].raft.log.commit == 2
    assert cluster[3].durable.terms() == [1, 1, 1]
    assert [one.message for one in cluster.flight] == [AppendReply(1, 2)]


def test_7_a_snapshot_takes_the_place_of_a_log_that_is_another_one_even_if_that_is_longer() -> None:
    # Entries of a leader that nobody else heard of.
    cluster = behind(logs={3: [1] * 15}, terms={1: 1, 2: 1, 3: 1})
    cluster[1].offer(3)
    cluster.settle()
    assert cluster[3].durable.entries == []
    assert cluster[3].commands == COMMANDS
    cluster[1].propose("later")
    cluster.settle()
    assert cluster[3].commands == (*COMMANDS, "later")


def test_5_members_come_with_the_snapshot() -> None:
    cluster = Cluster(3, options=OPTIONS)
    leader = cluster.elect(1)
    cluster.part({1, 2}, {3})
    leader.change([1, 2, 3], learners=[7])
    cluster.settle()
    leader.compact()
    cluster.part()
    cluster.advance(1000)
    leader.offer(3)
    cluster.settle()
    assert cluster[3].raft.members == Members(frozenset((1, 2, 3)), learners=frozenset((7,)))
    cluster[3].restart()
    assert cluster[3].raft.members.learners == {7}


def test_5_a_new_node_gets_a_snapshot_and_then_votes() -> None:
    cluster = behind()
    leader = cluster[1]
    cluster.add(4)
    leader.change([1, 2, 4])
    cluster.settle()
    assert 4 in leader.wanted
    leader.offer(4)
    cluster.settle()
    assert cluster[4].commands == COMMANDS
    assert leader.raft.members == Members(frozenset((1, 2, 4)))


def test_5_a_snapshot_is_confirmed_only_when_it_is_durable() -> None:
    cluster = behind()
    node = cluster[3]
    cluster[1].offer(3)
    while len(node.durable.received.get(1, b"")) + 16 < cluster[1].durable.snapshot(1).size:
        assert cluster.deliver(kind=SnapshotPart)
        assert cluster.deliver(kind=SnapshotReply)
    node.is_held = True
    cluster.settle()
    assert node.written.base_index == 11
    assert min(cluster[1].raft.followers.values())[0] == 0
    node.restart()
    node.is_held = False
    assert node.commands == ()
    assert node.raft.log.last == 0
    # What it sent before it crashed promised nothing; all of it comes again.
    cluster.settle()
    cluster.advance(1500)
    assert node.commands == COMMANDS


def test_5_entries_that_follow_come_while_the_snapshot_is_not_durable_yet() -> None:
    cluster = behind()
    leader, node = cluster[1], cluster[3]
    leader.offer(3)
    while not node.raft.log.commit:
        node.is_held = len(node.durable.received.get(1, b"")) + 16 >= cluster[1].durable.snapshot(1).size
        assert cluster.deliver(count=1)
    leader.propose("later")
    later = [one for one in cluster.pick(to=2, kind=Append) if one.message.blocks][-1].message
    node.step(1, later)
    assert node.raft.log.last == 12
    assert cluster.pick(sender=3, kind=AppendReply) == []
    node.sync(1)
    node.release()
    cluster.settle()
    assert node.commands == (*COMMANDS, "later")


def test_a_leader_in_a_later_term_can_be_elected_by_a_node_that_has_only_a_snapshot() -> None:
    cluster = behind()
    cluster[1].offer(3)
    cluster.settle()
    cluster[1].crash()
    cluster.now_ms += 3000
    cluster[3].step(2, VoteRequest(2, 10, 1, is_trial=True, is_transfer=False))
    cluster[3].step(2, VoteRequest(2, 11, 1, is_trial=True, is_transfer=False))
    assert [one.message.is_granted for one in cluster.flight] == [False, True]
    cluster.flight.clear()
    assert cluster.elect(3).commands == COMMANDS


def test_5_parts_of_a_later_snapshot_may_come_before_an_earlier_one_is_installed() -> None:
    cluster = Cluster(3, options=OPTIONS)
    node = cluster[3]
    first, second = (Snapshot(index, 1, cluster.members, 7, index) for index in (3, 6))
    # Both arrive before anybody takes what there is to do.
    for snapshot in (first, second):
        node.raft.step(1, SnapshotPart(1, snapshot, 0, 6, b"state\n"), cluster.now_ms)
        if snapshot is first:
            node.raft.step(1, SnapshotPart(1, snapshot, 6, 1, b"a"), cluster.now_ms)
    node.work()
    assert (node.durable.base_index, node.commands) == (3, ("a",))
    node.step(1, SnapshotPart(1, second, 6, 1, b"b"))
    assert (node.durable.base_index, node.commands) == (6, ("b",))


def test_5_who_keeps_the_parts_says_how_much_is_there_and_the_leader_goes_on_from_there() -> None:
    cluster = Cluster(3, options=OPTIONS)
    node = cluster[3]
    snapshot = Snapshot(3, 1, cluster.members, 7, 1)
    answered: list[int] = []
    # What is there may be less than it was, as after a restart, and more than what came just now.
    for offset, size, kept in ((0, 4, 4), (4, 2, 6), (6, 1, 0), (0, 4, 6), (6, 1, 6)):
        node.step(1, SnapshotPart(1, snapshot, offset, size, b"", kept))
        answered += [one.message.offset for one in cluster.pick(sender=3, kind=SnapshotReply)]
        cluster.flight.clear()
    assert answered == [4, 6, 0, 6, 6]
    assert node.raft.log.base_index == 0
    node.raft.step(1, SnapshotPart(1, snapshot, 6, 1, b"", 7), cluster.now_ms)
    assert node.raft.log.base_index == 3


def test_what_followers_need_is_known_while_they_answer_and_the_log_has_it() -> None:
    cluster = behind()
    leader = cluster[1]
    # Node 3 waits for a snapshot: nothing of the log is of use to it.
    assert leader.raft.needed_from == leader.raft.log.last + 1
    leader.offer(3)
    cluster.part({1, 2}, {3})
    leader.propose("later")
    leader.propose("latest")
    cluster.settle()
    assert leader.raft.needed_from == 12
    assert cluster[2].raft.needed_from == cluster[2].raft.log.last + 1
    for _ in range(7):
        cluster.beat(1)
        cluster.settle()
    assert leader.raft.needed_from == leader.raft.log.last + 1
