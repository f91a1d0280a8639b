"""Real servers for tests: start nats-server or edged on free loopback ports, end them by their own pid.

Rules: a server is ready when its ports file names its listeners and its client port has sent INFO; waiting is
polling with a deadline. Every server writes to a log of its own, which the error of a server that does not
start quotes. Servers get port -1 and say in the ports file what they chose, so tests may run side by side.

Fixtures: `nats_server` and `edged_server` are one plain server each for the whole run; `real_server` runs a
test over both. A test that needs its own configuration calls `start_server` and stops what it started.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 5.0
POLL_INTERVAL_S = 0.005
LOG_TAIL_LINES = 30

# What every server listens on. The configuration of the test comes after it, and a later key wins.
LISTENERS = 'host: 127.0.0.1\nport: -1\nhttp: "127.0.0.1:-1"\n'


PORT_VARIABLE = re.compile(r"\$\{port\.(\w+)\}")


class ServerStartError(AssertionError):
    """The program ended, or was not ready before the deadline; the message holds the end of its log."""


@dataclass(slots=True)
class RunningServer:
    """A server process that answered on its client port.

    `listeners` maps the kinds of the ports file ("nats", "monitoring", "leafnodes", ...) to (host, port).
    `info` is the INFO that the first connection received.
    """

    name: str
    pid: int
    host: str
    port: int
    http_port: int | None
    config_path: Path
    log_path: Path
    listeners: dict[str, tuple[str, int]]
    info: dict[str, Any]
    process: subprocess.Popen[bytes] = field(repr=False)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this server and to nothing else."""
        os.kill(self.pid, number)

    def stop(self) -> int:
        """End the server and return its exit status; a server that ignores SIGINT is killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def wait_exit(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Wait for the server to end by itself and return its exit status."""
        return self.process.wait(deadline_s)

    def is_running(self) -> bool:
        """Tell whether the process is still there."""
        return self.process.poll() is None

    def log_tail(self) -> str:
        """The last lines of the log, for failure messages."""
        return _log_tail(self.log_path)


def _log_tail(log_path: Path) -> str:
    lines = log_path.read_text(errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])


def is_replaced(name: str) -> bool:
    """Tell whether `EDGED_UNDER_TEST` puts another program in the place of edged, at the hub too."""
    return name in ("edged", "edged-hub") and "EDGED_UNDER_TEST" in os.environ


def find_binary(name: str) -> Path:
    """Locate a program beside the running Python, else on PATH.

    `EDGED_UNDER_TEST` names another program to be tested in the place of edged.
    """
    if is_replaced(name):
        return Path(os.environ["EDGED_UNDER_TEST"])
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return beside
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: pip install -e '.[dev]'")
    return Path(found)


def start_server(
    binary: str | Path,
    config_text: str,
    directory: Path,
    *,
    flags: Sequence[str] = (),
    name: str | None = None,
    sends_info: bool = True,
) -> RunningServer:
    """Start `binary` (a path, or "nats-server" or "edged") in `directory` and wait until it is ready.

    With TLS first the client port says nothing in clear: pass `sends_info=False`.
    """
    path = binary if isinstance(binary, Path) else find_binary(binary)
    directory.mkdir(parents=True, exist_ok=True)
    config_path = directory / "server.conf"
    log_path = directory / "server.log"
    ports_directory = directory / "ports"
    shutil.rmtree(ports_directory, ignore_errors=True)
    ports_directory.mkdir()
    config_text, chosen = _with_free_ports(config_text)
    config_path.write_text(config_of_process(config_text, directory))
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [str(path), "-c", str(config_path), *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
        )
    try:
        listeners = {**chosen, **_wait_ports(process, ports_directory, log_path)}
        host, port = listeners["nats"]
        info = _wait_info(process, host, port, log_path) if sends_info else {}
    except BaseException:
        process.kill()
        process.wait()
        raise
    monitoring = listeners.get("monitoring")
    return RunningServer(
        name=name or path.name,
        pid=process.pid,
        host=host,
        port=port,
        http_port=monitoring[1] if monitoring else None,
        config_path=config_path,
        log_path=log_path,
        listeners=listeners,
        info=info,
        process=process,
    )


def config_of_process(config_text: str, directory: Path) -> str:
    """The whole configuration file: listeners, where to write the ports, then what the test asks for.

    The test's text may say `${directory}` where it needs a path of its own.
    """
    own = config_text.replace("${directory}", str(directory))
    return f'{LISTENERS}ports_file_dir: "{directory / "ports"}"\n{own}\n'


def _with_free_ports(config_text: str) -> tuple[str, dict[str, tuple[str, int]]]:
    """Resolve `${port.name}` to a free port, listed as listener `name`: the ports file leaves some out."""
    chosen: dict[str, tuple[str, int]] = {}
    for name in PORT_VARIABLE.findall(config_text):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            chosen[name] = ("127.0.0.1", probe.getsockname()[1])
    return PORT_VARIABLE.sub(lambda match: str(chosen[match.group(1)][1]), config_text), chosen


def _poll(process: subprocess.Popen[bytes], log_path: Path, attempt: Callable[[], Any], wanted: str) -> Any:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        result = attempt()
        if result is not None:
            return result
        if process.poll() is not None:
            raise ServerStartError(f"exit status {process.returncode}\n{_log_tail(log_path)}")
        if time.monotonic() > deadline:
            raise ServerStartError(f"no {wanted} after {START_DEADLINE_S} s\n{_log_tail(log_path)}")
        time.sleep(POLL_INTERVAL_S)


def _wait_ports(
    process: subprocess.Popen[bytes], ports_directory: Path, log_path: Path
) -> dict[str, tuple[str, int]]:
    def attempt() -> dict[str, tuple[str, int]] | None:
        for path in ports_directory.glob("*.ports"):
            try:
                urls = json.loads(path.read_text())
            except ValueError:  # The file is there but not completely written yet.
                return None
            parts = {kind: urlsplit(of_kind[0]) for kind, of_kind in urls.items() if of_kind}
            return {kind: (str(part.hostname), int(part.port or 0)) for kind, part in parts.items()}
        return None

    found: dict[str, tuple[str, int]] = _poll(process, log_path, attempt, "ports file")
    return found


def _wait_info(process: subprocess.Popen[bytes], host: str, port: int, log_path: Path) -> dict[str, Any]:
    def attempt() -> dict[str, Any] | None:
        try:
            with socket.create_connection((host, port), timeout=START_DEADLINE_S) as connection:
                stream = connection.makefile("rb")
                line = stream.readline()
                # The server's end is awaited, so that this connection counts against no limit of the test.
                connection.shutdown(socket.SHUT_WR)
                stream.read()
        except OSError:  # Not listening yet, or the listener was reset while it starts.
            return None
        return dict(json.loads(line[5:])) if line.startswith(b"INFO ") else None

    info: dict[str, Any] = _poll(process, log_path, attempt, "INFO line")
    return info


def _one_plain_server(name: str, factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    server = start_server(name, "", factory.mktemp(name))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One nats-server with the default configuration for the whole run."""
    yield from _one_plain_server("nats-server", tmp_path_factory)


@pytest.fixture(scope="session")
def edged_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One edged with the default configuration for the whole run."""
    yield from _one_plain_server("edged", tmp_path_factory)


@pytest.fixture(params=["nats-server", "edged"])
def real_server(request: pytest.FixtureRequest) -> RunningServer:
    """Each of the two servers in turn: the test must hold for both."""
    fixture_name = {"nats-server": "nats_server", "edged": "edged_server"}[request.param]
    server: RunningServer = request.getfixturevalue(fixture_name)
    return server
