"""What is recommended for disks of all kinds, and how figures are put into words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.config.load import load_text
from edged.core.disk_advice import (
    DiskMeasurement,
    SyncSamples,
    advise,
    duration_text,
    histogram,
    percentile,
)

KIB = 1024
MIB = 1024 * 1024
SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB)


def disk(
    sync_s: float, rate: float, growing: float = 1.0, free_bytes: int = 10**12, worst_s: float = 0.0
) -> DiskMeasurement:
    """A disk whose sync takes `sync_s` and the time that the bytes take at this rate."""

    def samples(is_preallocated: bool, size: int) -> SyncSamples:
        usual_s = sync_s * (1 if is_preallocated else growing)
        times = (usual_s,) * 99 + (max(worst_s, usual_s),)
        return SyncSamples(is_preallocated, size, (size / rate,) * 100, times)

    every = [samples(is_preallocated, size) for is_preallocated in (True, False) for size in SIZES]
    return DiskMeasurement(tuple(every), rate, free_bytes)


def test_fast_disk_gathers_nothing_and_turns_large_files() -> None:
    advice = advise(disk(100e-6, 1000 * MIB))
    assert (advice.sync, advice.group_commit_delay_s) == ("always", 0.0)
    assert advice.journal_file_bytes == 128 * MIB
    assert advice.reasons == ("a sync takes 100us as a rule, 100us at worst",)


def test_memory_card_gathers_for_half_a_sync_in_small_files() -> None:
    advice = advise(disk(8e-3, 10 * MIB))
    assert advice.group_commit_delay_s == 0.004
    assert advice.journal_file_bytes == 8 * MIB
    assert any("gathering for 4ms saves syncs" in reason for reason in advice.reasons)


def test_slow_disk_stays_durable_and_the_price_is_named() -> None:
    advice = advise(disk(0.2, 5 * MIB))
    assert advice.sync == "always"
    assert advice.group_commit_delay_s == 0.02
    assert any("a lone publish waits 200ms" in reason and 'sync: "2s"' in reason for reason in advice.reasons)


def test_disk_that_is_too_fast_to_be_true_is_named() -> None:
    assert any("ignores flushes" in reason for reason in advise(disk(2e-6, 1000 * MIB)).reasons)
    assert not any("ignores flushes" in reason for reason in advise(disk(20e-6, 1000 * MIB)).reasons)


def test_long_stalls_and_costly_growth_are_named() -> None:
    reasons = " ".join(advise(disk(1e-3, 50 * MIB, growing=2.5, worst_s=0.5)).reasons)
    assert "stall for long" in reasons
    assert "costs 2.5 times as much" in reasons
    reasons = " ".join(advise(disk(1e-3, 50 * MIB, growing=1.1, worst_s=0.05)).reasons)
    assert "stall" not in reasons
    assert "times as much" not in reasons


def test_batch_is_as_large_as_the_time_of_a_sync_is_worth() -> None:
    assert advise(disk(1e-6, 1000 * MIB)).group_commit_bytes == 64 * KIB
    assert advise(disk(1e-3, 100 * MIB)).group_commit_bytes == 256 * KIB
    assert advise(disk(10e-3, 100 * MIB)).group_commit_bytes == MIB


def test_journal_file_is_a_small_part_of_what_is_free() -> None:
    assert advise(disk(1e-3, 1000 * MIB, free_bytes=2048 * MIB)).journal_file_bytes == 32 * MIB
    assert advise(disk(1e-3, 1000 * MIB, free_bytes=0)).journal_file_bytes == 8 * MIB


@given(sync_s=st.floats(1e-7, 10), rate=st.floats(1e4, 1e11), free_bytes=st.integers(0, 10**15))
def test_advice_for_any_disk_is_a_valid_configuration(sync_s: float, rate: float, free_bytes: int) -> None:
    advice = advise(disk(sync_s, rate, free_bytes=free_bytes))
    jetstream = load_text(
        f"jetstream {{ sync: {advice.sync}, group_commit_bytes: {advice.group_commit_bytes},"
        f' group_commit_delay: "{duration_text(advice.group_commit_delay_s)}",'
        f" journal_file_size: {advice.journal_file_bytes} }}",
        {},
    ).options.jetstream
    assert jetstream is not None
    assert jetstream.group_commit_delay_s == pytest.approx(advice.group_commit_delay_s)


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (1, 1.0), (50, 5.0), (51, 6.0), (90, 9.0), (99, 10.0), (100, 10.0)]
)
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(10, 0, -1)], percent) == expected
    assert percentile([7.0], percent) == 7.0


def test_histogram_doubles_and_leaves_no_gap() -> None:
    found = histogram([0.5e-6, 1e-6, 1.5e-6, 9e-6])
    assert found == [(1e-6, 2), (2e-6, 1), (4e-6, 0), (8e-6, 0), (16e-6, 1)]
    assert histogram([]) == []


@given(st.lists(st.floats(1e-9, 100), min_size=1))
def test_histogram_counts_every_value_once_below_its_bound(values: list[float]) -> None:
    bars = histogram(values)
    assert sum(count for _, count in bars) == len(values)
    for position, (bound_s, _) in enumerate(bars):
        up_to_here = sum(count for _, count in bars[: position + 1])
        assert up_to_here == sum(value <= bound_s for value in values)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (2.0, "2s"),
        (0.9996, "1s"),
        (0.25, "250ms"),
        (0.00125, "1.25ms"),
        (85e-6, "85us"),
        (999.7e-6, "1ms"),
        (5e-9, "5ns"),
    ],
)
def test_durations_are_written_as_the_configuration_takes_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
