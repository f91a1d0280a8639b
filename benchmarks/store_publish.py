"""Publishes through the committer: messages per second and processor time for each, by window and size.

A window is how many messages are not yet answered, in two halves, as two publishers would have it. The
processor time is that of the whole process, user and system: framing, checksums, the system's part of the
write, applying. Native and pure run in processes of their own, because one process never mixes the two.
Sealing is measured by itself: it happens beside the commits, and once for each message that outlives its
journal file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.store_append import CommitLoop, UnsealedCommitter
from benchmarks.store_figures import Figure
from benchmarks.store_load import empty, messages_of, open_store, recycle
from edged.core.twins import PURE
from edged.store.options import StoreOptions

WINDOWS: Final = (1, 64, 1024, 8192)
PAYLOADS_BYTES: Final = (128, 1024)
_PART: Final = "publish"


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """How often, how long for each case, and the size of the journal's files."""

    rounds: int
    seconds: float = 1.0
    file_bytes: int = StoreOptions().journal_file_bytes


def measure(folder: Path, plan: PublishPlan, progress: Callable[[str], None]) -> Iterator[Figure]:
    """All windows and sizes, native and pure in turn."""
    values: dict[tuple[str, str, str], list[float]] = {}
    units = {"messages": "/s", "CPU each": "µs"}
    for number in range(plan.rounds):
        for twin in ("native", "pure"):
            place = folder / f"publish-{twin}-{number}"
            for case, figures in _run_child(place, twin, plan):
                for name, value in figures.items():
                    values.setdefault((f"{twin}, {case}", name, units[name]), []).append(value)
            progress(f"{twin}, round {number + 1} of {plan.rounds}")
    for (case, name, unit), found in sorted(values.items(), key=lambda item: item[0][0].startswith("pure")):
        yield Figure(_PART, case, name, tuple(found), unit)


def _run_child(place: Path, twin: str, plan: PublishPlan) -> list[tuple[str, dict[str, float]]]:
    environ = {key: value for key, value in os.environ.items() if key != "EDGED_PURE"}
    if twin == "pure":
        environ["EDGED_PURE"] = "1"
    command = [sys.executable, "-m", "benchmarks.store_publish", str(place)]
    command += [str(plan.seconds), str(plan.file_bytes)]
    answer = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"measuring {twin} failed:\n{answer.stderr[-2000:]}")
    document: dict[str, Any] = json.loads(answer.stdout)
    if document["is_pure"] != (twin == "pure"):
        raise RuntimeError(f"{twin} was wanted, and is not what ran: is the native twin built?")
    found: list[tuple[str, dict[str, float]]] = document["cases"]
    return found


def run(folder: Path, seconds: float, file_bytes: int) -> list[tuple[str, dict[str, float]]]:
    """All windows and sizes in this process, and sealing."""
    options = StoreOptions(journal_file_bytes=file_bytes)
    loop = CommitLoop(open_store(folder, options=options), UnsealedCommitter)
    try:
        cases = [
            (f"{size} B, window {window}", _publish(loop, window, size, seconds))
            for size in PAYLOADS_BYTES
            for window in WINDOWS
        ]
        cases += [(f"{size} B, sealing", _seal(loop, size)) for size in PAYLOADS_BYTES]
    finally:
        loop.close()
    return cases


def _publish(loop: CommitLoop, window: int, payload_bytes: int, seconds: float) -> dict[str, float]:
    """Until the clock has run for so long. It stands while the store is emptied."""
    journal = loop.store.journal
    messages = messages_of(max(1, window // 2), payload_bytes)
    at_a_time = min(window, 2)
    # About a hundredth of a second: long enough for the clocks, short enough to stop in time.
    batches = max(1, 2048 // len(messages))
    count, took_s, cpu_s = 0, 0.0, 0.0
    while took_s < seconds:
        recycle(loop.store)
        number = journal.number
        while took_s < seconds and journal.number == number:
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
            loop.run(messages, batches, at_a_time)
            took_s += time.perf_counter() - started_s
            cpu_s += time.process_time() - started_cpu_s
            count += batches * len(messages)
    return {"messages": count / took_s, "CPU each": cpu_s / count * 1e6}


def _seal(loop: CommitLoop, payload_bytes: int) -> dict[str, float]:
    """Fill one journal file, and move what is in it to a segment."""
    store = loop.store
    empty(store)
    messages = messages_of(256, payload_bytes)
    while not store.is_cycle_due:
        loop.run(messages, 1)
    count = store.stream(1).log.message_count
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    store.maintain()
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    return {"messages": count / took_s, "CPU each": cpu_s / count * 1e6}


if __name__ == "__main__":
    found = run(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps({"is_pure": PURE, "cases": found}))
