"""Guarded blobs: every kind of damage is repaired or noticed, and no claim of a head is believed blindly."""

from __future__ import annotations

import contextlib
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.store.errors import Damaged
from edged.store.guard import HEAD_BYTES, chunk_bytes, guard, guarded_size, measure, search, unguard
from tests.store.segment_samples import flips, forged_head

MARK = 0x12345678
SIZES = [0, 1, 511, 512, 513, 1500, 8192, 8193, 20_000, 70_000]


def payload_of(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_payload_comes_back_and_the_size_is_as_stated(size: int) -> None:
    payload = payload_of(size)
    blob = guard(payload, MARK)
    assert len(blob) == guarded_size(size)
    assert unguard(blob, MARK, thorough=True) == (payload, False)
    assert unguard(blob) == (payload, False)


@pytest.mark.parametrize("size", [0, 3, 600])
def test_every_flipped_bit_is_noticed_and_costs_nothing(size: int) -> None:
    payload = payload_of(size)
    for bit, blob in flips(guard(payload, MARK)):
        assert unguard(blob, MARK, thorough=True) == (payload, True), bit
        assert unguard(blob, MARK).payload == payload, bit


@pytest.mark.parametrize("size", [0, 3, 600, 5000])
@pytest.mark.parametrize("noise", [b"\x00", b"\xff", None])
def test_lost_sector_at_every_offset_costs_nothing(size: int, noise: bytes | None) -> None:
    payload = payload_of(size)
    blob = guard(payload, MARK)
    garbage = noise * 512 if noise else payload_of(512, seed=2)
    for start in range(-511, len(blob), 1 if size < 1000 else 7):
        low, high = max(0, start), min(len(blob), start + 512)
        changed = blob[:low] + garbage[: high - low] + blob[high:]
        assert unguard(changed, MARK, thorough=True) == (payload, changed != blob), start


@given(data=st.data(), size=st.sampled_from(SIZES))
def test_any_range_up_to_a_chunk_costs_nothing(data: st.DataObject, size: int) -> None:
    payload = payload_of(size)
    blob = guard(payload, MARK)
    length = data.draw(st.integers(1, chunk_bytes(size)))
    start = data.draw(st.integers(0, len(blob) - length))
    noise = data.draw(st.sampled_from([bytes(length), payload_of(length, seed=3)]))
    changed = blob[:start] + noise + blob[start + length :]
    assert unguard(changed, MARK).payload == payload


@given(data=st.data(), size=st.sampled_from(SIZES))
def test_any_damage_gives_the_payload_or_is_refused(data: st.DataObject, size: int) -> None:
    payload = payload_of(size)
    changed = bytearray(guard(payload, MARK))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(changed) - 1))
        length = data.draw(st.integers(1, 3000))
        changed[start : start + length] = payload_of(min(length, len(changed) - start), seed=start)
    with contextlib.suppress(Damaged):
        assert unguard(bytes(changed), MARK).payload == payload


def test_two_bad_chunks_far_apart_are_refused() -> None:
    blob = bytearray(guard(payload_of(20_000), MARK))
    start = HEAD_BYTES + chunk_bytes(20_000)
    blob[start] ^= 1
    blob[start + 5 * chunk_bytes(20_000)] ^= 1
    with pytest.raises(Damaged, match="2 of 15 chunks"):
        unguard(bytes(blob), MARK)


def test_cut_off_blob_is_repaired_or_refused_at_every_length() -> None:
    payload = payload_of(3000)
    blob = guard(payload, MARK)
    repaired = 0
    for length in range(len(blob)):
        try:
            assert unguard(blob[:length], MARK) == (payload, length < len(blob) - HEAD_BYTES), length
            repaired += 1
        except Damaged:
            pass
    assert repaired == HEAD_BYTES + chunk_bytes(3000)


def test_other_mark_is_refused() -> None:
    with pytest.raises(Damaged):
        unguard(guard(b"x", MARK), MARK + 1)


def test_blob_is_measured_by_its_front_and_by_its_end() -> None:
    blob = guard(payload_of(700), MARK)
    followed = b"before" + blob + guard(b"next", MARK)
    assert measure(followed, 6, MARK) == len(blob)
    assert unguard(followed[6:], MARK).payload == payload_of(700)
    beheaded = followed[:6] + bytes(HEAD_BYTES) + followed[6 + HEAD_BYTES :]
    assert measure(beheaded, 6, MARK) == len(blob)
    assert measure(beheaded, 5, MARK) is None
    assert measure(b"", 0, MARK) is None
    assert measure(bytes(1000), 0, None) is None


def test_search_finds_blobs_by_either_end() -> None:
    first, second = guard(b"first", MARK), guard(payload_of(900), MARK)
    data = b"\x78\x56" + first + second[:-1] + b"?"
    offsets = [(place.offset, place.size) for place in search(data, 0, MARK)]
    assert offsets == [(2, len(first)), (2, len(first)), (2 + len(first), len(second))]
    assert [place.offset for place in search(data, 3, MARK)] == [2, 2 + len(first)]
    tail = data[2 + HEAD_BYTES : 2 + len(first)]
    assert [place.offset for place in search(tail, 0, MARK)] == [-HEAD_BYTES]


@pytest.mark.parametrize("size", [1, 5000, 2**31, 2**60, 2**64 - 1])
def test_forged_size_costs_neither_memory_nor_time(size: int) -> None:
    start = time.process_time()
    with pytest.raises(Damaged):
        unguard(forged_head(MARK, size) + bytes(4000), MARK)
    assert time.process_time() - start < 1


@given(st.binary(max_size=3000))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Damaged):
        unguard(data)


def test_worst_case_of_neighbouring_damage_in_a_large_blob_is_bounded() -> None:
    size = 4 << 20
    blob = bytearray(guard(bytes(size), MARK))
    chunk = chunk_bytes(size)
    start = HEAD_BYTES + chunk
    # Both chunks are bad in all columns, every second one by a zero difference: as many borders as can be.
    blob[start : start + 2 * chunk] = b"\x01\x00" * (chunk // 2) + b"\x02\x00" * (chunk // 2)
    begin = time.process_time()
    with pytest.raises(Damaged):
        unguard(bytes(blob), MARK)
    assert time.process_time() - begin < 2
