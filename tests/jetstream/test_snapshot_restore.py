"""Streams that move between servers in archives: from edged to nats-server, back, and from edged to edged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.archive_cases import DATA, NEW, OLD_TAR, TAR, read
from tests.jetstream import archive_recipe as recipe
from tests.jetstream.jetstream_servers import figures, kept, new_name
from tests.jetstream.snapshot_client import Clients, SnapshotClient

pytestmark = pytest.mark.real

# From, to.
WAYS = (("edged", "nats-server"), ("nats-server", "edged"), ("edged", "edged"))


def pair_of(clients: Clients, way: tuple[str, str]) -> tuple[SnapshotClient, SnapshotClient]:
    """Whom the snapshot is taken from, and to whom it is given."""
    source, target = way
    return clients[source], clients["other edged" if source == target else target]


def move(source: SnapshotClient, target: SnapshotClient, name: str) -> dict[str, Any]:
    """What the other server says when it has the stream."""
    answer, archive = source.snapshot(name)
    restored = target.restore(answer["config"], answer["state"], archive)
    assert "error" not in restored, restored
    return restored


# --- what a stream may have gone through ---


def create(client: SnapshotClient, name: str, **config: Any) -> None:
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})


def publish(client: SnapshotClient, name: str, numbers: range) -> None:
    for number in numbers:
        block = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else b""
        client.publish(f"{name}.{number % 7}".encode(), block, b"%d," % number**9 * (number % 90))
    client.ask(f"{name}.last", b"", b"")


def filled(client: SnapshotClient, name: str) -> None:
    create(client, name)
    publish(client, name, range(500))


def with_gaps(client: SnapshotClient, name: str) -> None:
    create(client, name)
    publish(client, name, range(60))
    client.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.3"})
    for seq in (1, 2, 30, 61):
        client.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})


def never_filled(client: SnapshotClient, name: str) -> None:
    create(client, name)


def emptied(client: SnapshotClient, name: str) -> None:
    create(client, name)
    publish(client, name, range(20))
    client.api(f"STREAM.PURGE.{name}")


def begun_late(client: SnapshotClient, name: str) -> None:
    create(client, name, first_seq=1_000_000)
    publish(client, name, range(5))


def begun_late_and_never_filled(client: SnapshotClient, name: str) -> None:
    create(client, name, first_seq=1_000_000)


def in_memory(client: SnapshotClient, name: str) -> None:
    create(client, name, storage="memory", max_msgs_per_subject=3)
    publish(client, name, range(40))


def sealed(client: SnapshotClient, name: str) -> None:
    create(client, name)
    publish(client, name, range(10))
    config = client.api(f"STREAM.INFO.{name}")["config"]
    client.api(f"STREAM.UPDATE.{name}", {**config, "sealed": True})


def compressed(client: SnapshotClient, name: str) -> None:
    create(client, name, compression="s2", max_bytes=100_000)
    publish(client, name, range(300))


FILLINGS = (
    *(filled, with_gaps, never_filled, emptied, begun_late, begun_late_and_never_filled),
    *(in_memory, sealed, compressed),
)


@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
@pytest.mark.parametrize("fill", FILLINGS, ids=lambda fill: fill.__name__)
def test_a_stream_moves_with_all_it_has(
    clients: Clients, way: tuple[str, str], fill: Callable[[SnapshotClient, str], None]
) -> None:
    source, target = pair_of(clients, way)
    name = new_name("moved")
    fill(source, name)
    restored = move(source, target, name)
    before, after = source.api(f"STREAM.INFO.{name}"), target.api(f"STREAM.INFO.{name}")
    assert after["config"] == before["config"]
    assert restored["config"] == before["config"]
    assert kept(target, name) == kept(source, name)
    expected, found = figures(source, name), figures(target, name)
    if not expected["messages"]:
        # nats-server lists a deleted message 0 when it was asked for an archive, and begins at 1 or at 0.
        for one in (expected, found):
            one.update(first_seq=max(1, one["first_seq"]), num_deleted=0, deleted=None)
    assert found == expected
    next_of = [client.ask(f"{name}.next", b"", b"x").document for client in (source, target)]
    assert next_of[0] == next_of[1]


# A nats-server that restores does not remember ids.
@pytest.mark.parametrize("way", [way for way in WAYS if way[1] == "edged"], ids=" to ".join)
def test_message_ids_are_remembered_in_the_new_place(clients: Clients, way: tuple[str, str]) -> None:
    source, target = pair_of(clients, way)
    name = new_name("ids")
    create(source, name)
    blocks = [b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number for number in range(5)]
    for block in blocks:
        source.ask(f"{name}.x", block, b"x")
    move(source, target, name)
    answers = [target.ask(f"{name}.x", block, b"x").document for block in blocks]
    assert [(answer["seq"], answer["duplicate"]) for answer in answers] == [
        (seq, True) for seq in range(1, 6)
    ]


@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
def test_limits_hold_once_the_stream_is_there(clients: Clients, way: tuple[str, str]) -> None:
    source, target = pair_of(clients, way)
    name = new_name("limited")
    create(source, name)
    publish(source, name, range(20))
    answer, archive = source.snapshot(name)
    smaller = {**answer["config"], "max_msgs": 5}
    assert "error" not in target.restore(smaller, answer["state"], archive)
    state = target.api(f"STREAM.INFO.{name}")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (5, 17, 21)
    assert kept(target, name) == kept(source, name)[-5:]


@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
def test_messages_that_are_to_end_do_so_in_the_new_place(clients: Clients, way: tuple[str, str]) -> None:
    source, target = pair_of(clients, way)
    name = new_name("mortal")
    create(source, name, allow_msg_ttl=True)
    source.ask(f"{name}.stays", b"", b"x")
    source.ask(f"{name}.goes", b"NATS/1.0\r\nNats-TTL: 1\r\n\r\n", b"x")
    source.ask(f"{name}.later", b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n", b"x")
    move(source, target, name)
    for _ in range(100_000):
        if target.api(f"STREAM.INFO.{name}")["state"]["messages"] == 2:
            break
    assert [message["seq"] for message in kept(target, name)] == [1, 3]


def test_a_counter_goes_on_counting(clients: Clients) -> None:
    source, target = pair_of(clients, ("nats-server", "edged"))
    name = new_name("counter")
    create(source, name, allow_msg_counter=True)
    block = b"NATS/1.0\r\nNats-Incr: 5\r\n\r\n"
    for _ in range(3):
        source.ask(f"{name}.x", block)
    move(source, target, name)
    assert target.ask(f"{name}.x", block).document["val"] == "20"


@pytest.mark.parametrize("archive_name", [NEW, TAR, OLD_TAR])
def test_archives_of_older_servers_become_streams_of_edged(clients: Clients, archive_name: str) -> None:
    client = clients["edged"]
    archive = (DATA / archive_name).read_bytes()
    _, messages = read(archive)
    restored = client.restore(recipe.CONFIG, {}, archive)
    assert "error" not in restored, restored
    found = [
        (message["seq"], message["subject"], message["hdrs"] + message["data"])
        for message in kept(client, recipe.STREAM)
    ]
    assert found == [(one.seq, one.subject.decode(), one.data) for one in messages]
    assert [seq for seq, *_ in found] == recipe.LIVE_SEQS
    assert client.ask("gold.next", b"", b"").document["seq"] == recipe.MESSAGES + 1
    client.api(f"STREAM.DELETE.{recipe.STREAM}")


# --- refusals ---


def snapshot_refusals(name: str) -> list[tuple[str, bytes]]:
    bodies = [
        b"",
        b" ",
        b"{}",
        b"x",
        b"[]",
        b'{"deliver_subject":""}',
        b'{"deliver_subject":"a.*"}',
        b'{"deliver_subject":"a b"}',
        b'{"deliver_subject":5}',
        b'{"deliver_subject":"a","chunk_size":"x"}',
    ]
    requests = [(f"SNAPSHOT.{name}", body) for body in bodies]
    return [*requests, ("SNAPSHOT.unknown", b'{"deliver_subject":"a"}'), ("SNAPSHOT.unknown", b"{}")]


def restore_refusals(name: str) -> list[tuple[str, bytes]]:
    configs: list[tuple[str, Any]] = [
        (name, {"name": name}),
        (name, {}),
        ("new", {"name": "other"}),
        ("new", {"name": "new", "max_msgs": "x"}),
        ("new", {"name": "new", "retention": "x"}),
        ("new", {"name": "new", "subjects": ["a..b"]}),
        ("new", {"name": "new", "max_age": 1}),
        ("n/w", {"name": "n/w"}),
        ("new", {"name": "new", "unknown": 1}),
    ]
    requests = [(f"RESTORE.{place}", json.dumps({"config": config}).encode()) for place, config in configs]
    return [
        *requests,
        *((f"RESTORE.{place}", body) for place in (name, "new") for body in (b"", b"x", b"[]")),
    ]


def test_requests_are_refused_in_the_words_of_nats_server(clients: Clients) -> None:
    name = new_name("refusing")
    create(clients["edged"], name)
    create(clients["nats-server"], name)
    for subject, body in snapshot_refusals(name) + restore_refusals(name):
        answers = [
            clients[kind].ask(f"$JS.API.STREAM.{subject}", b"", body).document
            for kind in ("edged", "nats-server")
        ]
        assert "error" in answers[1], (subject, body, answers[1])
        assert answers[0] == answers[1], (subject, body)


def test_the_answers_to_a_snapshot_and_to_a_restore_have_the_fields_of_nats_server(clients: Clients) -> None:
    shapes = []
    for kind in ("edged", "nats-server"):
        name = new_name("shaped")
        with_gaps(clients[kind], name)
        answer, archive = clients[kind].snapshot(name)
        clients[kind].api(f"STREAM.DELETE.{name}")
        restored = clients[kind].restore(answer["config"], answer["state"], archive)
        shapes.append([shape_of(answer), shape_of(restored)])
    assert shapes[0] == shapes[1]


def shape_of(value: Any) -> Any:
    """The names of all fields, in their order."""
    return [(key, shape_of(item)) for key, item in value.items()] if isinstance(value, dict) else None
