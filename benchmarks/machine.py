"""Facts about the machine and the programs that a reader needs to judge the figures."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.servers import ServerKind

_VERSION_TIMEOUT_S = 20


def machine_facts(kinds: Sequence[ServerKind]) -> dict[str, object]:
    return {
        "processor": _processor_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average_at_start": os.getloadavg()[0],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "servers": {kind.name: _version(kind) for kind in kinds},
    }


def _processor_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _version(kind: ServerKind) -> str:
    """What the program says of itself; a server without the flag is still worth measuring."""
    try:
        answer = subprocess.run(
            [kind.program, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            env=kind.environ(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return ", ".join((answer.stdout or answer.stderr).split("\n")).strip(", ")
