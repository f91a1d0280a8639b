"""What a workload is, and what it is given: a running server or cluster, and the size of the load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generator.process import Limit
from benchmarks.results import Headline, Outcome
from benchmarks.servers import Served

PAYLOAD_BYTES = 128


@dataclass(frozen=True, slots=True)
class Load:
    """How much of everything; the same for every server of a run."""

    limit: Limit
    idle_connections: int
    settle_s: float
    """How long an idle server is left alone before its memory is read."""


def no_flags(folder: Path) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of load, how it is measured, and what its headline is."""

    name: str
    summary: str
    measure: Callable[[Served, Load], Outcome]
    headline: Headline = Headline.RATE
    server_flags: Callable[[Path], tuple[str, ...]] = no_flags
    """Further flags of the server; the function may write files they name into the folder."""
    is_jetstream: bool = False
    """Whether the server has streams, in the folder. Such workloads are measured on request."""
    nodes: int = 1
    """With more than one, so many servers are one cluster. Such workloads are measured on request, too."""


def payload_of(size_bytes: int) -> bytes:
    """A payload in which no protocol word can be mistaken for one of the server's."""
    pattern = b"0123456789abcdef"
    return (pattern * (size_bytes // len(pattern) + 1))[:size_bytes]
