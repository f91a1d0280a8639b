"""Percentiles of measured latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a set of times."""

    p50_us: float
    p99_us: float
    p999_us: float


def latency_of(latencies_ns: Sequence[int]) -> Latency:
    """The percentiles by nearest rank: each is a latency that was measured."""
    assert len(latencies_ns) > 0
    ordered = sorted(latencies_ns)

    def rank(per_mille: int) -> float:
        position = -(-len(ordered) * per_mille // 1000)
        return ordered[position - 1] / 1000

    return Latency(rank(500), rank(990), rank(999))
