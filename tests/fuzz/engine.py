"""Runs targets over mutated inputs and reports what fails.

An input fails when the target raises or takes more than CPU_S_MAX of processor time; a target fails when the
memory of the process grows by more than MEMORY_BYTES_MAX, or by more than PEAK_BYTES_MAX for a moment. A
failing input is made shorter as long as it fails in the same way, printed as a bytes literal together with
the seed, and written to a file for --replay.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Target

CPU_S_MAX = 2.0
MEMORY_BYTES_MAX = 96 * 1024 * 1024
PEAK_BYTES_MAX = 256 * 1024 * 1024
# Until then allocators and caches fill up; what grows afterwards is a leak.
WARM_UP_INPUTS = 2000
CHECK_EVERY = 1000
SHRINK_ATTEMPTS_MAX = 2000
SHOWN_BYTES_MAX = 2000


class TookTooLong(Exception):  # noqa: N818 - says what happened
    """The target did not come back within CPU_S_MAX."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed: the input (empty when it was memory, which no single input explains), and how."""

    target: str
    data: bytes
    seed: int
    number: int
    error: str

    def write(self, directory: Path) -> Path:
        """Keep the input in a file that --replay takes."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.target}-{hashlib.sha256(self.data).hexdigest()[:12]}.bin"
        path.write_bytes(self.data)
        return path

    def __str__(self) -> str:
        shown = repr(self.data[:SHOWN_BYTES_MAX]) + (" ..." if len(self.data) > SHOWN_BYTES_MAX else "")
        return (
            f"target {self.target}, seed {self.seed}, input {self.number}, {len(self.data)} bytes:\n"
            f"{shown}\n{self.error}"
        )


@contextmanager
def processor_time_limit() -> Iterator[Callable[[], None]]:
    """Raise TookTooLong in whatever runs too long after the last call of what this yields."""

    def expired(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"more than {CPU_S_MAX} s of processor time")

    before = signal.signal(signal.SIGVTALRM, expired)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX) and None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def error_of(target: Target, data: bytes) -> str | None:
    """The traceback of the target's failure on an input; None when it does not fail."""
    with processor_time_limit() as restart:
        restart()
        try:
            target.run(data)
        except Exception:  # Whatever it is, it is what we are looking for.
            return traceback.format_exc()
    return None


class MemoryWatch:
    """Tells when a target keeps memory (after its warm-up), or takes very much of it for a moment."""

    def __init__(self) -> None:
        self._kept_before: int | None = None
        self._peak_before = peak_memory_bytes()

    def grown(self, number: int) -> str | None:
        """What grew too much by this input, in words; None while all is well."""
        kept, peak = memory_bytes(), peak_memory_bytes()
        if number >= WARM_UP_INPUTS and self._kept_before is None:
            self._kept_before = kept
        if self._kept_before is not None and kept - self._kept_before > MEMORY_BYTES_MAX:
            return f"memory grew by {(kept - self._kept_before) // 1024} KiB"
        if peak - self._peak_before > PEAK_BYTES_MAX:
            return f"memory rose by {(peak - self._peak_before) // 1024} KiB for a moment"
        return None


def fuzz(
    target: Target, inputs: int, seed: int, progress: Callable[[int], None] = lambda _count: None
) -> Failure | None:
    """Feed a target until it fails, or until it has had all its inputs."""
    mutator = Mutator(f"{seed} {target.name}", target.seeds, target.words)
    memory = MemoryWatch()
    with processor_time_limit() as restart:
        for number in range(inputs):
            if number % CHECK_EVERY == 0:
                progress(number)
                grown = memory.grown(number)
                if grown is not None:
                    return Failure(target.name, b"", seed, number, grown)
            data = mutator.next()
            restart()
            try:
                target.run(data)
            except Exception as error:  # Whatever it is, it is what we are looking for.
                kind = type(error)
                break
        else:
            progress(inputs)
            return None
    shorter = shrink(target, data, kind)
    return Failure(target.name, shorter, seed, number, error_of(target, shorter) or "only once")


def shrink(target: Target, data: bytes, kind: type[Exception]) -> bytes:
    """A shorter input that raises the same kind of exception."""
    attempts = 0
    size = len(data) // 2
    deadline = time.monotonic() + 30.0
    with processor_time_limit() as restart:
        while size > 0:
            start = 0
            while start < len(data):
                candidate = data[:start] + data[start + size :]
                attempts += 1
                if attempts > SHRINK_ATTEMPTS_MAX or time.monotonic() > deadline:
                    return data
                restart()
                if _raises(target, candidate, kind):
                    data = candidate
                else:
                    start += size
            size //= 2
    return data


def _raises(target: Target, data: bytes, kind: type[Exception]) -> bool:
    try:
        target.run(data)
    except Exception as error:  # Another kind of failure is another fault.
        return type(error) is kind
    return False


def shares(targets: Sequence[Target], inputs: int) -> list[tuple[Target, int]]:
    """How many inputs each target gets."""
    total = sum(target.share for target in targets)
    return [(target, -(-inputs * target.share // total)) for target in targets]


def memory_bytes() -> int:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory_bytes() -> int:
    """The most that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
