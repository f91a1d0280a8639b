"""The command line of `python -m benchmarks.store`: the store at its own API, without a server around it.

Four parts: appending compared with a bare loop on the same disk; publishes through the committer; being ready
after a kill; bytes on the disk for a byte of messages.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import store_append, store_publish, store_ready, store_wear
from benchmarks.machine import machine_facts
from benchmarks.procfs import machine_busy_s, own_busy_s
from benchmarks.servers import REFERENCE, ServerKind, find_kinds
from benchmarks.store_disk import DiskFacts, disk_facts
from benchmarks.store_figures import Figure, table

PARTS: Final = ("append", "publish", "ready", "wear")
_NOISE_CORES: Final = 0.15
_DISK_CHANGE_MAX: Final = 3.0


class Noise:
    """What other programs do on this machine from now on."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._busy_s = machine_busy_s() - own_busy_s()

    def foreign_cores(self) -> float:
        """How many processors they kept busy."""
        foreign_s = machine_busy_s() - own_busy_s() - self._busy_s
        return max(0.0, foreign_s / (time.monotonic() - self._started_s))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="benchmark-store-", dir=options.folder) as name:
        folder = Path(name)
        facts = machine_facts(())
        before = disk_facts(folder)
        noise = Noise()
        figures = []
        for part in options.part or PARTS:
            for figure in _measure(part, folder, options):
                figures.append(figure)
        foreign_cores = noise.foreign_cores()
        after = disk_facts(folder)
    print(f"{facts['cores']} cores, {facts['processor']}, Linux {facts['kernel']}, Python {facts['python']}")
    print(f"disk before: {before}\ndisk after:  {after}\n")
    print(table(figures))
    if foreign_cores > _NOISE_CORES:
        print(
            f"\nNote: other programs kept {foreign_cores:.1f} cores busy: repeat the run on a calm machine."
        )
    change = store_append.disk_change(figures)
    if change > _DISK_CHANGE_MAX:
        print(
            f"\nNote: the disk was up to {change:.0f} times slower at some moments of append than at others:"
            " what was measured while it was slow says nothing about the code."
        )
    if options.json is not None:
        facts["foreign_cores"] = foreign_cores
        _write_json(options.json, facts, (before, after), figures)
    missed = [figure for figure in figures if figure.is_met is False]
    return int(options.strict and bool(missed))


def _measure(part: str, folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    def progress(what: str) -> None:
        print(f"{part}: {what}", file=sys.stderr, flush=True)

    quick, rounds = options.quick, options.rounds
    if part == "append":
        plan = store_append.AppendPlan(slices=4) if quick else store_append.AppendPlan(slices=8 * rounds)
        yield from store_append.measure(folder, plan, progress)
    elif part == "publish":
        plan_publish = store_publish.PublishPlan(rounds, 0.2 if quick else 0.5)
        yield from store_publish.measure(folder, plan_publish, progress)
    elif part == "ready":
        messages = options.messages or ([100_000] if quick else [1_000_000, 10_000_000])
        plan_ready = store_ready.ReadyPlan(tuple(messages), tuple(options.subjects), rounds)
        yield from store_ready.measure(folder, plan_ready, _reference(options.nats_server), progress)
    else:
        yield from store_wear.measure(folder, 50_000 if quick else 1_000_000, progress)


def _reference(program: str | None) -> ServerKind | None:
    try:
        (kind,) = find_kinds([REFERENCE], {REFERENCE: program})
    except FileNotFoundError:
        return None
    return kind


def _write_json(
    path: Path, facts: dict[str, object], disks: tuple[DiskFacts, DiskFacts], figures: Sequence[Figure]
) -> None:
    document: dict[str, Any] = {
        "machine": facts,
        "disk": {"before": str(disks[0]), "after": str(disks[1])},
        "figures": [figure.document() for figure in figures],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.store",
        description="Measure the store at its own API. docs/benchmarks.md says how.",
    )
    parser.add_argument("--part", nargs="+", choices=PARTS, metavar="NAME", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a first look: short and small")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="measurements each (default: 3)")
    parser.add_argument(
        "--messages", type=int, nargs="+", metavar="N", help="sizes of the stream that is to be ready again"
    )
    parser.add_argument(
        "--subjects",
        type=int,
        nargs="+",
        default=[10],
        metavar="N",
        help="and how many subjects (default: 10)",
    )
    parser.add_argument(
        "--folder", type=Path, help="where the data lie meanwhile (default: the temporary one)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values and facts of the machine")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a figure misses")
    parser.add_argument("--nats-server", metavar="PROGRAM", help="the nats-server to compare with")
    return parser


if __name__ == "__main__":
    sys.exit(main())
