"""Which consumers hear that messages went: all that know one of them by its seq."""

from __future__ import annotations

from dataclasses import dataclass

from edged.core.commands import ACK, TERM, Ack, Delete, Dispatch, PutConsumer, RemoveConsumer
from edged.core.holders import NOTHING, Holders
from edged.core.stream_machine import StreamMachine
from edged.store.memory_log import MemoryLog


@dataclass(eq=False)
class Knows:
    """A consumer, as far as it is asked here."""

    lowest_known: int = NOTHING


def test_lowest_is_never_above_what_somebody_knows() -> None:
    holders, one, two = Holders(), Knows(5), Knows(7)
    holders.note(one, 5)
    holders.note(two, 7)
    assert holders.lowest == 5
    one.lowest_known = NOTHING
    holders.review()
    assert (holders.lowest, one in holders, two in holders) == (7, False, True)
    holders.forget(two)
    holders.review()
    assert holders.lowest == NOTHING


def stream(count: int) -> StreamMachine:
    machine = StreamMachine(MemoryLog(), {"name": "S", "subjects": ["s"], "max_msgs": 4})
    for number in (1, 2):
        machine.apply(PutConsumer(number, f"c{number}", {"ack_policy": "explicit"}))
    append(machine, count)
    machine.table.keep_dropped(True)
    return machine


def append(machine: StreamMachine, count: int) -> None:
    for _ in range(count):
        machine.append_run(1, [(b"s", None, -1, b"")], 0, 0, [0])


def deliver(machine: StreamMachine, number: int, *seqs: int) -> None:
    first = machine.consumers[number].hand_out(seqs, 1)
    machine.apply(Dispatch(number, 1, seqs, first))


def test_each_consumer_hears_of_its_own_messages_and_of_no_others() -> None:
    machine = stream(4)
    deliver(machine, 1, 1, 2)
    deliver(machine, 2, 1)
    append(machine, 1)
    assert [(number, one.seq) for number, one in machine.table.take_dropped()] == [(1, 1), (2, 1)]
    append(machine, 1)
    assert [(number, one.seq) for number, one in machine.table.take_dropped()] == [(1, 2)]
    append(machine, 3)
    assert machine.table.take_dropped() == []
    deliver(machine, 2, 7)
    machine.apply(Delete(7, False))
    assert [(number, one.seq) for number, one in machine.table.take_dropped()] == [(2, 7)]


def test_what_is_known_after_a_checkpoint_or_without_a_delivery_is_heard_of_too() -> None:
    machine = stream(4)
    deliver(machine, 1, 1)
    # The journal has lost the delivery of this one.
    machine.apply(Ack(2, TERM, (1,)))
    restored = StreamMachine(machine.log, {"name": "S", "subjects": ["s"], "max_msgs": 4})
    restored.restore(machine.snapshot())
    restored.table.keep_dropped(True)
    assert (restored.consumers[2].is_ahead, restored.consumers[1].pending.keys()) == (True, {1})
    append(restored, 1)
    assert [(number, one.seq) for number, one in restored.table.take_dropped()] == [(1, 1)]
    assert (restored.consumers[2].is_ahead, restored.consumers[1].pending) == (False, {})


def test_a_consumer_that_has_gone_or_settled_everything_holds_nothing_up() -> None:
    machine = stream(4)
    deliver(machine, 1, 1)
    deliver(machine, 2, 1, 2)
    machine.apply(RemoveConsumer(1))
    machine.apply(Ack(2, ACK, (1, 2)))
    append(machine, 3)
    assert machine.table.take_dropped() == []
    assert machine.log.first_seq == 4
