"""How much a leader sends ahead, how it notices that something got lost, and its own disk (thesis, 10.2)."""

from __future__ import annotations

from hub.raft.messages import Append, AppendReply, Heartbeat, HeartbeatReply, RejoinRequest, SnapshotReply
from hub.raft.options import RaftOptions
from hub.raft.raft import Role
from tests.raft.cluster import Cluster, Envelope


def appends(cluster: Cluster, to: int) -> list[Append]:
    return [one.message for one in cluster.pick(to=to, kind=Append)]


def ranges(messages: list[Append]) -> list[tuple[int, int]]:
    return [(one.blocks[0].first, one.blocks[-1].last) if one.blocks else (0, 0) for one in messages]


def test_10_2_2_entries_are_sent_without_waiting_for_answers() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    for command in "abc":
        leader.propose(command)
    assert ranges(appends(cluster, 2)) == [(2, 2), (3, 3), (4, 4)]
    assert [one.prev_index for one in appends(cluster, 2)] == [1, 2, 3]


def test_10_2_2_no_more_messages_are_under_way_than_the_options_say() -> None:
    cluster = Cluster(2, options=RaftOptions(quiet_beats=0, inflight_messages_max=2))
    leader = cluster.elect(1)
    for command in "abcdef":
        leader.propose(command)
    assert ranges(appends(cluster, 2)) == [(2, 2), (3, 3)]
    cluster.deliver(kind=Append)
    cluster.deliver(kind=AppendReply, count=1)
    # One answer makes room, and everything that waited goes in one message.
    assert ranges(appends(cluster, 2)) == [(4, 7)]
    cluster.settle()
    assert cluster[2].commands == tuple("abcdef")


def test_10_2_2_no_more_bytes_are_under_way_than_the_options_say() -> None:
    cluster = Cluster(2, options=RaftOptions(quiet_beats=0, inflight_bytes_max=100))
    leader = cluster.elect(1)
    for command in "abcdef":
        leader.propose(command, size=50)
    assert ranges(appends(cluster, 2)) == [(2, 2), (3, 3)]
    cluster.settle()
    assert cluster[2].commands == tuple("abcdef")


def test_a_message_carries_about_as_many_bytes_as_the_options_say() -> None:
    size = 16 * 1024
    cluster = Cluster(2, options=RaftOptions(quiet_beats=0, append_bytes_max=3 * size))
    leader = cluster.elect(1)
    cluster.part({1}, {2})
    for number in range(9):
        leader.propose(f"{number}", size=size)
        cluster.flight.clear()
    cluster.part()
    sizes: list[int] = []
    for _ in range(5):
        cluster.beat(1)
        while cluster.flight:
            sizes += [sum(block.size for block in one.blocks) for one in appends(cluster, 2)]
            cluster.deliver()
    assert max(sizes) == 3 * size
    cluster.advance(1000)
    assert cluster[2].commands == tuple("012345678")


def test_a_follower_that_is_not_known_is_asked_with_one_message_at_a_time() -> None:
    cluster = Cluster(2)
    leader = cluster.elect(1)
    cluster[2].restart()
    leader.propose("a")
    cluster.drop(kind=Append)
    leader.propose("b")
    cluster.deliver(kind=Append)
    cluster.deliver(kind=AppendReply)
    # It refused, so now the leader asks: with everything from the first that may lack.
    assert ranges(appends(cluster, 2)) == [(2, 3)]
    leader.propose("c")
    assert ranges(appends(cluster, 2)) == [(2, 3)]
    cluster.deliver(kind=Append)
    cluster.deliver(kind=AppendReply)
    assert ranges(appends(cluster, 2)) == [(4, 4)]


def test_a_question_that_got_lost_is_asked_again_after_a_heartbeat() -> None:
    cluster = Cluster(2)
    cluster.now_ms = 2001
    cluster[1].tick()
    while cluster[1].raft.role is not Role.LEADER:
        assert cluster.deliver(count=1)
    cluster.flight.clear()
    cluster.beat(1)
    assert appends(cluster, 2) == []
    cluster.deliver(kind=Heartbeat)
    cluster.deliver(kind=HeartbeatReply)
    assert ranges(appends(cluster, 2)) == [(1, 1)]


def test_entries_that_got_lost_are_noticed_by_the_next_ones() -> None:
    cluster = Cluster(2)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.drop(kind=Append)
    leader.propose("b")
    cluster.settle()
    assert cluster[2].commands == ("a", "b")


def test_entries_that_got_lost_are_noticed_by_heartbeats_if_there_are_no_next_ones() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.drop(kind=Append, to=3)
    cluster.settle()
    for _ in range(3):
        cluster.beat(1)
        cluster.settle()
    assert cluster[3].commands == ("a",)


def test_a_window_full_of_lost_messages_is_noticed_by_heartbeats() -> None:
    cluster = Cluster(2, options=RaftOptions(quiet_beats=0, inflight_messages_max=2, inflight_bytes_max=10))
    leader = cluster.elect(1)
    for command in "abcdef":
        leader.propose(command, size=10)
    cluster.flight.clear()
    for _ in range(6):
        cluster.beat(1)
        cluster.settle()
    assert cluster[2].commands == tuple("abcdef")


def test_answers_that_got_lost_are_asked_for_by_heartbeats() -> None:
    cluster = Cluster(2)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.deliver(kind=Append)
    assert cluster.drop(kind=AppendReply) == 1
    for _ in range(3):
        cluster.beat(1)
        cluster.settle()
    assert leader.commands == ("a",)


def test_a_refusal_that_comes_late_does_not_make_the_leader_doubt_what_it_knows() -> None:
    cluster = Cluster(2)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    leader.step(2, AppendReply(1, 1, True, 0, 0))
    # It still sends ahead.
    leader.propose("b")
    leader.propose("c")
    assert [one.prev_index for one in appends(cluster, 2)] == [2, 3]


def test_a_follower_that_denies_what_it_confirmed_is_asked_once_per_heartbeat() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    # Its disk lost entries, and it was started as if nothing had happened.
    cluster[3].crash()
    del cluster[3].durable.entries[:]
    cluster[3].start()
    leader.propose("b")
    cluster.settle()
    for _ in range(5):
        cluster.beat(1)
        cluster.settle()
    assert cluster[3].commands == ()
    assert leader.commands == ("a", "b")


def test_a_confirmation_that_comes_late_is_old_news() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    leader.step(2, AppendReply(1, 1))
    assert min(leader.raft.followers.values())[0] == 2


def test_answers_of_nodes_that_are_no_members_are_nothing() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.part({1}, {2, 3})
    leader.propose("a")
    cluster.flight.clear()
    for stranger in (8, 9):
        leader.step(stranger, AppendReply(1, 2))
        leader.step(stranger, HeartbeatReply(1, 1))
        leader.step(stranger, SnapshotReply(1, 1, 1, 1))
        leader.step(stranger, RejoinRequest(1, 1))
    assert leader.commands == ()
    assert cluster.flight == []


def test_10_2_1_followers_may_have_an_entry_before_the_disk_of_the_leader_has() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.is_held = True
    leader.propose("a")
    assert leader.durable.last == 1
    assert cluster.deliver(kind=Append) == 2
    cluster.deliver(kind=AppendReply)
    # Two of three have it: it is committed, but the leader applies it only when it has it, too.
    assert leader.raft.log.commit == 2
    assert leader.commands == ()
    cluster.settle()
    assert cluster[2].commands == ("a",)
    leader.release()
    assert leader.commands == ("a",)


def test_10_2_1_the_leader_counts_itself_only_once_its_disk_has_the_entry() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster[3].crash()
    leader.is_held = True
    leader.propose("a")
    cluster.settle()
    assert cluster[2].durable.last == 2
    assert leader.raft.log.commit == 1
    leader.release()
    assert leader.raft.log.commit == 2


def test_10_2_1_a_leader_that_crashes_with_a_slow_disk_gets_its_own_entries_back_from_the_others() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.is_held = True
    leader.propose("a")
    cluster.settle()
    assert cluster[2].commands == ("a",)
    leader.restart()
    leader.release()
    assert leader.durable.last == 1
    cluster.advance(5000)
    assert cluster.leader().node in (2, 3)
    assert leader.commands == ("a",)


def test_proposals_that_come_together_are_written_as_one_block() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    for command in ("a", "b"):
        first = leader.raft.propose(1, 1, cluster.now_ms)
        leader.proposed[first] = command
    leader.work()
    assert [(block.first, block.count) for block in appends(cluster, 2)[0].blocks] == [(2, 2)]
    cluster.settle()
    assert cluster[2].commands == ("a", "b")


def test_a_node_with_nothing_to_do_says_so() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    assert not any(node.raft.has_ready for node in cluster.nodes.values())
    # Confirming a Ready in which nothing was written leaves nothing to do, either.
    raft = cluster[2].raft
    raft.persisted(raft.ready(cluster.now_ms), cluster.now_ms)
    assert not raft.has_ready


def test_messages_of_an_earlier_boot_are_dropped_by_the_host() -> None:
    cluster = Cluster(2)
    leader = cluster.elect(1)
    cluster[2].restart()
    cluster.beat(1)
    cluster.settle()
    cluster.flight.append(Envelope(2, 1, 1, AppendReply(99, 0)))
    cluster.settle()
    assert leader.raft.role is Role.LEADER
