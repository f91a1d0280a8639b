"""Requests to the system account: who may ask what, and what the answers look like."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import (
    ClusterOptions,
    Options,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from edged.core.limits import INTERNAL_EVENTS_MAX
from edged.core.twins import Outbox, Subscription
from edged.core.wire import Publish
from edged.server.monitoring import Answer, Monitor
from edged.server.system import SystemServices
from tests.server.live import live_server
from tests.server.system_client import ACCOUNTS, Asker, account, system_server

ENDPOINTS = {
    "VARZ": "server_id",
    "CONNZ": "num_connections",
    "ROUTEZ": "num_routes",
    "SUBSZ": "num_subscriptions",
    "GATEWAYZ": "outbound_gateways",
    "LEAFZ": "leafnodes",
    "JSZ": "disabled",
    "ACCOUNTZ": "accounts",
    "HEALTHZ": "status_code",
    "EXPVARZ": "memstats",
    "PROFILEZ": "error",
}


async def test_ping_is_answered_with_the_figures_of_the_server() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        for subject in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.STATSZ"):
            answer = (await operator.ask(subject)).json
            assert list(answer) == ["server", "statsz"]
            assert answer["statsz"]["connections"] == 1
            assert answer["statsz"]["active_accounts"] == 1


async def test_server_is_described_in_every_answer_and_each_answer_is_counted() -> None:
    async with system_server(server_metadata=(("k", "v"),)) as running:
        operator = await running.asker("sys")
        first = (await operator.ask("$SYS.REQ.SERVER.PING.VARZ")).json["server"]
        second = (await operator.ask("$SYS.REQ.SERVER.PING.VARZ")).json["server"]
        assert list(first) == [
            "name",
            "host",
            "id",
            "ver",
            "tags",
            "metadata",
            "jetstream",
            "flags",
            "seq",
            "time",
        ]
        assert (first["name"], first["host"], first["id"]) == ("here", "127.0.0.1", running.id)
        assert first["tags"] == ["zone:a", "small"]
        assert first["metadata"] == {"k": "v"}
        assert second["seq"] == first["seq"] + 1


async def test_server_with_jetstream_says_so_and_names_its_domain_and_cluster() -> None:
    jetstream, cluster = JetStreamOptions(domain="edge"), ClusterOptions(name="c")
    async with system_server(jetstream=jetstream, cluster=cluster, feature_flags=(("f", True),)) as running:
        operator = await running.asker("sys")
        fitting = {"domain": "edge", "cluster": "c", "exact_match": True}
        told = (await operator.ask("$SYS.REQ.SERVER.PING.VARZ", fitting)).json["server"]
        assert (told["cluster"], told["domain"], told["feature_flags"]) == ("c", "edge", {"f": True})
        assert (told["jetstream"], told["flags"]) == (True, 1)
        refused = (await operator.ask("$SYS.REQ.ACCOUNT.APP.JSZ")).json["error"]
        assert refused == {"code": 500, "description": 'account "APP" not jetstream enabled'}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_document_is_answered_to_all_servers_and_to_this_one_by_its_id(endpoint: str) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        for addressed in ("PING", running.id):
            data = await operator.data(f"$SYS.REQ.SERVER.{addressed}.{endpoint}")
            assert ENDPOINTS[endpoint] in data
        assert (await operator.ask(f"$SYS.REQ.SERVER.{running.id[::-1]}.{endpoint}")).is_unanswered


async def test_queues_and_raft_groups_of_a_server_without_them_are_empty() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        assert await operator.data("$SYS.REQ.SERVER.PING.IPQUEUESZ") == {}
        assert await operator.data("$SYS.REQ.SERVER.PING.RAFTZ") == {}


async def test_identity_is_answered_without_an_envelope() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        answer = await operator.ask("$SYS.REQ.SERVER.PING.IDZ")
        assert answer.json == {"name": "here", "host": "127.0.0.1", "id": running.id}


async def test_health_says_its_status_in_the_document() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        assert await operator.data("$SYS.REQ.SERVER.PING.HEALTHZ") == {"status": "ok", "status_code": 200}


@pytest.mark.parametrize(
    "fitting",
    [
        {"server_name": "her"},
        {"server_name": "here", "exact_match": True},
        {"SERVER_NAME": "here"},
        {"host": "127.0.0.1", "exact_match": True},
        {"tags": ["small", "ZONE:A"]},
        {"server_name": None, "cluster": "", "domain": ""},
    ],
)
async def test_request_with_filters_that_fit_is_answered(fitting: dict[str, object]) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        assert "status" in await operator.data("$SYS.REQ.SERVER.PING.HEALTHZ", fitting)


@pytest.mark.parametrize(
    "other",
    [
        {"server_name": "elsewhere"},
        {"server_name": "her", "exact_match": True},
        {"host": "10.0.0.1"},
        {"cluster": "c"},
        {"domain": "d"},
        {"tags": ["small", "large"]},
    ],
)
async def test_request_for_another_server_is_not_answered(other: dict[str, object]) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        for endpoint in ("HEALTHZ", "STATSZ"):
            await operator.client.send(b"SUB never 1\r\n")
            await operator.send(f"$SYS.REQ.SERVER.PING.{endpoint}", other, "never")
        # Requests are answered in order, so this answer comes after any to the ones before.
        assert (await operator.ask("$SYS.REQ.SERVER.PING.IDZ")).subject.startswith("_INBOX")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a',
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 5000,
        b'{"tags":"small"}',
        b'{"tags":[1]}',
        b'{"server_name":1}',
        b'{"exact_match":"yes"}',
    ],
)
async def test_body_that_makes_no_sense_is_refused(body: bytes) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        for endpoint in ("VARZ", "STATSZ"):
            answer = (await operator.ask(f"$SYS.REQ.SERVER.PING.{endpoint}", body)).json
            assert answer["error"]["code"] == 400
            assert "data" not in answer


async def test_option_with_a_bad_value_is_refused_with_its_reason() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        answer = (await operator.ask("$SYS.REQ.SERVER.PING.CONNZ", {"sort": "sideways"})).json
        assert answer["data"] is None
        assert "sideways" in answer["error"]["description"]


async def test_answer_is_compressed_for_a_requester_that_accepts_gzip() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        accept = b"NATS/1.0\r\nAccept-Encoding: deflate, GZIP\r\n\r\n"
        answer = await operator.ask("$SYS.REQ.SERVER.PING.VARZ", headers=accept)
        assert b"\r\nContent-Encoding: gzip\r\n" in answer.headers
        assert json.loads(gzip.decompress(answer.body))["data"]["server_id"] == running.id


async def test_answer_is_plain_and_says_so_for_a_requester_that_accepts_snappy() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        accept = b"NATS/1.0\r\nAccept-Encoding: snappy\r\n\r\n"
        answer = await operator.ask("$SYS.REQ.SERVER.PING.VARZ", headers=accept)
        assert b"\r\nContent-Encoding: identity\r\n" in answer.headers
        assert answer.json["data"]["server_id"] == running.id


async def test_statsz_without_reply_is_told_to_everybody_who_listens() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.SERVER.*.STATSZ")
        await operator.send("$SYS.REQ.SERVER.PING.STATSZ")
        event = await operator.message()
        assert event.subject == f"$SYS.SERVER.{running.id}.STATSZ"
        assert event.json["statsz"]["connections"] == 1


# --- accounts ---


async def test_operator_asks_about_any_account() -> None:
    async with system_server() as running:
        operator, client = await running.asker("sys"), await running.asker("app")
        connz = await operator.data("$SYS.REQ.ACCOUNT.APP.CONNZ")
        assert [connection["cid"] for connection in connz["connections"]] == [client.cid]
        subsz = await operator.data("$SYS.REQ.ACCOUNT.APP.SUBSZ")
        assert {entry["account"] for entry in subsz["subscriptions_list"]} == {"APP"}
        assert (await operator.data("$SYS.REQ.ACCOUNT.APP.LEAFZ"))["leafs"] == []
        info = await operator.data("$SYS.REQ.ACCOUNT.APP.INFO")
        assert (info["account_name"], info["client_connections"]) == ("APP", 1)
        statz = await operator.data("$SYS.REQ.ACCOUNT.APP.STATZ")
        assert [entry["acc"] for entry in statz["account_statz"]] == ["APP"]
        conns = (await operator.ask("$SYS.REQ.ACCOUNT.APP.CONNS")).json
        assert (conns["type"], conns["conns"]) == ("io.nats.server.advisory.v1.account_connections", 1)


async def test_account_of_the_subject_counts_and_not_the_one_of_the_body() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        client = await running.asker("app")
        connz = await operator.data("$SYS.REQ.ACCOUNT.APP.CONNZ", {"acc": "SYS"})
        assert [connection["cid"] for connection in connz["connections"]] == [client.cid]


async def test_statz_of_all_accounts_names_those_in_use() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        statz = await operator.data("$SYS.REQ.ACCOUNT.PING.STATZ")
        assert [entry["acc"] for entry in statz["account_statz"]] == ["SYS"]
        statz = await operator.data("$SYS.REQ.ACCOUNT.PING.STATZ", {"include_unused": True})
        assert {entry["acc"] for entry in statz["account_statz"]} == {"$G", "SYS", "APP", "OTHER"}


async def test_account_without_connections_is_passed_over_in_silence() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.client.send(b"SUB never 1\r\n")
        for subject in ("APP.STATZ", "APP.CONNS", "NONE.STATZ", "NONE.CONNS"):
            await operator.send(f"$SYS.REQ.ACCOUNT.{subject}", reply="never")
        assert (await operator.ask("$SYS.REQ.SERVER.PING.IDZ")).subject.startswith("_INBOX")


@pytest.mark.parametrize(
    ("endpoint", "text"), [("INFO", "Account NONE does not exist"), ("JSZ", "jetstream not enabled")]
)
async def test_account_that_cannot_be_described_is_an_error(endpoint: str, text: str) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        answer = (await operator.ask(f"$SYS.REQ.ACCOUNT.NONE.{endpoint}")).json
        assert answer["data"] is None
        assert answer["error"] == {"code": 500, "description": text}


# --- users of other accounts ---


@pytest.mark.parametrize("subject", ["$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ"])
async def test_user_sees_the_connections_of_its_own_account_only(subject: str) -> None:
    async with system_server() as running:
        await running.asker("sys")
        await running.asker("other")
        client = await running.asker("app")
        for body in ({}, {"acc": "SYS"}, {"ACC": "OTHER", "auth": True}):
            connz = await client.data(subject, body)
            assert [connection["cid"] for connection in connz["connections"]] == [client.cid]


async def test_user_sees_the_figures_of_its_own_account_only() -> None:
    async with system_server() as running:
        await running.asker("other")
        client = await running.asker("app")
        statz = await client.data(
            "$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["OTHER"], "include_unused": True}
        )
        assert [entry["acc"] for entry in statz["account_statz"]] == ["APP"]


@pytest.mark.parametrize(
    "subject",
    [
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.VARZ",
        "$SYS.REQ.SERVER.ID.VARZ",
        "$SYS.REQ.SERVER.ID.KICK",
        "$SYS.REQ.SERVER.ID.LDM",
        "$SYS.REQ.SERVER.ID.RELOAD",
        "$SYS.REQ.ACCOUNT.APP.CONNZ",
        "$SYS.REQ.ACCOUNT.SYS.INFO",
        "$SYS.REQ.ACCOUNT.PING.SUBSZ",
        "$SYS.REQ.USER.APP.INFO",
        "$SYS.REQ.CLAIMS.LIST",
        "$SYS.DEBUG.SUBSCRIBERS",
    ],
)
async def test_everything_else_has_no_responders_outside_of_the_system_account(subject: str) -> None:
    async with system_server() as running:
        client = await running.asker("app")
        assert (await client.ask(subject.replace("ID", running.id))).is_unanswered


async def test_account_that_a_reload_adds_gets_its_services() -> None:
    async with system_server() as running:
        more = replace(running.live.server.options, accounts=(*ACCOUNTS.accounts, account("LATE")))
        running.live.server.configure(more)
        client = await running.asker("late")
        assert (await client.data("$SYS.REQ.USER.INFO"))["account"] == "LATE"


async def test_nothing_is_served_without_a_system_account() -> None:
    async with system_server(Options(), no_system_account=True) as running:
        client = await running.asker(None)
        for subject in ("$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.STATZ"):
            assert (await client.ask(subject)).is_unanswered


async def test_service_of_the_system_account_that_is_imported_answers_the_importer() -> None:
    export = ServiceExport("$SYS.REQ.ACCOUNT.*.SUBSZ", account_token_position=4)
    own = ServiceImport("SYS", "$SYS.REQ.ACCOUNT.APP.SUBSZ", "my.subsz")
    accounts = (account("SYS", service_exports=(export,)), account("APP", service_imports=(own,)))
    async with system_server(accounts=accounts) as running:
        client = await running.asker("app")
        subsz = await client.data("my.subsz", {"account": "SYS"})
        assert {entry["account"] for entry in subsz["subscriptions_list"]} == {"APP"}


async def test_message_that_reaches_the_system_account_as_a_stream_is_no_request() -> None:
    accounts = (
        account("SYS", stream_imports=(StreamImport("APP", ">"),)),
        account("APP", stream_exports=(StreamExport(">"),)),
    )
    async with system_server(accounts=accounts) as running:
        operator, client = await running.asker("sys"), await running.asker("app")
        await operator.listen("out")
        await client.send(f"$SYS.REQ.SERVER.{running.id}.KICK", {"cid": operator.cid}, "out")
        await client.send("$SYS.REQ.SERVER.PING.VARZ", b"", "out")
        await client.client.barrier()
        # Still there, and the first that it hears is the answer to its own question.
        assert (await operator.ask("$SYS.REQ.SERVER.PING.IDZ")).json["id"] == running.id


# --- load and faults ---


async def test_flood_of_users_is_bounded_and_operators_are_served_first() -> None:
    async with live_server(ACCOUNTS) as live:
        server = live.server
        system = SystemServices(server, Monitor(server))
        answered: list[str] = []

        def note(
            name: str, subscription: Subscription, messages: list[Publish], origin: Outbox | None
        ) -> None:
            answered.extend([name] * len(messages))

        for name in ("SYS", "APP"):
            server.accounts[name].subscribe(Subscription(b"answers", None, b"1", None, partial(note, name)))
        every = b'{"include_unused":true}'
        for _ in range(INTERNAL_EVENTS_MAX + 100):
            server.accounts["APP"].publish(b"$SYS.REQ.ACCOUNT.PING.STATZ", b"answers", every)
        server.accounts["SYS"].publish(b"$SYS.REQ.SERVER.PING.VARZ", b"answers", b"")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(system.run)
            with trio.fail_after(20):
                while len(answered) < INTERNAL_EVENTS_MAX + 1:
                    await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert answered == ["SYS"] + ["APP"] * INTERNAL_EVENTS_MAX


async def test_fault_while_answering_is_told_and_logged_and_the_next_request_is_served() -> None:
    class BrokenMonitor(Monitor):
        def document_from_options(self, name: str, options: Mapping[str, object]) -> Answer:
            if name == "varz":
                raise ZeroDivisionError
            return super().document_from_options(name, options)

    async with live_server(ACCOUNTS) as live:
        system = SystemServices(live.server, BrokenMonitor(live.server))
        live.server.nursery.start_soon(system.run)
        operator = Asker(await live.client(b',"user":"sys","pass":"x"'))
        answer = (await operator.ask("$SYS.REQ.SERVER.PING.VARZ")).json
        assert answer["error"] == {"code": 500, "description": "internal error"}
        assert "ZeroDivisionError" in live.lines.text
        assert (await operator.ask("$SYS.REQ.SERVER.PING.IDZ")).json["id"] == live.server.id
