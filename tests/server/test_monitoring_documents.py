"""What the monitoring documents say about a server that is in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import (
    AccountJetStream,
    AccountOptions,
    Authorization,
    ClusterOptions,
    LeafnodesOptions,
    LeafRemote,
    WebsocketOptions,
)
from edged.server.monitoring import BadRequest
from tests.server.monitored import monitored_server
from tests.server.monitored_accounts import ACCOUNTS, OTHER, closed_by_us, login, user

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
