"""Atomic batches in the journal: a restart decides as before, a torn one never was, damage costs little."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from edged.core import commands, headers
from edged.core.frame_twins import scan
from edged.core.frames import APPEND, BATCH, MORE
from edged.core.stream_machine import Outcome, Refused, StreamMachine
from edged.core.wire import Publish
from edged.store.box import Keyring
from edged.store.errors import Damaged, StoreError
from edged.store.journal_file import HEADER_BYTES, file_path
from edged.store.journal_reader import read_header
from edged.store.options import StoreOptions
from edged.store.store import Store
from tests.lab.fake_disk import FakeDisk

GROUP = 1
NOW_NS = 1_800_000_000 * 10**9


def options_with(**changes: Any) -> StoreOptions:
    nonces = count(9)
    return StoreOptions(
        journal_file_bytes=64 * 1024,
        now_ns=lambda: NOW_NS,
        draw_nonce=lambda: next(nonces) << 40 | next(nonces) | 1,
        **changes,
    )


def opened(disk: FakeDisk, **changes: Any) -> Store:
    return Store.open(disk, options_with(**changes))


def new_store(disk: FakeDisk, **changes: Any) -> Store:
    store = opened(disk, **changes)
    command = commands.PutStream(GROUP, b"i" * 16, "A", "S", {"name": "S", "allow_atomic": True})
    assert store.commit([(0, command)]) == [0]
    return store


def message(number: int, message_id: str = "") -> Publish:
    block = headers.encode([(b"Nats-Msg-Id", message_id.encode())]) if message_id else b""
    return b"s.%d" % number, None, len(block), block + b"payload %d" % number


def together(*messages: Publish) -> list[Publish]:
    return [*((one[0], one[1], one[2] | MORE, one[3]) for one in messages[:-1]), messages[-1]]


def publish(store: Store, *messages: Publish) -> list[Outcome]:
    results: list[Sequence[Outcome] | StoreError] = []
    store.add_appends(GROUP, messages, NOW_NS, results.append)
    store.settle()
    assert not isinstance(results[0], StoreError), results
    return list(results[0])


def held(store: Store) -> dict[int, bytes]:
    log = store.stream(GROUP).log
    found = {}
    for seq in range(1, log.last_seq + 1):
        try:
            one = log.get(seq)
        except Damaged:
            continue
        if one is not None:
            assert one.header_bytes < len(one.data)
            found[seq] = one.data[one.header_bytes :]
    return found


@pytest.mark.parametrize("keys", [None, Keyring(b"k" * 32)], ids=["plain", "encrypted"])
def test_restart_decides_batches_as_before(keys: Keyring | None) -> None:
    disk = FakeDisk()
    changes = {"keys": keys} if keys is not None else {}
    store = new_store(disk, **changes)
    assert publish(store, message(1, "a")) == [1]
    assert publish(store, *together(message(2), message(3, "b"), message(4))) == [2, 3, 4]
    refused = publish(store, *together(message(5), message(6, "b"), message(7)))
    assert [type(outcome) for outcome in refused] == [Refused] * 3
    assert publish(store, message(8), *together(message(9), message(10)), message(11)) == [5, 6, 7, 8]
    before = held(store)
    assert before == {seq: b"payload %d" % number for seq, number in enumerate((1, 2, 3, 4, 8, 9, 10, 11), 1)}
    for _ in range(2):
        store = opened(disk.copy(), **changes)
        assert store.report.is_clean and held(store) == before
    assert publish(store, message(12)) == [9]


def frames_of(disk: FakeDisk, number: int) -> list[tuple[int, int, int, int]]:
    """Start, end, kind and index of the frames of a journal file."""
    data = disk.contents()[file_path(number)]
    header = read_header(disk, number)
    assert header is not None
    found = scan(data, header.nonce, HEADER_BYTES).frames
    return [(offset, start + size, kind, index) for offset, kind, _, index, start, size in found]


def overwrite(disk: FakeDisk, number: int, start: int, stop: int) -> None:
    file = disk.open(file_path(number))
    file.write_at(start, bytes(stop - start))
    file.close()


def test_batch_that_a_crash_has_cut_never_was_wherever_it_was_cut() -> None:
    disk = FakeDisk()
    store = new_store(disk)
    publish(store, message(1))
    publish(store, *together(message(2), message(3), message(4), message(5)))
    number = store.journal.number
    frames = [frame for frame in frames_of(disk, number) if frame[2] == APPEND][1:]
    assert len(frames) == 4
    end = frames_of(disk, number)[-1][1]
    for start, stop, _, _ in frames:
        for cut in (start, start + 30, stop - 1):
            cut_disk = disk.copy()
            overwrite(cut_disk, number, cut, end)
            store = opened(cut_disk)
            assert store.report.is_clean and held(store) == {1: b"payload 1"}
            # What comes next takes the place of the batch, also after another restart.
            assert publish(store, message(6)) == [2]
            assert publish(store, *together(message(7), message(8))) == [3, 4]
            after = held(store)
            again = opened(cut_disk.copy())
            assert again.report.is_clean and held(again) == after
            assert after == {1: b"payload 1", 2: b"payload 6", 3: b"payload 7", 4: b"payload 8"}


@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("is_refused", [False, True])
def test_damage_costs_the_message_it_hit_and_nothing_else(damaged: int, is_refused: bool) -> None:
    disk = FakeDisk()
    store = new_store(disk)
    publish(store, message(1, "a"))
    members = together(message(2), message(3, "a" if is_refused else "b"), message(4))
    publish(store, *members)
    assert publish(store, message(5)) == [2 if is_refused else 5]
    publish(store, message(6))
    store.close()
    number = store.journal.number
    frames = [frame for frame in frames_of(disk, number) if frame[2] == APPEND][1:4]
    expected = held(opened(disk.copy()))
    overwrite(disk, number, frames[damaged][0] + 40, frames[damaged][1])
    store = opened(disk)
    if not is_refused:
        del expected[2 + damaged]
    assert held(store) == expected
    assert len(store.report.replay.holes) == 1
    assert store.stream(GROUP).log.last_seq == (3 if is_refused else 6)


def test_batch_is_lost_when_nobody_tells_what_became_of_it() -> None:
    disk = FakeDisk()
    store = new_store(disk)
    publish(store, message(1, "a"))
    publish(store, *together(message(2), message(3, "a"), message(4)))
    publish(store, message(5))
    publish(store, message(6))
    store.close()
    number = store.journal.number
    frames = frames_of(disk, number)
    third, last = [frame for frame in frames if frame[2] == APPEND][2:4]
    records = [frame for frame in frames if frame[2] == BATCH and frame[0] > last[0]]
    # The last two members, and the batch records that say that they were refused.
    overwrite(disk, number, third[0] + 30, last[1])
    for record in records[:2]:
        overwrite(disk, number, record[0] + 30, record[1])
    store = opened(disk)
    assert held(store) == {1: b"payload 1", 2: b"payload 5", 3: b"payload 6"}
    (hole,) = store.report.replay.holes
    assert (hole.first_index, hole.last_index) == (2, 4)
    machine = store.stream(GROUP).group.machine
    assert isinstance(machine, StreamMachine) and machine.give_up_members() == []
