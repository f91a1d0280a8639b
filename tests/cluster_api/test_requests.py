"""Requests to the API of a cluster: any node takes them, and whoever leads answers.

What is expected was seen with three nats-servers, version 2.15.1.
"""

from __future__ import annotations

import trio

from tests.cluster_api.fake_cluster import Client, FakeHub

R3 = {"name": "S3", "subjects": ["s3.>"], "num_replicas": 3}
R1 = {"name": "S1", "subjects": ["s1.>"], "num_replicas": 1}


async def test_a_stream_is_made_through_any_node_and_described_by_its_leader(hub: FakeHub) -> None:
    hub.placement = [2, 3, 1]
    made = await Client(hub, 3).api("STREAM.CREATE.S3", R3)
    assert made["did_create"] and made["config"]["num_replicas"] == 3
    assert made["cluster"]["leader"] == "n2"
    assert [one["name"] for one in made["cluster"]["replicas"]] == ["n3", "n1"]
    again = await Client(hub, 2).api("STREAM.CREATE.S3", R3)
    assert "did_create" not in again and again["created"] == made["created"]
    for node in hub.nodes:
        info = await Client(hub, node).api("STREAM.INFO.S3")
        assert info["cluster"]["leader"] == "n2" and info["created"] == made["created"]


async def test_a_stream_that_one_node_has_is_known_to_all(hub: FakeHub) -> None:
    hub.placement = [3, 2, 1]
    client = Client(hub, 2)
    made = await client.api("STREAM.CREATE.S1", R1)
    assert made["cluster"] == {"name": "C", "leader": "n3"}
    await client.api("STREAM.CREATE.S3", R3)
    for node in hub.nodes:
        asking = Client(hub, node)
        assert (await asking.api("STREAM.NAMES"))["streams"] == ["S1", "S3"]
        listed = await asking.api("STREAM.LIST")
        assert [one["config"]["name"] for one in listed["streams"]] == ["S1", "S3"]
        assert "missing" not in listed and listed["total"] == 2
        assert (await asking.api("STREAM.NAMES", {"subject": "s1.x"}))["streams"] == ["S1"]
        assert (await asking.api("STREAM.INFO.S1"))["config"]["name"] == "S1"
        overlap = {"name": "T", "subjects": ["s1.a"]}
        assert await asking.refused("STREAM.CREATE.T", overlap) == (
            10065,
            "subjects overlap with an existing stream",
        )
        assert (await asking.refused("STREAM.CREATE.S1", {**R1, "max_msgs": 3}))[0] == 10058


async def test_refusals_are_those_of_nats_server(hub: FakeHub) -> None:
    client = Client(hub, 2)
    five = {"name": "S5", "subjects": ["s5.>"], "num_replicas": 5}
    assert await client.refused("STREAM.CREATE.S5", five) == (10005, "no suitable peers for placement")
    assert await client.refused("STREAM.INFO.NO") == (10059, "stream not found")
    assert await client.refused("STREAM.DELETE.NO") == (10059, "stream not found")
    assert await client.refused("STREAM.UPDATE.NO", {"name": "NO"}) == (10059, "stream not found")
    assert await client.refused("STREAM.PURGE.NO") == (10059, "stream not found")
    assert await client.refused("CONSUMER.INFO.NO.c") == (10059, "stream not found")
    assert await client.refused("CONSUMER.NAMES.NO") == (10059, "stream not found")
    listed = await client.api("CONSUMER.LIST.NO")
    assert (listed["total"], listed["limit"], listed["consumers"]) == (0, 256, [])
    await client.api("STREAM.CREATE.S1", R1)
    config = {"durable_name": "c", "num_replicas": 3}
    refused = await client.refused("CONSUMER.CREATE.S1.c", {"stream_name": "S1", "config": config})
    assert refused == (10126, "consumer config replica count exceeds parent stream")
    assert await client.refused("CONSUMER.INFO.S1.c") == (10014, "consumer not found")


async def test_a_stream_is_changed_and_removed_everywhere(hub: FakeHub) -> None:
    hub.placement = [3, 1, 2]
    client = Client(hub, 2)
    await client.api("STREAM.CREATE.S3", R3)
    changed = await client.api("STREAM.UPDATE.S3", {**R3, "subjects": ["s3.>", "more.>"], "max_msgs": 2})
    assert changed["config"]["subjects"] == ["s3.>", "more.>"]
    for number in range(3):
        assert b'"seq":%d' % (number + 1) in (await client.ask("more.a"))[3]
    hub.assert_alike("S3")
    for node in hub.nodes.values():
        (entry,) = node.store.catalog.streams.values()
        assert entry.log.message_count == 2
    assert (await client.api("STREAM.DELETE.S3"))["success"]
    assert (await client.api("STREAM.NAMES"))["streams"] is None
    for node in hub.nodes.values():
        assert not node.store.catalog.streams and not node.jetstream.by_group


async def test_consumers_are_answered_for_by_the_leader_of_their_stream(hub: FakeHub) -> None:
    hub.placement = [2, 1, 3]
    client = Client(hub, 3)
    await client.api("STREAM.CREATE.S3", R3)
    asked = {"stream_name": "S3", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    made = await client.api("CONSUMER.CREATE.S3.c", asked)
    assert made["cluster"]["leader"] == "n2" and made["cluster"]["raft_group"].startswith("S-R3F-")
    for node in hub.nodes:
        asking = Client(hub, node)
        assert (await asking.api("CONSUMER.INFO.S3.c"))["name"] == "c"
        assert (await asking.api("CONSUMER.NAMES.S3"))["consumers"] == ["c"]
        assert [one["name"] for one in (await asking.api("CONSUMER.LIST.S3"))["consumers"]] == ["c"]
    assert (await client.api("INFO"))["consumers"] == 1
    assert (await client.api("CONSUMER.DELETE.S3.c"))["success"]
    assert await client.refused("CONSUMER.INFO.S3.c") == (10014, "consumer not found")
    hub.assert_alike("S3")


async def test_figures_of_the_account_are_those_of_all_leaders(hub: FakeHub) -> None:
    client = Client(hub, 1)
    hub.placement = [2, 3, 1]
    await client.api("STREAM.CREATE.S1", R1)
    hub.placement = [3, 1, 2]
    await client.api("STREAM.CREATE.S3", {**R3, "max_bytes": 1000})
    await client.ask("s1.a", b"x" * 10)
    await client.ask("s3.a", b"x" * 20)
    for node in hub.nodes:
        info = await Client(hub, node).api("INFO")
        assert info["streams"] == 2 and info["reserved_storage"] == 1000
        assert info["storage"] == 30 + 4 + 10 + 30 + 4 + 20


async def test_without_a_leader_requests_are_refused_for_now(hub: FakeHub) -> None:
    client = Client(hub, 2)
    await client.api("STREAM.CREATE.S3", R3)
    hub.elect(0, 0)
    unavailable = (10008, "JetStream system temporarily unavailable")
    for name in ("INFO", "STREAM.LIST", "STREAM.NAMES", "STREAM.DELETE.S3", "STREAM.INFO.NO"):
        assert await client.refused(name) == unavailable, name
    assert (await client.api("STREAM.INFO.S3"))["config"]["name"] == "S3"
    hub.elect(hub.group("S3"), 0)
    for name in ("STREAM.INFO.S3", "STREAM.PURGE.S3", "CONSUMER.LIST.S3", "STREAM.LEADER.STEPDOWN.S3"):
        assert await client.refused(name) == unavailable, name


async def test_a_request_waits_a_moment_for_a_leader(hub: FakeHub) -> None:
    client = Client(hub, 2)
    await client.api("STREAM.CREATE.S3", R3)
    group = hub.group("S3")
    hub.elect(group, 0)
    hub.nodes[1].server.deadlines.after(0.3, lambda: hub.elect(group, 3))
    assert (await client.api("STREAM.INFO.S3"))["cluster"]["leader"] == "n3"


async def test_a_group_without_a_quorum_does_not_keep_others_waiting(hub: FakeHub) -> None:
    client = Client(hub, 2)
    await client.api("STREAM.CREATE.S3", R3)
    await client.api("STREAM.CREATE.S1", R1)
    hub.stuck.add(hub.group("S3"))
    stuck: list[tuple[int, str]] = []
    answered = trio.Event()

    async def ask() -> None:
        asked = {"stream_name": "S3", "config": {"durable_name": "c"}}
        stuck.append(await Client(hub, 2).refused("CONSUMER.CREATE.S3.c", asked))
        answered.set()

    hub.nursery.start_soon(ask)
    asked = {"stream_name": "S1", "config": {"durable_name": "c"}}
    assert (await client.api("CONSUMER.CREATE.S1.c", asked))["name"] == "c"
    assert (await client.api("STREAM.INFO.S3"))["config"]["name"] == "S3"
    assert not stuck
    await answered.wait()
    assert stuck == [(10008, "JetStream system temporarily unavailable")]


async def test_a_node_that_does_not_answer_costs_its_streams_only(hub: FakeHub) -> None:
    client = Client(hub, 1)
    hub.placement = [3, 1, 2]
    await client.api("STREAM.CREATE.S1", R1)
    hub.placement = [2, 1, 3]
    await client.api("STREAM.CREATE.S3", R3)
    hub.nodes[3].is_up = False
    listed = await client.api("STREAM.LIST")
    assert [one["config"]["name"] for one in listed["streams"]] == ["S3"] and listed["missing"] == ["S1"]
    assert await client.refused("STREAM.INFO.S1") == (10008, "JetStream system temporarily unavailable")
