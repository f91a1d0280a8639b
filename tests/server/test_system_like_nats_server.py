"""The same questions to edged and to the real nats-server: their answers have the same keys in one order."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

CONFIG = """
server_name: probe
server_tags: ["zone:a"]
server_metadata: {k: v}
accounts {
  SYS { users [{user: sys, password: x}] }
  APP { users [
    {user: app, password: x}
    {user: limited, password: x, permissions: {
      publish: {allow: ["$SYS.>"], deny: "x"}
      subscribe: {deny: "q.> g"}
    }}
  ] }
}
system_account: SYS
"""
# What only one of the two has: its own version, switches between behaviours that edged does not have, and the
# services of the system account, which are imports and exports there and no part of the configuration here.
DIFFERENT = {"edged", "feature_flags", "imports", "exports"}
PATIENCE_S = 5.0


class RawClient:
    """A blocking client for one server of either kind."""

    def __init__(self, server: RunningServer, user: str) -> None:
        self._socket = socket.create_connection((server.host, server.port), PATIENCE_S)
        self._file = self._socket.makefile("rb")
        self._requests = 0
        assert self._file.readline().startswith(b"INFO ")
        login = {"user": user, "pass": "x", "verbose": False, "protocol": 1, "headers": True, "name": "n"}
        self.send(f"CONNECT {json.dumps(login)}\r\n")
        self.barrier()

    def send(self, text: str) -> None:
        self._socket.sendall(text.encode())

    def barrier(self) -> None:
        self.send("PING\r\n")
        while self._file.readline() != b"PONG\r\n":
            pass

    def message(self) -> tuple[str, Any]:
        """The next message as (subject, document)."""
        while not (line := self._file.readline()).startswith((b"MSG ", b"HMSG ")):
            assert line, "closed"
        words = line.split()
        data = self._file.read(int(words[-1]) + 2)[:-2]
        return words[1].decode(), json.loads(data)

    def ask(self, subject: str, body: str = "") -> Any:
        self._requests += 1
        inbox = f"_INBOX.{self._requests}"
        self.send(f"SUB {inbox} {self._requests}\r\nPUB {subject} {inbox} {len(body)}\r\n{body}\r\n")
        answered, document = self.message()
        assert answered == inbox
        return document

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, RunningServer]]:
    directory: Path = tmp_path_factory.mktemp("system")
    servers = [start_server(name, CONFIG, directory / name) for name in ("nats-server", "edged")]
    yield servers[0], servers[1]
    for server in servers:
        server.stop()


def shape(document: Any) -> Any:
    """The keys of a document in their order, however deep; of lists the first entry, of values the type."""
    if isinstance(document, dict):
        return [(key, shape(value)) for key, value in document.items() if key not in DIFFERENT]
    if isinstance(document, list):
        return [shape(document[0])] if document else []
    return (
        "number" if isinstance(document, (int, float)) and not isinstance(document, bool) else type(document)
    )


def server_id(server: RunningServer) -> str:
    return str(server.info["server_id"])


@pytest.mark.parametrize(
    "subject",
    [
        "SERVER.PING",
        "SERVER.PING.STATSZ",
        "SERVER.ID.VARZ",
        "SERVER.PING.CONNZ",
        "SERVER.PING.ROUTEZ",
        "SERVER.PING.SUBSZ",
        "SERVER.PING.GATEWAYZ",
        "SERVER.PING.LEAFZ",
        "SERVER.PING.JSZ",
        "SERVER.PING.ACCOUNTZ",
        "SERVER.PING.HEALTHZ",
        "SERVER.PING.IDZ",
        "SERVER.PING.RAFTZ",
        "SERVER.ID.PROFILEZ",
        "SERVER.ID.KICK",
        "SERVER.ID.LDM",
        "SERVER.ID.RELOAD",
        "ACCOUNT.SYS.CONNZ",
        "ACCOUNT.SYS.SUBSZ",
        "ACCOUNT.SYS.LEAFZ",
        "ACCOUNT.SYS.JSZ",
        "ACCOUNT.SYS.INFO",
        "ACCOUNT.SYS.STATZ",
        "ACCOUNT.SYS.CONNS",
        "ACCOUNT.PING.STATZ",
        "ACCOUNT.NONE.INFO",
        "USER.INFO",
    ],
)
def test_answer_to_an_operator_has_the_shape_of_nats_server(
    both: tuple[RunningServer, RunningServer], subject: str
) -> None:
    shapes = []
    for server in both:
        operator = RawClient(server, "sys")
        addressed = subject.replace("ID", server_id(server), 1) if ".ID." in subject else subject
        shapes.append(shape(operator.ask(f"$SYS.REQ.{addressed}", "{}")))
        operator.close()
    assert shapes[1] == shapes[0]


@pytest.mark.parametrize("user", ["app", "limited"])
@pytest.mark.parametrize(
    "subject", ["USER.INFO", "ACCOUNT.PING.CONNZ", "ACCOUNT.PING.STATZ", "SERVER.PING.CONNZ"]
)
def test_answer_to_a_user_has_the_shape_of_nats_server(
    both: tuple[RunningServer, RunningServer], subject: str, user: str
) -> None:
    shapes = []
    for server in both:
        client = RawClient(server, user)
        shapes.append(shape(client.ask(f"$SYS.REQ.{subject}")))
        client.close()
    assert shapes[1] == shapes[0]


def test_events_of_a_life_and_of_the_end_have_the_shape_of_nats_server(tmp_path: Path) -> None:
    told = []
    for name in ("nats-server", "edged"):
        server = start_server(name, CONFIG, tmp_path / name)
        try:
            told.append(_events(server))
        finally:
            server.stop()
    assert told[1] == told[0]


def _events(server: RunningServer) -> list[tuple[str, Any]]:
    """What operators hear while a client comes and goes, a stranger is refused, and the server ends."""
    operator = RawClient(server, "sys")
    operator.send("SUB $SYS.ACCOUNT.> 1\r\nSUB $SYS.SERVER.ACCOUNT.> 2\r\nSUB $SYS.SERVER.*.CLIENT.> 3\r\n")
    operator.send("SUB $SYS.SERVER.*.SHUTDOWN 4\r\n")
    operator.barrier()
    RawClient(server, "app").close()
    events = [operator.message() for _ in range(6)]
    with socket.create_connection((server.host, server.port), PATIENCE_S) as stranger:
        stranger.sendall(b'CONNECT {"user":"app","pass":"wrong","verbose":false}\r\n')
        while stranger.recv(4096):
            pass
    # nats-server tells of the failed login before or after it tells that the connection is gone.
    events += sorted((operator.message() for _ in range(2)), key=lambda event: event[0])
    server.signal(signal.SIGINT)
    events.append(operator.message())
    operator.close()
    return [
        (subject.replace(server_id(server), "ID"), shape(_without_times(event))) for subject, event in events
    ]


def _without_times(event: Any) -> Any:
    """A round trip that was too short, or not measured, is left out by either server."""
    if "client" in event:
        event["client"].pop("rtt", None)
    return event
