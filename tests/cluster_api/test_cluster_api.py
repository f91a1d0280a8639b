"""What only a cluster can be asked for, and what it shows of itself.

What is expected was seen with three nats-servers, version 2.15.1.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from edged.server.monitoring.answers import NotMeant
from edged.server.monitoring.healthz import HealthzOptions, healthz
from edged.server.monitoring.jsz import JszOptions, jetstream_figures, jsz
from edged.store.group import CATALOG
from tests.cluster_api.client import Client
from tests.cluster_api.fake_cluster import ACCOUNT, SYSTEM, FakeHub

R3 = {"name": "S", "subjects": ["s.>"], "num_replicas": 3}
NOT_FOUND = (10059, "stream not found")
BAD = (10003, "bad request")


async def _stream(hub: FakeHub) -> Client:
    hub.placement = [2, 3, 1]
    client = Client(hub, 3)
    await client.api("STREAM.CREATE.S", R3)
    await client.api("STREAM.CREATE.S1", {"name": "S1", "subjects": ["s1.>"]})
    config = {"stream_name": "S", "config": {"durable_name": "c"}}
    await client.api("CONSUMER.CREATE.S.c", config)
    return client


async def test_another_node_leads_a_stream_when_asked_to(hub: FakeHub) -> None:
    client = await _stream(hub)
    assert (await client.api("STREAM.LEADER.STEPDOWN.S"))["success"]
    assert (await client.api("STREAM.INFO.S"))["cluster"]["leader"] != "n2"
    await client.api("STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": "n2"}})
    assert (await client.api("STREAM.INFO.S"))["cluster"]["leader"] == "n2"
    await client.api("CONSUMER.LEADER.STEPDOWN.S.c", {"placement": {"preferred": "n1"}})
    assert (await client.api("CONSUMER.INFO.S.c"))["cluster"]["leader"] == "n1"
    # One node alone goes on.
    assert (await client.api("STREAM.LEADER.STEPDOWN.S1"))["success"]
    assert (await client.api("STREAM.INFO.S1"))["cluster"]["leader"] == "n2"


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("STREAM.LEADER.STEPDOWN.NO", None, NOT_FOUND),
        (
            "STREAM.LEADER.STEPDOWN.S",
            {"placement": {"preferred": "zz"}},
            (10005, 'preferred server "zz" not known'),
        ),
        ("STREAM.LEADER.STEPDOWN.S", {"zz": 1}, (10025, 'invalid JSON: json: unknown field "zz"')),
        ("CONSUMER.LEADER.STEPDOWN.S.no", None, (10014, "consumer not found")),
        ("CONSUMER.LEADER.STEPDOWN.NO.no", None, NOT_FOUND),
        ("STREAM.PEER.REMOVE.S", None, BAD),
        ("STREAM.PEER.REMOVE.S", {"peer": ""}, BAD),
        ("STREAM.PEER.REMOVE.S", {"peer": "zz"}, (10040, "peer not a member")),
        ("STREAM.PEER.REMOVE.S", {"peer": "n1"}, (10075, "peer remap failed")),
        ("STREAM.PEER.REMOVE.NO", {"peer": "n1"}, NOT_FOUND),
        ("STREAM.PEER.EVACUATE.S", None, BAD),
        ("STREAM.PEER.EVACUATE.S", {"peer": "zz"}, (10040, "peer not a member")),
        ("CONSUMER.PEER.REMOVE.S.c", None, BAD),
        ("CONSUMER.PEER.REMOVE.S.c", {"peer": "zz"}, (10040, "peer not a member")),
        ("CONSUMER.PEER.REMOVE.S.c", {"peer": "n1"}, (10075, "peer remap failed")),
        ("CONSUMER.PEER.REMOVE.S.no", {"peer": "n1"}, (10014, "consumer not found")),
        ("CONSUMER.PEER.EVACUATE.S.c", {"peer": "zz"}, (10040, "peer not a member")),
        ("STREAM.CANCEL_MOVE.S", None, (10129, "stream reconfiguration not in progress")),
        ("STREAM.CANCEL_MOVE.NO", None, NOT_FOUND),
    ],
)
async def test_what_cannot_be_is_refused(
    hub: FakeHub, name: str, body: dict[str, Any] | None, expected: tuple[int, str]
) -> None:
    client = await _stream(hub)
    assert await client.refused(name, body) == expected


async def test_the_system_account_asks_through_any_node(hub: FakeHub) -> None:
    await _stream(hub)
    system = Client(hub, 3, SYSTEM)
    assert (await system.api("META.LEADER.STEPDOWN", {"placement": {"preferred": "n2"}}))["success"]
    assert hub.leaders[CATALOG] == 2
    refused = await system.refused("META.LEADER.STEPDOWN", {"placement": {"preferred": "zz"}})
    assert refused == (10005, 'preferred server "zz" not known')
    assert await system.refused("SERVER.REMOVE") == BAD
    assert await system.refused("SERVER.REMOVE", {"peer": "zz"}) == (
        10044,
        "server is not a member of the cluster",
    )
    assert (await system.request("SERVER.EVACUATE"))["type"].endswith("meta_server_evacuate_response")
    assert await system.refused(f"ACCOUNT.STREAM.MOVE.{ACCOUNT}.NO", {"server": "n1"}) == NOT_FOUND
    assert (await system.refused(f"ACCOUNT.STREAM.CANCEL_MOVE.{ACCOUNT}.S"))[0] == 10129
    assert (await system.api(f"ACCOUNT.PURGE.{ACCOUNT}"))["initiated"]
    assert (await Client(hub, 1).api("STREAM.NAMES"))["streams"] is None


async def test_who_leads_is_told_to_whoever_listens(hub: FakeHub) -> None:
    listener = Client(hub, 1)
    listener.subscribe("$JS.EVENT.ADVISORY.STREAM.>")
    await _stream(hub)
    hub.elect(hub.group("S"), 3)
    hub.nodes[1].jetstream.quorum_lost(hub.group("S"))
    told = [json.loads(message[3]) for message in listener.taken()]
    elected = [one for one in told if one["type"].endswith(".stream_leader_elected")]
    assert [(one["stream"], one["leader"]) for one in elected] == [("S", "n2"), ("S", "n3")]
    assert {one["name"] for one in elected[0]["replicas"]} == {"n1", "n2", "n3"}
    (lost,) = [one for one in told if one["type"].endswith(".stream_quorum_lost")]
    assert lost["stream"] == "S" and len(lost["replicas"]) == 3
    await Client(hub, 2).api("STREAM.DELETE.S")
    told += [json.loads(message[3]) for message in listener.taken()]
    actions = [(one["stream"], one["action"]) for one in told if one["type"].endswith(".stream_action")]
    assert actions == [("S", "create"), ("S1", "create"), ("S", "delete")]


async def test_monitoring_tells_who_leads_what(hub: FakeHub) -> None:
    await _stream(hub)
    options = JszOptions(accounts=True, streams=True, consumers=True, raft=True)
    led = {node: jsz(one.server, options) for node, one in hub.nodes.items()}
    assert {node: one["streams"] for node, one in led.items()} == {1: 1, 2: 2, 3: 1}
    assert {node: one.get("streams_leader") for node, one in led.items()} == {1: None, 2: 2, 3: None}
    assert {node: one["consumers"] for node, one in led.items()} == {1: 1, 2: 1, 3: 1}
    assert [one["ha_assets"] for one in led.values()] == [2, 2, 2]
    assert led[3]["meta_cluster"]["leader"] == "n1"
    (account,) = led[3]["account_details"]
    (stream,) = account["stream_detail"]
    assert stream["cluster"]["leader"] == "n2" and stream["stream_raft_group"].startswith("S-R3F-")
    assert stream["state"]["consumer_count"] == 1
    (account,) = jsz(hub.nodes[3].server, JszOptions(streams=True, stream_leader_only=True))[
        "account_details"
    ]
    assert "stream_detail" not in account
    assert jsz(hub.nodes[1].server, JszOptions(leader_only=True))["streams"] == 1
    with pytest.raises(NotMeant, match="filtered response: not leader"):
        jsz(hub.nodes[2].server, JszOptions(leader_only=True))
    assert jetstream_figures(hub.nodes[2].server)["meta"]["leader"] == "n1"


async def test_a_node_without_a_leader_of_the_catalog_is_not_healthy(hub: FakeHub) -> None:
    await _stream(hub)
    server = hub.nodes[3].server
    server.info.port = 4222
    assert healthz(server, HealthzOptions()).status == 200
    asked = HealthzOptions(account=ACCOUNT, stream="S", consumer="c")
    assert healthz(server, asked).status == 200
    hub.elect(CATALOG, 0)
    answer = healthz(server, HealthzOptions())
    assert answer.status == 503
    assert answer.body == {
        "status": "unavailable",
        "error": "JetStream has not established contact with a meta leader",
    }
    assert healthz(server, HealthzOptions(js_server_only=True)).status == 200
