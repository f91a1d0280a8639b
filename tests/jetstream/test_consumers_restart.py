"""Consumers of a server that ends and starts again: what stays, what goes, and what goes on."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.jetstream_servers import CONFIG, SERVERS, running
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

KEPT = ("name", "created", "config", "num_ack_pending", "num_redelivered", "num_pending")


def connect(server: RunningServer) -> SnapshotClient:
    return SnapshotClient(server.host, server.port)


def create(client: SnapshotClient, stream: str, count: int, **config: Any) -> None:
    client.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], **config})
    for number in range(count):
        client.ask(f"{stream}.{number % 3}", b"", b"%d" % number)


def add(client: SnapshotClient, stream: str, name: str, **config: Any) -> dict[str, Any]:
    request = {"stream_name": stream, "config": {"ack_policy": "explicit", **config}}
    return client.api(f"CONSUMER.CREATE.{stream}.{name}", request)


def shown(client: SnapshotClient, stream: str, name: str) -> dict[str, Any]:
    """What a restart does not change about a consumer."""
    info = client.api(f"CONSUMER.INFO.{stream}.{name}")
    kept = {key: info[key] for key in KEPT}
    for key in ("delivered", "ack_floor"):
        kept[key] = (info[key]["consumer_seq"], info[key]["stream_seq"])
    return kept


@pytest.mark.parametrize("kind", SERVERS)
def test_a_durable_consumer_is_as_it_was(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as server:
        client = connect(server)
        create(client, "S", 9)
        add(client, "S", "C", durable_name="C", filter_subjects=["S.0", "S.2"], metadata={"a": "b"})
        add(client, "S", "last", durable_name="last", deliver_policy="last_per_subject", filter_subject="S.*")
        add(client, "S", "new", durable_name="new", deliver_policy="new")
        replies = client.pull("S", "C", 4)
        client.ask(replies[0], b"", b"+ACK")
        client.ask(replies[2], b"", b"+ACK")
        client.pull("S", "last", 1)
        before = {name: shown(client, "S", name) for name in ("C", "last", "new")}
        client.close()
    with running(kind, tmp_path) as server:
        client = connect(server)
        assert client.api("CONSUMER.NAMES.S")["consumers"] == ["C", "last", "new"]
        assert {name: shown(client, "S", name) for name in ("C", "last", "new")} == before
        assert client.api("STREAM.INFO.S")["state"]["consumer_count"] == 3
        # Its request is repeated by every application that starts.
        add(client, "S", "new", durable_name="new", deliver_policy="new")
        client.ask("S.0", b"", b"x")
        (reply,) = client.pull("S", "new", 1)
        assert reply.split(b".")[4:7] == [b"1", b"10", b"1"]
        client.close()


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_a_consumer_in_memory_is_gone(kind: str, retention: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as server:
        client = connect(server)
        create(client, "S", 0, retention=retention)
        add(client, "S", "M", durable_name="M", mem_storage=True, filter_subject="S.0")
        add(client, "S", "F", durable_name="F", filter_subject="S.1")
        client.ask("S.0", b"", b"x")
        client.pull("S", "M", 1)
        client.close()
    with running(kind, tmp_path) as server:
        client = connect(server)
        assert client.api("CONSUMER.NAMES.S")["consumers"] == ["F"]
        add(client, "S", "M", durable_name="M", mem_storage=True, filter_subject="S.0")
        assert client.api("CONSUMER.INFO.S.M")["delivered"]["consumer_seq"] == 0
        client.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_changes_removals_pauses_and_resets_stay(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as server:
        client = connect(server)
        create(client, "S", 6)
        for name in ("changed", "removed", "paused", "reset"):
            add(client, "S", name, durable_name=name)
        add(client, "S", "changed", durable_name="changed", description="new", filter_subject="S.1")
        client.api("CONSUMER.DELETE.S.removed")
        client.api("CONSUMER.PAUSE.S.paused", {"pause_until": "2099-01-01T00:00:00Z"})
        client.pull("S", "reset", 5)
        assert client.api("CONSUMER.RESET.S.reset", {"seq": 3})["reset_seq"] == 3
        client.pull("S", "reset", 1)
        before = {name: shown(client, "S", name) for name in ("changed", "paused", "reset")}
        client.close()
    with running(kind, tmp_path) as server:
        client = connect(server)
        assert client.api("CONSUMER.NAMES.S")["consumers"] == ["changed", "paused", "reset"]
        assert {name: shown(client, "S", name) for name in ("changed", "paused", "reset")} == before
        assert client.api("CONSUMER.INFO.S.paused")["paused"]
        assert client.api("CONSUMER.INFO.S.reset")["delivered"]["stream_seq"] == 3
        client.close()


def test_a_name_that_is_used_again_is_another_consumer(tmp_path: Path) -> None:
    with running("edged", tmp_path) as server:
        client = connect(server)
        create(client, "S", 3)
        add(client, "S", "C", durable_name="C")
        client.pull("S", "C", 2)
        client.api("CONSUMER.DELETE.S.C")
        add(client, "S", "C", durable_name="C")
        created = client.api("CONSUMER.INFO.S.C")["created"]
        client.close()
    with running("edged", tmp_path) as server:
        client = connect(server)
        info = client.api("CONSUMER.INFO.S.C")
        assert info["created"] == created
        assert (info["delivered"]["consumer_seq"], info["num_ack_pending"]) == (0, 0)
        client.close()


def test_an_ephemeral_consumer_that_nobody_uses_any_more_goes_after_the_restart(tmp_path: Path) -> None:
    with running("edged", tmp_path) as server:
        client = connect(server)
        create(client, "S", 0)
        add(client, "S", "E", inactive_threshold=1_000_000_000)
        client.close()
    with running("edged", tmp_path) as server:
        client = connect(server)
        client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.E")
        told = json.loads(client.receive(deadline_s=10).payload)
        assert (told["consumer"], told["action"]) == ("E", "delete")
        assert client.api("CONSUMER.NAMES.S")["consumers"] == []
        client.close()


def test_messages_that_a_stream_keeps_for_a_consumer_in_memory_are_there_for_another(tmp_path: Path) -> None:
    server = start_server("edged", CONFIG, tmp_path)
    client = connect(server)
    create(client, "S", 3)
    add(client, "S", "M", durable_name="M", mem_storage=True)
    client.ask(client.pull("S", "M", 2)[0], b"", b"+ACK")
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "retention": "interest"})
    add(client, "S", "F", durable_name="F")
    assert client.api("CONSUMER.INFO.S.F")["num_pending"] == 2
    server.signal(signal.SIGKILL)
    server.wait_exit()
    client.close()
    with running("edged", tmp_path) as again:
        client = connect(again)
        assert client.api("CONSUMER.NAMES.S")["consumers"] == ["F"]
        assert client.api("CONSUMER.INFO.S.F")["num_pending"] == 2
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 2
        client.close()


def test_that_a_new_consumer_rests_is_told_when_its_request_was_answered(tmp_path: Path) -> None:
    with running("edged", tmp_path) as server:
        client = connect(server)
        create(client, "S", 0)
        client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.>")
        config = {"durable_name": "C", "pause_until": "2099-01-01T00:00:00Z"}
        body = json.dumps({"stream_name": "S", "config": config}).encode()
        client.publish(b"$JS.API.CONSUMER.CREATE.S.C", b"", body, b"R.made")
        came = [client.receive().subject for _ in range(3)]
        assert came == [
            b"$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.C",
            b"R.made",
            b"$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C",
        ]
        client.close()
