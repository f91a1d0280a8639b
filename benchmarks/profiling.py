"""Samples a Python server with py-spy while a workload runs against it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAMPLES_PER_S = 500
_WRITE_TIMEOUT_S = 60
_FORMATS = {".svg": "flamegraph", ".json": "speedscope", ".txt": "raw"}


class ProfilerError(Exception):
    """py-spy is missing or could not sample the server."""


def find_profiler() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.is_file() else shutil.which("py-spy")
    if program is None:
        raise ProfilerError("py-spy is not installed: pip install py-spy")
    return program


def profile_path(path: Path, workload: str, server: str) -> Path:
    """out.svg becomes out-pub_sub_1-edged.svg: one file per workload and server."""
    return path.with_name(f"{path.stem}-{workload}-{server}{path.suffix}")


@contextmanager
def profiled(pid: int, path: Path) -> Iterator[None]:
    """Record the process while the context is open; the suffix of the path chooses the format."""
    arguments = [
        find_profiler(),
        "record",
        "--pid",
        str(pid),
        "--rate",
        str(SAMPLES_PER_S),
        "--output",
        str(path),
    ]
    arguments += ["--format", _FORMATS.get(path.suffix, "flamegraph"), "--duration", "unlimited"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sampler:
        try:
            yield
        finally:
            sampler.send_signal(signal.SIGINT)  # It writes its file on an interrupt.
            try:
                output, _ = sampler.communicate(timeout=_WRITE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                sampler.kill()
                raise
    if not path.exists():
        raise ProfilerError(f"py-spy wrote no profile:\n{output}")
