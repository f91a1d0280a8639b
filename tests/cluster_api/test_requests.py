"""Requests to the API of a cluster: any node takes them, and whoever leads answers.

What is expected was seen with three nats-servers, version 2.15.1.
"""

from __future__ import annotations

import trio
import trio.testing

from edged.core.commands import BEFORE, PEERS, TARGET
from edged.server.jetstream.cluster_calls import answer_call
from tests.cluster_api.client import Client
from tests.cluster_api.fake_cluster import FakeHub

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


async def test_that_there_is_no_such_stream_is_said_before_a_request_is_read(hub: FakeHub) -> None:
    client = Client(hub, 2)
    for name in ("STREAM.INFO.NO", "STREAM.PURGE.NO", "STREAM.MSG.GET.NO", "CONSUMER.UNPIN.NO.c"):
        assert await client.refused(name, {"nonsense": 1}) == (10059, "stream not found"), name
    assert (await client.refused("CONSUMER.LIST.NO", {"nonsense": 1}))[0] == 10025


async def test_requests_are_counted_where_they_are_asked(hub: FakeHub) -> None:
    client = Client(hub, 3)
    for _ in range(4):
        await client.refused("STREAM.INFO.NO")
    counted = (await client.api("INFO"))["api"]
    assert (counted["total"], counted["errors"]) == (4, 4)
    assert (await Client(hub, 2).api("INFO"))["api"]["total"] == 0


async def test_a_stream_that_gets_fewer_copies_has_all_of_them_until_its_group_has_agreed(
    hub: FakeHub,
) -> None:
    client = Client(hub, 2)
    await client.api("STREAM.CREATE.S3", R3)
    hub.elect(hub.group("S3"), 3)
    await client.api("STREAM.UPDATE.S3", {**R3, "num_replicas": 1})
    await client.api("STREAM.UPDATE.S3", {**R3, "num_replicas": 1, "max_msgs": 5})
    for node in hub.nodes.values():
        (entry,) = node.store.catalog.streams.values()
        assert set(entry.config[PEERS]) == set(entry.config[BEFORE]) == {1, 2, 3}
        assert entry.config[TARGET] == [3], "the leader stays"
        assert entry.config["max_msgs"] == 5


async def test_no_stream_is_promised_more_than_a_node_has(hub: FakeHub) -> None:
    client = Client(hub, 2)
    await client.api("STREAM.CREATE.S1", R1)
    assert (await client.refused("STREAM.UPDATE.S1", {**R1, "max_bytes": 1 << 40}))[0] == 10047


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


async def test_a_stream_is_removed_when_its_leader_knows_it(hub: FakeHub) -> None:
    hub.placement = [3, 1, 2]
    client = Client(hub, 2)
    await client.api("STREAM.CREATE.S3", R3)
    group, leader = hub.group("S3"), hub.nodes[3].jetstream
    answered = trio.Event()

    async def ask() -> None:
        await answer_call(leader, {"what": "gone", "group": group})
        answered.set()

    hub.nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert not answered.is_set()
    await client.api("STREAM.DELETE.S3")
    await answered.wait()
    assert (1, 3, "gone") in hub.calls and group not in leader.by_group


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
