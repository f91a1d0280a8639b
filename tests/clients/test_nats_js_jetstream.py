"""JetStream by nats.js: what the published client finds in nats-server, it must find in edged.

The behaviours are written in node/jetstream/*.mjs. Those of one file are played side by side by one process,
once per server: most of them wait for something, and they wait together.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

NODE_DIRECTORY = Path(__file__).parent / "node"
PLAYS = NODE_DIRECTORY / "jetstream"
FILES = ("streams", "publishing", "consumers", "delivery", "key_value", "objects")
DEADLINE_S = 60.0

_BEHAVIOUR = re.compile(r"^  async (\w+)\(stage\)", re.MULTILINE)


def behaviours() -> list[tuple[str, str]]:
    """Every behaviour with its file."""
    return [
        (file, name) for file in FILES for name in _BEHAVIOUR.findall((PLAYS / f"{file}.mjs").read_text())
    ]


def node(*arguments: str) -> list[str]:
    """The command that plays behaviours."""
    program = shutil.which("node")
    if program is None or not (NODE_DIRECTORY / "node_modules").is_dir():
        pytest.fail("node or the npm clients are missing: make test installs both")
    return [program, str(PLAYS / "run.mjs"), *arguments]


def start(program: str, directory: Path, port: int = -1) -> RunningServer:
    """A server with JetStream, whose data is in `directory`."""
    return start_server(program, f'port: {port}\njetstream {{ store_dir: "{directory}/store" }}', directory)


class Stages:
    """A server per program, and what became of the behaviours that were played on it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[str, RunningServer] = {}
        self._errors: dict[tuple[str, str], dict[str, str | None]] = {}

    def errors(self, program: str, file: str) -> dict[str, str | None]:
        """By behaviour of a file, what was wrong; None for nothing."""
        if (program, file) not in self._errors:
            if program not in self._servers:
                self._servers[program] = start(program, self._directory / program)
            self._errors[program, file] = self._play(self._servers[program], file)
        return self._errors[program, file]

    def _play(self, server: RunningServer, file: str) -> dict[str, str | None]:
        done = subprocess.run(
            node(file, f"nats://{server.host}:{server.port}"),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        played = [json.loads(line) for line in done.stdout.splitlines()]
        assert {one["behaviour"] for one in played} == {name for other, name in behaviours() if other == file}
        return {one["behaviour"]: one["error"] for one in played}

    def log_tail(self, program: str) -> str:
        """The end of what a server wrote."""
        return self._servers[program].log_tail()

    def stop(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.stop()


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    found = Stages(tmp_path_factory.mktemp("nats_js_jetstream"))
    yield found
    found.stop()


@pytest.mark.parametrize("program", ["nats-server", "edged"])
@pytest.mark.parametrize(("file", "behaviour"), behaviours())
def test_behaviour(file: str, behaviour: str, program: str, stages: Stages) -> None:
    errors = stages.errors(program, file)
    assert errors[behaviour] is None, f"{errors[behaviour]}\nlog of {program}:\n{stages.log_tail(program)}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", ["nats-server", "edged"])
def test_consumption_goes_on_after_the_server_was_away(
    program: str, number: signal.Signals, tmp_path: Path
) -> None:
    server = start(program, tmp_path)
    with subprocess.Popen(
        node("restart", f"nats://{server.host}:{server.port}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as player:
        try:
            assert player.stdout is not None
            assert player.stdout.readline() == "halfway\n"
            server.signal(number)
            server.wait_exit()
            server = start(program, tmp_path, server.port)
            output, errors = player.communicate(timeout=DEADLINE_S)
        finally:
            player.kill()
            server.stop()
    assert player.returncode == 0, errors
    assert json.loads(output)["error"] is None, f"{output}\n{server.log_tail()}"
