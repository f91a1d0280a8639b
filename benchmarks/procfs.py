"""What Linux knows about the server's process and about the machine's processors."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/<pid>/stat, counted from the one after the name in brackets.
_USER_TICKS, _SYSTEM_TICKS = 11, 12
# Columns of the first line of /proc/stat that are not work: idle and waiting for a disk.
_IDLE_COLUMNS = (3, 4)
# user, nice, system, idle, iowait, irq, softirq, steal; the columns after them are part of the first two.
_PLAIN_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Processor time and memory of a process at one moment."""

    cpu_s: float
    rss_bytes: int
    rss_peak_bytes: int


def process_use(pid: int) -> ProcessUse:
    """Processor time (all threads, user and system, to 10 ms) and resident memory of a process so far."""
    folder = Path("/proc") / str(pid)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    return ProcessUse(ticks / _TICKS_PER_S, _kibibytes(status["VmRSS"]), _kibibytes(status["VmHWM"]))


def _kibibytes(text: str) -> int:
    return int(text.split()[0]) * 1024


def machine_busy_s() -> float:
    """Processor seconds that were not idle, over all processors, since the machine started."""
    columns = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    busy = sum(ticks for column, ticks in enumerate(columns[:_PLAIN_COLUMNS]) if column not in _IDLE_COLUMNS)
    return busy / _TICKS_PER_S


def own_busy_s() -> float:
    """Processor seconds of this process and of all its ended children: the servers and the load generator."""
    uses = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def raise_open_files_limit() -> int:
    """Allow this process, and those it starts, as many open files as the system lets us; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
