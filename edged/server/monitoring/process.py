"""What the process costs: processor time, memory, descriptors, read from the kernel when somebody asks.

Rules: nothing is sampled while nobody looks, so an idle daemon is not woken for it. The processor load is
that since the last look, once at least MEASURED_S have passed; the first look covers the life of the process.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

MEASURED_S = 1.0
_STATM = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Usage:
    """A snapshot. `cpu_percent` is of one core, so two busy cores are 200."""

    cpu_percent: float
    cpu_s: float
    resident_bytes: int
    virtual_bytes: int
    cores: int


class Process:
    """Measures this process."""

    def __init__(self) -> None:
        self._seen_at_s = time.monotonic() - _age_s()
        self._seen_cpu_s = 0.0
        self._cpu_percent = 0.0

    def usage(self) -> Usage:
        """The figures of now."""
        cpu_s = time.process_time()
        now_s = time.monotonic()
        elapsed_s = now_s - self._seen_at_s
        if elapsed_s >= MEASURED_S:
            self._cpu_percent = round(100.0 * (cpu_s - self._seen_cpu_s) / elapsed_s, 1)
            self._seen_at_s, self._seen_cpu_s = now_s, cpu_s
        virtual_bytes, resident_bytes = _memory_bytes()
        return Usage(self._cpu_percent, cpu_s, resident_bytes, virtual_bytes, os.cpu_count() or 1)


def descriptors_open() -> int:
    """How many file descriptors are in use."""
    try:
        # The listing needs a descriptor itself, which is gone when it returns.
        return sum(1 for _ in _DESCRIPTORS.iterdir()) - 1
    except OSError:
        return 0


def descriptors_max() -> int:
    """How many there may be."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _memory_bytes() -> tuple[int, int]:
    """(virtual, resident); where there is no /proc, the most that was ever resident stands for both."""
    try:
        virtual, resident = _STATM.read_bytes().split()[:2]
    except OSError:
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return peak_bytes, peak_bytes
    page_bytes = resource.getpagesize()
    return int(virtual) * page_bytes, int(resident) * page_bytes


def _age_s() -> float:
    """How long the process has been running; 0 where the kernel does not say."""
    try:
        stat = Path("/proc/self/stat").read_text()
        started_ticks = int(stat.rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, uptime_s - started_ticks / os.sysconf("SC_CLK_TCK"))
