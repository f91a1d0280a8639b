"""How soon a store is ready again after SIGKILL, and how much memory it has then.

A process fills a store as a daemon would, sealing beside the commits, and is killed the moment the last
message is acknowledged. Copies of what it left are opened in fresh processes, each killed in its turn.
Measured from the start of the process, interpreter and imports included, until the last message has been
read. The page cache is warm, or emptied of the store's files. nats-server gets as many messages of the same
size, over its protocol; what is measured of it is the time until its stream counts them all.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import store_baseline
from benchmarks.procfs import process_use
from benchmarks.servers import ServerKind
from benchmarks.store_append import CommitLoop
from benchmarks.store_disk import drop_from_cache
from benchmarks.store_figures import Figure, Goal, at_least, at_most, ratio
from benchmarks.store_load import STREAM, messages_of, open_store

PAYLOAD_BYTES: Final = 128
# When there are ten times as many messages.
GROWTH_MAX: Final = 3.0
# With up to so many subjects; each one above may take some bytes more.
RSS_MIB_MAX: Final = 150.0
SUBJECTS_USUAL: Final = 100_000
SUBJECT_BYTES_MAX: Final = 256
_BATCH_MESSAGES: Final = 512
_COMPARED_MESSAGES: Final = 1_000_000
_PART: Final = "ready"
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadyPlan:
    """How large, how many subjects, how often."""

    messages: tuple[int, ...]
    subjects: tuple[int, ...]
    rounds: int


def measure(
    folder: Path, plan: ReadyPlan, reference: ServerKind | None, progress: Callable[[str], None]
) -> Iterator[Figure]:
    """All sizes and numbers of subjects; nats-server at the smallest size."""
    for subjects in plan.subjects:
        smallest: Figure | None = None
        for messages in sorted(plan.messages):
            case = f"{messages:,} messages, {subjects:,} subjects"
            figures = _measure_store(folder, case, messages, subjects, plan.rounds)
            yield from figures.values()
            progress(case)
            warm = figures["warm"]
            if smallest is None:
                smallest = warm
                if reference is not None:
                    theirs = _measure_reference(folder, reference, messages, plan.rounds)
                    yield theirs
                    progress(f"{messages:,} messages in {reference.name}")
                    goal = at_least(1.0) if messages >= _COMPARED_MESSAGES else None
                    yield ratio(case, f"speed of {reference.name}", theirs, warm, goal)
            else:
                yield ratio(case, "times the smallest", warm, smallest, at_most(GROWTH_MAX))


def _measure_store(folder: Path, case: str, messages: int, subjects: int, rounds: int) -> dict[str, Figure]:
    built = folder / f"ready-{messages}-{subjects}"
    facts = _build(built, messages, subjects)
    found: dict[str, list[dict[str, float]]] = {"warm": [], "cold": []}
    for _ in range(rounds):
        for state, answers in found.items():
            copy = folder / "ready-copy"
            shutil.copytree(built, copy)
            drop_from_cache(copy)
            if state == "warm":
                _read_all(copy)
            answers.append(_open(copy, messages))
            shutil.rmtree(copy)
    shutil.rmtree(built)

    def figure(name: str, state: str, key: str, unit: str, goal: Goal | None = None) -> Figure:
        return Figure(_PART, case, name, tuple(answer[key] for answer in found[state]), unit, goal)

    more_bytes = SUBJECT_BYTES_MAX * max(0, subjects - SUBJECTS_USUAL)
    memory_goal = at_most(RSS_MIB_MAX + more_bytes / _MEBIBYTE)
    return {
        "warm": figure("ready, cache warm", "warm", "ready_s", "s"),
        "cold": figure("ready, cache cold", "cold", "ready_s", "s"),
        "open": figure("of it Store.open, warm", "warm", "open_s", "s"),
        "replayed": figure("records replayed", "warm", "replayed", "#"),
        "rss": figure("RSS", "warm", "rss_mib", "MiB", memory_goal),
        "peak": figure("RSS at its peak", "warm", "rss_peak_mib", "MiB", memory_goal),
        "filling": Figure(_PART, case, "filled, sealing beside it", (messages / facts["seconds"],), "/s"),
        "unsealed": Figure(_PART, case, "files not sealed at the kill", (facts["unsealed_files"],), "#"),
    }


def _measure_reference(folder: Path, kind: ServerKind, messages: int, rounds: int) -> Figure:
    place = folder / "ready-reference"
    place.mkdir()
    server = store_baseline.StoreServer(kind, place)
    with server.running() as process:
        server.wait_healthy(process)
        store_baseline.fill(server.endpoint, messages)
        server.wait_complete(messages)
    restarts = [store_baseline.measure(server, messages) for _ in range(rounds)]
    shutil.rmtree(place)
    case = f"{messages:,} messages, {kind.name}"
    return Figure(_PART, case, "ready, cache warm", tuple(one.complete_s for one in restarts), "s")


# --- the processes ---


def _build(folder: Path, messages: int, subjects: int) -> dict[str, float]:
    """Fill a store in a process that is killed when it says that it is done."""
    arguments = ["build", str(folder), str(messages), str(subjects)]
    with _started(arguments) as process:
        return _answer_and_kill(process)


def _open(folder: Path, messages: int) -> dict[str, float]:
    started_s = time.monotonic()
    with _started(["open", str(folder), str(messages)]) as process:
        answer = _answer_and_kill(process)
    return {**answer, "ready_s": answer["ready_at_s"] - started_s}


def _started(arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.store_ready", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def _answer_and_kill(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if not line:
        raise RuntimeError(f"a process of the benchmark ended with status {process.returncode}")
    answer: dict[str, float] = json.loads(line)
    return answer


def build(folder: Path, messages: int, subjects: int) -> dict[str, Any]:
    """Fill a new store; the caller is killed before it can close it."""
    loop = CommitLoop(open_store(folder))
    started_s = time.monotonic()
    done = 0
    while done < messages:
        size = min(_BATCH_MESSAGES, messages - done)
        loop.run(messages_of(size, PAYLOAD_BYTES, subjects, done), 1)
        done += size
    return {
        "seconds": time.monotonic() - started_s,
        "unsealed_files": loop.store.unsealed_files,
    }


def reopen(folder: Path, messages: int) -> dict[str, Any]:
    """Open a store that was left by a kill, and read its last message."""
    started_s = time.monotonic()
    store = open_store(folder, is_new=False)
    opened_s = time.monotonic()
    log = store.stream(STREAM).log
    last = log.get(log.last_seq)
    ready_at_s = time.monotonic()
    if last is None or log.message_count != messages or not store.report.is_clean:
        raise RuntimeError(f"{log.message_count} of {messages} messages are there: {store.report}")
    use = process_use_of_this()
    return {
        "ready_at_s": ready_at_s,
        "open_s": opened_s - started_s,
        "replayed": store.report.replay.records,
        **use,
    }


def process_use_of_this() -> dict[str, float]:
    """The memory of this process."""
    use = process_use(os.getpid())
    return {"rss_mib": use.rss_bytes / _MEBIBYTE, "rss_peak_mib": use.rss_peak_bytes / _MEBIBYTE}


def _read_all(folder: Path) -> None:
    """Bring the files of a folder into the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


def _main(arguments: Sequence[str]) -> None:
    role, folder, messages = arguments[0], Path(arguments[1]), int(arguments[2])
    if role == "build":
        answer = build(folder, messages, int(arguments[3]))
    else:
        assert role == "open", role
        answer = reopen(folder, messages)
    print(json.dumps(answer), flush=True)
    # Whoever reads this kills us.
    signal.pause()


if __name__ == "__main__":
    _main(sys.argv[1:])
