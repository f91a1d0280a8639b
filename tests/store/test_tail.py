"""The batches written last are read from memory, whatever was forgotten before them."""

from __future__ import annotations

import random
from pathlib import Path

from edged.core.commands import PutStream
from edged.core.frames import COMMAND, FrameBuffer
from edged.store.files import RealFiles
from edged.store.options import SYNC_OS, StoreOptions
from edged.store.store import Append, Store
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


def test_span_over_several_batches_is_found_whole_or_not_at_all() -> None:
    tail = Tail(1000)
    offset, whole = 4096, b""
    for number, size in enumerate((10, 1, 30)):
        buffer = batch(number, size)
        tail.add(3, offset + len(whole), buffer)
        whole += buffer.bytes_at(0, len(buffer))
    for start in range(0, len(whole), 7):
        for end in range(start + 1, len(whole) + 1, 5):
            assert tail.find_span(3, offset + start, end - start) == whole[start:end]
    assert tail.find_span(3, offset, len(whole) + 1) is None
    assert tail.find_span(3, offset - 1, 5) is None and tail.find_span(2, offset, 5) is None


def test_span_with_something_missing_in_between_is_not_found() -> None:
    tail = Tail(1000)
    tail.add(3, 4096, batch(1, 10))
    tail.add(3, 5000, batch(2, 10))
    assert tail.find_span(3, 4096, 34) is not None and tail.find_span(3, 5000, 34) is not None
    assert tail.find_span(3, 4096, 950) is None


def test_batches_of_one_message_take_about_as_much_memory_as_the_tail_may(tmp_path: Path) -> None:
    store = Store.open(RealFiles(str(tmp_path)), StoreOptions(sync=SYNC_OS, tail_bytes=8 * 1024 * 1024))
    store.commit([(0, PutStream(1, bytes(16), "$G", "S", {"name": "S", "subjects": ["s"]}))])
    before = resident_bytes()
    for _ in range(12_000):
        store.commit([(1, Append(b"s", -1, b"x" * 128))])
    grown = resident_bytes() - before
    store.close()
    # There are 2.5 MB in those batches; 4 KiB for each would be 48 MB.
    assert grown < 24 * 1024 * 1024, grown


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
