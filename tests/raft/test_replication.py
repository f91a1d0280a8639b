"""The log: how it is replicated, repaired and committed (paper, 5.3, 5.4.2, 5.5; figures 7 and 8)."""

from __future__ import annotations

import pytest

from hub.raft.messages import Append, AppendReply, Block, Heartbeat, HeartbeatReply, VoteReply, VoteRequest
from hub.raft.raft import Role
from tests.raft.cluster import Cluster

# Figure 7 of the paper: a leader of term 8, and what its followers may have.
FIGURE_7_LEADER = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
FIGURE_7 = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


def entries(first: int, *terms: int) -> tuple[Block, ...]:
    return tuple(
        Block(index, 1, term, 3, payload=(f"{index}@{term}",)) for index, term in enumerate(terms, first)
    )


def test_5_3_a_command_is_committed_and_applied_once_a_majority_has_it() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    assert leader.propose("a") == 2
    assert cluster.deliver(to=2, kind=Append) == 1
    cluster.deliver(to=1)
    assert leader.commands == ()
    cluster.deliver(to=3, kind=Append)
    cluster.deliver(to=1)
    assert leader.commands == ("a",)
    cluster.settle()
    assert {node.commands for node in cluster.nodes.values()} == {("a",)}


def test_5_3_followers_that_are_slow_or_away_do_not_hinder_and_get_everything_later() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster[3].crash()
    for number in range(5):
        leader.propose(f"{number}")
        cluster.settle()
    assert leader.commands == cluster[2].commands == ("0", "1", "2", "3", "4")
    cluster[3].start()
    cluster.advance(2000)
    assert cluster[3].commands == leader.commands


def test_5_3_only_a_leader_takes_commands() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    assert cluster[2].propose("a") is None
    assert cluster[2].written.last == 1


@pytest.mark.parametrize(
    ("log", "prev", "reply"),
    [
        # It has nothing, or not as much: the leader may go on behind the end.
        ([], (2, 2), AppendReply(3, 2, True, 0, 0)),
        ([1], (2, 2), AppendReply(3, 2, True, 1, 1)),
        # It has an entry of an earlier term there: all entries of that term may be the leader's.
        ([1, 1], (2, 2), AppendReply(3, 2, True, 2, 1)),
        # It has one of a later term there: none of that term can be.
        ([1, 2, 2, 2], (3, 1), AppendReply(3, 3, True, 1, 1)),
        ([1, 2], (2, 2), AppendReply(3, 2)),
        ([1, 2, 2], (2, 2), AppendReply(3, 2)),
        ([1, 2, 2], (0, 0), AppendReply(3, 0)),
    ],
)
def test_5_3_a_follower_takes_entries_only_behind_one_it_has_and_says_what_it_has(
    log: list[int], prev: tuple[int, int], reply: AppendReply
) -> None:
    cluster = Cluster(3, logs={1: log})
    cluster[1].step(2, Append(3, *prev, (), 0))
    assert [envelope.message for envelope in cluster.flight] == [reply]
    assert cluster[1].written.terms() == log


@pytest.mark.parametrize(
    ("prev", "new", "log"),
    [
        ((2, 2), (3,), [1, 2, 3]),
        ((1, 1), (3, 4), [1, 3, 4]),
        ((0, 0), (2, 2), [2, 2]),
        ((0, 0), (1,), [1, 2]),
        ((0, 0), (1, 2), [1, 2]),
        ((0, 0), (1, 2, 3), [1, 2, 3]),
        ((1, 1), (2,), [1, 2]),
    ],
)
def test_5_3_entries_in_conflict_are_replaced_and_others_stay(
    prev: tuple[int, int], new: tuple[int, ...], log: list[int]
) -> None:
    cluster = Cluster(3, logs={1: [1, 2]}, terms={1: 4})
    cluster[1].step(2, Append(4, *prev, entries(prev[0] + 1, *new), 0))
    assert cluster[1].durable.terms() == log
    # It confirms what the message says, and no more: what lies behind may not be the leader's.
    assert cluster.flight[-1].message == AppendReply(4, prev[0] + len(new))


def test_5_3_a_late_message_does_not_cut_off_what_came_after_it() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    late = cluster.pick(to=2, kind=Append)[0].message
    cluster.settle()
    leader.propose("b")
    cluster.settle()
    cluster[2].step(1, late)
    assert cluster[2].commands == ("a", "b")
    assert cluster[2].written.last == 3


def test_5_3_a_follower_confirms_what_is_committed_even_if_it_has_only_the_state_of_it() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    for command in "abcd":
        leader.propose(command)
        cluster.settle()
    cluster[2].compact(4)
    # Late messages speak of what is forgotten, and of what is committed.
    cluster[2].step(1, Append(1, 1, 1, entries(2, 1, 1), 2))
    cluster[2].step(1, Append(1, 3, 1, entries(4, 1, 1), 5))
    cluster[2].step(1, Append(1, 2, 1, (), 2))
    assert [one.message for one in cluster.flight] == [AppendReply(1, 5)] * 3
    assert cluster[2].commands == ("a", "b", "c", "d")


@pytest.mark.parametrize("commit", [0, 1, 2, 3, 4])
def test_5_3_a_follower_commits_what_it_knows_to_be_the_leaders(commit: int) -> None:
    cluster = Cluster(3, logs={1: [1, 1, 1]}, terms={1: 2})
    cluster[1].step(2, Append(2, 1, 1, entries(2, 1), commit))
    # The third entry is there, but nobody said that it is the leader's.
    assert cluster[1].raft.log.commit == min(commit, 2)


@pytest.mark.parametrize("name", FIGURE_7)
def test_5_3_figure_7_every_follower_gets_the_log_of_the_leader(name: str) -> None:
    logs = {1: FIGURE_7_LEADER, 2: FIGURE_7[name], 3: FIGURE_7_LEADER}
    cluster = Cluster(3, logs=logs, terms=dict.fromkeys(logs, 7))
    # The follower may be ahead and not vote for it: the third node does.
    leader = cluster.elect(1)
    assert leader.raft.term == 8
    leader.propose("new")
    cluster.settle()
    cluster.advance(1000)
    assert cluster[2].durable.terms() == [*FIGURE_7_LEADER, 8, 8]
    assert cluster[2].commands == leader.commands


@pytest.mark.parametrize(("name", "questions"), [("a", 1), ("b", 1), ("c", 0), ("d", 0), ("e", 1), ("f", 1)])
def test_5_3_figure_7_a_conflict_costs_one_question_per_term_at_most(name: str, questions: int) -> None:
    logs = {1: FIGURE_7_LEADER, 2: FIGURE_7[name], 3: FIGURE_7_LEADER}
    cluster = Cluster(3, logs=logs, terms=dict.fromkeys(logs, 7))
    # The same question may be asked again when a heartbeat is answered.
    refused: set[AppendReply] = set()
    cluster.now_ms = 2001
    cluster[1].tick()
    while cluster.flight:
        message = cluster.flight[0].message
        if isinstance(message, AppendReply) and message.is_refused:
            refused.add(message)
        cluster.deliver(count=1)
    assert len(refused) == questions


def test_5_3_log_matching_when_terms_alternate_each_question_skips_a_term() -> None:
    ours = [term for term in range(1, 40, 2) for _ in range(5)]
    theirs = [1] * 5 + [term for term in range(2, 40, 2) for _ in range(5)]
    logs = {1: ours, 2: theirs, 3: ours}
    cluster = Cluster(3, logs=logs, terms=dict.fromkeys(logs, 40))
    leader = cluster.elect(1)
    assert cluster[2].durable.terms() == [*ours, 41]
    assert cluster[2].commands == leader.commands


def test_5_4_2_entries_of_earlier_terms_are_committed_only_with_one_of_the_own_term() -> None:
    cluster = Cluster(3, logs={1: [1, 2], 2: [1, 2], 3: [1]}, terms={1: 2, 2: 2, 3: 2})
    leader = cluster[1]
    cluster.now_ms = 2001
    leader.tick()
    cluster.deliver()
    cluster.deliver()
    leader.step(2, VoteReply(3, is_trial=False, is_granted=True))
    assert leader.raft.role is Role.LEADER
    # A majority has the entry of term 2, and the leader hears of it.
    leader.step(3, AppendReply(3, 2))
    leader.step(2, AppendReply(3, 2))
    assert leader.raft.log.commit == 0
    leader.step(2, AppendReply(3, 3))
    assert leader.raft.log.commit == 3


def test_5_4_2_figure_8_an_entry_on_a_majority_may_be_replaced_until_one_of_the_own_term_is() -> None:
    # (c): S1 leads again in term 4, and its entry of term 2 is on a majority.
    logs = {1: [1, 2], 2: [1, 2], 3: [1, 2], 4: [1], 5: [1, 3]}
    cluster = Cluster(5, logs=logs, terms={1: 3, 2: 3, 3: 3, 4: 3, 5: 3})
    cluster.part({1, 2, 3, 4}, {5})
    cluster.now_ms = 2001
    cluster[1].tick()
    cluster.deliver(kind=VoteRequest)
    cluster.deliver(kind=VoteReply)
    cluster.deliver(kind=VoteRequest)
    cluster.deliver(kind=VoteReply)
    assert (cluster[1].raft.role, cluster[1].raft.term) == (Role.LEADER, 4)
    # Its own entry of term 4 reaches nobody.
    assert cluster.drop(kind=Append) == 4
    cluster.flight.clear()
    assert cluster[1].raft.log.commit == 0
    cluster[1].crash()
    # (d): S5 wins with the votes of S2, S3 and S4, and replaces the entry of term 2 everywhere.
    cluster.part()
    cluster.now_ms += 3000
    cluster[5].tick()
    cluster.settle()
    if cluster[5].raft.role is not Role.LEADER:
        # It first has to hear of term 4.
        cluster.elect(5)
    cluster[1].start()
    cluster.advance(3000)
    assert cluster.leader().node == 5
    term = cluster[5].raft.term
    assert cluster.logs() == {node: [1, 3, term] for node in range(1, 6)}


def test_5_4_2_figure_8_once_an_entry_of_the_own_term_is_on_a_majority_all_before_it_stay() -> None:
    logs = {1: [1, 2], 2: [1, 2], 3: [1], 4: [1], 5: [1, 3]}
    cluster = Cluster(5, logs=logs, terms={1: 3, 2: 3, 3: 3, 4: 3, 5: 3})
    cluster.part({1, 2, 3}, {4}, {5})
    # (e): S1 leads in term 4 and gets its own entry to S2 and S3.
    cluster.now_ms = 2001
    cluster[1].tick()
    cluster.settle()
    assert cluster[1].raft.log.commit == 3
    cluster[1].crash()
    cluster.part()
    # S5 cannot win any more.
    for _ in range(3):
        cluster.now_ms += 3000
        cluster[5].tick()
        cluster.settle()
        assert cluster[5].raft.role is not Role.LEADER
    cluster.advance(5000)
    assert cluster.leader().node in (2, 3)
    assert cluster.logs()[5][:3] == [1, 2, 4]


def test_5_4_3_a_new_leader_has_whatever_was_committed_before() -> None:
    cluster = Cluster(5)
    expected: tuple[str, ...] = ()
    for number in range(20):
        leader = cluster.elect(1 + number % 5)
        # Two nodes, other ones each time, hear nothing of it.
        away = {1 + (number + 1) % 5, 1 + (number + 2) % 5}
        cluster.part(set(cluster.nodes) - away, away)
        leader.propose(f"{number}")
        cluster.settle()
        expected += (f"{number}",)
        assert leader.commands == expected
        cluster.part()
        cluster.now_ms += 3000
        leader.restart()
        cluster.advance(4000)
    assert all(node.commands == expected for node in cluster.nodes.values())


def test_5_5_messages_that_come_twice_or_in_another_order_change_nothing() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    for number in range(6):
        leader.propose(f"{number}")
    for _ in range(3):
        cluster.deliver(keep=True)
        cluster.flight.reverse()
        del cluster.flight[60:]
    cluster.settle()
    cluster.advance(2000)
    assert {node.commands for node in cluster.nodes.values()} == {("0", "1", "2", "3", "4", "5")}


def test_5_5_a_follower_that_crashes_before_its_disk_has_an_entry_did_not_confirm_it() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster[3].crash()
    cluster[2].is_held = True
    leader.propose("a")
    cluster.settle()
    assert leader.commands == ()
    cluster[2].restart()
    cluster[2].release()
    assert cluster[2].written.last == 1
    cluster.advance(1000)
    assert leader.commands == cluster[2].commands == ("a",)


def test_a_new_leader_tells_what_is_committed_without_waiting_for_a_command() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    # The entry arrives everywhere, the news of its commit nowhere.
    cluster.deliver(kind=Append)
    cluster.flight.clear()
    leader.crash()
    cluster.elect(2)
    assert cluster[2].commands == cluster[3].commands == ("a",)


def test_a_heartbeat_tells_what_is_committed_only_as_far_as_the_follower_is_known_to_have_it() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.part({1, 2}, {3})
    leader.propose("a")
    cluster.settle()
    cluster.beat(1)
    told = {one.to: one.message.commit for one in cluster.pick(kind=Heartbeat)}
    assert told == {2: 2, 3: 1}


def test_commits_are_told_by_heartbeats_if_the_news_got_lost() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.deliver(kind=Append)
    cluster.deliver(kind=AppendReply)
    assert cluster.drop(kind=Append) == 2
    assert cluster[2].commands == ()
    cluster.beat(1)
    assert cluster.deliver(kind=Heartbeat) == 2
    assert cluster[2].commands == ("a",)
    assert cluster.deliver(kind=HeartbeatReply) == 2


def test_a_deposed_leader_gives_up_what_it_did_not_commit() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.part({1}, {2, 3})
    assert leader.propose("lost", "also lost") == 2
    cluster.flight.clear()
    cluster.elect(2).propose("kept")
    cluster.settle()
    cluster.part()
    cluster.advance(3000)
    assert leader.raft.role is Role.FOLLOWER
    assert {node.commands for node in cluster.nodes.values()} == {("kept",)}
    assert leader.durable.terms() == cluster[2].durable.terms()
