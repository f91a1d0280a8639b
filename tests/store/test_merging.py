"""Which segments become one: few files for each stream, and few copies of each message."""

from __future__ import annotations

from typing import Any, cast

import pytest

from edged.config.jetstream_options import SegmentOptions
from edged.store.cycle import MERGE_COUNT, merged_count
from edged.store.stream_log import SegmentFigures

NO_SEGMENT = cast(Any, None)


def figures(sizes: list[int]) -> list[SegmentFigures]:
    return [SegmentFigures(NO_SEGMENT, size, size) for size in sizes]


def grown(units: int, unit: int, options: SegmentOptions) -> tuple[list[int], int]:
    """The sizes of the segments after so many cycles that bring a unit each, and how much was copied."""
    sizes: list[int] = []
    copied = 0
    for _ in range(units):
        count = merged_count(figures(sizes), unit, options)
        taken = sum(sizes[len(sizes) - count :])
        copied += taken
        sizes[len(sizes) - count :] = [taken + unit]
    return sizes, copied


def test_segments_of_the_same_size_become_one_when_there_are_enough() -> None:
    assert merged_count(figures([10, 10]), 10, SegmentOptions()) == 0
    assert merged_count(figures([10, 10, 10]), 10, SegmentOptions()) == 3
    assert merged_count(figures([40, 40, 40, 10, 10, 10]), 10, SegmentOptions()) == 6
    assert merged_count(figures([500, 10, 10, 10]), 10, SegmentOptions()) == 3


def test_without_anything_new_nothing_is_merged() -> None:
    assert merged_count(figures([10, 10, 10]), 0, SegmentOptions()) == 0


@pytest.mark.parametrize("units", [64, 100, 255])
def test_a_stream_that_grows_has_few_segments_and_few_copies(units: int) -> None:
    sizes, copied = grown(units, 1000, SegmentOptions())
    levels = 4
    assert MERGE_COUNT**levels > units
    assert len(sizes) <= (MERGE_COUNT - 1) * levels
    assert sum(sizes) == units * 1000
    assert copied < levels * units * 1000


def test_no_segment_becomes_larger_than_the_largest() -> None:
    options = SegmentOptions(bytes_max=10_000)
    sizes, copied = grown(200, 1000, options)
    assert max(sizes) <= 10_000
    assert len(sizes) < 200 / 3
    assert copied < 3 * sum(sizes)
