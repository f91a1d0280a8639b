"""Consumers that move with their stream in archives, to nats-server and back, and from edged to edged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.archive_cases import DATA, NEW, OLD_TAR, TAR, read
from tests.jetstream import archive_recipe as recipe
from tests.jetstream.jetstream_servers import new_name
from tests.jetstream.snapshot_client import Clients, SnapshotClient

pytestmark = pytest.mark.real

# From, to.
WAYS = (("edged", "nats-server"), ("nats-server", "edged"), ("edged", "other edged"))
POSITION = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")


def create(client: SnapshotClient, name: str, **config: Any) -> None:
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    for number in range(10):
        client.ask(f"{name}.{number % 2}", b"", b"%d" % number)


def add(client: SnapshotClient, stream: str, name: str, **config: Any) -> None:
    request = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
    client.api(f"CONSUMER.CREATE.{stream}.{name}", request)


def position(client: SnapshotClient, stream: str, name: str) -> dict[str, Any]:
    """How far a consumer is, without times."""
    info = client.api(f"CONSUMER.INFO.{stream}.{name}")
    found = {key: info[key] for key in POSITION}
    for key in ("delivered", "ack_floor"):
        found[key] = {part: value for part, value in found[key].items() if part != "last_active"}
    return found


def move(source: SnapshotClient, target: SnapshotClient, name: str, consumers: bool = True) -> dict[str, Any]:
    answer, archive = source.snapshot(name, consumers)
    restored = target.restore(answer["config"], answer["state"], archive)
    assert "error" not in restored, restored
    return restored


@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
def test_consumers_move_with_what_they_have_delivered_and_what_waits(
    clients: Clients, way: tuple[str, str]
) -> None:
    source, target = clients[way[0]], clients[way[1]]
    name = new_name("moved")
    create(source, name)
    add(source, name, "C", max_ack_pending=7, metadata={"for": "nobody"})
    add(source, name, "F", filter_subject=f"{name}.1")
    add(source, name, "untouched", deliver_policy="new")
    replies = source.pull(name, "C", 5)
    source.ask(replies[0], b"", b"+ACK")
    source.ask(replies[2], b"", b"+ACK")
    source.ask(replies[1], b"", b"-NAK")
    source.pull(name, "C", 1)
    source.pull(name, "F", 2)
    restored = move(source, target, name)
    assert restored["state"]["consumer_count"] == 3
    assert target.api(f"CONSUMER.NAMES.{name}")["consumers"] == ["C", "F", "untouched"]
    for consumer in ("C", "F", "untouched"):
        before, after = (client.api(f"CONSUMER.INFO.{name}.{consumer}") for client in (source, target))
        assert after["config"] == before["config"]
        assert position(target, name, consumer) == position(source, name, consumer)
    (next_reply,) = target.pull(name, "C", 1)
    assert next_reply.split(b".")[4:7] == [b"1", b"6", b"7"]


@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
def test_messages_that_a_consumer_waits_for_stay_in_the_new_place(
    clients: Clients, way: tuple[str, str]
) -> None:
    source, target = clients[way[0]], clients[way[1]]
    name = new_name("wanted")
    source.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "retention": "interest"})
    add(source, name, "C")
    for number in range(4):
        source.ask(f"{name}.x", b"", b"%d" % number)
    source.ask(source.pull(name, "C", 2)[0], b"", b"+ACK")
    move(source, target, name)
    assert target.api(f"STREAM.INFO.{name}")["state"]["messages"] == 3
    assert position(target, name, "C") == position(source, name, "C")


@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
def test_consumers_stay_behind_when_nobody_wants_them(clients: Clients, way: tuple[str, str]) -> None:
    source, target = clients[way[0]], clients[way[1]]
    name = new_name("alone")
    create(source, name)
    add(source, name, "C")
    assert move(source, target, name, consumers=False)["state"]["consumer_count"] == 0
    assert target.api(f"CONSUMER.NAMES.{name}")["consumers"] == []


@pytest.mark.parametrize("archive_name", [NEW, TAR, OLD_TAR])
def test_consumers_of_older_archives_become_consumers_of_edged(clients: Clients, archive_name: str) -> None:
    client = clients["edged"]
    archive = (DATA / archive_name).read_bytes()
    (archived,) = read(archive)[0].consumers
    restored = client.restore(recipe.CONFIG, {}, archive)
    assert "error" not in restored, restored
    found = position(client, recipe.STREAM, recipe.CONSUMER)
    assert found["delivered"] == archived.position.delivered._asdict() == recipe.DELIVERED._asdict()
    assert found["ack_floor"]["stream_seq"] == recipe.ACK_FLOOR.stream_seq
    if archive_name != OLD_TAR:
        # Long ago a message that waited was listed with its last delivery, not with its first.
        assert found["ack_floor"] == recipe.ACK_FLOOR._asdict()
    assert found["num_ack_pending"] == len(recipe.PENDING_SEQS)
    assert found["num_redelivered"] == len(recipe.REDELIVERED)
    client.api(f"STREAM.DELETE.{recipe.STREAM}")
