"""The servers under test: how each is found, started on a free loopback port, and ended.

A server is started afresh for every measurement, in an empty folder, so that memory and state of one workload
say nothing about the next. benchmarks/cluster.py makes clusters of them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from benchmarks.procfs import ProcessUse, process_use
from benchmarks.wire import Endpoint

HOST = "127.0.0.1"
REFERENCE = "nats-server"
HUB = "edged-hub"
SERVER_NAMES = ("edged", REFERENCE, "edged-pure", "edged-os", "nats-server-always", HUB)
# Those that can be nodes of a cluster.
CLUSTER_NAMES = (HUB, REFERENCE, "nats-server-always")
# What an acknowledgement of a stream waits for, where it is not what the server does by itself.
_SYNC_MODES = {"edged-os": "os", "nats-server-always": "always"}
_PURE_SWITCH = "EDGED_PURE"
_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0
_RETRY_DELAY_S = 0.02
_LOG_TAIL_BYTES = 2000


class ServerError(Exception):
    """The server did not start, or ended while it was measured."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A server that can be measured: its name and how it is started."""

    name: str
    program: str
    is_python: bool
    is_pure: bool = False
    sync: str | None = None

    def jetstream_flags(self, folder: Path, more: str = "") -> tuple[str, ...]:
        """Flags of a server with streams below the folder, where its configuration is written to.

        `more` are further lines of the configuration.
        """
        sync = f", sync_interval: {self.sync}" if self.sync else ""
        path = folder / "server.conf"
        path.write_text(f'jetstream: {{store_dir: "{folder / "store"}"{sync}}}\n{more}')
        return ("-c", str(path))

    def environ(self) -> dict[str, str]:
        """This process's environment, but the variant alone decides which twin of the hot loops runs."""
        environ = {key: value for key, value in os.environ.items() if key != _PURE_SWITCH}
        return {**environ, _PURE_SWITCH: "1"} if self.is_pure else environ


def find_kinds(names: Sequence[str], programs: Mapping[str, str | None]) -> list[ServerKind]:
    """The servers of these names; programs may give the path of `edged`, `edged-hub` and `nats-server`."""
    kinds = []
    for name in names:
        command = REFERENCE if name.startswith(REFERENCE) else HUB if name == HUB else "edged"
        program = _find_program(programs.get(command) or command)
        is_python, sync = command != REFERENCE, _SYNC_MODES.get(name)
        kinds.append(ServerKind(name, program, is_python, is_pure=name == "edged-pure", sync=sync))
    return kinds


def _find_program(command: str) -> str:
    """The absolute path, for a server runs in a folder of its own; looked up beside Python first."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which(command, path=beside) or shutil.which(command)
    if program is None:
        raise FileNotFoundError(f"no program {command}, neither in {beside} nor on the path")
    return str(Path(program).absolute())


class Served(Protocol):
    """What a workload is given: one server, or several that are one cluster."""

    kind: ServerKind
    folder: Path
    endpoint: Endpoint
    """Where clients connect to."""

    @property
    def pid(self) -> int:
        """Of the process that is worth a profile."""
        ...

    def use(self) -> ProcessUse:
        """Processor time and memory of all processes together."""
        ...

    def check_running(self) -> None:
        """Raise ServerError if a process is gone."""
        ...

    def settle(self, stream: str) -> None:
        """Wait until a stream that was made takes messages where clients connect to."""
        ...


class RunningServer:
    """A started server that answers on its port; leaving the context ends it."""

    def __init__(self, kind: ServerKind, folder: Path, flags: Sequence[str], port: int | None = None) -> None:
        self.kind = kind
        self.folder = folder
        self.endpoint = Endpoint(HOST, port or free_port())
        self._log_path = folder / "server.log"
        arguments = [kind.program, "-a", HOST, "-p", str(self.endpoint.port), *flags]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=kind.environ()
            )

    def __enter__(self) -> Self:
        try:
            self._wait_answering()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def use(self) -> ProcessUse:
        self.check_running()
        return process_use(self.pid)

    def settle(self, stream: str) -> None:
        """A stream takes messages as soon as it is made."""

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()

    def check_running(self) -> None:
        status = self._process.poll()
        if status is not None:
            log = self._log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
            raise ServerError(f"{self.kind.name} ended with status {status}; its log ends with:\n{log}")

    def _wait_answering(self) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            self.check_running()
            try:
                with socket.create_connection(
                    (HOST, self.endpoint.port), timeout=_START_TIMEOUT_S
                ) as connection:
                    if connection.recv(4).startswith(b"INFO"):
                        return
            except ConnectionError:
                pass  # It does not listen yet.
            time.sleep(_RETRY_DELAY_S)
        raise ServerError(f"{self.kind.name} did not answer on its port within {_START_TIMEOUT_S:.0f} s")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
