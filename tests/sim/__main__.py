"""The command: `python -m tests.sim [--seeds 500] [--first 0] [--events 10000] [--mutation NAME]`.

Runs one cluster per seed and prints progress to stderr, what must never happen if it did, and a summary
line; the exit status is 1 when there was something. `--seed N` runs one seed only, and with `--trace`
prints all that happens in it. With `--mutation` a fault is put in on purpose, and it is well if a seed
finds it.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections.abc import Iterator
from typing import Final

from tests.sim.mutations import MUTATIONS, mutated
from tests.sim.world import Result, World, run

TROUBLES_SHOWN_MAX: Final = 5
PROGRESS_S: Final = 10.0
# Runs make few cycles and much that lives long: the collector would look through it in vain.
COLLECT_AFTER: Final = 200_000


def run_one(task: tuple[int, int, str]) -> Result:
    """One seed, in whichever process."""
    seed, events, mutation = task
    with mutated(mutation):
        return run(seed, events)


def results(arguments: argparse.Namespace) -> Iterator[Result]:
    """All seeds, in their order or nearly so."""
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    tasks = ((seed, arguments.events, arguments.mutation) for seed in seeds)
    if arguments.workers == 1:
        yield from map(run_one, tasks)
        return
    with multiprocessing.Pool(arguments.workers, gc.set_threshold, (COLLECT_AFTER,)) as pool:
        yield from pool.imap_unordered(run_one, tasks, chunksize=10)


def replay_command(result: Result, arguments: argparse.Namespace) -> str:
    """How to see it again."""
    command = f"python -m tests.sim --seed {result.seed} --events {arguments.events} --trace"
    return f"{command} --mutation {arguments.mutation}" if arguments.mutation else command


def run_all(arguments: argparse.Namespace) -> int:
    """Run the seeds; how many were in trouble."""
    began = shown = time.monotonic()
    seeds = events = simulated_us = acknowledged = reads = troubles = 0
    for result in results(arguments):
        seeds += 1
        events += result.events
        simulated_us += result.simulated_us
        acknowledged += result.acknowledged
        reads += result.reads
        if result.trouble:
            troubles += 1
            print(
                f"seed {result.seed}: {result.trouble}\n  replay: {replay_command(result, arguments)}",
                flush=True,
            )
            if arguments.mutation or troubles >= TROUBLES_SHOWN_MAX:
                break
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            print(f"{seeds} of {arguments.seeds} seeds, {events:,} events", file=sys.stderr, flush=True)
    took_s = time.monotonic() - began
    print(
        f"seeds={seeds} events={events} simulated_s={simulated_us // 1_000_000} acknowledged={acknowledged}"
        f" reads={reads} troubles={troubles} wall_s={took_s:.1f} events_per_s={events / took_s:.0f}"
    )
    return troubles


def run_seed(arguments: argparse.Namespace) -> int:
    """Run one seed, and say what happens; 1 if it was in trouble."""
    with mutated(arguments.mutation):
        world = World(arguments.seed, is_traced=arguments.trace)
        world.trace(world.scenario)
        result = world.run(arguments.events)
    print(result.trouble or "all was well")
    print(f"events={result.events} digest={result.digest:x} simulated_s={result.simulated_us / 1e6:.3f}")
    return int(bool(result.trouble))


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Simulate the consensus core.")
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--events", type=int, default=10_000, help="of each, before all is healed")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), default="", help="a fault to find")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every message")
    arguments = parser.parse_args()
    gc.set_threshold(COLLECT_AFTER)
    if arguments.seed is not None:
        return run_seed(arguments)
    troubles = run_all(arguments)
    return int(not troubles) if arguments.mutation else int(bool(troubles))


if __name__ == "__main__":
    sys.exit(main())
