"""A cluster most of whose nodes are gone for good is brought back by its operator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig

from edged.config.options import LoggingOptions
from edged.server.log import Log
from hub.raft.members import Members
from hub.rescue import RESCUE_S, MetaRescue
from tests.hub.real_cluster import ClusterNode, RealCluster, real_cluster

Document = dict[str, Any]
BAD_REQUEST = (400, 10003, "bad request")
PATIENCE_S = 20.0


def not_applied(reason: str) -> tuple[int, int, str]:
    return 400, 10224, f"JetStream system rescue not applied: raft: {reason}"


# --- the decision ---


class Groups:
    """The meta group as the rescue sees it."""

    def __init__(self) -> None:
        self.leading = 0
        self.quorum_max: int | None = None

    def has(self, group: int) -> bool:
        return True

    def leader(self, group: int) -> int:
        return self.leading

    def set_quorum_max(self, group: int, quorum_max: int | None) -> None:
        self.quorum_max = quorum_max


class Clock:
    now_s = 0.0


def rescue_of(members: Callable[[], Members]) -> tuple[MetaRescue, Groups, Clock]:
    groups, clock = Groups(), Clock()
    return MetaRescue(groups, members, lambda: clock.now_s, Log(LoggingOptions(), StringIO())), groups, clock


def test_rescue_ends_when_it_has_lasted_long_enough() -> None:
    rescue, groups, clock = rescue_of(lambda: Members(frozenset({1, 2, 3, 4, 5})))
    assert rescue.begin(2) == (3, 2)
    rescue.look()
    assert (groups.quorum_max, rescue.quorum_needed, rescue.is_active) == (2, 2, True)
    clock.now_s = RESCUE_S
    rescue.look()
    assert (groups.quorum_max, rescue.quorum_needed, rescue.is_active) == (None, 3, False)


def test_rescue_lasts_until_those_who_leave_have_nothing_to_say() -> None:
    members = [Members(frozenset({1, 2, 3}))]
    rescue, groups, _ = rescue_of(lambda: members[0])
    rescue.begin(1)
    members[0] = Members(frozenset({1}), outgoing=frozenset({1, 2, 3}))
    rescue.look()
    assert groups.quorum_max == 1
    members[0] = Members(frozenset({1}))
    rescue.look()
    assert groups.quorum_max is None


# --- real nodes ---


async def ask(client: Client, body: bytes, answers: int) -> list[Document]:
    """What the nodes answer."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish("$JS.API.META.RESCUE", body, reply=inbox)
    return [json.loads((await subscription.next_msg(5)).data) for _ in range(answers)]


async def meta(client: Client) -> Document:
    answer = await client.request("$SYS.REQ.SERVER.PING.JSZ", b"{}", 2)
    found: Document = json.loads(answer.data)["data"]["meta_cluster"]
    return found


async def system(node: ClusterNode) -> Client:
    return await nats.connect(node.url, user="system", password="s")


async def wait_for(client: Client, is_so: Callable[[Document], bool]) -> Document:
    """Ask until the meta group is as it should be."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    found = await meta(client)
    while not is_so(found) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
        found = await meta(client)
    assert is_so(found), found
    return found


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("program", ["nats-server", "edged-hub"])
def test_rescue_is_refused_while_somebody_leads_and_by_every_node(program: str, tmp_path: Path) -> None:
    async def scenario(cluster: RealCluster) -> None:
        client = await system(cluster.nodes[0])
        for node in cluster.nodes:
            one = await system(node)
            await wait_for(one, lambda found: "leader" in found and found["cluster_size"] == 3)
            await one.close()
        refusals = {
            b"": BAD_REQUEST,
            b"{}": BAD_REQUEST,
            b'{"quorum_needed":0}': not_applied("rescue quorum must be between 1 and current quorum"),
            b'{"quorum_needed":3}': not_applied("rescue quorum must be between 1 and current quorum"),
            b'{"quorum_needed":1}': not_applied("leader is known"),
        }
        for body, expected in refusals.items():
            found = await ask(client, body, 3)
            assert {one["server"] for one in found} == {"n1", "n2", "n3"}
            errors = {
                tuple(one["error"][key] for key in ("code", "err_code", "description")) for one in found
            }
            assert errors == {expected}
            assert {tuple(one) for one in found} == {("type", "error", "server", "server_id")}
        await client.close()

    with real_cluster(program, tmp_path) as cluster:
        asyncio.run(asyncio.wait_for(scenario(cluster), 90))


@pytest.mark.real
@pytest.mark.slow
def test_the_last_of_three_nodes_goes_on_alone_when_it_is_told_to(tmp_path: Path) -> None:
    async def scenario(cluster: RealCluster) -> None:
        survivor, *others = cluster.nodes
        client = await system(survivor)
        await wait_for(client, lambda found: "leader" in found and found["cluster_size"] == 3)
        for node in others:
            node.kill()
        assert (await wait_for(client, lambda found: "leader" not in found))["quorum_needed"] == 2
        (answer,) = await ask(client, b'{"quorum_needed":1}', 1)
        while "error" in answer:
            # Consensus gives a leader up some moments after its link broke.
            assert answer["error"]["description"] == not_applied("leader is known")[2]
            (answer,) = await ask(client, b'{"quorum_needed":1}', 1)
        assert (answer["prev_quorum"], answer["new_quorum"]) == (2, 1)
        found = await wait_for(client, lambda found: found.get("leader") == "n1")
        assert (found["quorum_needed"], found["rescue"]) == (1, True)
        for name in ("n2", "n3"):
            request = json.dumps({"peer": name}).encode()
            removed = json.loads((await client.request("$JS.API.SERVER.REMOVE", request, 10)).data)
            assert removed["success"] is True, removed
        found = await wait_for(client, lambda found: "rescue" not in found)
        assert (found["cluster_size"], found["leader"]) == (1, "n1")
        user = await nats.connect(survivor.url)
        js = user.jetstream()
        await js.add_stream(StreamConfig(name="AFTER", subjects=["after"]))
        assert (await js.publish("after", b"")).seq == 1
        await user.close()
        await client.close()

    with real_cluster("edged-hub", tmp_path) as cluster:
        asyncio.run(asyncio.wait_for(scenario(cluster), 90))
