"""Rot: the judge sees what is wrong, and the real store never answers wrongly, whatever its files hold."""

from __future__ import annotations

import random

import pytest

from tests.lab.__main__ import main
from tests.lab.reference import Reference, make_reference
from tests.lab.rot import (
    ALL_UNREAD,
    Bits,
    Tally,
    damage_named,
    flip_tasks,
    prove_unread,
    reference_and_bits,
)
from tests.lab.rot_judge import LESS, SAME, SHORTER, WRONG, Damage, judge
from tests.lab.tested_store import TestedStore
from tests.lab.workload import BATCH_NS, AckMessages, Batch, DeleteMessage, Publish

FLIPS = 100_000
STORES = 3


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference(4, is_killed=False)


def changed(reference: Reference, *steps: Publish | DeleteMessage) -> Damage:
    """A store in which something was done that nobody knows of."""
    disk = reference.disk.copy()
    store = TestedStore(disk, random.Random(5))
    store.commit(Batch(steps, reference.done[-1].now_ns + BATCH_NS))
    store.close()
    return Damage("changed", disk, is_small=True, steps_min=len(reference.done))


@pytest.mark.parametrize(("seed", "is_small"), [(4, False), (1, True)])
def test_store_to_be_damaged_has_all_there_is(seed: int, is_small: bool) -> None:
    reference = make_reference(seed, is_killed=False, is_small=is_small)
    paths = [path for path, _ in reference.disk.files()]
    model = reference.expected()
    assert len([path for path in paths if path.startswith("checkpoints/")]) == 2
    assert len([path for path in paths if path.startswith("journal/0")]) >= 3
    assert len([path for path in paths if path.startswith("streams/")]) >= 2
    assert len(model.streams) >= 2
    assert any(stream.consumers for stream in model.streams.values())
    assert any(stream.message_ids for stream in model.streams.values())


def test_store_that_is_well_is_the_same(reference: Reference) -> None:
    verdict = judge(reference, Damage("well", reference.disk.copy(), True, len(reference.done)))
    assert (verdict.kind, verdict.is_noticed) == (SAME, False)


def test_message_too_many_is_wrong(reference: Reference) -> None:
    group = max(reference.expected().streams)
    assert judge(reference, changed(reference, Publish(group, b"a", b"!"))).kind == WRONG


def test_message_gone_without_a_word_is_wrong(reference: Reference) -> None:
    group, stream = next(
        (group, stream) for group, stream in reference.expected().streams.items() if stream.messages
    )
    damage = changed(reference, DeleteMessage(group, min(stream.messages)))
    assert judge(reference, damage).kind == WRONG
    assert judge(reference, damage._replace(is_small=False)).kind == WRONG


def test_end_that_is_missing_is_shorter_or_wrong(reference: Reference) -> None:
    earlier = Damage("earlier", reference.earlier[-3].copy(), False, 0, may_be_silent=True)
    assert judge(reference, earlier).kind == SHORTER
    earlier = Damage("earlier", reference.earlier[-3].copy(), False, len(reference.done))
    assert judge(reference, earlier).kind == WRONG


def test_file_that_is_thrown_away_is_wrong(reference: Reference) -> None:
    damage = Damage("well", reference.disk.copy(), True, len(reference.done))
    precious = damage.disk.create("checkpoints/precious")
    precious.write_at(0, b"precious")
    precious.close()

    def throw_away(operation: str, path: str) -> None:
        if operation == "list":
            damage.disk.directories["checkpoints"].pop("precious", None)

    damage.disk.fault = throw_away
    verdict = judge(reference, damage)
    assert (verdict.kind, verdict.what) == (WRONG, "thrown away: checkpoints/precious")


def test_forgotten_message_keeps_the_seqs_of_all_others(reference: Reference) -> None:
    done = next(one for one in reversed(reference.done) if one.seq is not None)
    model = reference.expected([(done.group, done.index)])
    whole = reference.expected()
    assert model.streams[done.group].last_seq == whole.streams[done.group].last_seq
    assert whole.streams[done.group].messages.keys() - model.streams[done.group].messages.keys() == {done.seq}


def test_forgotten_acknowledgement_leaves_the_message_pending() -> None:
    reference = make_reference(4, is_killed=False)
    done = next(one for one in reversed(reference.done) if isinstance(one.step, AckMessages))
    assert isinstance(done.step, AckMessages)
    count = reference.done.index(done) + 1
    model = reference.expected([(done.group, done.index)], count)
    assert model.streams[done.group].consumers[done.step.consumer].pending >= set(done.step.seqs)


def test_bits_are_found_by_number_and_those_not_read_are_known(reference: Reference) -> None:
    bits = Bits(reference)
    places = [bits.place(number) for number in (0, 7, 8, bits.count - 1)]
    assert [offset for _, offset, _ in places[:3]] == [0, 0, 1]
    assert places[-1][2] == 7
    newest = max(path for path in bits.paths if path.startswith("checkpoints/"))
    oldest = min(path for path in bits.paths if path.startswith("checkpoints/"))
    assert bits.is_read(newest, 0)
    assert not bits.is_read(oldest, 0)
    assert len(bits.choice(random.Random(1), 500)) == 500


def test_bit_in_a_message_costs_that_message_and_is_noticed() -> None:
    reference, _ = reference_and_bits(1, is_killed=False)
    live = {
        message[3]: path
        for stream in reference.expected().streams.values()
        for message in stream.messages.values()
        for path, content in reference.disk.contents().items()
        if path.startswith("journal/0") and len(message[3]) > 20 and message[3] in content
    }
    payload, path = live.popitem()
    offset = reference.disk.contents()[path].index(payload)
    _, damage = damage_named(f"{reference.name}/{path}:{offset}:3")
    verdict = judge(reference, damage)
    assert (verdict.kind, verdict.is_noticed) == (LESS, True), verdict


@pytest.mark.parametrize("is_killed", [False, True])
def test_bytes_that_are_never_read_change_nothing_even_when_all_are_wrong(is_killed: bool) -> None:
    reference, bits = reference_and_bits(1, is_killed, is_small=True)
    tally = Tally()
    prove_unread(reference, bits, tally)
    assert tally.offences == []
    assert set(tally.counts) == {(ALL_UNREAD, SAME, False)}
    unread = [
        (path, offset)
        for path in bits.paths
        for offset in range(len(reference.disk.contents()[path]))
        if not bits.is_read(path, offset)
    ]
    spoilt = bits.unread_spoilt(reference).contents()
    whole = reference.disk.contents()
    assert len(unread) > 1000
    assert all(spoilt[path][offset] == whole[path][offset] ^ 0xFF for path, offset in unread)


def test_byte_that_is_read_after_all_would_be_found(reference: Reference) -> None:
    bits = Bits(reference)
    path = max(path for path in bits.paths if path.startswith("journal/0"))
    bits.note_unread(path)
    tally = Tally()
    prove_unread(reference, bits, tally)
    assert tally.offences


def test_every_bit_has_its_task() -> None:
    _, bits = reference_and_bits(1, is_killed=False, is_small=True)
    _, others = reference_and_bits(1, is_killed=True, is_small=True)
    numbers = [len(task.numbers or ()) for task in flip_tasks([1], None)]
    assert sum(numbers) == bits.count + others.count
    assert sum(len(task.numbers or ()) for task in flip_tasks([1], 1000)) == 1000


@pytest.mark.slow
def test_store_survives_rot(capfd: pytest.CaptureFixture[str]) -> None:
    status = main(["flips", "--flips", str(FLIPS), "--stores", str(STORES), "--offences-max", "20"])
    assert status == 0, capfd.readouterr().out
