"""The /connz document: what it says of open and closed connections, its orders, pages and filters."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from edged.server import reasons
from edged.server.monitoring import BadRequest
from tests.server.monitored import MonitoredServer, monitored_server
from tests.server.monitored_accounts import ACCOUNTS, closed_by_us, login


async def cids(monitored: MonitoredServer, query: str) -> list[int]:
    document = await monitored.json(f"/connz?{query}")
    assert document["num_connections"] == len(document["connections"])
    return [connection["cid"] for connection in document["connections"]]


# --- connz ---


async def test_connz_describes_a_client() -> None:
    async with monitored_server() as monitored:
        client = await monitored.live.client(b',"name":"me","lang":"c","version":"1.2"')
        await client.send(b"SUB a.> q 1\r\nSUB b 2\r\nUNSUB 2 7\r\nPUB a.b 3\r\nxyz\r\n")
        await client.barrier()
        document = await monitored.json("/connz?subs=detail")
        (row,) = document["connections"]
        assert list(row)[:7] == ["cid", "kind", "type", "ip", "port", "start", "last_activity"]
        wanted = {
            "cid": 1,
            "kind": "Client",
            "type": "nats",
            "ip": "127.0.0.1",
            "port": client.stream.socket.getsockname()[1],
            "uptime": "0s",
            "idle": "0s",
            "pending_bytes": 0,
            "in_msgs": 1,
            "in_bytes": 3,
            "out_msgs": 1,
            "out_bytes": 3,
            "subscriptions": 2,
            "name": "me",
            "lang": "c",
            "version": "1.2",
            "subscriptions_list_detail": [
                {"subject": "a.>", "qgroup": "q", "sid": "1", "msgs": 1, "cid": 1},
                {"subject": "b", "sid": "2", "msgs": 0, "max": 7, "cid": 1},
            ],
        }
        assert {name: row[name] for name in wanted} == wanted
        assert "stop" not in row and "reason" not in row and "authorized_user" not in row
        listed = await monitored.json("/connz?subs=1")
        assert listed["connections"][0]["subscriptions_list"] == ["a.>", "b"]
        assert "subscriptions_list_detail" not in listed["connections"][0]


async def test_activity_moves_with_what_is_received_and_what_is_sent() -> None:
    async with monitored_server() as monitored:
        sender, receiver = await monitored.live.client(), await monitored.live.client()
        await receiver.send(b"SUB a 1\r\n")
        await receiver.barrier()
        first = {row["cid"]: row["last_activity"] for row in (await monitored.json("/connz"))["connections"]}
        await sender.send(b"PUB a 1\r\nx\r\n")
        await sender.barrier()
        second = {row["cid"]: row["last_activity"] for row in (await monitored.json("/connz"))["connections"]}
        assert second[1] > first[1] and second[2] > first[2]


async def test_a_closed_connection_is_shown_with_its_reason_and_what_it_had_subscribed_to() -> None:
    async with monitored_server() as monitored:
        gone, stays = await monitored.live.client(), await monitored.live.client()
        await gone.send(b"SUB left.behind 1\r\n")
        await gone.barrier()
        await closed_by_us(monitored, gone)
        assert await cids(monitored, "") == [2]
        assert await cids(monitored, "state=closed") == [1]
        assert await cids(monitored, "state=all") == [1, 2]
        document = await monitored.json("/connz?state=closed&subs=1")
        (row,) = document["connections"]
        assert row["reason"] == reasons.CLIENT_CLOSED
        assert row["stop"] >= row["start"]
        assert (row["subscriptions"], row["subscriptions_list"]) == (1, ["left.behind"])
        assert document["total"] == 1
        await stays.barrier()


async def test_a_kicked_client_is_closed_for_that_reason() -> None:
    async with monitored_server() as monitored:
        client = await monitored.live.client()
        monitored.server.connections[1].close(reasons.KICKED)
        await client.closed()
        while not monitored.server.closed:
            await trio.testing.wait_all_tasks_blocked()
        document = await monitored.json("/connz?state=closed&sort=reason")
        assert [row["reason"] for row in document["connections"]] == ["Kicked"]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("cid", [1, 2, 3]),
        ("start", [1, 2, 3]),
        ("subs", [2, 3, 1]),
        ("msgs_from", [3, 1, 2]),
        ("bytes_from", [1, 3, 2]),
        ("msgs_to", [2, 1, 3]),
        ("bytes_to", [2, 1, 3]),
        ("pending", [1, 2, 3]),
        ("uptime", [3, 2, 1]),
        ("rtt", [3, 2, 1]),
    ],
)
async def test_connz_is_sorted_by(order: str, wanted: list[int]) -> None:
    async with monitored_server() as monitored:
        clients = [await monitored.live.client() for _ in range(3)]
        await clients[1].send(b"SUB a 1\r\nSUB b 2\r\n")
        await clients[1].barrier()
        await clients[2].send(b"SUB c 1\r\nPUB a 1\r\nx\r\nPUB a 1\r\ny\r\n")
        await clients[2].barrier()
        await clients[0].send(b"PUB a 100\r\n" + b"x" * 100 + b"\r\n")
        await clients[0].barrier()
        for cid, connection in monitored.server.connections.items():
            connection.rtt_ns = cid * 1000
        assert await cids(monitored, f"sort={order}") == wanted


async def test_last_and_idle_are_opposite_orders_and_stop_is_for_the_closed() -> None:
    async with monitored_server() as monitored:
        clients = [await monitored.live.client() for _ in range(3)]
        for cid, at_ns in ((1, 5), (2, 9), (3, 7)):
            monitored.server.connections[cid].active_at_ns = at_ns
        assert await cids(monitored, "sort=last") == [2, 3, 1]
        assert await cids(monitored, "sort=idle") == [1, 3, 2]
        for number in (2, 0):
            await closed_by_us(monitored, clients[number])
        assert await cids(monitored, "sort=stop&state=closed") == [1, 3]
        for order in ("stop", "reason"):
            page = await monitored.get(f"/connz?sort={order}")
            assert (page.status, page.text) == (400, f"sort by {order} only valid on closed connections")
        page = await monitored.get("/connz?sort=height")
        assert (page.status, page.text) == (400, "invalid sorting option: height")


async def test_connz_is_paged_and_odd_pages_are_safe() -> None:
    async with monitored_server() as monitored:
        for _ in range(5):
            await monitored.live.client()
        assert await cids(monitored, "limit=2") == [1, 2]
        assert await cids(monitored, "limit=2&offset=4") == [5]
        assert await cids(monitored, "offset=-3&limit=-1") == [1, 2, 3, 4, 5]
        assert await cids(monitored, f"offset={2**63 - 1}&limit={2**63 - 1}") == []
        document = await monitored.json("/connz?limit=2&offset=1")
        assert (document["total"], document["offset"], document["limit"]) == (5, 1, 2)
        assert await cids(monitored, "cid=3") == [3]
        assert (await monitored.json("/connz?cid=3"))["limit"] == 1
        assert await cids(monitored, "cid=99") == []
        page = await monitored.get("/connz?offset=many")
        assert (page.status, page.headers["content-type"]) == (400, "text/plain; charset=utf-8")


async def test_connz_filters_by_account_user_and_subject_and_shows_who_with_auth() -> None:
    async with monitored_server(**ACCOUNTS) as monitored:
        first, second = await login(monitored, "a"), await login(monitored, "z")
        await login(monitored, "b")
        await first.send(b"SUB orders.* 1\r\n")
        await first.barrier()
        await second.send(b"SUB other 1\r\n")
        await second.barrier()
        assert await cids(monitored, "acc=APP") == [1, 2]
        assert await cids(monitored, "user=z") == [2]
        assert await cids(monitored, "acc=APP&filter_subject=orders.new") == [1]
        assert await cids(monitored, "acc=APP&filter_subject=%3E") == [1, 2]
        assert await cids(monitored, "acc=APP&filter_subject=bad..subject") == []
        assert await cids(monitored, "acc=nobody") == []
        assert await cids(monitored, "mqtt_client=x") == []
        assert await cids(monitored, "acc=APP&cid=3") == []
        assert await cids(monitored, "filter_subject=orders.new") == [1, 2, 3]
        with pytest.raises(BadRequest, match="filter by subject only valid with account filtering"):
            monitored.monitor.document_from_options("connz", {"filter_subject": "orders.new"})
        document = await monitored.json("/connz?auth=1&cid=2")
        row = document["connections"][0]
        assert (row["authorized_user"], row["account"], row["name_tag"]) == ("z", "APP", "APP")
        assert (await monitored.json("/connz?user=z"))["total"] == 3
        assert "password" not in json.dumps(document)


async def test_a_refused_client_is_shown_under_the_name_it_gave_and_never_with_its_secrets() -> None:
    async with monitored_server(**ACCOUNTS) as monitored:
        for credentials in (
            b'"user":"a","pass":"wrong-secret"',
            b'"auth_token":"wrong-secret"',
            b'"account":"A"',
        ):
            client = await monitored.live.client(connect=False)
            await client.send(b"CONNECT {%s}\r\n" % credentials)
            await client.closed()
        while len(monitored.server.closed) < 3:
            await trio.testing.wait_all_tasks_blocked()
        page = await monitored.get("/connz?state=closed&auth=1")
        names = [row.get("authorized_user") for row in page.json["connections"]]
        assert names == ["a", "[REDACTED]", None]
        assert {row["reason"] for row in page.json["connections"]} == {reasons.AUTHENTICATION_VIOLATION}
        assert b"secret" not in page.body
