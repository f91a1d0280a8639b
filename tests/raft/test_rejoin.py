"""A node whose disk may have lost what it confirmed decides nothing before it has it again."""

from __future__ import annotations

from hub.raft.messages import Append, Block, Heartbeat, RejoinReply, RejoinRequest, VoteReply, VoteRequest
from hub.raft.options import RaftOptions
from hub.raft.raft import Role
from tests.raft.cluster import Cluster
from tests.raft.journal import Entry


def forgetful(lost: int = 2, term: int = 1) -> Cluster:
    """Node 1 leads, and node 3 forgets its last entries, which it had confirmed."""
    cluster = Cluster(3, terms={1: term - 1, 2: term - 1, 3: term - 1})
    leader = cluster.elect(1)
    for command in "abcd":
        leader.propose(command)
        cluster.settle()
    cluster[3].crash()
    del cluster[3].durable.entries[-lost:]
    return cluster


def test_it_neither_votes_nor_holds_elections() -> None:
    cluster = forgetful()
    cluster[3].start(must_rejoin=True)
    assert cluster[3].raft.due_ms is None
    cluster.now_ms += cluster.options.promise_ms
    for is_trial in (True, False):
        cluster[3].step(2, VoteRequest(2, 99, 1, is_trial, is_transfer=False))
    assert [one.message.is_granted for one in cluster.pick(kind=VoteReply)] == [False, False]
    assert cluster[3].raft.vote == 0


def test_without_it_what_it_confirmed_would_be_lost() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.part({1, 3}, {2})
    leader.propose("confirmed")
    cluster.settle()
    assert leader.commands == ("confirmed",)
    leader.crash()
    cluster[3].crash()
    cluster[3].durable.entries.pop()
    cluster[3].start(must_rejoin=True)
    cluster.part()
    # Node 2 never had it: node 3 must not help it to lead.
    cluster.advance(30_000)
    assert cluster[2].raft.role is not Role.LEADER
    leader.start()
    cluster.advance(5000)
    assert {node.commands for node in cluster.nodes.values()} == {("confirmed",)}
    assert not cluster[3].raft.must_rejoin


def test_it_is_believed_again_once_it_has_what_the_leader_had() -> None:
    cluster = forgetful()
    cluster[3].start(must_rejoin=True)
    cluster.advance(1000)
    assert not cluster[3].raft.must_rejoin
    assert cluster[3].commands == ("a", "b", "c", "d")
    assert cluster[3].raft.due_ms is not None
    cluster[1].crash()
    assert cluster.elect(3).raft.term == 2


def test_it_is_believed_only_when_that_is_durable() -> None:
    cluster = forgetful()
    node = cluster[3]
    node.start(must_rejoin=True)
    node.step(1, Heartbeat(1, 0, 1, False))
    node.step(1, RejoinReply(1, node.boot, 5))
    node.is_held = True
    node.step(1, Append(1, 3, 1, (Block(4, 2, 1, 2, payload=("c", "d")),), 0))
    assert node.written.last == 5
    assert node.raft.must_rejoin
    node.release()
    assert not node.raft.must_rejoin


def test_the_leader_forgets_what_the_node_had_confirmed() -> None:
    cluster = forgetful()
    assert min(cluster[1].raft.followers.values())[0] == 5
    cluster[3].start(must_rejoin=True)
    cluster.beat(1)
    cluster.deliver(to=3)
    cluster.deliver(to=1, kind=RejoinRequest)
    assert min(cluster[1].raft.followers.values())[0] == 0


def test_a_heartbeat_from_before_does_not_commit_what_may_not_be_the_leaders() -> None:
    cluster = forgetful(term=2)
    node = cluster[3]
    # What it forgot is that these entries of an earlier leader were replaced.
    node.durable.entries[:] = [Entry(index, 1, "never committed") for index in range(1, 6)]
    node.start(must_rejoin=True)
    node.step(1, Heartbeat(2, 5, 1, False))
    assert node.raft.log.commit == 0
    assert node.commands == ()
    cluster.advance(1000)
    assert node.commands == ("a", "b", "c", "d")


def test_a_rejoin_that_is_answered_after_the_entries_came_is_complete() -> None:
    cluster = forgetful()
    node = cluster[3]
    node.start(must_rejoin=True)
    cluster.beat(1)
    cluster.deliver(to=3)
    cluster.deliver(to=1)
    late = cluster.pick(kind=RejoinReply)
    assert late
    # Every other request to rejoin gets lost.
    for _ in range(10):
        cluster.drop(kind=(RejoinReply, RejoinRequest))
        cluster.deliver()
    assert node.raft.must_rejoin
    assert node.written.last == 5
    node.step(1, late[0].message)
    assert not node.raft.must_rejoin


def test_an_answer_to_an_earlier_start_does_not_count() -> None:
    cluster = forgetful()
    node = cluster[3]
    node.start(must_rejoin=True)
    node.step(1, Heartbeat(1, 0, 1, False))
    node.step(1, RejoinReply(1, node.boot - 1, 0))
    node.step(1, Append(1, 3, 1, (), 0))
    assert node.raft.must_rejoin
    node.step(1, RejoinReply(1, node.boot, 3))
    node.step(1, Append(1, 3, 1, (), 0))
    assert not node.raft.must_rejoin


def test_another_leader_is_asked_anew() -> None:
    cluster = forgetful()
    node = cluster[3]
    node.start(must_rejoin=True)
    node.step(1, Heartbeat(1, 0, 1, False))
    node.step(1, RejoinReply(1, node.boot, 3))
    node.step(2, Heartbeat(2, 0, 1, False))
    assert cluster.pick(to=2, kind=RejoinRequest)
    node.step(2, Append(2, 3, 1, (), 0))
    assert node.raft.must_rejoin


def test_it_rejoins_by_a_snapshot_as_well() -> None:
    cluster = forgetful(5)
    leader = cluster[1]
    leader.compact()
    cluster[3].start(must_rejoin=True)
    cluster.advance(1000)
    assert 3 in leader.wanted
    leader.offer(3)
    cluster.settle()
    cluster.advance(1000)
    assert not cluster[3].raft.must_rejoin
    assert cluster[3].commands == ("a", "b", "c", "d")


def test_it_rejoins_in_a_group_that_was_quiet() -> None:
    cluster = Cluster(3, options=RaftOptions(quiet_beats=3))
    cluster.elect(1)
    cluster.advance(5000)
    assert cluster[1].raft.is_quiet
    cluster[3].restart(must_rejoin=True)
    # The host sees the link break.
    cluster[1].suspect(3)
    cluster.settle()
    cluster.advance(5000)
    assert not cluster[3].raft.must_rejoin
    assert cluster[1].raft.is_quiet
