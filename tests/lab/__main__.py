"""The command: `python -m tests.lab crash --states 1000000 [--seed N] [--processes 2] [--replay ID]`.

Prints progress to stderr, the states the store did not come back from, and a summary line at the end; the
exit status is 1 when there was such a state. `--replay` tries one state again, and with `--dump` writes what
was on its disk to a directory first.
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


def arguments_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    kinds = parser.add_subparsers(required=True)
    crashing = kinds.add_parser("crash", help="power cuts during the life of a store")
    crashing.add_argument("--states", type=int, default=1_000_000, help="how many states at least")
    crashing.add_argument("--seed", type=lambda text: int(text, 16), default=1, help="hexadecimal")
    crashing.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    crashing.add_argument("--replay", help="try one state again, by its name")
    crashing.add_argument("--dump", type=Path, help="with --replay: where to put the files of the disk")
    crashing.add_argument("--offences-max", type=int, default=100, help="stop after so many")
    crashing.add_argument("--store", default="real", help="real, toy, or toy:FAULT to see one caught")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = arguments_from(argv)
    return crash(arguments) if arguments.replay is None else replay(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
