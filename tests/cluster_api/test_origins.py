"""Mirrors and sources in a cluster, whose origins other nodes lead; and streams that come from archives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edged.core.commands import PEERS, PutStream
from edged.core.stream_config import StreamConfig
from edged.server.jetstream.stream import RESTORING
from edged.store.group import CATALOG
from tests.cluster_api.client import Client
from tests.cluster_api.fake_cluster import ACCOUNT, FakeHub

ORIGIN = {"name": "O", "subjects": ["o.>"], "num_replicas": 1}


async def _make(hub: FakeHub, leader: int, config: dict[str, Any]) -> None:
    hub.placement = [leader, *(node for node in hub.nodes if node != leader)]
    await Client(hub, 1).api(f"STREAM.CREATE.{config['name']}", config)


async def _state(hub: FakeHub, name: str, messages: int) -> dict[str, Any]:
    """What a stream shows once it has so many messages."""
    await hub.until(lambda: hub.leading(name).log.message_count == messages)
    return await Client(hub, 2).api(f"STREAM.INFO.{name}")


async def test_a_mirror_reads_an_origin_that_another_node_leads(hub: FakeHub) -> None:
    client = Client(hub, 1)
    await _make(hub, 3, ORIGIN)
    for number in range(5):
        await client.ask("o.a", b"%d" % number)
    await _make(hub, 2, {"name": "M", "mirror": {"name": "O"}, "num_replicas": 3})
    info = await _state(hub, "M", 5)
    assert info["mirror"]["name"] == "O" and info["mirror"]["lag"] == 0
    await client.ask("o.b", b"more")
    await _state(hub, "M", 6)
    hub.assert_alike("M")
    # Whoever leads next goes on where this one was.
    hub.elect(hub.group("M"), 1)
    await client.ask("o.b", b"and more")
    assert (await _state(hub, "M", 7))["state"]["last_seq"] == 7
    # And reads the log itself once it leads the origin as well.
    hub.elect(hub.group("M"), 3)
    await client.ask("o.b", b"and more")
    await _state(hub, "M", 8)
    hub.assert_alike("M")


async def test_sources_on_several_nodes_come_together(hub: FakeHub) -> None:
    client = Client(hub, 2)
    await _make(hub, 1, {"name": "A1", "subjects": ["a1.>"]})
    await _make(hub, 3, {"name": "A3", "subjects": ["a3.>"]})
    sources = [{"name": "A1"}, {"name": "A3", "filter_subject": "a3.x"}]
    await _make(hub, 2, {"name": "ALL", "sources": sources, "num_replicas": 3})
    for number in range(4):
        await client.ask("a1.a", b"%d" % number)
        await client.ask("a3.x" if number % 2 else "a3.y", b"%d" % number)
    await _state(hub, "ALL", 6)
    hub.elect(hub.group("ALL"), 1)
    await client.ask("a3.x", b"more")
    await _state(hub, "ALL", 7)
    hub.assert_alike("ALL")


async def test_an_origin_that_keeps_messages_for_its_readers_lets_them_go(hub: FakeHub) -> None:
    client = Client(hub, 2)
    await _make(hub, 3, {**ORIGIN, "retention": "workqueue"})
    await _make(hub, 1, {"name": "ALL", "sources": [{"name": "O"}]})
    for number in range(3):
        await client.ask("o.a", b"%d" % number)
    await _state(hub, "ALL", 3)
    await _state(hub, "O", 0)
    assert len(hub.leading("O").consumers) == 1
    await client.api("STREAM.DELETE.ALL")
    await hub.until(lambda: len(hub.leading("O").consumers) == 0)


async def test_an_origin_that_is_made_later_is_found(hub: FakeHub) -> None:
    client = Client(hub, 2)
    await _make(hub, 1, {"name": "ALL", "sources": [{"name": "O"}]})
    await _make(hub, 3, ORIGIN)
    hub.nodes[1].jetstream.origins.look()
    await client.ask("o.a", b"one")
    await _state(hub, "ALL", 1)


@pytest.mark.parametrize("node", [1, 3])
async def test_an_archive_becomes_a_stream_of_the_cluster(hub: FakeHub, node: int) -> None:
    client = Client(hub, node)
    await _make(hub, 2, {**ORIGIN, "num_replicas": 3})
    for number in range(3):
        await client.ask("o.a", b"%d" % number)
    chunks = Client(hub, node)
    chunks.subscribe("chunks")
    answer = await client.api("STREAM.SNAPSHOT.O", {"deliver_subject": "chunks"})
    archive = b""
    while True:
        _, reply, header_bytes, data = await chunks.receive()
        if not data[max(header_bytes, 0) :]:
            break
        archive += data[max(header_bytes, 0) :]
        if reply is not None:
            client.publish(reply.decode())
    await client.api("STREAM.DELETE.O")
    config = {**answer["config"], "num_replicas": 1}
    request = {"config": config, "state": answer["state"]}
    subject = (await client.api("STREAM.RESTORE.O", request))["deliver_subject"]
    await client.ask(subject, archive)
    made = json.loads((await client.ask(subject))[3])
    assert made["state"]["messages"] == 3 and made["cluster"]["leader"] == "n1"
    assert (await client.api("STREAM.NAMES"))["streams"] == ["O"]
    assert json.loads((await client.ask("o.a"))[3])["seq"] == 4


async def test_what_was_not_restored_completely_goes_with_the_next_leader(hub: FakeHub) -> None:
    client = Client(hub, 3)
    unfinished = {**StreamConfig("O").document(), "mirror": {"name": "O"}, RESTORING: True, PEERS: [1]}
    jetstream = hub.nodes[1].jetstream
    await jetstream.commit(CATALOG, PutStream(1, bytes(16), ACCOUNT, "O", unfinished))
    assert 1 in hub.nodes[1].store.catalog.streams and not jetstream.by_group
    hub.elect(CATALOG, 2)
    await hub.until(lambda: not hub.nodes[1].store.catalog.streams)
    await _make(hub, 2, ORIGIN)
    assert json.loads((await client.ask("o.a"))[3])["seq"] == 1
