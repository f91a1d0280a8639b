"""The command: `python -m tests.disks power-cut --rounds 100 --filesystem xfs --seed 7`, `kill`, `disk-full`.

`power-cut-consumers` has a whole daemon in the place of the store, with clients that fetch and acknowledge.

Prints progress to stderr and the outcome to stdout. The exit status is 1 when a store broke its promise, 2
when this machine cannot do what was asked. Chance begins with the seed, but the moment of a crash also
depends on the machine: the same seed gives the same load, and crashes near the same places.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.disks.disk_full import SCENARIOS
from tests.disks.kill import kills
from tests.disks.loop_filesystem import IMAGE_BYTES, NotPossibleError, run_isolated
from tests.disks.model import ViolationError
from tests.disks.power_cut import power_cuts
from tests.disks.power_cut_consumers import power_cuts_of_consumers
from tests.disks.subject import SUBJECT_NAMES
from tests.disks.trial import Course, Figures
from tests.disks.worker import WorkerError, serve
from tests.jetstream.consumption_ledger import Violation
from tests.jetstream.kill_consumers import Figures as ConsumedFigures

ISOLATED_FLAG = "--isolated"
POWER_CUTS = ("power-cut", "power-cut-consumers")


def arguments_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.disks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, summary in (
        ("power-cut", "cut the power of a loop filesystem at random moments"),
        ("power-cut-consumers", "the same while clients of a daemon fetch and acknowledge"),
        ("kill", "kill the store's process at random moments"),
        ("disk-full", "full, read-only and failing disks"),
        ("worker", "the process that has the store open; for the harness itself"),
    ):
        command = commands.add_parser(name, help=summary)
        if name == "power-cut-consumers":
            command.add_argument(
                "--subject", choices=("edged", "nats-server"), default="edged", help="the daemon"
            )
            command.add_argument(
                "--settings", default="", help="more for its jetstream block, such as 'sync: os'"
            )
        else:
            command.add_argument(
                "--subject", choices=SUBJECT_NAMES, default=SUBJECT_NAMES[0], help="the store"
            )
        if name in (*POWER_CUTS, "kill"):
            command.add_argument("--rounds", type=int, default=50)
            command.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="default: the time")
        if name in ("power-cut", "kill"):
            command.add_argument("--keep", type=Path, metavar="FOLDER", help="copy a store that failed there")
        if name in POWER_CUTS:
            command.add_argument("--filesystem", choices=tuple(IMAGE_BYTES), default="ext4")
        if name == "disk-full":
            command.add_argument("--scenario", choices=tuple(SCENARIOS), action="append")
        if name in (*POWER_CUTS, "disk-full"):
            command.add_argument(ISOLATED_FLAG, action="store_true", help=argparse.SUPPRESS)
        if name == "worker":
            command.add_argument("--root", type=Path, required=True)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = arguments_from(argv)
    if arguments.command == "worker":
        serve(arguments.subject, arguments.root)
        return 0
    if not getattr(arguments, "isolated", True):
        if arguments.command in POWER_CUTS and "--seed" not in argv:
            argv = [*argv, "--seed", str(arguments.seed)]
        try:
            done = run_isolated([*argv, ISOLATED_FLAG])
        except NotPossibleError as error:
            print(error, file=sys.stderr)
            return 2
        print(done.stdout, end="")
        return done.returncode
    # An end that unwinds: folders are removed, and the first process of a namespace would ignore the signal.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        _run(arguments)
    except (ViolationError, Violation, WorkerError) as error:
        print(f"FAILED: {' '.join(argv)}: {error}")
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "disk-full":
        for name in arguments.scenario or SCENARIOS:
            print(f"{name}: {SCENARIOS[name](arguments.subject)}", flush=True)
        return
    what = f"{arguments.command} of {arguments.subject}, seed {arguments.seed}"
    if arguments.command == "power-cut-consumers":
        what += f", on {arguments.filesystem}"
        consumed = power_cuts_of_consumers(
            *(arguments.subject, arguments.filesystem, arguments.seed, arguments.rounds),
            _progress_of(what),
            arguments.settings,
        )
        print(f"{what}: all kept: {consumed}")
        return
    course = Course(arguments.rounds, arguments.seed, _progress_of(what), arguments.keep)
    if arguments.command == "kill":
        figures = kills(arguments.subject, course)
    else:
        what += f", on {arguments.filesystem}"
        figures = power_cuts(arguments.subject, arguments.filesystem, course)
    print(f"{what}: all kept: {figures}")


def _progress_of(what: str) -> Callable[[Figures | ConsumedFigures], None]:
    started_s = time.monotonic()

    def progress(figures: Figures | ConsumedFigures) -> None:
        if sys.stderr.isatty():  # A log wants the outcome, not the way there.
            per_round_s = (time.monotonic() - started_s) / figures.rounds
            sys.stderr.write(f"\r{what}: {figures}, {per_round_s:.2f} s per round ")
            sys.stderr.flush()

    return progress


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
