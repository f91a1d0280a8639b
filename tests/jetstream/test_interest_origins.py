"""Streams that take messages from one which lets go of what its consumers have settled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.jetstream_servers import SERVERS, kept, running
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

ASKED_MAX = 100_000


def connect(server: RunningServer) -> SnapshotClient:
    return SnapshotClient(server.host, server.port)


def create(client: SnapshotClient, name: str, **config: Any) -> None:
    client.api(f"STREAM.CREATE.{name}", {"name": name, **config})


def eventually(condition: Callable[[], bool]) -> None:
    """Ask until it is so."""
    assert any(condition() for _ in range(ASKED_MAX))


def names(client: SnapshotClient, stream: str) -> list[str]:
    found: list[str] = client.api(f"CONSUMER.NAMES.{stream}")["consumers"]
    return found


def messages(client: SnapshotClient, stream: str) -> int:
    return int(client.api(f"STREAM.INFO.{stream}")["state"]["messages"])


def data(client: SnapshotClient, stream: str) -> list[bytes]:
    return [message["data"] for message in kept(client, stream)]


@pytest.mark.parametrize("kind", SERVERS)
def test_messages_stay_until_every_reader_has_them(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as server:
        client = connect(server)
        create(client, "O", subjects=["o.>"], retention="interest")
        client.ask("o.a", b"", b"nobody wants it")
        create(client, "S", sources=[{"name": "O"}])
        create(client, "F", sources=[{"name": "O", "filter_subject": "o.a"}])
        create(client, "M", mirror={"name": "O"})
        eventually(lambda: len(names(client, "O")) == 3)
        request = {"stream_name": "O", "config": {"durable_name": "C", "ack_policy": "explicit"}}
        client.api("CONSUMER.CREATE.O.C", request)
        for number in range(4):
            client.ask("o.a" if number % 2 else "o.b", b"", b"%d" % number)
        eventually(lambda: messages(client, "S") == messages(client, "M") == 4)
        eventually(lambda: data(client, "F") == [b"1", b"3"])
        assert data(client, "M") == [b"0", b"1", b"2", b"3"]
        assert messages(client, "O") == 4, "a consumer has not acknowledged them"
        for reply in client.pull("O", "C", 4):
            client.ask(reply, b"", b"+ACK")
        eventually(lambda: messages(client, "O") == 0)
        client.close()


def test_readers_have_consumers_as_with_nats_server(tmp_path: Path) -> None:
    found = []
    for kind in SERVERS:
        with running(kind, tmp_path / kind) as server:
            client = connect(server)
            create(client, "O", subjects=["o.>"], retention="interest")
            create(client, "S", sources=[{"name": "O"}])
            create(client, "M", mirror={"name": "O"})
            twice = [{"name": "O", "filter_subject": "o.a"}, {"name": "O", "filter_subject": "o.b"}]
            create(client, "T", sources=twice)
            eventually(lambda client=client: len(names(client, "O")) == 4)
            configs = [one["config"] for one in client.api("CONSUMER.LIST.O")["consumers"]]
            for config in configs:
                # Nobody listens there but the one who made it up.
                assert config.pop("deliver_subject").startswith(("$JS.M.", "$JS.S."))
            found.append(configs)
            client.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_reader_that_goes_holds_nothing_back(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as server:
        client = connect(server)
        create(client, "O", subjects=["o.>"], retention="interest")
        create(client, "S", sources=[{"name": "O"}])
        create(client, "M", mirror={"name": "O"})
        eventually(lambda: len(names(client, "O")) == 2)
        client.api("STREAM.UPDATE.S", {"name": "S"})
        eventually(lambda: len(names(client, "O")) == 1)
        client.api("STREAM.DELETE.M")
        eventually(lambda: names(client, "O") == [])
        client.ask("o.a", b"", b"nobody wants it")
        assert messages(client, "O") == 0
        client.close()


def test_a_reader_goes_on_after_a_restart(tmp_path: Path) -> None:
    for retention in ("interest", "workqueue"):
        directory = tmp_path / retention
        with running("edged", directory) as server:
            client = connect(server)
            create(client, "O", subjects=["o.>"], retention=retention)
            create(client, "S", sources=[{"name": "O"}])
            eventually(lambda client=client: len(names(client, "O")) == 1)
            for number in range(3):
                client.ask("o.a", b"", b"%d" % number)
            eventually(lambda client=client: messages(client, "S") == 3)
            eventually(lambda client=client: messages(client, "O") == 0)
            before = names(client, "O")
            client.close()
        with running("edged", directory) as server:
            client = connect(server)
            assert names(client, "O") == before
            client.ask("o.a", b"", b"3")
            eventually(lambda client=client: messages(client, "S") == 4)
            eventually(lambda client=client: messages(client, "O") == 0)
            info = client.api(f"CONSUMER.INFO.O.{before[0]}")
            assert (info["delivered"]["consumer_seq"], info["num_ack_pending"]) == (4, 0)
            client.close()


def test_a_consumer_of_a_reader_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    with running("edged", tmp_path) as server:
        client = connect(server)
        create(client, "O", subjects=["o.>"], retention="workqueue")
        create(client, "S", sources=[{"name": "O"}])
        eventually(lambda: len(names(client, "O")) == 1)
        before = names(client, "O")
        client.api(f"CONSUMER.DELETE.O.{before[0]}")
        client.ask("o.a", b"", b"x")
        eventually(lambda: messages(client, "S") == 1)
        eventually(lambda: names(client, "O") == before)
        client.close()
