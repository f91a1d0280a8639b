"""The command: `python -m tests.lab crash|flips|failures [--seed N] [--processes 2] [--replay ID]`.

* crash: power cuts during the life of a store. `--states 1000000` says how many.
* flips: a bit of a store's files is wrong, or a sector, or a whole file. `--all` tries every bit, of small
  stores: one by one those that a store ever reads, and all others, which it is seen not to read, at once.
* failures: every operation on files fails once, or from there on.

Prints progress to stderr, what the store did not come back from, and a summary line at the end; the exit
status is 1 when there was something. `--replay` tries one thing again, and for `crash` and `flips` with
`--dump` writes what was on its disk to a directory first.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.failures import SERIES, Lives, Trial
from tests.lab.rot import Tally, Task, damage_named, damage_tasks, flip_tasks, run_task
from tests.lab.rot_judge import WRONG, judge
from tests.lab.store_crash import History, Offence, described
from tests.lab.tested_store import TestedStore
from tests.lab.tested_toy import opener
from tests.lab.toy_store import Faults

STATES_PER_HISTORY_MAX: Final = 4_000
OFFENCES_SHOWN_MAX: Final = 20
# The rest of a history that is wrong so often would say nothing new.
OFFENCES_PER_HISTORY_MAX: Final = 5
# No state, and no history before its states, takes nearly so long. What does is caught in a loop.
STATE_S_MAX: Final = 30
TASK_S_MAX: Final = 300
MEMORY_BYTES_MAX: Final = 1024**3


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one history."""

    states: int
    offences: tuple[Offence, ...]


def history_of(store: str, seed: int, number: int) -> History:
    """Of the real store, or of the toy: right, or with the fault of that name, and never on a bad disk."""
    if store == "real":
        return History(TestedStore, seed, number)
    _, _, fault = store.partition(":")
    faults = Faults(**{fault: True}) if fault else Faults()
    return History(opener(faults), seed, number, is_disk_troubled=False)


class Stuck(Exception):  # noqa: N818 - says what is the matter
    """Not an OSError like TimeoutError, which the store would take for the disk's."""


def _stop_waiting(number: int, frame: object) -> None:
    raise Stuck(f"no end after {STATE_S_MAX} s")


def run_history(task: tuple[str, int, int, int]) -> Result:
    """One history from beginning to end. A workload that fails without any crash is an offence, too."""
    name, seed, number, states_max = task
    count = 0
    found = []
    signal.signal(signal.SIGALRM, _stop_waiting)
    signal.setitimer(signal.ITIMER_REAL, STATE_S_MAX)
    try:
        for offence in history_of(name, seed, number).check(states_max):
            signal.setitimer(signal.ITIMER_REAL, STATE_S_MAX)
            count += 1
            if offence is not None:
                found.append(offence)
                if len(found) == OFFENCES_PER_HISTORY_MAX:
                    break
    except Exception as error:
        when = f"after {count} states" if count else "no crash"
        found.append(Offence(f"{seed:x}.{number:x}", f"{when}: {described(error)}"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Result(count, tuple(found))


def _bound_memory() -> None:
    """A store that takes all memory is to fail, and not the machine."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or most > MEMORY_BYTES_MAX:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


def results(arguments: argparse.Namespace) -> Iterator[Result]:
    """Histories one after another, in as many processes as asked for, until somebody stops asking."""
    share = min(STATES_PER_HISTORY_MAX, max(1, arguments.states // arguments.processes))
    tasks = ((arguments.store, arguments.seed, number, share) for number in itertools.count())
    if arguments.processes == 1:
        yield from map(run_history, tasks)
        return
    # `imap_unordered` would take from the endless list as fast as it can: hand out a few at a time.
    with multiprocessing.Pool(arguments.processes, _bound_memory) as pool:
        while True:
            yield from pool.imap_unordered(run_history, itertools.islice(tasks, arguments.processes * 4))


def crash(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    states = histories = offences = 0
    running = results(arguments)
    for result in running:
        histories += 1
        states += result.states
        for offence in result.offences:
            offences += 1
            if offences <= OFFENCES_SHOWN_MAX:
                print(offence, flush=True)
        per_s = states / max(0.001, time.monotonic() - started)
        if sys.stderr.isatty():
            sys.stderr.write(f"{states:11,} of {arguments.states:,} states  {per_s:7,.0f}/s\r")
            sys.stderr.flush()
        if states >= arguments.states or offences >= arguments.offences_max:
            break
    running.close()  # type: ignore[attr-defined]
    seconds = time.monotonic() - started
    print(
        f"crash: {states:,} states of {histories:,} histories, seed {arguments.seed:x},"
        f" {offences} wrong, {seconds:.0f} s, {states / max(seconds, 0.001):,.0f} states/s",
        flush=True,
    )
    return 1 if offences else 0


def replay(arguments: argparse.Namespace) -> int:
    name = arguments.replay.split("/")[0]
    seed, number = (int(part, 16) for part in name.split("."))
    history = history_of(arguments.store, seed, number)
    if "/" not in arguments.replay:
        print(f"{arguments.replay}: right without a crash")
        return 0
    state, mark = history.replay(arguments.replay)
    print(f"trouble: {history.trouble}; promise {mark}; on the disk:")
    for path, node in state.disk.files():
        print(f"  {len(node.content):8} {path}")
    if arguments.dump is not None:
        state.disk.to_directory(arguments.dump)
    offence = history.check_state(arguments.replay, state, mark)
    print(offence or f"{arguments.replay}: right")
    return 1 if offence else 0


def _timed(task: Task) -> Tally:
    """A task within a bounded time."""
    signal.signal(signal.SIGALRM, _stop_waiting)
    signal.setitimer(signal.ITIMER_REAL, TASK_S_MAX)
    try:
        return run_task(task)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def flips(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    seeds = range(arguments.seed, arguments.seed + arguments.stores)
    flip_count = None if arguments.all else arguments.flips
    tasks = itertools.chain(damage_tasks(seeds), flip_tasks(seeds, flip_count))
    tally = Tally()
    with multiprocessing.Pool(arguments.processes, _bound_memory) as pool:
        for result in pool.imap_unordered(_timed, tasks):
            for offence in result.offences[: max(0, OFFENCES_SHOWN_MAX - len(tally.offences))]:
                print(offence, flush=True)
            tally.merge(result)
            if sys.stderr.isatty():
                sys.stderr.write(f"{tally.total:11,} damages\r")
            if len(tally.offences) >= arguments.offences_max:
                break
    seconds = time.monotonic() - started
    print("\n".join(tally.lines()))
    print(
        f"flips: {tally.total:,} damages of {2 * len(seeds)} stores, seed {arguments.seed:x},"
        f" {len(tally.offences)} wrong, {seconds:.0f} s, slowest {tally.slowest_s * 1000:.0f} ms"
        f" ({tally.slowest})",
        flush=True,
    )
    return 1 if tally.offences else 0


def replay_flip(arguments: argparse.Namespace) -> int:
    reference, damage = damage_named(arguments.replay)
    if arguments.dump is not None:
        damage.disk.to_directory(arguments.dump)
    verdict = judge(reference, damage)
    print(f"{damage.identity}: {verdict.kind}{', noticed' * verdict.is_noticed}; {verdict.what}")
    return 1 if verdict.kind == WRONG else 0


def run_series(task: tuple[int, str, str, bool, int]) -> tuple[str, int, list[Offence]]:
    """One way to fail, at every place or at every so many."""
    seed, where, kind, is_lasting, stride = task
    found = list(Lives(seed).series(where, kind, is_lasting, stride))
    name = f"{where} {kind} {'lasting' if is_lasting else 'once'}"
    return name, len(found), [offence for offence in found if offence is not None]


def failures(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    tasks = [(arguments.seed, *series, arguments.stride) for series in SERIES]
    count = wrong = 0
    with multiprocessing.Pool(arguments.processes, _bound_memory) as pool:
        for name, lives, offences in pool.imap_unordered(run_series, tasks):
            for offence in offences[: max(0, OFFENCES_SHOWN_MAX - wrong)]:
                print(offence, flush=True)
            print(f"  {lives:6,} lives, {len(offences)} wrong: {name}", flush=True)
            count += lives
            wrong += len(offences)
    seconds = time.monotonic() - started
    print(f"failures: {count:,} lives, seed {arguments.seed:x}, {wrong} wrong, {seconds:.0f} s", flush=True)
    return 1 if wrong else 0


def replay_failure(arguments: argparse.Namespace) -> int:
    is_hit, offence = Lives(arguments.seed).run(Trial.named(arguments.replay))
    print(offence or f"{arguments.replay}: right{'' if is_hit else ', and nothing failed'}")
    return 1 if offence else 0


def arguments_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    kinds = parser.add_subparsers(required=True)
    crashing = kinds.add_parser("crash", help="power cuts during the life of a store")
    crashing.set_defaults(run=crash, run_again=replay)
    crashing.add_argument("--states", type=int, default=1_000_000, help="how many states at least")
    crashing.add_argument("--store", default="real", help="real, toy, or toy:FAULT to see one caught")
    rotting = kinds.add_parser("flips", help="bits, sectors and files that are wrong")
    rotting.set_defaults(run=flips, run_again=replay_flip)
    rotting.add_argument("--flips", type=int, default=100_000, help="how many bits, in all stores together")
    rotting.add_argument("--all", action="store_true", help="every bit of small stores")
    rotting.add_argument("--stores", type=int, default=2, help="how many stores, each closed and killed")
    failing = kinds.add_parser("failures", help="operations on files that fail")
    failing.set_defaults(run=failures, run_again=replay_failure)
    failing.add_argument("--stride", type=int, default=1, help="only every so many operations")
    for kind in (crashing, rotting):
        kind.add_argument("--dump", type=Path, help="with --replay: where to put the files of the disk")
        kind.add_argument("--offences-max", type=int, default=100, help="stop after so many")
    for kind in (crashing, rotting, failing):
        kind.add_argument("--seed", type=lambda text: int(text, 16), default=1, help="hexadecimal")
        kind.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
        kind.add_argument("--replay", help="try one thing again, by its name")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = arguments_from(argv)
    status: int = arguments.run(arguments) if arguments.replay is None else arguments.run_again(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
