"""What the monitoring documents say about a server that is in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from edged.config.options import (
    AccountJetStream,
    AccountOptions,
    Authorization,
    ClusterOptions,
    JetStreamOptions,
    LeafnodesOptions,
    LeafRemote,
    MappingDestination,
    MappingOptions,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
    UserOptions,
    WebsocketOptions,
)
from edged.server import reasons
from edged.server.monitoring import BadRequest
from tests.server.live import LiveClient
from tests.server.monitored import MonitoredServer, monitored_server


def user(name: str, account: str) -> UserOptions:
    return UserOptions(user=name, password=name, account=account)


APP = AccountOptions(
    "APP",
    users=(user("a", "APP"), user("z", "APP")),
    mappings=(MappingOptions("old", (MappingDestination("new"),)),),
    stream_exports=(StreamExport("pub.>"),),
    service_exports=(
        ServiceExport("help", accounts=("B",)),
        ServiceExport("many.*", response="stream", latency=ServiceLatency("lat", 50)),
    ),
)
OTHER = AccountOptions(
    "B",
    users=(user("b", "B"),),
    stream_imports=(StreamImport("APP", "pub.x", prefix="imp"), StreamImport("APP", "pub.y.*", to="loc.*")),
    service_imports=(ServiceImport("APP", "help", "halp", share=True),),
)
SYSTEM = AccountOptions("SYS", users=(user("s", "SYS"),))
ACCOUNTS: dict[str, object] = {"accounts": (APP, OTHER, SYSTEM), "system_account": "SYS"}


async def login(monitored: MonitoredServer, name: str, extra: str = "") -> LiveClient:
    return await monitored.live.client(f',"user":"{name}","pass":"{name}"{extra}'.encode())


async def closed_by_us(monitored: MonitoredServer, client: LiveClient) -> None:
    """End a client and wait until the server has forgotten it."""
    count = len(monitored.server.closed)
    await client.stream.aclose()
    while len(monitored.server.closed) == count:
        await trio.testing.wait_all_tasks_blocked()


async def cids(monitored: MonitoredServer, query: str) -> list[int]:
    document = await monitored.json(f"/connz?{query}")
    assert document["num_connections"] == len(document["connections"])
    return [connection["cid"] for connection in document["connections"]]


# --- varz ---


async def test_varz_counts_clients_messages_and_subscriptions_and_keeps_what_the_closed_ones_did() -> None:
    async with monitored_server(server_tags=("x", "y"), server_metadata=(("k", "v"),)) as monitored:
        publisher, subscriber = await monitored.live.client(), await monitored.live.client()
        await subscriber.send(b"SUB a 1\r\nSUB b.* 2\r\n")
        await subscriber.barrier()
        await publisher.send(b"PUB a 5\r\nhello\r\nPUB none 2\r\nxx\r\n")
        await publisher.barrier()
        before = await monitored.json("/varz")
        await closed_by_us(monitored, publisher)
        after = await monitored.json("/varz")
        for document in (before, after):
            assert (document["in_msgs"], document["in_bytes"]) == (2, 7)
            assert (document["out_client_msgs"], document["out_client_bytes"]) == (1, 5)
            assert document["subscriptions"] == 2
            assert document["total_connections"] == 2
        assert (before["connections"], after["connections"]) == (2, 1)
        assert after["http_req_stats"] == {"/varz": 2}
        assert after["port"] == monitored.live.listener.port
        assert (after["tags"], after["metadata"]) == (["x", "y"], {"k": "v"})
        assert after["mem"] > 1_000_000 and after["cores"] >= 1
        assert "auth_required" not in after and "tls_required" not in after


async def test_varz_shows_links_without_the_credentials_in_their_urls() -> None:
    async with monitored_server(
        leafnodes=LeafnodesOptions(
            remotes=(LeafRemote(("nats-leaf://u:secret@10.0.0.1:7422",), account="$G", deny_imports=("x",)),)
        ),
        cluster=ClusterOptions(name="c", port=6222, routes=("nats-route://u:secret@10.0.0.2:6222",)),
        websocket=WebsocketOptions(host="127.0.0.1", port=8080, no_tls=True),
    ) as monitored:
        page = await monitored.get("/varz")
        assert b"secret" not in page.body
        assert page.json["leaf"] == {
            "remotes": [{"local_account": "$G", "urls": ["10.0.0.1:7422"], "deny": {"imports": ["x"]}}]
        }
        assert page.json["cluster"]["urls"] == ["10.0.0.2:6222"]
        assert page.json["websocket"] == {"host": "127.0.0.1", "port": 8080, "no_tls": True}


async def test_statsz_and_idz_say_the_same_as_varz() -> None:
    async with monitored_server() as monitored:
        await monitored.live.client()
        stats, identity = (
            monitored.monitor.document_from_options(name, {}).body for name in ("statsz", "idz")
        )
        varz = await monitored.json("/varz")
        assert isinstance(stats, dict)
        for name in ("start", "connections", "total_connections", "subscriptions", "slow_consumers", "cores"):
            assert stats[name] == varz[name], name
        assert stats["active_accounts"] == 1
        assert stats["sent"] == {"msgs": 0, "bytes": 0}
        assert "stale_connections" not in stats and "jetstream" not in stats
        assert identity == {"name": varz["server_name"], "host": "127.0.0.1", "id": varz["server_id"]}


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


# --- subsz ---


async def test_subsz_counts_and_lists_and_tests_a_subject() -> None:
    async with monitored_server(**ACCOUNTS) as monitored:
        client = await login(monitored, "a")
        await client.send(
            b"SUB a.* 1\r\nSUB a.b w 2\r\nSUB c 3\r\nUNSUB 3\r\nPUB a.b 0\r\n\r\nPUB a.b 0\r\n\r\n"
        )
        await client.barrier()
        plain = await monitored.json("/subsz")
        assert (plain["num_subscriptions"], plain["num_inserts"], plain["num_removes"]) == (2, 3, 1)
        assert (plain["num_cache"], plain["max_fanout"], plain["avg_fanout"]) == (1, 2, 2)
        assert (plain["num_matches"], plain["cache_hit_rate"]) == (2, 0.5)
        assert plain["total"] == 0 and "subscriptions_list" not in plain
        listed = await monitored.json("/subscriptionsz?subs=1&acc=APP")
        assert listed["total"] == 2
        assert {row["subject"] for row in listed["subscriptions_list"]} == {"a.*", "a.b"}
        row = next(row for row in listed["subscriptions_list"] if row["subject"] == "a.b")
        assert row == {
            "account": "APP",
            "account_tag": "APP",
            "subject": "a.b",
            "qgroup": "w",
            "sid": "2",
            "msgs": 2,
            "cid": 1,
        }
        for query, total, count in (
            ("test=a.x", 1, 1),
            ("test=b", 0, 0),
            ("limit=1&offset=1", 2, 1),
            ("acc=B", 0, 0),
        ):
            document = await monitored.json(f"/subsz?subs=1&{query}")
            assert (document["total"], len(document.get("subscriptions_list", []))) == (total, count), query
        page = await monitored.get("/subsz?test=a.*")
        assert (page.status, page.text) == (400, "invalid test subject, must be valid publish subject: a.*")


async def test_an_import_is_listed_where_it_takes_messages_from_under_its_owner() -> None:
    async with monitored_server(**ACCOUNTS) as monitored:
        client = await login(monitored, "b")
        await client.send(b"SUB imp.pub.x 1\r\n")
        await client.barrier()
        document = await monitored.json("/subsz?subs=1&acc=APP")
        (row,) = document["subscriptions_list"]
        assert (row["account"], row["cid"]) == ("B", 1)


# --- accounts ---


async def test_accountz_names_all_accounts_or_details_one() -> None:
    async with monitored_server(**ACCOUNTS) as monitored:
        await login(monitored, "b")
        names = await monitored.json("/accountz")
        assert names["system_account"] == "SYS"
        assert sorted(names["accounts"]) == ["$G", "APP", "B", "SYS"]
        exporter = (await monitored.json("/accountz?acc=APP"))["account_detail"]
        assert exporter["mappings"] == {"old": [{"subject": "new", "weight": 100}]}
        assert exporter["exports"] == [
            {
                "subject": "help",
                "type": "service",
                "response_type": "Singleton",
                "approved_accounts": ["B"],
            },
            {
                "subject": "many.*",
                "type": "service",
                "response_type": "Streamed",
                "service_latency": {"sampling": 50, "results": "lat"},
            },
            {"subject": "pub.>", "type": "stream"},
        ]
        importer = (await monitored.json("/accountz?acc=B"))["account_detail"]
        assert [one["local_subject"] for one in importer["imports"]] == ["imp.pub.x", "loc.*", "halp"]
        assert importer["imports"][2]["share"] is True
        assert (importer["client_connections"], importer["jetstream_enabled"]) == (1, False)
        assert (await monitored.json("/accountz?acc=SYS"))["account_detail"]["is_system"] is True
        page = await monitored.get("/accountz?acc=nobody")
        assert (page.status, page.text) == (400, "Account nobody does not exist")


async def test_accstatz_shows_accounts_in_use_or_all() -> None:
    async with monitored_server(**ACCOUNTS) as monitored:
        client = await login(monitored, "a")
        await client.send(b"SUB x 1\r\nPUB x 4\r\ndata\r\n")
        await client.barrier()
        (used,) = (await monitored.json("/accstatz"))["account_statz"]
        assert (used["acc"], used["conns"], used["num_subscriptions"]) == ("APP", 1, 1)
        assert used["sent"]["bytes"] == used["received"]["bytes"] == 4
        assert used["sent"]["routes"] == {"msgs": 0, "bytes": 0}
        everyone = (await monitored.json("/accstatz?unused=1"))["account_statz"]
        assert sorted(one["acc"] for one in everyone) == ["$G", "APP", "B", "SYS"]
        named: Any = monitored.monitor.document_from_options(
            "accstatz", {"accounts": ["B", "nobody"], "include_unused": True}
        ).body
        assert [one["acc"] for one in named["account_statz"]] == ["B"]


# --- JetStream and health ---


async def test_jsz_without_jetstream_says_disabled() -> None:
    async with monitored_server() as monitored:
        document = await monitored.json("/jsz?accounts=1&streams=true&consumers=1&config=t&raft=0&limit=5")
        assert document["disabled"] is True
        assert document["config"] == {"max_memory": 0, "max_storage": 0}
        assert (document["api"]["level"], document["total"]) == (0, 0)
        page = await monitored.get("/jsz?leader-only=1")
        assert (page.status, page.text) == (400, "filtered response: not leader")
        assert (await monitored.get("/jsz?streams=some")).status == 400
        assert (await monitored.json("/varz"))["jetstream"] == {}


async def test_jsz_with_jetstream_shows_its_configuration_and_the_accounts_asked_for(tmp_path: Path) -> None:
    jetstream = JetStreamOptions(store_dir=str(tmp_path), max_memory=1000, max_store=2000, domain="edge")
    async with monitored_server(jetstream=jetstream) as monitored:
        document = await monitored.json("/jsz")
        assert "disabled" not in document and "account_details" not in document
        assert document["config"] == {
            "max_memory": 1000,
            "max_storage": 2000,
            "store_dir": str(tmp_path / "jetstream"),
            "sync_interval": 120_000_000_000,
            "sync_always": True,
            "domain": "edge",
            "compress_ok": True,
            "strict": True,
        }
        assert (document["accounts"], document["total"]) == (1, 1)
        for query in ("accounts=1", "streams=1", "acc=$G"):
            (detail,) = (await monitored.json(f"/jsz?{query}"))["account_details"]
            assert (detail["name"], detail["reserved_memory"]) == ("$G", 2**64 - 1)
        for query in ("accounts=1&offset=1", "acc=nobody", "acc=nobody&streams=1"):
            assert "account_details" not in await monitored.json(f"/jsz?{query}"), query
        in_varz = (await monitored.json("/varz"))["jetstream"]
        assert in_varz["stats"]["api"] == {"level": 5, "total": 0, "errors": 0}
        in_statsz: Any = monitored.monitor.document_from_options("statsz", {}).body
        assert "store_dir" not in in_statsz["jetstream"]["config"]


async def test_jetstream_is_on_in_the_accounts_that_say_so() -> None:
    enabled = AccountOptions("JS", jetstream=AccountJetStream(max_memory=7, max_store=-1))
    async with monitored_server(jetstream=JetStreamOptions(), accounts=(enabled, OTHER)) as monitored:
        (detail,) = (await monitored.json("/jsz?accounts=1"))["account_details"]
        assert (detail["id"], detail["reserved_memory"]) == ("JS", 7)
        for name, is_enabled in (("JS", True), ("B", False), ("$G", False)):
            account = (await monitored.json(f"/accountz?acc={name}"))["account_detail"]
            assert account["jetstream_enabled"] is is_enabled, name
        limits = (await monitored.json("/jsz"))["config"]
        assert limits["max_memory"] > 0 and limits["max_storage"] > 0


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ("", 200, {"status": "ok"}),
        ("details=1", 200, {"status": "ok"}),
        ("js-enabled-only=1", 200, {"status": "ok"}),
        ("js-server-only=1&account=nobody", 200, {"status": "ok"}),
        (
            "stream=S",
            400,
            {"status": "error", "error": '"account" must not be empty when checking stream health'},
        ),
        (
            "account=A&consumer=C&details=1",
            400,
            {
                "status": "error",
                "errors": [
                    {
                        "type": "BAD_REQUEST",
                        "error": '"stream" must not be empty when checking consumer health',
                    }
                ],
            },
        ),
        ("account=A", 404, {"status": "unavailable", "error": 'JetStream account "A" not found'}),
        (
            "account=A&details=1",
            404,
            {
                "status": "error",
                "errors": [{"type": "ACCOUNT", "account": "A", "error": 'JetStream account "A" not found'}],
            },
        ),
    ],
)
async def test_healthz_with_jetstream(query: str, status: int, body: object) -> None:
    async with monitored_server(jetstream=JetStreamOptions()) as monitored:
        page = await monitored.get(f"/healthz?{query}")
        assert (page.status, page.json) == (status, body)
        assert ("health check failed" in monitored.live.lines.text) is (status != 200)


async def test_healthz_fails_while_clients_are_sent_away_and_refuses_bad_flags() -> None:
    async with monitored_server() as monitored:
        monitored.server.is_lame_duck = True
        page = await monitored.get("/healthz")
        assert page.status == 500
        assert "lame duck" in page.json["error"]
        detailed = await monitored.get("/healthz?details=true")
        assert detailed.json["errors"][0]["type"] == "CONNECTION"
        assert (await monitored.get("/healthz?details=perhaps")).status == 400


# --- the rest ---


async def test_links_and_queues_of_a_server_that_stands_alone_are_empty() -> None:
    async with monitored_server() as monitored:
        assert (await monitored.json("/routez?subs=detail"))["routes"] == []
        assert (await monitored.json("/leafz?subs=1&acc=x"))["leafs"] == []
        gateways = await monitored.json("/gatewayz?accs=1&gw_name=x&acc_name=y")
        assert (gateways["outbound_gateways"], gateways["inbound_gateways"]) == ({}, {})
        assert await monitored.json("/ipqueuesz?all=1") == {}
        raft = await monitored.get("/raftz")
        assert (raft.status, raft.text) == (404, "No Raft nodes registered")
        assert monitored.monitor.document_from_options("raftz", {}).body == {}
        assert (await monitored.get("/leafz?subs=detail")).status == 400


async def test_documents_for_the_system_account_are_whole_and_their_requests_not_counted() -> None:
    async with monitored_server(authorization=Authorization(users=(user("u", "$G"),))) as monitored:
        await login(monitored, "u")
        answer = monitored.monitor.document_from_options("connz", {"auth": True, "subscriptions": True})
        body: Any = json.loads(json.dumps(answer.body))
        assert [row["authorized_user"] for row in body["connections"]] == ["u"]
        with pytest.raises(BadRequest, match="invalid sorting option: x"):
            monitored.monitor.document_from_options("connz", {"sort": "x"})
        assert monitored.server.http_requests == {}
