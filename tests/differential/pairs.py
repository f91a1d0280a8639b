"""Pairs of servers with one configuration: the reference (nats-server) and the subject (edged).

A pair is started when the first case asks for its configuration and serves every case with the same one. A
case that changes its server (signals, reloads, counters from zero) gets a pair of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.differential.compare import Transcript
from tests.differential.runner import run
from tests.differential.steps import Case, Header
from tests.differential.variables import resolve
from tests.servers import RunningServer, start_server

REFERENCE = "nats-server"
SUBJECT = "edged"


@dataclass(frozen=True, slots=True)
class Pair:
    """The two servers of a case."""

    reference: RunningServer
    subject: RunningServer

    def stop(self) -> None:
        """End both."""
        self.reference.stop()
        self.subject.stop()

    def is_running(self) -> bool:
        """Both are still there."""
        return self.reference.is_running() and self.subject.is_running()


def start_pair(
    config: str,
    subject_config: str,
    directory: Path,
    *,
    subject_binary: str = SUBJECT,
    sends_info: bool = True,
) -> Pair:
    """Start both servers, each with its configuration."""
    started: list[RunningServer] = []
    try:
        for name, binary, text in ((REFERENCE, REFERENCE, config), (SUBJECT, subject_binary, subject_config)):
            server = start_server(binary, resolve(text), directory / name, name=name, sends_info=sends_info)
            started.append(server)
    except BaseException:
        for server in started:
            server.stop()
        raise
    return Pair(*started)


class Pairs:
    """Every pair of a test run, by configuration."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shared: dict[str, Pair] = {}
        self._started = 0

    def _start(self, header: Header) -> Pair:
        self._started += 1
        directory = self._directory / str(self._started)
        return start_pair(header.config, header.config, directory, sends_info=not header.tls_first)

    @contextmanager
    def of(self, case: Case) -> Iterator[Pair]:
        """The pair for a case: shared with others, or its own."""
        config = case.header.config
        if case.header.own_server:
            pair = self._start(case.header)
            try:
                yield pair
            finally:
                pair.stop()
            return
        shared = self._shared.get(config)
        if shared is None or not shared.is_running():
            # A server that the case before has killed must not fail the cases after it.
            if shared is not None:
                shared.stop()
            shared = self._shared[config] = self._start(case.header)
            _keep_directories(shared.reference)
        yield shared

    def stop(self) -> None:
        """End every shared pair."""
        for pair in self._shared.values():
            pair.stop()


def _keep_directories(reference: RunningServer) -> None:
    """Let directories of streams not become empty.

    nats-server removes those of an account that has no stream any more some time after it has said so, and
    the next stream may fail for want of them. When it waits for the removal this can go.
    """
    for account in ("$G", "FREE", "LIMITED", "STRICT", "OFFERING") if reference.info.get("jetstream") else ():
        directory = reference.config_path.parent / "js" / "jetstream" / account / "streams"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "kept").touch()


def play(case: Case, pair: Pair) -> tuple[Transcript, Transcript]:
    """Play the case against both at the same time: what waits for a timer waits once."""
    with ThreadPoolExecutor(2) as threads:
        reference = threads.submit(run, case, pair.reference)
        subject = threads.submit(run, case, pair.subject)
        return reference.result(), subject.result()
