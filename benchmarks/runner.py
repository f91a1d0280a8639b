"""Runs workloads against servers, in rounds that take turns, so that noise falls on all of them alike.

For every workload the order is A B A B ...: what is compared was measured seconds apart.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from benchmarks.cluster import RunningCluster
from benchmarks.procfs import machine_busy_s, own_busy_s
from benchmarks.profiling import ProfilerError, profile_path, profiled
from benchmarks.results import Measurement
from benchmarks.servers import RunningServer, Served, ServerError, ServerKind
from benchmarks.wire import GeneratorError
from benchmarks.workloads.stage import Load, Workload


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that decides what is measured."""

    workloads: tuple[Workload, ...]
    kinds: tuple[ServerKind, ...]
    rounds: int
    load: Load
    profile: Path | None = None

    @property
    def size(self) -> int:
        return len(self.workloads) * len(self.kinds) * self.rounds


def run_all(run: Run, progress: Callable[[int, Measurement], None]) -> list[Measurement]:
    """Measure everything; a workload that fails is recorded as failed and the others go on."""
    measurements: list[Measurement] = []
    for workload in run.workloads:
        for round_number in range(1, run.rounds + 1):
            for kind in run.kinds:
                measurement = measure_once(workload, kind, round_number, run)
                measurements.append(measurement)
                progress(len(measurements), measurement)
    return measurements


def measure_once(workload: Workload, kind: ServerKind, round_number: int, run: Run) -> Measurement:
    started_s, machine_s, own_s = monotonic(), machine_busy_s(), own_busy_s()
    outcome, error = None, None
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        try:
            with _started(workload, kind, folder) as server:
                try:
                    with _profiling(run.profile, workload, server):
                        outcome = workload.measure(server, run.load)
                except GeneratorError:
                    server.check_running()  # If the server is gone, that explains the rest.
                    raise
        except (GeneratorError, ServerError, ProfilerError, OSError) as failure:
            outcome, error = None, f"{type(failure).__name__}: {failure}"
    elapsed_s = monotonic() - started_s
    foreign_s = (machine_busy_s() - machine_s) - (own_busy_s() - own_s)
    # Both clocks count in ticks, so nothing can be said about a failure that took a few of them.
    foreign_cores = max(0.0, foreign_s / elapsed_s) if outcome is not None else 0.0
    return Measurement(workload.name, kind.name, round_number, outcome, error, foreign_cores)


def _started(
    workload: Workload, kind: ServerKind, folder: Path
) -> AbstractContextManager[RunningServer | RunningCluster]:
    if workload.nodes > 1:
        return RunningCluster(kind, folder, workload.nodes)
    flags = workload.server_flags(folder)
    if workload.is_jetstream:
        flags += kind.jetstream_flags(folder)
    return RunningServer(kind, folder, flags)


def _profiling(path: Path | None, workload: Workload, server: Served) -> AbstractContextManager[None]:
    if path is None or not server.kind.is_python:
        return nullcontext()
    return profiled(server.pid, profile_path(path, workload.name, server.kind.name))
