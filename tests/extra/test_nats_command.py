"""The real `nats` command against nats-server and edged: what an operator types, and what comes back.

Every test runs over nats-server as well, which shows that the expectation is right. `make test-extra` builds
the command and runs these tests.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.servers import RunningServer, find_binary, start_server

pytestmark = [pytest.mark.extra, pytest.mark.real]

DEADLINE_S = 20.0
POLL_INTERVAL_S = 0.01

CONFIGURATION = """
server_name: gate
system_account: SYS
accounts {
    SYS { users: [{ user: operator, password: "o" }] }
    PLANT { users: [{ user: device, password: "d" }] }
}
"""


@dataclass(frozen=True, slots=True)
class Nats:
    """The command as one user of one server types it. `home` keeps it from the settings of this machine."""

    server: RunningServer
    home: Path
    user: str
    password: str

    def command(self, *arguments: str) -> list[str]:
        """The whole command line."""
        url = f"nats://{self.server.host}:{self.server.port}"
        access = ["--server", url, "--user", self.user, "--password", self.password]
        return [str(find_binary("nats")), *access, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """This process' environment, with a home directory of its own and without colours."""
        return {**os.environ, "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home), "NO_COLOR": "1"}

    def run(self, *arguments: str, status: int = 0) -> str:
        """Run to the end and return all that was printed; fails on another exit status."""
        done = subprocess.run(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            env=self.environment,
            text=True,
        )
        assert done.returncode == status, f"{arguments}: {done.stdout}\n{self.server.log_tail()}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """What the command printed, as JSON."""
        return json.loads(self.run(*arguments))

    @contextmanager
    def running(self, *arguments: str, until: str) -> Iterator[subprocess.Popen[str]]:
        """Run in the background. The block begins when the command has printed `until`."""
        process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            text=True,
            bufsize=1,
        )
        try:
            with process:
                read_until(process, until)
                try:
                    yield process
                finally:
                    process.terminate()
        finally:
            process.wait()


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """Everything that a process prints up to and including a text; fails when it ends or takes too long."""
    assert process.stdout is not None
    deadline = time.monotonic() + DEADLINE_S
    descriptor = process.stdout.fileno()
    seen = b""
    while wanted.encode() not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(descriptor, 65536) if ready else b""
        assert data, f"no {wanted!r} in: {seen.decode()}"
        seen += data
    return seen.decode()


def wait_interest(nats: Nats, subject: str) -> None:
    """Wait until the server lists a subscription: the command prints before the server has heard of it."""
    url = f"http://127.0.0.1:{nats.server.http_port}/connz?subs=1"
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with urlopen(url) as answer:
            connections = json.load(answer)["connections"]
        if any(subject in connection.get("subscriptions_list", ()) for connection in connections):
            return
        time.sleep(POLL_INTERVAL_S)
    pytest.fail(f"nobody subscribed to {subject}")


@pytest.fixture(scope="module", params=["nats-server", "edged"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    started = start_server(request.param, CONFIGURATION, tmp_path_factory.mktemp(request.param))
    yield started
    started.stop()


@pytest.fixture
def device(server: RunningServer, tmp_path: Path) -> Nats:
    return Nats(server, tmp_path, "device", "d")


@pytest.fixture
def operator(server: RunningServer, tmp_path: Path) -> Nats:
    return Nats(server, tmp_path, "operator", "o")


def test_pub_reaches_sub_with_subject_headers_and_payload(device: Nats) -> None:
    with device.running("sub", "plant.>", until="Subscribing") as subscriber:
        wait_interest(device, "plant.>")
        device.run("pub", "plant.line1", "21.5 degrees", "--header", "Unit:C", "--count", "1")
        printed = read_until(subscriber, "21.5 degrees")
    assert 'Received on "plant.line1"' in printed
    assert "Unit: C" in printed


def test_pub_many_and_sub_counts_them_all(device: Nats) -> None:
    with device.running("sub", "count", "--count", "500", "--raw", until="") as subscriber:
        wait_interest(device, "count")
        device.run("pub", "count", "message {{Count}}", "--count", "500")
        printed, _ = subscriber.communicate(timeout=DEADLINE_S)
    assert re.findall(r"message (\d+)", printed) == [str(number) for number in range(1, 501)]


def test_request_is_answered_by_reply(device: Nats) -> None:
    with device.running("reply", "time.>", "answer to {{Request}}", until="Listening"):
        wait_interest(device, "time.>")
        printed = device.run("request", "time.utc", "what time is it", "--raw")
    assert "answer to what time is it" in printed


def test_request_without_a_responder_is_told_so_at_once(device: Nats) -> None:
    assert "No responders are available" in device.run("request", "nobody.there", "", "--timeout", "10s")


def test_rtt_measures_a_round_trip(device: Nats) -> None:
    assert re.search(r"nats://127\.0\.0\.1:\d+: [\d.]+(µs|ms)", device.run("rtt"))


def test_wrong_password_is_refused(device: Nats) -> None:
    stranger = Nats(device.server, device.home, "device", "wrong")
    assert "Authorization Violation" in stranger.run("pub", "plant.line1", "hello", status=1)


def test_server_check_connection_is_ok(device: Nats) -> None:
    printed = device.run("server", "check", "connection")
    assert printed.startswith("OK Connection")
    assert "round trip took" in printed


def test_account_info_shows_user_account_and_limits(device: Nats) -> None:
    printed = device.run("account", "info")
    facts = dict(re.findall(r"^ *([A-Z][\w ]+): (.*)$", printed, re.MULTILINE))
    assert facts["User"] == "device"
    assert facts["Account"].startswith("PLANT")
    assert facts["System Account"] == "false"
    assert facts["Expires"] == "never"
    assert facts["Headers Supported"] == "true"
    assert facts["Maximum Payload"] == "1.0 MiB"
    assert facts["Connected Server Name"] == "gate"
    assert facts["Connected Server ID"] == device.server.info["server_id"]
    assert facts["TLS Connection"] == "no"
    assert "JetStream is not supported in this account" in printed


def test_server_info_shows_the_server(operator: Nats) -> None:
    printed = operator.run("server", "info")
    assert f"Server information for gate ({operator.server.info['server_id']})" in printed
    facts = dict(re.findall(r"^ *([A-Z][\w ]+): (.*)$", printed, re.MULTILINE))
    assert facts["Version"] == operator.server.info["version"]
    assert facts["Auth Required"] == "true"
    assert facts["Host"] == f"127.0.0.1:{operator.server.port}"
    assert facts["Maximum Payload"] == "1.0 MiB"
    assert facts["Slow Consumers"] == "0"
    assert int(facts["Connections"]) >= 1


def test_server_list_shows_one_server(operator: Nats) -> None:
    printed = operator.run("server", "list", "1")
    assert "Server Overview" in printed
    assert re.search(r"│ gate +│", printed)
    (found,) = operator.json("server", "list", "1", "--json")
    assert found["server"]["id"] == operator.server.info["server_id"]
    assert found["statsz"]["connections"] >= 1


def test_server_list_is_for_the_system_account_only(device: Nats) -> None:
    assert "ensure the account used has system privileges" in device.run("server", "list", status=1)


def test_server_ping_is_answered_once(operator: Nats) -> None:
    printed = operator.run("server", "ping", "1")
    assert re.search(r"^gate +rtt=", printed, re.MULTILINE)
    assert "1 replies" in printed


def test_server_check_server_is_ok(operator: Nats) -> None:
    assert operator.run("server", "check", "server", "--name", "gate").startswith("OK gate")


def test_server_request_gives_the_monitoring_documents(operator: Nats) -> None:
    variables = operator.json("server", "request", "variables")
    assert variables["data"]["server_name"] == "gate"
    assert variables["data"]["system_account"] == "SYS"
    (connection,) = operator.json("server", "request", "connections")["data"]["connections"]
    assert connection["name"].startswith("NATS CLI")
    assert connection["account"] == "SYS"
    accounts = operator.json("server", "request", "accounts")["data"]
    assert {"PLANT", "SYS", "$G"} <= set(accounts["accounts"])
    assert operator.json("server", "request", "jetstream-health")["data"]["status"] == "ok"


def test_server_report_connections_lists_them(operator: Nats, device: Nats) -> None:
    with device.running("sub", "reported", until="Subscribing"):
        wait_interest(device, "reported")
        printed = operator.run("server", "report", "connections", "--account", "PLANT")
    assert re.search(r"│ gate +│.*│ PLANT", printed)
    assert "Top 1 Connections out of 1" in printed


def test_server_account_info_shows_an_account(operator: Nats) -> None:
    printed = operator.run("server", "account", "info", "PLANT")
    assert "Account information for account PLANT" in printed
    assert "System Account: false" in printed


def test_events_show_a_client_that_comes_and_goes(operator: Nats, device: Nats) -> None:
    with operator.running("events", "--short", "--srv-advisory", until="Listening") as events:
        wait_interest(operator, "$SYS.ACCOUNT.*.CONNECT")
        device.run("pub", "plant.line1", "hello")
        printed = read_until(events, "[Disconnection]")
    assert "[Connection] user: device" in printed
    assert "in account PLANT" in printed
