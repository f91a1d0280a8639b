"""Several Readies under way, and what is known to be durable when entries are replaced between them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub.raft.log import Log, Recovered
from hub.raft.members import Members
from hub.raft.messages import Append, AppendReply, Block, HardState, Snapshot, SnapshotPart
from hub.raft.ready import Ready
from hub.raft.worklist import Worklist, front_of, rest_of
from tests.raft.cluster import Cluster
from tests.raft.journal import Journal

MEMBERS = Members(frozenset((1, 2, 3)))
STATE = HardState(1, 0)


def block(first: int, *commands: str, term: int = 1) -> Block:
    return Block(first, len(commands), term, len(commands), payload=commands)


def worklist() -> Worklist:
    return Worklist(Log(Recovered(0, 0, MEMBERS)), STATE)


def test_what_was_taken_is_durable_once_it_is_confirmed() -> None:
    work = worklist()
    work.append(block(1, "a", "b"))
    one = work.take(STATE)
    work.append(block(3, "c"))
    other = work.take(STATE)
    assert (one.number, one.last_index, other.number, other.last_index) == (1, 2, 2, 3)
    assert work.log.stable == 0
    work.persisted(one)
    assert work.log.stable == 2
    work.persisted(other)
    assert work.log.stable == 3


def test_a_later_ready_that_is_confirmed_confirms_those_before_it() -> None:
    work = worklist()
    work.append(block(1, "a"))
    work.take(STATE)
    work.append(block(2, "b"))
    work.persisted(work.take(STATE))
    assert work.log.stable == 2


def test_entries_that_were_replaced_are_not_durable_when_the_first_ones_are() -> None:
    work = worklist()
    work.append(block(1, "a", "b", "c"))
    before = work.take(STATE)
    work.truncate(2)
    work.append(block(2, "x", "y", term=2))
    after = work.take(STATE)
    assert (after.truncate_from, [one.first for one in after.append]) == (2, [2])
    work.persisted(before)
    # Entries 2 and 3 of that Ready are others than those in the log now.
    assert work.log.stable == 1
    work.persisted(after)
    assert work.log.stable == 3


def test_entries_replaced_twice_are_durable_with_the_last_ready_only() -> None:
    work = worklist()
    work.append(block(1, "a", "b", "c", "d"))
    readies = [work.take(STATE)]
    work.truncate(2)
    work.append(block(2, "x", "y", "z", term=2))
    readies.append(work.take(STATE))
    work.truncate(4)
    work.append(block(4, "w", term=3))
    readies.append(work.take(STATE))
    for ready, stable in zip(readies, (1, 1, 4), strict=True):
        work.persisted(ready)
        assert work.log.stable == stable


def test_entries_that_nobody_took_are_cut_off_without_a_word() -> None:
    work = worklist()
    work.append(block(1, "a"))
    work.take(STATE)
    work.append(block(2, "b", "c", "d"))
    work.truncate(3)
    ready = work.take(STATE)
    assert ready.truncate_from is None
    assert ready.append == [Block(2, 1, 1, 3, payload=("b",))]


def test_the_lowest_of_several_cuts_counts() -> None:
    work = worklist()
    work.append(block(1, "a", "b", "c", "d"))
    work.take(STATE)
    work.truncate(4)
    work.append(block(4, "x", term=2))
    work.truncate(2)
    work.append(block(2, "y", term=3))
    ready = work.take(STATE)
    assert ready.truncate_from == 2
    assert ready.append == [block(2, "y", term=3)]


def test_a_snapshot_takes_the_place_of_all_that_was_under_way() -> None:
    work = worklist()
    work.append(block(1, "a", "b"))
    before = work.take(STATE)
    work.append(block(3, "c"))
    snapshot = Snapshot(9, 2, MEMBERS, 1, 1)
    work.keep_part(SnapshotPart(2, snapshot, 0, 1, b"x"))
    work.install(snapshot)
    work.append(block(10, "d", term=2))
    ready = work.take(STATE)
    assert (ready.install, ready.truncate_from) == (snapshot, None)
    assert ready.append == [block(10, "d", term=2)]
    work.persisted(before)
    assert work.log.stable == 9
    work.persisted(ready)
    assert work.log.stable == 10


def test_entries_behind_a_snapshot_are_not_durable_when_others_of_their_index_are() -> None:
    work = worklist()
    work.append(block(1, "a", "b", "c", "d", "e"))
    before = work.take(STATE)
    snapshot = Snapshot(2, 2, MEMBERS, 1, 1)
    work.keep_part(SnapshotPart(2, snapshot, 0, 1, b"x"))
    work.install(snapshot)
    work.append(block(3, "x", "y", term=2))
    after = work.take(STATE)
    work.persisted(before)
    assert work.log.stable == 2
    work.persisted(after)
    assert work.log.stable == 4


def test_the_hard_state_is_told_when_it_changes_and_only_then() -> None:
    work = worklist()
    assert work.take(STATE).hard_state is None
    assert work.take(HardState(2, 0)).hard_state == HardState(2, 0)
    assert work.take(HardState(2, 0)).hard_state is None
    assert work.take(HardState(2, 3)).hard_state == HardState(2, 3)


def test_only_what_is_written_needs_a_sync() -> None:
    work = worklist()
    work.send(2, AppendReply(1, 0))
    work.answer_read(1, 1)
    assert not work.take(STATE).needs_sync
    work.append(block(1, "a"))
    assert work.take(STATE).needs_sync
    work.truncate(1)
    assert work.take(STATE).needs_sync
    assert work.take(HardState(2, 0)).needs_sync


def test_only_entries_that_are_committed_and_durable_are_to_be_applied_and_each_once() -> None:
    work = worklist()
    work.append(block(1, "a", "b", "c"))
    ready = work.take(STATE)
    work.log.commit = 2
    assert work.take(STATE).apply_to == 0
    work.persisted(ready)
    assert work.take(STATE).apply_to == 2
    assert work.take(STATE).apply_to == 0


def test_blocks_are_cut_with_their_commands() -> None:
    whole = block(5, "a", "b", "c")
    assert rest_of(whole, 5) is whole
    assert (rest_of(whole, 6).first, rest_of(whole, 6).count, rest_of(whole, 6).payload) == (6, 2, ("b", "c"))
    assert (front_of(whole, 1).last, front_of(whole, 1).payload) == (5, ("a",))
    bare = Block(5, 3, 1, 9)
    assert rest_of(bare, 7) == Block(7, 1, 1, 9)
    assert front_of(bare, 2) == Block(5, 2, 1, 9)


@given(st.data())
def test_what_is_handed_out_gives_the_same_log_and_stable_never_lies(data: st.DataObject) -> None:
    """Whatever is appended, cut, installed, taken and confirmed: a disk has what the log says it has."""
    work = worklist()
    written, disk = Journal(MEMBERS), Journal(MEMBERS)
    pending: list[Ready] = []
    term, serial = 1, 0
    for _ in range(data.draw(st.integers(1, 25))):
        log = work.log
        step = data.draw(st.sampled_from(("append", "append", "cut", "commit", "install", "take", "sync")))
        if step == "append":
            count = data.draw(st.integers(1, 3))
            commands = tuple(f"{serial + place}" for place in range(count))
            serial += count
            work.append(Block(log.last + 1, count, term, count, payload=commands))
        elif step == "cut" and log.last > log.commit:
            term += 1
            work.truncate(data.draw(st.integers(log.commit + 1, log.last)))
        elif step == "commit" and log.last > log.commit:
            log.commit = data.draw(st.integers(log.commit, log.last))
        elif step == "install":
            term += 1
            snapshot = Snapshot(log.commit + data.draw(st.integers(1, 5)), term, MEMBERS, 5, term)
            work.keep_part(SnapshotPart(term, snapshot, 0, 5, b"state"))
            work.install(snapshot)
        elif step == "take":
            pending.append(work.take(STATE))
            written.carry_out(pending[-1])
            assert (written.base_index, written.last) == (log.base_index, log.last)
        elif step == "sync" and pending:
            ready = pending.pop(0)
            disk.carry_out(ready)
            work.persisted(ready)
            if disk.base_index == log.base_index:
                # Up to there the disk has what the node would have written if it had been asked.
                assert log.stable <= disk.last
                upto = log.stable - disk.base_index
                assert disk.terms()[:upto] == [log.term(disk.base_index + place + 1) for place in range(upto)]
            else:
                # The snapshot is not there yet, so nothing that follows on it is.
                assert log.stable == log.base_index
    for ready in [*pending, work.take(STATE)]:
        disk.carry_out(ready)
        work.persisted(ready)
    assert work.log.stable == work.log.last == disk.last
    assert disk.terms() == [work.log.term(entry.index) for entry in disk.entries]


def test_readies_pipelined_with_a_cut_between_confirm_nothing_too_early() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    follower = cluster[2]
    follower.is_held = True
    cluster[1].propose("a", "b")
    cluster.deliver(to=2)
    cluster.flight.clear()
    # The next leader has other entries there.
    later = Append(2, 1, 1, (Block(2, 2, 2, 2, payload=("x", "y")),), 3)
    follower.step(3, later)
    assert follower.raft.log.commit == 3
    assert len(follower.unsynced) == 2
    follower.sync(1)
    assert follower.durable.terms() == [1, 1, 1]
    assert follower.applied == 1
    assert [one.message for one in cluster.flight] == [AppendReply(1, 3)]
    follower.release()
    assert follower.durable.terms() == [1, 2, 2]
    assert follower.commands == ("x", "y")
    assert cluster.flight[-1].message == AppendReply(2, 3)


def test_a_crash_between_two_pipelined_readies_leaves_the_first() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    follower = cluster[2]
    follower.is_held = True
    for command in "ab":
        cluster[1].propose(command)
        cluster.deliver(to=2)
    follower.sync(1)
    follower.restart()
    assert follower.durable.last == 2
    follower.release()
    cluster.advance(1000)
    assert follower.commands == ("a", "b")
