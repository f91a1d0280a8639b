"""What people and clients see of a cluster: addresses, documents, services of the system account."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from edged.config.options import AccountOptions, Options, WebsocketOptions
from edged.server.lame_duck import leave_slowly
from hub.links.addresses import client_urls, configured_targets, own_address, seen_from
from tests.links.clients import accounts, login, message, settled
from tests.links.nodes import CLUSTER, Node, node, three_nodes, until
from tests.server.live import LiveClient


async def news(client: LiveClient) -> dict[str, Any]:
    """The next INFO."""
    line = await client.line()
    assert line.startswith(b"INFO "), line
    found: dict[str, Any] = json.loads(line[5:])
    return found


def url(of: Node) -> str:
    return f"127.0.0.1:{of.listener.port}"


async def test_clients_hear_of_nodes_that_come_and_go() -> None:
    async with node(1) as first:
        early = await first.client()
        assert b"connect_urls" not in early.info
        old = await first.client(connect=False)
        await old.send(b'CONNECT {"protocol":0,"verbose":false}\r\nPING\r\n')
        assert await old.line() == b"PONG"
        async with node(2, first.address) as second:
            assert (await news(early))["connect_urls"] == [url(first), url(second)]
            late = await second.client()
            assert sorted(json.loads(late.info[5:])["connect_urls"]) == sorted([url(first), url(second)])
        assert (await news(early))["connect_urls"] == [url(first)]
        # A client of before there was news is not told any.
        assert await old.barrier() == []


async def test_a_node_that_is_not_to_be_advertised_is_told_to_nobody_and_tells_nothing() -> None:
    async with (
        node(1) as first,
        node(2, first.address, cluster=replace(CLUSTER, no_advertise=True)) as second,
    ):
        await first.linked(second)
        await second.linked(first)
        assert first.server.info.connect_urls == (url(first),)
        assert second.server.info.connect_urls == ()


async def test_an_advertised_address_takes_the_place_of_the_real_one() -> None:
    options = Options(client_advertise="hub.example:4333")
    async with node(1, options=options) as first, node(2, first.address) as second:
        await second.linked(first)
        assert second.server.info.connect_urls == (url(second), "hub.example:4333")


async def test_a_lame_duck_is_no_place_to_go() -> None:
    async with (
        node(1, options=Options(lame_duck_grace_period_s=60)) as first,
        node(2, first.address) as second,
    ):
        await first.linked(second)
        await second.linked(first)
        client = await first.client()
        first.server.nursery.start_soon(leave_slowly, first.server)
        told = await news(client)
        assert told["ldm"] is True and told["connect_urls"] == [url(second)]
        await until(lambda: second.server.info.connect_urls == (url(second),), "the other node knows")


def test_addresses_are_as_configured_or_as_seen() -> None:
    assert own_address(CLUSTER, 6222) == "127.0.0.1:6222"
    assert own_address(replace(CLUSTER, host="0.0.0.0"), 6222) == ":6222"
    assert own_address(replace(CLUSTER, advertise="a.example"), 6222) == "a.example:6222"
    assert own_address(replace(CLUSTER, advertise="a.example:1"), 6222) == "a.example:1"
    assert seen_from(":6222", "10.0.0.7") == "10.0.0.7:6222"
    assert seen_from(":6222", "fe80::1") == "[fe80::1]:6222"
    assert seen_from("a.example:6222", "10.0.0.7") == "a.example:6222"
    assert client_urls(None, "::1", 4222) == ("[::1]:4222",)
    assert client_urls("b.example", "0.0.0.0", 4222) == ("b.example:4222",)
    assert all(found.endswith(":4222") for found in client_urls(None, "0.0.0.0", 4222))
    routes = ("nats-route://u:p%40ss@a.example:1", "b.example", "nats://[::1]:7")
    targets = configured_targets(replace(CLUSTER, routes=routes, user="x", password="y"))
    assert [(one.address, one.user, one.password) for one in targets] == [
        ("a.example:1", "u", "p@ss"),
        ("b.example:6222", "x", "y"),
        ("[::1]:7", "x", "y"),
    ]


async def test_routez_and_varz_show_the_routes() -> None:
    async with three_nodes() as nodes:
        first, second, _ = nodes
        listener = await second.client()
        await listener.send(b"SUB watched.* 1\r\nSUB jobs workers 2\r\n")
        await listener.barrier()
        await settled(*nodes)
        publisher = await first.client()
        await publisher.send(b"PUB watched.x 5\r\nhello\r\n")
        await message(listener)
        document: Any = first.monitor.document("routez", {"subs": "detail"}).body
        assert document["num_routes"] == 2
        routes = {route["remote_name"]: route for route in document["routes"]}
        assert set(routes) == {"n2", "n3"}
        route = routes["n2"]
        assert route["remote_id"] == second.server.id
        assert (route["out_msgs"], route["out_bytes"], route["pending_size"]) == (1, 5, 0)
        assert (route["did_solicit"], route["is_configured"], route["compression"]) == (False, False, "off")
        assert {"account": "$G", "subject": "jobs", "qgroup": "workers"} in route["subscriptions_list_detail"]
        assert route["subscriptions"] == len(route["subscriptions_list_detail"])
        assert route["rtt"] != "0s"
        other: Any = second.monitor.document("routez", {"subs": "1"}).body
        solicited = {route["remote_name"]: route for route in other["routes"]}["n1"]
        assert (solicited["did_solicit"], solicited["is_configured"], solicited["in_msgs"]) == (True, True, 1)
        varz: Any = first.monitor.document("varz", {}).body
        assert (varz["routes"], varz["remotes"]) == (2, 2)
        assert varz["cluster"]["cluster_port"] == first.links.port
        assert (varz["out_msgs"] - varz["out_client_msgs"]) == 1
        assert len(varz["connect_urls"]) == 3
        statsz: Any = first.monitor.document("statsz", {}).body
        assert statsz["active_servers"] == 3 and len(statsz["routes"]) == 2


async def test_counters_do_not_fall_when_a_route_ends() -> None:
    async with node(1) as first, node(2, first.address) as second:
        await first.linked(second)
        listener, publisher = await second.client(), await first.client()
        await listener.send(b"SUB x 1\r\n")
        await listener.barrier()
        await settled(first, second)
        await publisher.send(b"PUB x 5\r\nhello\r\n" * 3)
        await publisher.barrier()
        before = first.router.traffic()
        assert (before.out_messages, before.out_bytes) == (3, 15)
        route = first.links.peers[2].route
        assert route is not None
        route.close("cut by the test")
        await until(lambda: first.links.peers[2].route is not route, "it is gone")
        assert first.router.traffic().out_messages == 3


SYSTEM = replace(accounts(AccountOptions("SYS"), AccountOptions("A")), system_account="SYS")


async def test_every_node_answers_a_ping_of_servers_and_each_a_question_to_itself() -> None:
    async with three_nodes(SYSTEM) as nodes:
        operator = await login(nodes[0], "sys")
        await operator.send(b"SUB _INBOX.o.* 1\r\nPUB $SYS.REQ.SERVER.PING _INBOX.o.1 0\r\n\r\n")
        answers = [json.loads((await message(operator))[1]) for _ in range(3)]
        assert {answer["server"]["name"] for answer in answers} == {"n1", "n2", "n3"}
        last = nodes[2].server.id.encode()
        await operator.send(b"PUB $SYS.REQ.SERVER.%s.VARZ _INBOX.o.2 0\r\n\r\n" % last)
        answer = json.loads((await message(operator))[1])
        assert answer["data"]["server_name"] == "n3" and answer["data"]["routes"] == 2
        # A question about oneself is answered by the node that one is connected to, and by no other.
        user = await login(nodes[1], "a")
        await user.send(b"SUB _INBOX.u.* 1\r\nPUB $SYS.REQ.USER.INFO _INBOX.u.1 0\r\n\r\n")
        about = json.loads((await message(user))[1])
        assert about["server"]["name"] == "n2" and about["data"]["user"] == "a"
        await settled(*nodes)
        assert await user.barrier() == []


async def test_events_of_one_node_are_heard_at_others() -> None:
    async with three_nodes(SYSTEM) as nodes:
        operator = await login(nodes[0], "sys")
        await operator.send(b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\n")
        await operator.barrier()
        await settled(*nodes)
        await login(nodes[2], "a")
        event = json.loads((await message(operator))[1])
        assert event["server"]["name"] == "n3" and event["client"]["acc"] == "A"


async def test_websocket_addresses_are_for_websocket_clients() -> None:
    options = Options(websocket=WebsocketOptions(host="127.0.0.1", port=8080, no_tls=True))
    async with node(1, options=options) as first, node(2, first.address) as second:
        first.server.info.websocket_port = 8080
        await first.linked(second)
        first.links.announce()
        await until(lambda: second.server.info.websocket_connect_urls == ("127.0.0.1:8080",), "it is known")
        assert second.server.info.connect_urls == (url(second), url(first))


async def test_a_reload_takes_over_routes_and_addresses_and_refuses_what_needs_a_restart() -> None:
    async with node(1) as first, node(2) as second:
        options = first.server.options
        assert options.cluster is not None
        cluster = replace(options.cluster, routes=(second.address,), user="links", password="secret")
        first.server.configure(replace(options, cluster=cluster, client_advertise="hub.example"))
        await first.linked(second)
        advertised = f"hub.example:{first.listener.port}"
        await until(lambda: advertised in second.server.info.connect_urls, "the address is known")
        for change in ({"port": 1}, {"name": "OTHER"}, {"host": "::1"}):
            with pytest.raises(ValueError, match="restart the daemon"):
                first.server.configure(replace(options, cluster=replace(cluster, **change)))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="restart the daemon"):
            first.server.configure(replace(options, cluster=None))
        first.server.configure(replace(options, cluster=cluster))
        assert first.links.peers[2].is_up
        # Whoever dials now needs the new credentials.
        async with node(3, first.address) as third:
            await until(lambda: "the credentials are not" in third.lines.text, "it is refused")
