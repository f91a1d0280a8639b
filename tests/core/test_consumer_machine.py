"""The state of one consumer: handing out, settling, the floor, and what a replay makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.commands import Dispatch
from edged.core.consumer_machine import ACK, ACK_ALL, GIVEN_UP, TERM, ConsumerMachine, Pending, Position

NOW_NS = 1_800_000_000 * 10**9


def consumer(ack_policy: str = "explicit", start: int = 1, **config: Any) -> ConsumerMachine:
    machine = ConsumerMachine(1, "c", {"ack_policy": ack_policy, **config})
    machine.start_at(start)
    return machine


def dispatch(seqs: Sequence[int], first: int, ts_ns: int = NOW_NS) -> Dispatch:
    return Dispatch(1, ts_ns, tuple(seqs), first)


def stored_and_read(machine: ConsumerMachine) -> ConsumerMachine:
    return ConsumerMachine.restore(1, msgpack.unpackb(msgpack.packb(machine.snapshot())))


def figures(machine: ConsumerMachine) -> tuple[object, ...]:
    return machine.delivered, machine.ack_floor, machine.pending, machine.deliveries, list(machine.chosen)


# --- handing out ---


def test_every_delivery_has_the_next_consumer_seq() -> None:
    machine = consumer()
    assert machine.hand_out([3, 4, 7], NOW_NS) == 1
    assert machine.hand_out_again([4, 3], NOW_NS + 1) == 4
    assert machine.hand_out([9], NOW_NS + 2) == 6
    assert machine.delivered == Position(6, 9)
    assert machine.last_delivered_ns == NOW_NS + 2
    assert machine.pending == {
        3: Pending(1, NOW_NS + 1),
        4: Pending(2, NOW_NS + 1),
        7: Pending(3, NOW_NS),
        9: Pending(6, NOW_NS + 2),
    }
    assert [machine.delivery_count(seq) for seq in (3, 4, 7)] == [2, 2, 1]
    assert machine.deliveries == {4: 2, 3: 2}


def test_without_acknowledgements_nothing_is_pending() -> None:
    machine = consumer("none")
    machine.hand_out([1, 2, 5], NOW_NS)
    assert not machine.pending and machine.ack_floor == machine.delivered == (3, 5)
    assert machine.settle(ACK, [5]) == []


def test_messages_are_handed_out_in_order() -> None:
    machine = consumer()
    machine.hand_out([4], NOW_NS)
    with pytest.raises(AssertionError):
        machine.hand_out([4], NOW_NS)


# --- the floor, as nats-server shows it ---


def test_floor_follows_the_lowest_pending_message() -> None:
    machine = consumer()
    machine.hand_out([1, 2, 3, 4], NOW_NS)
    assert machine.ack_floor == (0, 0)
    machine.settle(ACK, [2])
    assert machine.ack_floor == (0, 0)
    machine.settle(ACK, [1])
    assert machine.ack_floor == (2, 2)
    machine.settle(TERM, [4, 3])
    assert machine.ack_floor == (4, 4)


def test_floor_does_not_pass_over_foreign_messages_before_an_acknowledgement() -> None:
    machine = consumer()
    machine.hand_out([3, 6, 9], NOW_NS)
    assert machine.ack_floor == (0, 0)
    machine.settle(ACK, [3])
    assert machine.ack_floor == (1, 5)
    machine.settle(ACK, [6, 9])
    assert machine.ack_floor == (3, 9)
    machine.hand_out([20, 21], NOW_NS)
    assert machine.ack_floor == (3, 9)


def test_floor_counts_the_first_delivery_of_a_message() -> None:
    machine = consumer()
    machine.hand_out([1, 2], NOW_NS)
    machine.hand_out_again([1], NOW_NS)
    machine.hand_out([3], NOW_NS)
    machine.settle(ACK, [1])
    assert machine.ack_floor == (1, 1)
    machine.settle(ACK, [2])
    assert machine.ack_floor == (3, 2)
    machine.settle(ACK, [3])
    assert machine.ack_floor == (4, 3)


def test_acknowledging_all_settles_what_came_before() -> None:
    machine = consumer("all")
    machine.hand_out([2, 4, 6, 8], NOW_NS)
    machine.hand_out_again([4], NOW_NS)
    assert machine.settle(ACK_ALL, [5]) == [2, 4]
    assert (list(machine.pending), machine.deliveries, machine.ack_floor) == ([6, 8], {}, (2, 5))
    assert machine.settle(ACK_ALL, [4]) == []
    assert machine.ack_floor == (2, 5)
    assert machine.settle(ACK_ALL, [8]) == [6, 8]
    assert machine.ack_floor == (5, 8)


# --- settling ---


def test_second_acknowledgement_settles_nothing() -> None:
    machine = consumer()
    machine.hand_out([1, 2], NOW_NS)
    assert machine.settle(ACK, [2]) == [2]
    assert machine.settle(ACK, [2]) == []
    assert machine.is_settled(2) and not machine.is_settled(1)


def test_given_up_message_is_not_pending_but_known_until_it_is_settled() -> None:
    machine = consumer(max_deliver=1)
    machine.hand_out([1, 2], NOW_NS)
    assert machine.settle(GIVEN_UP, [1]) == [1]
    assert (list(machine.pending), machine.deliveries, machine.needs(1)) == ([2], {1: 1}, True)
    assert sorted(machine.held()) == [1, 2]
    assert machine.settle(ACK, [1]) == [1]
    assert not machine.needs(1) and machine.deliveries == {}


def test_given_up_message_holds_the_floor_until_all_others_are_settled() -> None:
    machine = consumer()
    machine.hand_out([1, 2, 3], NOW_NS)
    machine.settle(GIVEN_UP, [2])
    assert machine.ack_floor == (0, 0)
    machine.settle(ACK, [1])
    assert machine.ack_floor == (2, 2)
    machine.hand_out([4, 5], NOW_NS)
    machine.settle(GIVEN_UP, [3])
    machine.settle(ACK, [4])
    machine = stored_and_read(machine)
    assert machine.ack_floor == (2, 2)
    machine.settle(ACK, [3])
    assert machine.ack_floor == (2, 2)
    machine.settle(ACK, [5])
    assert machine.ack_floor == (5, 5)


def test_chosen_message_that_goes_is_not_waited_for() -> None:
    machine = consumer(deliver_policy="last_per_subject")
    machine.start_at(3, [3, 6, 8], 9)
    assert machine.drop([6]) == []
    assert list(machine.chosen) == [3, 8] and not machine.needs(6)
    machine.drop_below(4)
    assert list(machine.chosen) == [8]


def test_chosen_message_that_was_acknowledged_before_its_dispatch_is_not_handed_out() -> None:
    machine = consumer(deliver_policy="last_per_subject")
    machine.start_at(3, [3, 6, 8], 9)
    assert machine.settle(ACK, [6]) == [6]
    assert list(machine.chosen) == [3, 8]
    machine.dispatched(dispatch([3, 6], 1))
    assert (list(machine.pending), list(machine.chosen)) == ([3], [8])


def test_message_that_is_gone_is_told_with_its_deliveries() -> None:
    machine = consumer()
    machine.hand_out([1, 2, 3], NOW_NS)
    machine.hand_out_again([2], NOW_NS)
    assert [(one.seq, one.pending.consumer_seq, one.deliveries) for one in machine.drop([2, 9])] == [
        (2, 2, 2)
    ]
    assert [one.seq for one in machine.drop_below(3)] == [1]
    assert (list(machine.pending), machine.ack_floor) == ([3], (2, 2))


def test_given_up_messages_are_forgotten_when_the_stream_begins_behind_them() -> None:
    machine = consumer()
    machine.hand_out(range(1, 6), NOW_NS)
    machine.settle(GIVEN_UP, [1, 3, 5])
    assert machine.drop_below(4)[0].seq == 2
    assert machine.deliveries == {5: 1}


def test_ten_thousand_settled_out_of_order_leave_nothing_behind() -> None:
    machine = consumer()
    machine.hand_out(range(1, 10_002), NOW_NS)
    for seq in range(10_001, 1, -1):
        machine.settle(ACK, [seq])
    assert (list(machine.pending), machine.ack_floor) == ([1], (0, 0))
    assert len(machine._order) < 2000
    machine.settle(ACK, [1])
    assert machine.ack_floor == (10_001, 10_001)


# --- what the journal says ---


def test_dispatch_that_was_handed_out_here_changes_nothing() -> None:
    machine = consumer()
    first = machine.hand_out([1, 2], NOW_NS)
    before = figures(machine)
    assert not machine.dispatched(dispatch([1, 2], first))
    assert figures(machine) == before


def test_dispatch_from_before_a_restart_makes_the_same_state() -> None:
    machine, replayed = consumer(), consumer()
    commands = [
        dispatch([2, 3, 5], machine.hand_out([2, 3, 5], NOW_NS)),
        dispatch([5, 2], machine.hand_out_again([5, 2], NOW_NS + 5), NOW_NS + 5),
        dispatch([8], machine.hand_out([8], NOW_NS + 9), NOW_NS + 9),
    ]
    for command in commands:
        assert replayed.dispatched(command)
    assert figures(replayed) == figures(machine)


def test_dispatch_that_is_known_in_part_adds_the_rest() -> None:
    machine = consumer()
    machine.hand_out([1, 2], NOW_NS)
    assert machine.dispatched(dispatch([2, 4, 5], 2))
    assert (machine.delivered, list(machine.pending)) == ((4, 5), [1, 2, 4, 5])


def test_redelivery_behind_its_acknowledgement_does_not_bring_the_message_back() -> None:
    machine = consumer()
    machine.dispatched(dispatch([1, 2], 1))
    machine.settle(ACK, [1])
    assert machine.dispatched(dispatch([1], 3))
    assert (machine.delivered, list(machine.pending), machine.deliveries) == ((3, 2), [2], {})


def test_acknowledgement_before_its_dispatch_settles_the_message() -> None:
    machine = consumer()
    assert machine.settle(ACK, [3]) == [3]
    assert machine.settle(ACK, [3]) == []
    assert machine.is_settled(3) and not machine.is_settled(2) and not machine.needs(3)
    machine = stored_and_read(machine)
    machine.dispatched(dispatch([2, 3, 4], 1))
    assert (list(machine.pending), machine.delivered) == ([2, 4], (3, 4))


def test_acknowledgement_of_all_before_its_dispatch_passes_over_everything() -> None:
    machine = consumer("all")
    assert machine.settle(ACK_ALL, [3]) == []
    assert (machine.delivered, machine.ack_floor) == ((0, 3), (0, 3))
    machine.dispatched(dispatch([2, 3, 4], 1))
    assert (list(machine.pending), machine.delivered) == ([4], (3, 4))
    machine = consumer("all", deliver_policy="last_per_subject")
    machine.start_at(3, [3, 6, 8], 9)
    machine.settle(ACK_ALL, [6])
    assert list(machine.chosen) == [8]


def test_lost_dispatch_leaves_a_gap_and_no_more() -> None:
    machine = consumer()
    machine.dispatched(dispatch([1], 1))
    assert machine.dispatched(dispatch([7, 8], 5))
    assert (machine.delivered, machine.pending[7].consumer_seq) == ((6, 8), 5)


def test_dispatch_that_did_not_count_is_taken_as_the_next() -> None:
    machine = consumer()
    machine.dispatched(dispatch([1, 2], 0))
    machine.dispatched(dispatch([2], 0))
    assert (machine.delivered, machine.deliveries) == ((3, 2), {2: 2})


# --- beginning again ---


def test_reset_begins_again_and_forgets_what_was_pending() -> None:
    machine = consumer()
    machine.hand_out([1, 2, 3], NOW_NS)
    machine.settle(ACK, [1])
    assert machine.reset(0) == 2
    assert figures(machine) == ((0, 1), (0, 1), {}, {}, [])
    assert machine.last_delivered_ns == 0
    assert machine.reset(3) == 3 and machine.next_seq == 3


def test_what_was_under_way_when_it_was_reset_is_void() -> None:
    machine = consumer()
    machine.hand_out([1, 2, 3], NOW_NS)
    machine.reset(1)
    machine = stored_and_read(machine)
    assert not machine.dispatched(dispatch([3], 3))
    assert machine.settle(ACK, [2]) == [] and not machine.is_settled(2)
    assert machine.hand_out([1, 2], NOW_NS) == 1
    assert list(machine.pending) == [1, 2]


def test_chosen_messages_come_first_and_what_is_between_is_passed_over() -> None:
    machine = consumer(deliver_policy="last_per_subject")
    machine.start_at(3, [3, 6, 8], 9)
    assert [seq for seq in range(1, 12) if machine.needs(seq)] == [3, 6, 8, 10, 11]
    machine.hand_out([3, 6], NOW_NS)
    assert (list(machine.chosen), machine.next_seq) == ([8], 7)
    machine = stored_and_read(machine)
    machine.pass_over(8)
    assert (list(machine.chosen), machine.next_seq) == ([], 10)


# --- checkpoints ---


@given(
    st.sets(st.integers(1, 60), min_size=1).map(sorted),
    st.lists(st.integers(1, 60)),
    st.lists(st.integers(1, 60)),
    st.lists(st.integers(1, 60)),
)
def test_checkpoint_brings_everything_back(
    seqs: list[int], again: list[int], acknowledged: list[int], given_up: list[int]
) -> None:
    machine = consumer(metadata={"a": "b"}, filter_subjects=["x", "y"], **{"edged.created": 17})
    machine.hand_out(seqs, NOW_NS)
    if again:
        machine.hand_out_again(again, NOW_NS + 1)
    machine.settle(ACK, acknowledged)
    machine.settle(GIVEN_UP, given_up)
    restored = stored_and_read(machine)
    assert figures(restored) == figures(machine)
    assert (restored.name, restored.config, restored.created_ns) == (machine.name, machine.config, 17)
    assert restored.filters == (b"x", b"y")
    assert restored.hand_out([70], NOW_NS) == machine.hand_out([70], NOW_NS)
    assert restored.settle(ACK, [70]) == machine.settle(ACK, [70])
    assert restored.ack_floor == machine.ack_floor


def test_resets_are_in_a_checkpoint_and_one_of_an_earlier_version_knows_of_none() -> None:
    machine = consumer()
    machine.reset(5)
    snapshot = machine.snapshot()
    assert ConsumerMachine.restore(1, snapshot).resets == 1
    snapshot[3] = snapshot[3][:3]
    assert ConsumerMachine.restore(1, snapshot).resets == 0


def test_thousand_pending_neighbours_take_little_room_in_a_checkpoint() -> None:
    machine = consumer()
    empty = len(msgpack.packb(machine.snapshot()))
    machine.hand_out(range(10**6, 10**6 + 1000), NOW_NS)
    assert len(msgpack.packb(machine.snapshot())) < empty + 60
