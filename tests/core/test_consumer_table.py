"""Consumers of a stream: where they begin, what the stream keeps for them, what they make of removals."""

from __future__ import annotations

from typing import Any

import pytest

from edged.core import commands
from edged.core.commands import ACK, ACK_ALL, GIVEN_UP, TERM, Ack, Dispatch, PutConsumer
from edged.core.consumer_config import ConsumerConfig
from edged.core.consumer_machine import ConsumerMachine
from edged.core.consumer_table import STATE
from edged.core.stream_machine import Refused, StreamMachine
from edged.store.memory_log import MemoryLog

NOW_NS = 1_800_000_000 * 10**9
EXPLICIT: dict[str, Any] = {"ack_policy": "explicit"}


def stream(**config: Any) -> StreamMachine:
    return StreamMachine(MemoryLog(), {"name": "S", "subjects": ["s.>"], **config})


def publish(machine: StreamMachine, subjects: str, now_ns: int = NOW_NS) -> None:
    """A message on each `s.x`, one letter each; a blank lets time pass."""
    for letter in subjects:
        if letter == " ":
            now_ns += 1000
        else:
            machine.append_run(now_ns, [(b"s." + letter.encode(), None, -1, b"")], 0, 0, [0])


def consumer(machine: StreamMachine, number: int = 1, **config: Any) -> ConsumerMachine:
    machine.apply(PutConsumer(number, f"c{number}", {**EXPLICIT, **config}))
    return machine.consumers[number]


def deliver(machine: StreamMachine, number: int, *seqs: int) -> None:
    """Hand out and tell the journal."""
    first = machine.consumers[number].hand_out(seqs, NOW_NS)
    machine.apply(Dispatch(number, NOW_NS, seqs, first))


def kept(machine: StreamMachine) -> list[int]:
    return [seq for seq in range(1, machine.log.last_seq + 1) if machine.log.has(seq)]


# --- where a consumer begins ---

STARTS: list[tuple[dict[str, Any], int]] = [
    ({}, 3),
    ({"deliver_policy": "last"}, 8),
    ({"deliver_policy": "last", "filter_subject": "s.b"}, 6),
    ({"deliver_policy": "last", "filter_subjects": ["s.a", "s.b"]}, 7),
    ({"deliver_policy": "last", "filter_subject": "s.none"}, 3),
    ({"deliver_policy": "new"}, 9),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 1}, 3),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 5}, 5),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 50}, 50),
    ({"deliver_policy": "by_start_time", "opt_start_time": "2027-01-15T08:00:00Z"}, 3),
    ({"deliver_policy": "by_start_time", "opt_start_time": "2027-01-15T08:00:00.000001Z"}, 5),
    ({"deliver_policy": "by_start_time", "opt_start_time": "2030-01-15T08:00:00Z"}, 9),
    ({"deliver_policy": "last_per_subject", "filter_subject": "s.>"}, 6),
    ({"deliver_policy": "last_per_subject", "filter_subject": "s.none"}, 8),
]


@pytest.mark.parametrize(("config", "start"), STARTS)
def test_consumer_begins_where_its_configuration_says(config: dict[str, Any], start: int) -> None:
    machine = stream()
    publish(machine, "abab abac")
    machine.apply(commands.Purge(3, b"", 0))
    found = consumer(machine, **config)
    assert (found.delivered, found.ack_floor) == ((0, start - 1), (0, start - 1))


def test_last_of_each_subject_is_chosen_once_and_for_all() -> None:
    machine = stream()
    publish(machine, "ababc")
    found = consumer(machine, deliver_policy="last_per_subject", filter_subjects=["s.a", "s.b"])
    publish(machine, "ab")
    assert (list(found.chosen), found.chosen_to) == ([3, 4], 5)
    single = stream(max_msgs_per_subject=1)
    publish(single, "abab")
    assert not consumer(single, deliver_policy="last_per_subject", filter_subject="s.>").chosen


@pytest.mark.parametrize("count", [0, 1])
def test_consumer_from_an_archive_has_the_last_of_each_subject_before_it_unless_it_had_begun(
    count: int,
) -> None:
    machine = stream()
    publish(machine, "abaab")
    pair = {"consumer_seq": count, "stream_seq": 3}
    state = {"delivered": pair, "ack_floor": pair, "pending": {}, "redelivered": {}}
    config = {"deliver_policy": "last_per_subject", "filter_subject": "s.>", STATE: state}
    found = consumer(machine, **config)
    assert (found.delivered, list(found.chosen)) == ((count, 3), [] if count else [4, 5])


def test_consumer_of_a_stream_that_never_held_anything_begins_with_its_first_message() -> None:
    machine = stream()
    for number, policy in enumerate(["all", "last", "new", "by_start_time", "last_per_subject"], 1):
        assert consumer(machine, number, deliver_policy=policy).delivered == (0, 0)


# --- retention ---


def test_work_that_is_settled_is_removed() -> None:
    machine = stream(retention="workqueue")
    publish(machine, "aaaaaa")
    consumer(machine)
    deliver(machine, 1, 1, 2, 3, 4, 5)
    assert machine.apply(Ack(1, ACK, (1, 2))) == 2
    machine.apply(Ack(1, TERM, (4,)))
    machine.apply(Ack(1, GIVEN_UP, (3,)))
    assert kept(machine) == [3, 5, 6]
    machine.apply(Ack(1, ACK, (3,)))
    machine.apply(commands.RemoveConsumer(1))
    assert kept(machine) == [5, 6]


def test_limits_keep_what_is_settled() -> None:
    machine = stream()
    publish(machine, "aa")
    consumer(machine)
    deliver(machine, 1, 1, 2)
    assert machine.apply(Ack(1, ACK, (1, 2))) == 2
    assert kept(machine) == [1, 2]


def test_with_interest_a_message_goes_when_the_last_that_wants_it_is_done() -> None:
    machine = stream(retention="interest")
    consumer(machine, 1)
    consumer(machine, 2, filter_subject="s.b")
    consumer(machine, 3, ack_policy="none", filter_subject="s.c")
    publish(machine, "abcabc")
    deliver(machine, 1, 1, 2, 3, 4)
    machine.apply(Ack(1, ACK, (1, 2, 3)))
    assert kept(machine) == [2, 3, 4, 5, 6]
    deliver(machine, 2, 2)
    deliver(machine, 3, 3, 6)
    assert kept(machine) == [2, 4, 5, 6]
    machine.apply(Ack(2, ACK, (2,)))
    assert kept(machine) == [4, 5, 6]


def test_with_interest_acknowledging_all_lets_everything_before_go() -> None:
    machine = stream(retention="interest")
    consumer(machine, 1, ack_policy="all")
    publish(machine, "abcabc")
    deliver(machine, 1, 1, 2, 3, 4)
    machine.apply(Ack(1, ACK_ALL, (3,)))
    assert kept(machine) == [4, 5, 6]


def test_with_interest_what_nobody_wants_any_more_goes_with_the_consumer() -> None:
    machine = stream(retention="interest")
    for number, letter in enumerate("abc", 1):
        consumer(machine, number, filter_subject=f"s.{letter}")
    publish(machine, "abcabcabc")
    deliver(machine, 2, 2, 5)
    machine.apply(Ack(2, GIVEN_UP, (2,)))
    machine.apply(commands.RemoveConsumer(1))
    assert kept(machine) == [2, 3, 5, 6, 8, 9]
    machine.apply(PutConsumer(3, "c3", {**EXPLICIT, "filter_subject": "s.b"}))
    assert kept(machine) == [2, 5, 8]
    machine.apply(commands.ResetConsumer(2, 6))
    machine.apply(commands.RemoveConsumer(3))
    assert kept(machine) == [8]
    machine.apply(commands.RemoveConsumer(2))
    assert kept(machine) == [] and machine.log.first_seq == 10


def test_with_interest_messages_that_were_not_chosen_go_with_the_others_interest() -> None:
    machine = stream(retention="interest")
    consumer(machine, 1)
    publish(machine, "abab")
    consumer(machine, 2, deliver_policy="last_per_subject")
    publish(machine, "a")
    machine.apply(commands.RemoveConsumer(1))
    assert kept(machine) == [3, 4, 5]
    deliver(machine, 2, 3, 4)
    machine.apply(Ack(2, ACK, (3,)))
    assert kept(machine) == [4, 5]


def test_stream_that_turns_to_interest_lets_go_what_is_settled() -> None:
    machine = stream()
    publish(machine, "aaaa")
    consumer(machine)
    deliver(machine, 1, 1, 2, 3)
    machine.apply(Ack(1, ACK, (1, 3)))
    machine.configure({"name": "S", "retention": "interest"})
    assert kept(machine) == [2, 4]


def test_lost_dispatch_does_not_bring_acknowledged_work_back() -> None:
    machine = stream(retention="workqueue")
    publish(machine, "aaa")
    consumer(machine)
    assert machine.apply(Ack(1, ACK, (1, 2))) == 2
    assert kept(machine) == [3]
    machine = stream(retention="interest")
    consumer(machine, ack_policy="all", filter_subject="s.a")
    consumer(machine, 2, filter_subject="s.b")
    publish(machine, "abaa")
    machine.apply(Ack(1, ACK_ALL, (3,)))
    assert kept(machine) == [2, 4]


# --- messages go ---


def test_messages_that_go_are_pending_with_nobody() -> None:
    machine = stream(max_msgs=5, max_msgs_per_subject=2)
    machine.table.keep_dropped(True)
    publish(machine, "abcde")
    found = consumer(machine)
    deliver(machine, 1, 1, 2, 3, 4, 5)
    machine.apply(commands.Delete(2, False))
    machine.apply(commands.Expire(0, (3,)))
    publish(machine, "aaff")
    assert kept(machine) == [5, 6, 7, 8, 9]
    assert list(found.pending) == [5]
    assert [(number, one.seq) for number, one in machine.table.take_dropped()] == [
        (1, 2),
        (1, 3),
        (1, 1),
        (1, 4),
    ]
    assert machine.table.take_dropped() == []
    machine.apply(commands.Shed(1, 5, "room", NOW_NS))
    assert found.ack_floor == found.delivered == (5, 5)


def test_nobody_remembers_what_was_dropped_before_somebody_asks() -> None:
    machine = stream()
    publish(machine, "a")
    consumer(machine)
    deliver(machine, 1, 1)
    machine.apply(commands.Delete(1, False))
    assert machine.table.take_dropped() == [] and not machine.consumers[1].pending


def test_smaller_limits_drop_what_is_pending() -> None:
    machine = stream()
    publish(machine, "aabb")
    found = consumer(machine)
    deliver(machine, 1, 1, 2, 3)
    machine.configure({"name": "S", "max_msgs_per_subject": 1})
    assert list(found.pending) == [2]


def test_replayed_dispatch_of_a_message_that_is_gone_leaves_nothing_pending() -> None:
    machine = stream()
    publish(machine, "abc")
    found = consumer(machine)
    machine.apply(commands.Delete(2, False))
    machine.apply(Dispatch(1, NOW_NS, (1, 2, 3), 1))
    assert (list(found.pending), found.delivered) == ([1, 3], (3, 3))


def test_message_that_is_gone_is_given_up_for_good() -> None:
    machine = stream()
    publish(machine, "ab")
    found = consumer(machine)
    deliver(machine, 1, 1, 2)
    machine.log.remove(1)
    machine.apply(Ack(1, GIVEN_UP, (1, 2)))
    assert found.deliveries == {2: 1}


PURGES: list[tuple[tuple[str, ...], commands.Purge, int, list[int]]] = [
    ((), commands.Purge(0, b"", 0), 7, []),
    ((), commands.Purge(5, b"", 0), 5, [5]),
    ((), commands.Purge(0, b"", 1), 6, []),
    # It is wider than what was purged: the start of the stream is all that moves it.
    ((), commands.Purge(0, b"s.a", 0), 5, [2, 5]),
    (("s.a",), commands.Purge(0, b"s.a", 0), 7, []),
    (("s.a",), commands.Purge(0, b"s.*", 1), 6, []),
    (("s.b",), commands.Purge(0, b"s.a", 0), 5, [2, 5]),
    # What it wants besides is not passed over.
    (("s.a", "s.b"), commands.Purge(0, b"s.a", 0), 5, [2, 5]),
]


@pytest.mark.parametrize(("filters", "purge", "reach", "pending"), PURGES)
def test_purge_moves_consumers_behind_what_was_purged(
    filters: tuple[str, ...], purge: commands.Purge, reach: int, pending: list[int]
) -> None:
    machine = stream()
    publish(machine, "abaabab")
    found = consumer(machine, filter_subjects=list(filters))
    wanted = [seq for seq in (1, 2, 3, 4, 5) if not filters or f"s.{'abaab'[seq - 1]}" in filters]
    deliver(machine, 1, *wanted)
    before = found.delivered.consumer_seq
    machine.apply(purge)
    assert found.delivered == (before, reach)
    assert list(found.pending) == pending


def test_rollup_moves_consumers_as_a_purge_does() -> None:
    machine = stream(allow_rollup_hdrs=True)
    publish(machine, "aab")
    found = consumer(machine)
    deliver(machine, 1, 1)
    header = b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n"
    machine.append_run(NOW_NS, [(b"s.a", None, len(header), header)], 0, 0, [0])
    assert (found.delivered, found.pending, kept(machine)) == ((1, 3), {}, [4])


# --- commands and checkpoints ---


def test_commands_for_a_consumer_that_is_not_there_are_refused() -> None:
    machine = stream()
    for command in (
        *(Dispatch(1, NOW_NS, (1,), 1), Ack(1, ACK, (1,))),
        *(commands.ResetConsumer(1, 0), commands.RemoveConsumer(1)),
    ):
        outcome = machine.apply(command)
        assert isinstance(outcome, Refused) and outcome.error.err_code == 10014


def test_reset_answers_where_the_consumer_goes_on() -> None:
    machine = stream()
    publish(machine, "abc")
    found = consumer(machine)
    deliver(machine, 1, 1, 2)
    machine.apply(Ack(1, ACK, (1,)))
    assert machine.apply(commands.ResetConsumer(1, 0)) == 2
    assert machine.apply(commands.ResetConsumer(1, 3)) == 3
    assert (found.delivered, found.pending) == ((0, 2), {})


def test_numbers_of_consumers_are_never_given_twice() -> None:
    machine = stream()
    consumer(machine, 1)
    consumer(machine, 7)
    machine.apply(commands.RemoveConsumer(7))
    restored = stream()
    restored.restore(machine.snapshot())
    assert (machine.highest_consumer, restored.highest_consumer) == (7, 7)
    assert [one.name for one in restored.consumers.values()] == ["c1"]


@pytest.mark.parametrize("kind", ["mem_storage", "direct"])
def test_volatile_consumer_is_in_no_checkpoint_unless_the_stream_depends_on_it(kind: str) -> None:
    machine = stream()
    consumer(machine, 1, **{kind: True})
    assert machine.is_volatile(ConsumerConfig(**{kind: True}))
    assert not machine.is_volatile(ConsumerConfig())
    assert machine.snapshot()["consumers"] == []
    machine = stream(retention="interest")
    consumer(machine, 1, **{kind: True})
    assert not machine.is_volatile(ConsumerConfig(**{kind: True}))
    assert len(machine.snapshot()["consumers"]) == 1


def test_changed_configuration_leaves_the_state_as_it_is() -> None:
    machine = stream()
    publish(machine, "abc")
    found = consumer(machine, **{"edged.created": 5})
    deliver(machine, 1, 1, 2)
    machine.apply(PutConsumer(1, "c1", {**EXPLICIT, "description": "other", "filter_subject": "s.c"}))
    assert (found.config.description, found.filters, found.created_ns) == ("other", (b"s.c",), 5)
    assert list(found.pending) == [1, 2]


def test_consumer_from_an_archive_goes_on_where_it_was() -> None:
    machine = stream()
    publish(machine, "aaaaa")
    state = {
        "delivered": {"consumer_seq": 6, "stream_seq": 4},
        "ack_floor": {"consumer_seq": 1, "stream_seq": 1},
        "pending": {"4": {"Sequence": 4, "Timestamp": 9}, "2": {"Sequence": 2, "Timestamp": 8}},
        "redelivered": {"2": 2},
    }
    found = consumer(machine, **{"edged.state": state})
    assert (found.delivered, found.ack_floor) == ((6, 4), (1, 1))
    assert list(found.pending.items()) == [(2, (2, 8)), (4, (4, 9))]
    assert found.delivery_count(2) == 3
    assert found.hand_out([5], NOW_NS) == 7


# --- restarts ---


def restarted(machine: StreamMachine, **config: Any) -> StreamMachine:
    """Another node's machine with the same messages, from the checkpoint of this one."""
    other = stream(**config)
    publish(other, "a" * machine.log.last_seq)
    for seq in range(1, machine.log.last_seq + 1):
        if not machine.log.has(seq):
            other.log.remove(seq)
    other.restore(machine.snapshot())
    return other


def test_node_that_was_restarted_forgets_what_the_others_forget() -> None:
    """Acknowledged out of order, released by the queue: a restart must not decide when that is forgotten."""
    machine = stream(retention="workqueue")
    publish(machine, "aaaaaa")
    consumer(machine)
    machine.apply(Ack(1, ACK, (1, 2, 3)))
    other = restarted(machine, retention="workqueue")
    for one in (machine, other):
        publish(one, "a")
        one.apply(commands.Delete(6, False))
    assert machine.snapshot() == other.snapshot()


def test_node_that_was_restarted_keeps_counts_of_deliveries_as_long_as_the_others() -> None:
    machine = stream(max_msgs=600)
    publish(machine, "a" * 600)
    consumer(machine)
    deliver(machine, 1, *range(1, 601))
    first = machine.consumers[1].hand_out_again(range(1, 601), NOW_NS)
    machine.apply(Dispatch(1, NOW_NS, tuple(range(1, 601)), first))
    machine.apply(Ack(1, ACK, tuple(range(1, 301))))
    machine.apply(Ack(1, GIVEN_UP, tuple(range(301, 601))))
    other = restarted(machine, max_msgs=600)
    for one in (machine, other):
        publish(one, "a" * 450)
    assert machine.snapshot() == other.snapshot()
