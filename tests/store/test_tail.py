"""The batches written last are read from memory, whatever was forgotten before them."""

from __future__ import annotations

import random

from edged.core.frames import COMMAND, FrameBuffer
from edged.store.tail import Tail

MARGIN = 24


def batch(number: int, size: int) -> FrameBuffer:
    buffer = FrameBuffer()
    buffer.add(COMMAND, 1, number, bytes([number % 256]) * size)
    return buffer


def test_newest_batches_are_found_and_older_ones_are_not() -> None:
    chance = random.Random(7)
    tail = Tail(20_000)
    kept: list[tuple[int, int, bytes]] = []
    file, offset = 1, 4096
    for number in range(3000):
        buffer = batch(number, chance.randrange(1, 60))
        data = buffer.bytes_at(0, len(buffer))
        tail.add(file, offset, buffer)
        kept.append((file, offset, data))
        while sum(len(one) for _, _, one in kept) > 20_000:
            gone_file, gone_offset, gone = kept.pop(0)
            assert tail.find(gone_file, gone_offset, len(gone)) is None
        offset += len(data)
        if chance.random() < 0.005:
            file, offset = file + 1, 4096
        if number % 100 == 0:
            assert all(tail.find(one, at, len(data)) == data for one, at, data in kept)
    assert all(tail.find(one, at, len(data)) == data for one, at, data in kept)


def test_part_of_a_batch_is_found_by_its_own_offset() -> None:
    tail = Tail(1000)
    tail.add(3, 4096, batch(1, 10))
    tail.add(3, 4096 + MARGIN + 10, batch(2, 10))
    assert tail.find(3, 4096 + MARGIN + 10 + MARGIN, 10) == bytes([2]) * 10
    assert tail.find(3, 4000, 10) is None and tail.find(2, 4096, 10) is None


def test_newest_batch_is_kept_however_large_it_is() -> None:
    tail = Tail(100)
    tail.add(1, 4096, batch(1, 10))
    large = batch(2, 5000)
    tail.add(2, 4096, large)
    assert tail.find(2, 4096, 5024) == large.bytes_at(0, 5024) and tail.find(1, 4096, 34) is None
