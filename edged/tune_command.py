"""The command `edged tune`: measures the disk of a directory and says which settings suit it.

Rules: the report goes to stdout, progress to stderr and only if that is a terminal. Nothing is left in the
directory. A wrong argument or a disk that cannot be measured is one line on stderr.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edged.core.disk_advice import (
    Advice,
    DiskMeasurement,
    SyncSamples,
    advise,
    duration_text,
    histogram,
    percentile,
)
from edged.store.errors import StoreError
from edged.store.files import RealFiles
from edged.store.tune import measure

USAGE: Final = "edged tune [DIR] [--seconds N] [--json]"
HELP: Final = f"""Usage: {USAGE}

Measures how fast the disk under a directory writes and syncs, and recommends settings for it. What it writes
there is removed at the end.

  --seconds N   how long to measure (10)
  --json        for programs
  -h, --help    show this
"""
SECONDS_DEFAULT: Final = 10.0
SECONDS_MAX: Final = 3600.0
_BAR_CHARACTERS: Final = 40
_KIB: Final = 1024
_MIB: Final = 1024 * 1024


class TuneError(Exception):
    """The command cannot do what was asked; the text says what to do."""


@dataclass(frozen=True, slots=True)
class TuneArguments:
    """What follows `edged tune`."""

    directory: str = "."
    seconds: float = SECONDS_DEFAULT
    is_json: bool = False


def parse_arguments(arguments: Sequence[str]) -> TuneArguments:
    """The arguments in any order; flags take one dash or two, as everywhere."""
    directory: str | None = None
    seconds = SECONDS_DEFAULT
    is_json = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            if directory is not None:
                raise TuneError("one directory can be measured at a time")
            directory = word
        elif name == "json" and not equals:
            is_json = True
        elif name == "seconds":
            seconds = _seconds(value if equals else rest.pop(0) if rest else "")
        else:
            raise TuneError(f"unknown flag {word}: {USAGE}")
    return TuneArguments(directory or ".", seconds, is_json)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= SECONDS_MAX:
        raise TuneError(f"--seconds needs a number above 0, up to {SECONDS_MAX:g}")
    return seconds


def run(arguments: Sequence[str]) -> int:
    """Measure and report; TuneError when that does not work."""
    if {"-h", "-help", "--help"} & {*arguments}:
        print(HELP, end="")
        return 0
    asked = parse_arguments(arguments)
    if not Path(asked.directory).is_dir():
        raise TuneError(f"{asked.directory} is no directory: name the one that the store is or will be in")
    bar = _Bar()
    name = f".edged-tune-{os.getpid()}"
    try:
        files = RealFiles(asked.directory)
        measured = measure(files, name, asked.seconds, time.perf_counter, bar.show)
    except StoreError as error:
        raise TuneError(f"{asked.directory}: {error}") from error
    except OSError as error:
        raise TuneError(f"{asked.directory} cannot be measured: {error.strerror or error}") from error
    finally:
        bar.clear()
    advice = advise(measured)
    if asked.is_json:
        print(json.dumps(document(measured, advice), indent=2))
    else:
        for line in report(asked.directory, measured, advice):
            print(line)
    return 0


def report(directory: str, measured: DiskMeasurement, advice: Advice) -> Iterator[str]:
    """The lines for people."""
    sustained, free = _rate(measured.throughput_bytes_per_s), _size(measured.free_bytes)
    yield f"Disk of {directory}: {sustained} sustained, {free} free"
    yield ""
    yield f"{'write and sync':<30}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}{'durable':>14}"
    for samples in measured.samples:
        figures = "".join(f"{duration_text(percentile(samples.sync_s, one)):>9}" for one in (50, 90, 99, 100))
        yield f"{_name(samples):<30}{figures}{_rate(samples.bytes_per_s):>14}"
    for is_preallocated in (True, False):
        same = [one for one in measured.samples if one.is_preallocated is is_preallocated]
        smallest = min(same, key=lambda one: one.batch_bytes)
        yield ""
        yield f"How long syncs take: {_name(smallest)}, {len(smallest.sync_s)} times"
        bars = histogram(smallest.sync_s)
        most = max(count for _, count in bars)
        for bound_s, count in bars:
            filled = -(-count * _BAR_CHARACTERS // most)
            yield f"  up to {duration_text(bound_s):>7} {count:>6}  {'#' * filled}"
    yield ""
    yield "Recommended for the jetstream block:"
    for key, value in _settings(advice).items():
        yield f"    {key}: {json.dumps(value)}"
    yield ""
    for reason in advice.reasons:
        yield f"* {reason}"


def document(measured: DiskMeasurement, advice: Advice) -> dict[str, Any]:
    """The same for programs; times in seconds, sizes in bytes."""
    return {
        "throughput_bytes_per_s": round(measured.throughput_bytes_per_s),
        "free_bytes": measured.free_bytes,
        "syncs": [
            {
                "preallocated": samples.is_preallocated,
                "batch_bytes": samples.batch_bytes,
                "count": len(samples.sync_s),
                "bytes_per_s": round(samples.bytes_per_s),
                **{f"p{one}_s": percentile(samples.sync_s, one) for one in (50, 90, 99)},
                "max_s": percentile(samples.sync_s, 100),
                "histogram": [
                    {"up_to_s": bound, "count": count} for bound, count in histogram(samples.sync_s)
                ],
            }
            for samples in measured.samples
        ],
        "recommended": _settings(advice),
        "reasons": list(advice.reasons),
    }


def _settings(advice: Advice) -> dict[str, str | int]:
    return {
        "sync": advice.sync,
        "group_commit_delay": duration_text(advice.group_commit_delay_s),
        "group_commit_bytes": advice.group_commit_bytes,
        "journal_file_size": advice.journal_file_bytes,
    }


def _name(samples: SyncSamples) -> str:
    return (
        f"{samples.batch_bytes // _KIB} KiB, {'preallocated' if samples.is_preallocated else 'growing file'}"
    )


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / _MIB:.1f} MiB/s"


def _size(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB" if size >= 1024**3 else f"{size / _MIB:.0f} MiB"


class _Bar:
    """Progress on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._last = ""

    def show(self, what: str, done: float) -> None:
        filled = round(done * _BAR_CHARACTERS)
        line = f"[{'#' * filled:<{_BAR_CHARACTERS}}] {done:4.0%}  {what:<36}"
        if self._is_shown and line != self._last:
            self._last = line
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._last:
            print(f"\r{'':<{len(self._last)}}\r", end="", file=sys.stderr, flush=True)
