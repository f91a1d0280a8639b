"""Consumers in the store: what was handed out and settled is so after a restart, on a full disk too."""

from __future__ import annotations

import pytest

from edged.core.commands import ACK, Ack, Dispatch, PutConsumer
from edged.core.consumer_machine import ConsumerMachine
from edged.core.space_rules import SpaceLimits
from edged.store.store import Store
from tests.lab.fake_disk import FakeDisk
from tests.store.test_store import machine_of, options_with, publish, put_stream, reopened

EXPLICIT = {"ack_policy": "explicit"}


def consumer_of(store: Store) -> ConsumerMachine:
    return machine_of(store).consumers[1]


def deliver(store: Store, *seqs: int) -> Dispatch:
    """Hand out at once; the command is for the journal, whenever that may be."""
    ts_ns = store.options.now_ns()
    return Dispatch(1, ts_ns, seqs, consumer_of(store).hand_out(seqs, ts_ns))


def figures(store: Store) -> tuple[object, ...]:
    found = consumer_of(store)
    return found.delivered, found.ack_floor, found.pending, found.deliveries, found.last_delivered_ns


@pytest.mark.parametrize("is_sealed", [False, True])
def test_consumer_is_the_same_after_a_restart(is_sealed: bool) -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store)
    for _ in range(10):
        publish(store, b"a", b"x" * 500)
    store.commit([(1, PutConsumer(1, "c", EXPLICIT))])
    store.commit([(1, deliver(store, 1, 2, 3, 4)), (1, Ack(1, ACK, (1, 3)))])
    for _ in range(40 if is_sealed else 0):
        publish(store, b"b", b"x" * 1000)
        store.maintain()
    again = Dispatch(1, 7, (4, 2), consumer_of(store).hand_out_again((4, 2), 7))
    store.commit([(1, again), (1, Ack(1, ACK, (2,)))])
    before = figures(store)
    store = reopened(store, disk, options)
    assert (store.report.checkpoint > 0) is is_sealed
    assert figures(store) == before
    assert list(consumer_of(store).pending) == [4]


def test_checkpoint_between_handing_out_and_its_record_counts_the_delivery_once() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store)
    store.commit([(1, PutConsumer(1, "c", EXPLICIT))])
    for _ in range(3):
        publish(store, b"a", b"x")
    told_later = deliver(store, 1, 2)
    for _ in range(40):
        publish(store, b"b", b"x" * 1000)
        store.maintain()
    store.commit([(1, told_later), (1, Ack(1, ACK, (1,)))])
    store = reopened(store, disk, options)
    assert store.report.checkpoint > 0
    assert consumer_of(store).delivered == (2, 2)
    assert list(consumer_of(store).pending) == [2]


def test_consumer_in_memory_is_gone_after_a_restart() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store)
    machine_of(store).apply(PutConsumer(1, "c", {**EXPLICIT, "mem_storage": True}))
    for _ in range(40):
        publish(store, b"b", b"x" * 1000)
        store.maintain()
    store = reopened(store, disk, options)
    assert store.report.checkpoint > 0 and store.stream(1).log.message_count == 40
    assert machine_of(store).consumers == {}


def test_message_stored_for_a_consumer_in_memory_is_there_after_a_restart() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store, retention="interest")
    store.commit([(1, PutConsumer(1, "c", {**EXPLICIT, "mem_storage": True}))])
    publish(store, b"a", b"x")
    store = reopened(store, disk, options)
    assert store.stream(1).log.message_count == 1
    assert list(machine_of(store).consumers) == [1]


def test_work_queue_is_emptied_on_a_full_disk() -> None:
    space = SpaceLimits(free_bytes_min=0, reserve_bytes=300 * 1024)
    disk = FakeDisk(capacity_bytes=4096 * 1024)
    store = Store.open(disk, options_with(space=space))
    put_stream(store, retention="workqueue")
    store.commit([(1, PutConsumer(1, "c", EXPLICIT))])
    for _ in range(200):
        publish(store, b"a", b"x")
    assert store.room.governor.is_reserve_held
    # Somebody else takes all the room that there is.
    disk.capacity_bytes = disk.used_bytes()
    journal_files = store.journal.number
    for seq in range(1, 201):
        # The others are known by then, and only take up room in the journal.
        others = Ack(1, ACK, tuple(number for number in range(1, seq) if number % 7 < 3))
        assert store.commit([(1, deliver(store, seq)), (1, Ack(1, ACK, (seq,))), (1, others)]) == [0, 1, 0]
    assert store.journal.number > journal_files
    assert store.stream(1).log.message_count == 0
