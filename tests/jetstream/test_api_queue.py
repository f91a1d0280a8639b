"""Requests that wait for their turn are bounded: too many of a kind are dropped, and the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jetstream.jetstream_servers import SERVERS, running
from tests.jetstream.raw_client import RawClient, message_bytes
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

SERVER = """
server_name: here
system_account: SYS
jetstream: {store_dir: "${directory}/store", domain: edge, request_queue_limit: 5, info_queue_limit: 7}
accounts: {
  SYS: {users: [{user: sys, password: s}]}
  A: {jetstream: enabled, users: [{user: a, password: a}]}
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server("edged", SERVER, tmp_path_factory.mktemp("queue"))
    yield running
    running.stop()


@pytest.mark.parametrize(("name", "limit"), [("STREAM.PURGE.none", 5), ("STREAM.NAMES", 7)])
def test_too_many_requests_of_a_kind_are_dropped_and_the_system_account_is_told(
    server: RunningServer, name: str, limit: int
) -> None:
    system = RawClient(server.host, server.port, user="sys", **{"pass": "s"})
    client = RawClient(server.host, server.port, user="a", **{"pass": "a"})
    system.subscribe("$JS.EVENT.ADVISORY.API.LIMIT_REACHED")
    assert system.ask("$JS.API.INFO").document["error"]["err_code"] == 10039
    request = message_bytes(f"$JS.API.{name}".encode(), b"", b"", b"R.lost")
    # They arrive in one piece, so that no turn of the one who answers comes between them.
    client.send(request * limit)
    advisory = system.receive().document
    assert (advisory.pop("type"), len(advisory.pop("id"))) == (
        "io.nats.jetstream.advisory.v1.api_limit_reached",
        22,
    )
    del advisory["timestamp"]
    assert list(advisory.items()) == [("server", "here"), ("domain", "edge"), ("dropped", limit)]
    # None of them is answered, and the next one is.
    assert client.ask("$JS.API.STREAM.NAMES").subject != b"R.lost"
    client.send(request * (limit - 1))
    assert [client.receive().subject for _ in range(limit - 1)] == [b"R.lost"] * (limit - 1)
    client.close()
    system.close()


def test_requests_of_one_kind_do_not_drop_those_of_the_other(server: RunningServer) -> None:
    client = RawClient(server.host, server.port, user="a", **{"pass": "a"})
    purge = message_bytes(b"$JS.API.STREAM.PURGE.none", b"", b"", b"R.lost")
    names = message_bytes(b"$JS.API.STREAM.NAMES", b"", b"", b"R.kept")
    client.send(names * 3 + purge * 5 + names * 3)
    assert [client.receive().subject for _ in range(6)] == [b"R.kept"] * 6
    client.close()


def test_both_servers_tell_of_dropped_requests_in_the_same_words(tmp_path: Path) -> None:
    told = []
    for kind in SERVERS:
        with running(kind, tmp_path / kind, SERVER) as other:
            system = RawClient(other.host, other.port, user="sys", **{"pass": "s"})
            client = RawClient(other.host, other.port, user="a", **{"pass": "a"})
            system.subscribe("$JS.EVENT.ADVISORY.API.LIMIT_REACHED")
            system.ask("$JS.API.INFO")
            client.send(message_bytes(b"$JS.API.STREAM.NAMES", b"", b"", b"R.lost") * 20_000)
            arrived = system.receive()
            assert isinstance(arrived.document["dropped"], int)
            fixed = {key: arrived.document[key] for key in ("type", "server", "domain")}
            told.append((arrived.subject, list(arrived.document), fixed))
            client.close()
            system.close()
    assert told[0] == told[1]
