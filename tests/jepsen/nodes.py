"""One node of a cluster: its process, its configuration, its folder, perhaps on a filesystem of its own.

Rules: a node is ended by its own pid. Every wait has a deadline. A power cut takes the node's filesystem: the
process is stopped first and waited for, so that no sync of its is under way in the very moment; ext4 would
let that one succeed although its data are lost, which no disk does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.disks.loop_filesystem import SHUTDOWN_WITHOUT_LOG, LoopFilesystem
from tests.jepsen.connection import Connection, NoAnswerError

STOP_S_MAX: Final = 15.0
START_S_MAX: Final = 30.0
POLL_S: Final = 0.02
SYSTEM_LOGIN: Final = {"user": "sys", "pass": "sys"}
_CONFIG: Final = """\
server_name: {name}
listen: "{host}:{port}"
http: "{host}:{http_port}"
jetstream {{
  store_dir: "{store}"
  {settings}
}}
cluster {{
  name: jepsen
  listen: "{host}:{cluster_port}"
  routes: [{routes}]
}}
accounts {{
  $SYS {{ users: [{{user: sys, password: sys}}] }}
  APP {{
    jetstream: enabled
    users: [{{user: app, password: app}}]
  }}
}}
no_auth_user: app
"""


class NodeError(Exception):
    """A node did not start or stop; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node listens, and what its command begins with."""

    number: int
    host: str
    port: int
    cluster_port: int
    http_port: int
    prefix: tuple[str, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        """For clients."""
        return self.host, self.port

    @property
    def route(self) -> str:
        """For other nodes."""
        return f"nats://{self.host}:{self.cluster_port}"


@dataclass(slots=True)
class Node:
    """`folder` holds configuration and log, `store` what a wipe takes."""

    name: str
    place: Place
    program: Path
    folder: Path
    settings: str
    routes: Sequence[str]
    filesystem: LoopFilesystem | None = None
    process: subprocess.Popen[bytes] | None = None
    is_paused: bool = False
    starts: int = field(default=0)

    @property
    def store(self) -> Path:
        """The folder of its data."""
        return (self.filesystem.path if self.filesystem else self.folder) / "store"

    @property
    def log_path(self) -> Path:
        return self.folder / "node.log"

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it on what is there, without waiting for anything."""
        assert not self.is_running, self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.place
        config = self.folder / "node.conf"
        config.write_text(
            _CONFIG.format(
                name=self.name,
                host=place.host,
                port=place.port,
                http_port=place.http_port,
                cluster_port=place.cluster_port,
                store=self.store,
                settings=self.settings,
                routes=", ".join(f'"{route}"' for route in self.routes),
            )
        )
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*place.prefix, str(self.program), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self.starts += 1
        self.is_paused = False

    def wait_answering(self, wait_s: float = START_S_MAX) -> None:
        """Until clients can connect. Raises NodeError."""
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                with self.connect():
                    return
            except (OSError, NoAnswerError) as error:
                if not self.is_running:
                    raise NodeError(f"{self.name} has ended: {self.log_tail()}") from error
                if time.monotonic() > deadline_s:
                    raise NodeError(f"{self.name} does not answer: {self.log_tail()}") from error
            time.sleep(POLL_S)

    def connect(self, inbox: str = "I", **login: str) -> Connection:
        """A client of it."""
        return Connection(self.place.address, inbox, **login)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL. It need not run."""
        if self.is_running:
            self.signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """End it as its operator would; it is killed when it takes too long."""
        if self.is_running:
            self.resume()
            self.signal(signal.SIGTERM)
        self._reap()

    def _reap(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        self.is_paused = False

    def pause(self) -> None:
        """SIGSTOP, and wait until every thread has stopped: one in the middle of a sync ends that first."""
        if not self.is_running or self.is_paused:
            return
        self.signal(signal.SIGSTOP)
        deadline_s = time.monotonic() + STOP_S_MAX
        while not self._is_stopped():
            if time.monotonic() > deadline_s:
                raise NodeError(f"{self.name} does not stop")
            time.sleep(0.001)
        self.is_paused = True

    def _is_stopped(self) -> bool:
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        try:
            states = [task.read_text().rpartition(")")[2].split()[0] for task in tasks]
        except (FileNotFoundError, ProcessLookupError):
            return False  # A thread has just ended: look again.
        return all(state in "TZX" for state in states)

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_running and self.is_paused:
            self.signal(signal.SIGCONT)
        self.is_paused = False

    def cut_power(self, flags: int = SHUTDOWN_WITHOUT_LOG) -> None:
        """What was not synced is lost, and the process ends. Then the filesystem is there again."""
        assert self.filesystem is not None, "power cuts need a filesystem"
        self.pause()
        self.filesystem.cut_power(flags)
        self.kill()
        self.filesystem.unmount()
        self.filesystem.mount()

    def wipe(self) -> None:
        """Take all its data, as a new disk does."""
        assert not self.is_running, self.name
        shutil.rmtree(self.store, ignore_errors=True)

    def log_tail(self, lines: int = 15) -> str:
        """For messages."""
        if not self.log_path.exists():
            return "no log"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
