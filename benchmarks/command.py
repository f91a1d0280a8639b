"""The command line of `python -m benchmarks`: what to measure, and where the figures go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.generator.process import Limit
from benchmarks.machine import machine_facts
from benchmarks.plot import NothingToPlotError, write_plot
from benchmarks.procfs import raise_open_files_limit
from benchmarks.profiling import ProfilerError, find_profiler
from benchmarks.results import Measurement, Summary, summarise
from benchmarks.runner import Run, run_all
from benchmarks.servers import CLUSTER_NAMES, HUB, REFERENCE, SERVER_NAMES, find_kinds
from benchmarks.workloads.registry import WORKLOADS
from benchmarks.workloads.stage import Load, Workload

_SECONDS, _QUICK_SECONDS = 2.0, 0.3
_ROUNDS, _QUICK_ROUNDS = 3, 1
_IDLE_CONNECTIONS, _QUICK_IDLE_CONNECTIONS = 5_000, 500
_SETTLE_S, _QUICK_SETTLE_S = 1.0, 0.3
# Files that a process needs besides its connections.
_SPARE_FILES = 100


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for workload in WORKLOADS.values():
            print(f"{workload.name:22}{workload.summary}")
        return 0
    run = _run_of(parser, options)
    facts = machine_facts(run.kinds)
    print(_title(facts), file=sys.stderr)
    measurements = run_all(run, lambda number, measurement: _show_progress(run, number, measurement))
    headlines = {workload.name: workload.headline for workload in run.workloads}
    summaries = [
        summary
        for name, headline in headlines.items()
        for summary in summarise(name, headline, measurements, REFERENCE)
    ]
    print(_title(facts))
    print()
    print(report.table(summaries, headlines))
    print()
    print(report.LEGEND)
    for note in report.notes(summaries, measurements):
        print(f"\nNote: {note}")
    if options.json is not None:
        report.write_json(options.json, run, facts, measurements, summaries)
    has_failed = any(measurement.error is not None for measurement in measurements)
    return _plot(options.plot, summaries, _title(facts)) or int(has_failed)


def _plot(path: Path | None, summaries: Sequence[Summary], title: str) -> int:
    if path is None:
        return 0
    try:
        write_plot(path, summaries, title)
    except NothingToPlotError as error:
        print(f"no plot: {error}", file=sys.stderr)
        return 1
    return 0


def _servers_of(
    parser: argparse.ArgumentParser, options: argparse.Namespace, workloads: tuple[Workload, ...]
) -> tuple[str, ...]:
    """As told; without a word, those that can do what is measured."""
    needs_cluster = any(one.nodes > 1 for one in workloads)
    servers: tuple[str, ...] = options.servers or ((HUB if needs_cluster else "edged"), REFERENCE)
    alone = [name for name in servers if name not in CLUSTER_NAMES]
    if needs_cluster and alone:
        parser.error(f"{alone[0]} makes no clusters; --servers may name {', '.join(CLUSTER_NAMES)}")
    return servers


def _run_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Run:
    unknown = [name for name in options.workload or () if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]}; there are {', '.join(WORKLOADS)}")
    workloads = _workloads_of(options)
    servers = _servers_of(parser, options, workloads)
    if options.plot is not None and (REFERENCE not in servers or len(servers) < 2):
        parser.error(f"--plot shows ratios: --servers has to name {REFERENCE} and another server")
    programs = {"edged": options.edged, HUB: options.edged_hub, REFERENCE: options.nats_server}
    try:
        kinds = find_kinds(servers, programs)
        if options.profile is not None:
            find_profiler()
    except (FileNotFoundError, ProfilerError) as error:
        parser.error(str(error))
    quick = options.quick
    connections = options.connections or (_QUICK_IDLE_CONNECTIONS if quick else _IDLE_CONNECTIONS)
    open_files_max = raise_open_files_limit()
    if connections + _SPARE_FILES > open_files_max:
        parser.error(f"the system allows {open_files_max} open files, too few for {connections} connections")
    seconds = options.seconds
    if seconds is None and options.messages is None:
        seconds = _QUICK_SECONDS if quick else _SECONDS
    return Run(
        workloads=workloads,
        kinds=tuple(kinds),
        rounds=options.rounds or (_QUICK_ROUNDS if quick else _ROUNDS),
        load=Load(Limit(seconds, options.messages), connections, _QUICK_SETTLE_S if quick else _SETTLE_S),
        profile=options.profile,
    )


def _workloads_of(options: argparse.Namespace) -> tuple[Workload, ...]:
    if options.workload:
        return tuple(WORKLOADS[name] for name in options.workload)
    if options.cluster:
        return tuple(one for one in WORKLOADS.values() if one.nodes > 1)
    return tuple(
        one for one in WORKLOADS.values() if one.is_jetstream == options.jetstream and one.nodes == 1
    )


def _show_progress(run: Run, number: int, measurement: Measurement) -> None:
    width = len(str(run.size))
    place = f"[{number:{width}}/{run.size}] {measurement.workload:17} {measurement.server:12}"
    if measurement.outcome is None:
        result = "failed"
    else:
        headline = WORKLOADS[measurement.workload].headline
        result = report.headline_text(measurement.outcome.headline(headline), headline)
    print(f"{place} round {measurement.round_number}/{run.rounds} {result:>16}", file=sys.stderr, flush=True)


def _title(facts: dict[str, object]) -> str:
    servers = facts["servers"]
    assert isinstance(servers, dict)
    versions = ", ".join(f"{name} ({version})" for name, version in servers.items())
    return f"{versions}; {facts['cores']} cores, {facts['processor']}, Linux {facts['kernel']}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run the same load against edged and nats-server, in turn, and print figures and ratios.",
        epilog="Ratios above 1 are better than nats-server. docs/benchmarks.md explains the rest.",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a first look: short loads, one round, fewer idle connections",
    )
    parser.add_argument(
        "--workload",
        nargs="+",
        metavar="NAME",
        help="only these workloads (default: all of --list but those whose names begin with js_ or cluster_)",
    )
    parser.add_argument("--jetstream", action="store_true", help="all workloads of streams instead")
    parser.add_argument("--cluster", action="store_true", help="all workloads of clusters instead")
    parser.add_argument("--list", action="store_true", help="list the workloads and end")
    parser.add_argument(
        "--servers",
        type=_server_names,
        metavar="NAME,NAME",
        help=f"which of {', '.join(SERVER_NAMES)}, in the order in which they take turns"
        f" (default: edged,{REFERENCE}; for clusters {HUB},{REFERENCE});"
        " edged-pure is edged without its native twin;"
        " edged-os and nats-server-always differ in what the acknowledgement of a stream waits for",
    )
    parser.add_argument(
        "--rounds", type=_positive_integer, metavar="N", help=f"rounds per workload (default: {_ROUNDS})"
    )
    parser.add_argument(
        "--seconds", type=_positive_number, metavar="S", help=f"length of each load (default: {_SECONDS:g})"
    )
    parser.add_argument(
        "--messages",
        type=_positive_integer,
        metavar="N",
        help="end each load after this many messages, round trips or connections;"
        " with --seconds, at what comes first",
    )
    parser.add_argument(
        "--connections",
        type=_positive_integer,
        metavar="N",
        help=f"connections held in idle_connections (default: {_IDLE_CONNECTIONS:,})",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements and machine facts")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the ratios (needs matplotlib)")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE.svg",
        help="sample edged with py-spy, into FILE-WORKLOAD-SERVER.svg (.json: speedscope, .txt: stacks);"
        " figures of such a run are not comparable",
    )
    parser.add_argument("--edged", metavar="PROGRAM", help="the edged to run (default: of this environment)")
    parser.add_argument("--edged-hub", metavar="PROGRAM", help="the edged-hub to run (default: as above)")
    parser.add_argument("--nats-server", metavar="PROGRAM", help="the nats-server to run (default: as above)")
    return parser


def _server_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in SERVER_NAMES:
            raise argparse.ArgumentTypeError(f"no server {name}; there are {', '.join(SERVER_NAMES)}")
    if not names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError("name every server once")
    return names


def _positive_integer(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value


def _positive_number(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value
