"""Changes of the members: joint consensus and learners (paper, 6; thesis, 4.2 and 4.3)."""

from __future__ import annotations

import pytest

from hub.raft.members import Members
from hub.raft.messages import Append, AppendReply, TransferNow, VoteRequest
from hub.raft.raft import Role
from tests.raft.cluster import Cluster, Node


def voters(*nodes: int) -> frozenset[int]:
    return frozenset(nodes)


def history(node: Node) -> list[Members]:
    """The members as they followed on each other in a node's log."""
    named = [entry.members for entry in node.written.entries if entry.members is not None]
    return [members for place, members in enumerate(named) if place == 0 or members != named[place - 1]]


def grown() -> Cluster:
    """Three voters, and nodes 4 and 5 that are started and belong to nobody."""
    cluster = Cluster(3)
    cluster.elect(1).propose("a")
    cluster.settle()
    cluster.add(4)
    cluster.add(5)
    return cluster


def test_4_3_a_change_passes_through_the_joint_state_and_out_of_it_by_itself() -> None:
    cluster = grown()
    leader = cluster[1]
    assert leader.change([1, 2, 3, 4, 5])
    assert leader.raft.members == Members(voters(1, 2, 3, 4, 5), outgoing=voters(1, 2, 3))
    cluster.settle()
    assert history(leader)[-2:] == [
        Members(voters(1, 2, 3, 4, 5), outgoing=voters(1, 2, 3)),
        Members(voters(1, 2, 3, 4, 5)),
    ]
    assert all(node.raft.members == leader.raft.members for node in cluster.nodes.values())
    assert cluster[5].commands == ("a",)


def test_4_3_three_voters_become_five_and_three_others_again() -> None:
    cluster = grown()
    cluster[1].change([1, 2, 3, 4, 5])
    cluster.settle()
    cluster[1].propose("b")
    cluster.settle()
    cluster[1].change([3, 4, 5])
    cluster.settle()
    cluster.advance(1000)
    leader = cluster.leader()
    assert leader.node in (3, 4, 5)
    assert leader.raft.members == Members(voters(3, 4, 5))
    leader.propose("c")
    cluster.settle()
    assert {cluster[node].commands for node in (3, 4, 5)} == {("a", "b", "c")}
    # The others may go now.
    cluster[1].crash()
    cluster[2].crash()
    leader.propose("d")
    cluster.settle()
    assert leader.commands[-1] == "d"


def test_6_in_the_joint_state_both_majorities_have_to_agree() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.change([1, 4, 5])
    # All of the new voters have it, but of those before only the leader.
    for other in (4, 5):
        leader.step(other, AppendReply(1, 3))
    assert leader.raft.log.commit == 2
    leader.step(2, AppendReply(1, 3))
    assert leader.raft.log.commit == 3


def test_6_in_the_joint_state_the_voters_before_alone_decide_nothing() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.change([1, 4, 5])
    for other in (2, 3):
        leader.step(other, AppendReply(1, 3))
    assert leader.raft.log.commit == 2
    leader.step(5, AppendReply(1, 3))
    assert leader.raft.log.commit == 3


def test_6_in_the_joint_state_an_election_needs_both_majorities() -> None:
    cluster = grown()
    cluster[1].change([1, 4, 5])
    # The joint state reaches everyone, its commit nobody.
    cluster.deliver(kind=Append)
    cluster.deliver(kind=AppendReply)
    cluster.deliver(sender=1, to=4, kind=Append)
    cluster.deliver(sender=1, to=5, kind=Append)
    cluster.flight.clear()
    cluster[1].crash()
    assert cluster[4].raft.members.is_joint
    # Of the voters before, only node 2 hears of node 4: that is no majority of them.
    cluster.part({2, 4, 5}, {3})
    cluster.now_ms += 3000
    for node in (2, 4, 5, 2, 4, 5):
        cluster.time_out(node)
        cluster.settle()
    assert not any(cluster[node].raft.role is Role.LEADER for node in (2, 3, 4, 5))
    cluster.part()
    cluster.advance(5000)
    assert cluster.leader().raft.members == Members(voters(1, 4, 5))


def test_6_a_leader_of_the_joint_state_that_falls_is_followed_by_one_that_ends_it() -> None:
    cluster = grown()
    cluster[1].change([1, 2, 3, 4, 5])
    # The joint state reaches everyone, the news that it did does not reach the leader.
    for node in (4, 5):
        while not cluster[node].raft.members.is_joint:
            assert cluster.deliver(sender=1, to=node) + cluster.deliver(sender=node)
    cluster.deliver(kind=Append)
    assert all(cluster[node].raft.members.is_joint for node in (2, 3, 4, 5))
    cluster.flight.clear()
    cluster[1].crash()
    cluster.advance(4000)
    assert cluster.leader().node != 1
    assert cluster.leader().raft.members == Members(voters(1, 2, 3, 4, 5))


def test_4_1_members_count_from_the_moment_they_are_in_the_log() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.change([1, 2, 3], learners=[4])
    assert [one.to for one in cluster.pick(kind=Append)] == [2, 3, 4]
    cluster.deliver(to=2, kind=Append)
    assert cluster[2].raft.members.learners == {4}
    assert cluster[2].raft.log.commit == 2


def test_4_1_an_uncommitted_change_is_rolled_back_with_its_entry() -> None:
    cluster = grown()
    old = cluster[1]
    cluster.part({1}, {2, 3, 4, 5})
    old.change([1, 4, 5])
    assert old.raft.members.is_joint
    cluster.elect(2)
    cluster.part()
    cluster.advance(2000)
    assert old.raft.role is Role.FOLLOWER
    assert old.raft.members == Members(voters(1, 2, 3))
    # By restarting it comes to the same.
    old.restart()
    assert old.raft.members == Members(voters(1, 2, 3))


def test_4_3_commands_before_a_change_are_committed_by_the_joint_state_and_do_not_end_it() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.propose("b")
    leader.change([1, 4, 5])
    # The command arrives, what follows gets lost.
    cluster.deliver(to=2, kind=Append, count=1)
    cluster.deliver(to=1)
    assert leader.commands == ("a",)
    cluster.drop(to=2, kind=Append)
    cluster.deliver(to=4)
    cluster.deliver(sender=4)
    leader.step(4, AppendReply(1, 3))
    assert leader.commands == ("a", "b")
    assert leader.raft.members.is_joint
    cluster.settle()
    cluster.advance(1000)
    assert leader.raft.members == Members(voters(1, 4, 5))


def test_4_1_one_change_at_a_time() -> None:
    cluster = grown()
    leader = cluster[1]
    assert leader.change([1, 2, 3, 4])
    assert not leader.change([1, 2, 3, 5])
    cluster.settle()
    assert leader.change([1, 2, 3, 4], learners=[5])
    assert not leader.change([1, 2, 3, 4])
    cluster.settle()
    assert leader.raft.members == Members(voters(1, 2, 3, 4), learners=voters(5))


def test_4_1_erratum_no_change_before_something_of_the_own_term_is_committed() -> None:
    cluster = Cluster(3)
    cluster.part({1, 2}, {3})
    cluster.now_ms = 2001
    cluster[1].tick()
    while cluster[1].raft.role is not Role.LEADER:
        assert cluster.deliver(count=1)
    assert not cluster[1].change([1, 2])
    cluster.settle()
    assert cluster[1].change([1, 2])


def test_only_a_leader_changes_members() -> None:
    cluster = grown()
    assert not cluster[2].change([1, 2])


def test_a_group_without_voters_and_voters_that_are_learners_are_refused_before_anything_happens() -> None:
    cluster = grown()
    for wrong in (([], []), ([1, 2], [2])):
        with pytest.raises(ValueError, match="vote"):
            cluster[1].change(*wrong)
    assert cluster[1].raft.members == Members(voters(1, 2, 3))
    assert cluster[1].change([1, 2])


def test_4_2_1_learners_get_everything_and_decide_nothing() -> None:
    cluster = Cluster(3, learners=[4, 5, 6])
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    assert cluster[6].commands == ("a",)
    cluster.part({1, 4, 5, 6}, {2}, {3})
    leader.propose("b")
    cluster.settle()
    assert cluster[4].written.last == 3
    assert leader.commands == ("a",)
    # Nor do they keep a leader in office.
    cluster.advance(2500)
    assert leader.raft.role is not Role.LEADER


def test_4_2_1_learners_hold_no_elections_and_are_asked_for_no_votes() -> None:
    cluster = Cluster(3, learners=[4])
    assert cluster[4].raft.due_ms is None
    cluster.now_ms = 10_000
    cluster[4].tick()
    assert cluster.flight == []
    cluster[1].tick()
    assert {one.to for one in cluster.pick(kind=VoteRequest)} == {2, 3}


def test_4_2_1_a_learner_becomes_a_voter_once_it_has_caught_up() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.change([1, 2, 3], learners=[4])
    cluster.settle()
    assert cluster[4].commands == ("a",)
    leader.change([1, 2, 3, 4])
    cluster.settle()
    assert cluster[4].raft.due_ms is not None
    cluster[1].crash()
    assert cluster.elect(4).raft.members == Members(voters(1, 2, 3, 4))


def test_a_voter_that_becomes_a_learner_decides_until_the_joint_state_ends() -> None:
    cluster = grown()
    leader = cluster[1]
    assert leader.change([1, 2], learners=[3])
    joint = Members(voters(1, 2), outgoing=voters(1, 2, 3), demoted=voters(3))
    assert leader.raft.members == joint
    assert joint.learners == voters()
    leader.step(3, AppendReply(1, 3))
    # Old voters 1 and 3 agree; of the new ones only node 1 does.
    assert leader.raft.log.commit == 2
    cluster.settle()
    assert leader.raft.members == Members(voters(1, 2), learners=voters(3))
    assert cluster[3].raft.due_ms is None


def test_4_2_2_a_leader_that_removes_itself_leads_until_that_is_committed_and_does_not_count_itself() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.change([2, 3])
    cluster.deliver(to=2, kind=Append)
    cluster.deliver(to=1)
    # The majority of those before is 1 and 2; of the new ones both are needed.
    assert leader.raft.log.commit == 2
    cluster.deliver(to=3, kind=Append)
    cluster.deliver(to=1)
    assert leader.raft.log.commit == 3
    assert leader.raft.role is Role.LEADER
    assert leader.propose("while it leaves") == 5
    cluster.settle()
    assert leader.raft.role is Role.FOLLOWER
    assert leader.raft.due_ms is None
    assert cluster.leader().node in (2, 3)
    assert cluster.leader().commands == ("a", "while it leaves")


def test_4_2_2_a_leader_that_removed_itself_hands_over_so_that_nobody_waits() -> None:
    cluster = grown()
    cluster[1].change([2, 3])
    before_ms = cluster.now_ms
    cluster.settle()
    assert cluster.now_ms == before_ms
    assert cluster.leader().node in (2, 3)
    assert cluster.leader().raft.term == 2


def test_a_leader_that_makes_itself_a_learner_follows() -> None:
    cluster = grown()
    cluster[1].change([2, 3], learners=[1])
    cluster.settle()
    leader = cluster.leader()
    assert leader.node in (2, 3)
    leader.propose("b")
    cluster.settle()
    assert cluster[1].commands == ("a", "b")
    assert cluster[1].raft.due_ms is None


def test_4_2_2_a_node_that_leaves_may_still_be_needed_to_lead() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.change([1, 2, 4])
    # Of the voters that are left only node 3 has the joint state, by which it is to leave.
    cluster.deliver(sender=1, to=3, kind=Append)
    cluster.flight.clear()
    leader.crash()
    assert cluster[3].raft.members.is_joint
    cluster.now_ms += 3000
    cluster.time_out(3)
    cluster.settle()
    # It ended the change that was begun, and itself with it.
    assert cluster.leaders[2] == 3
    assert cluster.leader().node in (2, 4)
    assert cluster.leader().raft.members == Members(voters(1, 2, 4))


def test_4_2_2_a_node_that_has_the_entry_by_which_it_left_may_lead_until_that_is_committed() -> None:
    cluster = grown()
    leader = cluster[1]
    leader.change([2, 3, 4])
    # The joint state is committed; the end of it reaches nobody but node 1, which is not part of it.
    while leader.raft.members.is_joint:
        assert cluster.deliver(count=1)
    cluster.flight.clear()
    leader.restart()
    assert leader.raft.members == Members(voters(2, 3, 4))
    assert leader.raft.log.possible_members[0].deciding >= {1}
    assert leader.raft.due_ms is not None
    cluster.now_ms += 3000
    cluster.time_out(1)
    cluster.settle()
    # It leads just long enough to commit that, and then another one does.
    assert cluster.leaders[2] == 1
    assert cluster.leader().node in (2, 3, 4)
    assert cluster.leader().raft.members == Members(voters(2, 3, 4))


def test_a_node_that_left_for_good_holds_no_elections() -> None:
    cluster = grown()
    cluster[1].change([1, 2])
    cluster.settle()
    cluster[1].change([1, 2, 3])
    cluster.settle()
    assert cluster[3].raft.due_ms is not None
    cluster[1].change([1, 2], learners=[3])
    cluster.settle()
    assert cluster[3].raft.due_ms is None


def test_a_node_that_left_is_sent_nothing_more_and_nobody_waits_for_it() -> None:
    cluster = grown()
    leader = cluster[1]
    cluster[3].crash()
    leader.change([1, 2])
    cluster.settle()
    leader.propose("b")
    cluster.beat(1)
    assert {one.to for one in cluster.flight} == {2}
    cluster.settle()
    assert min(leader.raft.followers.values())[0] == leader.raft.log.last


def test_a_group_of_one_grows_to_three_and_shrinks_to_another_one() -> None:
    cluster = Cluster(1)
    cluster[1].tick()
    cluster[1].propose("a")
    cluster.add(2)
    cluster.add(3)
    assert cluster[1].change([1, 2, 3])
    cluster.settle()
    assert cluster[1].change([3])
    cluster.settle()
    assert cluster[3].raft.role is Role.LEADER
    assert cluster[3].raft.members == Members(voters(3))
    cluster[3].propose("b")
    assert cluster[3].commands == ("a", "b")


def test_all_voters_can_be_replaced_at_once() -> None:
    cluster = grown()
    cluster.add(6)
    cluster[1].change([4, 5, 6])
    cluster.settle()
    for node in (1, 2, 3):
        cluster[node].crash()
    leader = cluster.leader()
    assert leader.node in (4, 5, 6)
    leader.propose("b")
    cluster.settle()
    assert {cluster[node].commands for node in (4, 5, 6)} == {("a", "b")}


def test_members_survive_compaction_and_restart() -> None:
    cluster = grown()
    cluster[1].change([1, 2, 3], learners=[4])
    cluster.settle()
    cluster[1].compact()
    assert cluster[1].written.entries == []
    cluster[1].restart()
    assert cluster[1].raft.members == Members(voters(1, 2, 3), learners=voters(4))


def test_every_term_begins_with_the_members() -> None:
    cluster = Cluster(3)
    for node in (1, 2, 3):
        cluster.elect(node)
    named = [entry.members for entry in cluster[3].written.entries]
    assert named == [cluster.members] * 3


def test_the_leader_that_left_hands_over_to_the_one_that_has_most() -> None:
    cluster = grown()
    cluster.part({1, 3, 4, 5})
    cluster[1].change([2, 3, 4])
    cluster.settle()
    sent = [one.to for one in cluster.pick(kind=TransferNow)]
    assert sent == []
    assert cluster.leader().node in (3, 4)
