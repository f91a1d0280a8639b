"""The command: `python -m tests.jepsen SCENARIO --server edged-hub --rounds 20 --seed 7`, or `all` scenarios,
a few of which run beside each other.

Prints a line per round to stderr, findings with what was done before them, and a summary line per scenario to
stdout. The exit status is 1 when a cluster broke a promise, 2 when this machine cannot do what was asked.
`--round N --rounds 1` plays one round of a seed again; the moments of faults also depend on the machine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from tests.disks.loop_filesystem import IMAGE_BYTES, NotPossibleError
from tests.jepsen.beside import AT_ONCE, ISOLATED_FLAG, Done, all_running, play
from tests.jepsen.cluster import SERVERS, Plan
from tests.jepsen.load import RATE_PER_S
from tests.jepsen.network import check_possible
from tests.jepsen.reading import USABLE_S_MAX
from tests.jepsen.rounds import Course, NoAnswerError, NodeError, Verdict, course_for, play_round
from tests.jepsen.scenarios import SCENARIOS


def arguments_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen", description=__doc__)
    parser.add_argument("scenario", choices=(*SCENARIOS, "all"))
    parser.add_argument("--server", choices=SERVERS, default="edged-hub")
    parser.add_argument("--program", help="its path (default: beside Python)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--round", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="default: the time")
    parser.add_argument("--nodes", type=int, help="3 or 5 (default: what the scenario needs)")
    parser.add_argument("--replicas", type=int, help="copies of the stream (default: as many as nodes, or 3)")
    parser.add_argument("--filesystem", choices=tuple(IMAGE_BYTES), help="below each node's data")
    parser.add_argument("--settings", default="", help="more for the jetstream block of the configuration")
    parser.add_argument(
        "--rate",
        type=float,
        default=RATE_PER_S,
        help="publishes per second, of all clients; `all` scenarios share it",
    )
    parser.add_argument(
        "--usable", type=float, default=USABLE_S_MAX, help="seconds a healed cluster may take"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy a cluster with findings there")
    parser.add_argument("--verbose", action="store_true", help="tell what is done as it is done")
    parser.add_argument(ISOLATED_FLAG, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = arguments_from(argv)
    if not arguments.isolated:
        try:
            check_possible()
            _course(arguments, "kill").plan.find_program()
            outcomes = _play_isolated(arguments, argv)
        except (NotPossibleError, FileNotFoundError) as error:
            print(error, file=sys.stderr)
            return 2
        return int(any(done.returncode for done in outcomes))
    # An end that unwinds: the first process of a namespace would ignore the signal otherwise.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return int(not _play(arguments, arguments.scenario))


def _play_isolated(arguments: argparse.Namespace, argv: Sequence[str]) -> list[Done]:
    """What came of the chosen scenarios, each shown when it has ended."""
    options = [*argv, "--seed", str(arguments.seed)]
    options.remove(arguments.scenario)
    if arguments.scenario != "all":
        return [_shown(play(arguments.scenario, options))]
    with all_running([*options, "--rate", str(arguments.rate / AT_ONCE)]) as running:
        return [_shown(done.result()) for done in as_completed(running.values())]


def _shown(done: Done) -> Done:
    print(done.stdout, end="", flush=True)
    return done


def _course(arguments: argparse.Namespace, scenario: str) -> Course:
    plan = Plan(arguments.server, settings=arguments.settings, program=arguments.program)
    tell = _say if arguments.verbose else (lambda event: None)
    course = Course(scenario, plan, arguments.seed, arguments.rate, arguments.usable, arguments.keep, tell)
    return course_for(course, arguments.nodes, arguments.replicas, arguments.filesystem)


def _say(event: str) -> None:
    print(f"    {event}", file=sys.stderr, flush=True)


def _play(arguments: argparse.Namespace, scenario: str) -> bool:
    """All rounds of one scenario, and their summary; whether nothing was found."""
    course = _course(arguments, scenario)
    totals: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for number in range(arguments.round, arguments.round + arguments.rounds):
        try:
            verdict = play_round(course, number)
        except (NodeError, NoAnswerError) as error:
            kinds["did not start"] += 1
            print(f"FAILED: {scenario} round {number}: the cluster did not come up: {error}", flush=True)
            continue
        totals.update(verdict.counts)
        kinds.update({finding.kind for finding in verdict.findings})
        _show(course, verdict)
    plan = course.plan
    what = f"{scenario} of {plan.server}, {plan.nodes} nodes, {plan.replicas} copies, seed {course.seed}"
    figures = " ".join(f"{name}={count}" for name, count in totals.items() if name != "readings")
    found = " ".join(f"{kind.replace(' ', '-')}={count}" for kind, count in kinds.items()) or "none"
    print(f"{what}: rounds={arguments.rounds} {figures} rounds_with_findings: {found}", flush=True)
    return not kinds


def _show(course: Course, verdict: Verdict) -> None:
    place = f"{course.scenario} round {verdict.number}"
    result = f"{len(verdict.findings)} findings" if verdict.findings else "all kept"
    sizes = " ".join(f"{name}={count}" for name, count in verdict.counts.items())
    print(f"{place}: {result} in {verdict.seconds:.0f} s: {sizes}", file=sys.stderr, flush=True)
    if verdict.findings:
        again = f"python -m tests.jepsen {course.scenario} --server {course.plan.server}"
        print(f"FAILED: {place}; {again} --seed {course.seed} --round {verdict.number} --rounds 1")
        for finding in verdict.findings:
            print(f"  {finding}")
        for event in verdict.events:
            print(f"    {event}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
