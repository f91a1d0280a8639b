"""From measurements of a disk to settings for it, with the reasons: what `edged tune` recommends.

Rules: pure; times are seconds, sizes bytes. The advice never trades durability for speed by itself: sync
stays "always", and when that is slow the advice says what waiting costs and what the weaker mode would cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * 1024

# No disk that keeps its promise answers a flush faster than this.
_LYING_S: Final = 10e-6
# Below this, waiting to gather more costs a publisher more than the sync that is saved.
_FAST_S: Final = 1e-3
# Above this, a lone publisher notices.
_SLOW_S: Final = 50e-3
_DELAY_S_MAX: Final = 20e-3
# A batch is large enough when it gets this share of the best throughput.
_BATCH_SHARE: Final = 0.7
_BATCH_BYTES_MIN: Final = 64 * _KIB
_BATCH_BYTES_MAX: Final = 8 * _MIB
# A journal file takes about half a second of writing at full speed: turning to the next one is then rare, and
# reading it after a power cut short.
_JOURNAL_S: Final = 0.5
_JOURNAL_BYTES_MIN: Final = 8 * _MIB
_JOURNAL_BYTES_MAX: Final = 128 * _MIB
_JOURNAL_FREE_SHARE: Final = 64
# A stall so much longer than usual is worth a word.
_STALL_FACTOR: Final = 20
_STALL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class SyncSamples:
    """Batches of one size, written and synced one after the other."""

    is_preallocated: bool
    batch_bytes: int
    write_s: tuple[float, ...]
    sync_s: tuple[float, ...]

    @property
    def bytes_per_s(self) -> float:
        """How fast batches of this size become durable."""
        total_s = sum(self.write_s) + sum(self.sync_s)
        return len(self.sync_s) * self.batch_bytes / total_s if total_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class DiskMeasurement:
    """What was measured; samples are never empty."""

    samples: tuple[SyncSamples, ...]
    throughput_bytes_per_s: float
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings for the jetstream block, and sentences that say why."""

    sync: str
    group_commit_delay_s: float
    group_commit_bytes: int
    journal_file_bytes: int
    reasons: tuple[str, ...]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent of the values do not exceed (nearest rank)."""
    assert values
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


def histogram(values: Sequence[float]) -> list[tuple[float, int]]:
    """(upper bound, count): bounds double from one to the next, from the first used to the last used."""
    found: dict[int, int] = {}
    for value in values:
        exponent = 0
        # A bound is 1 µs times a power of two; everything up to 1 µs is in the first.
        while value > 1e-6 * 2**exponent:
            exponent += 1
        found[exponent] = found.get(exponent, 0) + 1
    if not found:
        return []
    return [(1e-6 * 2**exponent, found.get(exponent, 0)) for exponent in range(min(found), max(found) + 1)]


def advise(measured: DiskMeasurement) -> Advice:
    """Settings for this disk."""
    small = _smallest(measured, is_preallocated=True)
    usual_s = percentile(small.sync_s, 50)
    reasons = [f"a sync takes {duration_text(usual_s)} as a rule, {_worst(small)} at worst"]
    if usual_s < _LYING_S:
        reasons.append(
            "no disk is so fast: this is memory, or a cache that ignores flushes. A power cut may take what "
            "was acknowledged"
        )
    if usual_s > _SLOW_S:
        reasons.append(
            f"a lone publish waits {duration_text(usual_s)} for its acknowledgement, many at once no longer. "
            'If losing the last seconds in a power cut is acceptable, sync: "2s" does not wait'
        )
    if percentile(small.sync_s, 100) > max(_STALL_FACTOR * usual_s, _STALL_S):
        reasons.append("single syncs stall for long, as cheap flash does: publishers should allow for it")
    appended = _smallest(measured, is_preallocated=False)
    ratio = percentile(appended.sync_s, 50) / usual_s if usual_s > 0 else 1.0
    if ratio >= 1.2:
        reasons.append(
            f"a growing file costs {ratio:.1f} times as much, which preallocated journal files save"
        )
    delay_s = _delay_s(usual_s)
    if delay_s:
        reasons.append(f"gathering for {duration_text(delay_s)} saves syncs, and with them wear")
    batch_bytes = _batch_bytes(measured)
    journal_bytes = _journal_bytes(measured)
    return Advice("always", delay_s, batch_bytes, journal_bytes, tuple(reasons))


def _smallest(measured: DiskMeasurement, is_preallocated: bool) -> SyncSamples:
    same = [one for one in measured.samples if one.is_preallocated is is_preallocated]
    return min(same, key=lambda one: one.batch_bytes)


def _worst(samples: SyncSamples) -> str:
    return duration_text(percentile(samples.sync_s, 100))


def _delay_s(usual_s: float) -> float:
    """Half a sync, in one digit; nothing on a fast disk."""
    if usual_s < _FAST_S:
        return 0.0
    return float(f"{min(usual_s / 2, _DELAY_S_MAX):.1g}")


def _batch_bytes(measured: DiskMeasurement) -> int:
    same = sorted((one for one in measured.samples if one.is_preallocated), key=lambda one: one.batch_bytes)
    best = max(one.bytes_per_s for one in same)
    enough = next(one.batch_bytes for one in same if one.bytes_per_s >= best * _BATCH_SHARE)
    return _power_of_two(enough, _BATCH_BYTES_MIN, _BATCH_BYTES_MAX)


def _journal_bytes(measured: DiskMeasurement) -> int:
    wanted = min(measured.throughput_bytes_per_s * _JOURNAL_S, measured.free_bytes / _JOURNAL_FREE_SHARE)
    return _power_of_two(int(wanted), _JOURNAL_BYTES_MIN, _JOURNAL_BYTES_MAX)


def _power_of_two(wanted: int, minimum: int, maximum: int) -> int:
    """The largest power of two that is not more than wanted, within bounds."""
    found = minimum
    while found * 2 <= min(wanted, maximum):
        found *= 2
    return found


def duration_text(seconds: float) -> str:
    """A duration as the configuration takes it, in three digits at most: 0s, 85us, 1.25ms, 2s."""
    if seconds <= 0:
        return "0s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        # What rounds to 1000 of a unit is written as one of the next.
        if seconds >= 0.9995 * factor:
            return f"{seconds / factor:.3g}{unit}"
    return f"{seconds / 1e-9:.0f}ns"
