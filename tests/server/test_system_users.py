"""What users learn about themselves, and what operators do to connections."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from edged.config.options import Options
from edged.core.permissions import Permissions, ResponseRule
from edged.server import reasons
from edged.server.system.user_info import permissions_document, user_document
from tests.server.system_client import ACCOUNTS, system_server


async def test_user_without_restrictions_learns_its_name_and_account() -> None:
    async with system_server() as running:
        for name in ("app", "sys"):
            client = await running.asker(name)
            told = await client.data("$SYS.REQ.USER.INFO")
            assert told == {"user": name, "account": name.upper(), "account_name": name.upper()}


async def test_user_with_restrictions_learns_them() -> None:
    async with system_server() as running:
        client = await running.asker("limited")
        assert (await client.data("$SYS.REQ.USER.INFO"))["permissions"] == {
            "publish": {"allow": ["foo.*", "$SYS.>"], "deny": ["x"]},
            "subscribe": {"deny": ["q.> group", "z"]},
            "responses": {"max": 1, "ttl": 120_000_000_000},
        }


async def test_client_without_login_is_told_the_default_account() -> None:
    async with system_server(Options()) as running:
        client = await running.asker(None)
        assert await client.data("$SYS.REQ.USER.INFO") == {"user": "", "account": "$G", "account_name": "$G"}


async def test_question_of_the_server_itself_is_refused() -> None:
    async with system_server() as running:
        listener = await running.asker("app")
        await listener.listen("answer")
        running.live.server.accounts["APP"].publish(b"$SYS.REQ.USER.INFO", b"answer", b"")
        assert (await listener.message()).json["error"]["code"] == 400


async def test_time_until_a_login_ends_is_told_in_whole_seconds() -> None:
    async with system_server() as running:
        client = await running.asker("app")
        connection = running.live.server.connections[client.cid]
        assert connection.identity is not None
        now_ns = time.time_ns()
        connection.identity = replace(connection.identity, expires_at_s=now_ns / 1e9 + 61.7)
        assert user_document(connection, now_ns)["expires"] == 61_000_000_000


def test_permissions_without_any_entry_in_a_direction_show_it_empty() -> None:
    only_responses = Permissions.from_lists(allow_responses=ResponseRule(2, -1))
    assert permissions_document(only_responses) == {
        "publish": {},
        "subscribe": {},
        "responses": {"max": 2, "ttl": -1},
    }


# --- KICK and LDM ---


async def test_kicked_client_is_closed_without_an_error() -> None:
    async with system_server() as running:
        operator, client = await running.asker("sys"), await running.asker("app")
        connection = running.live.server.connections[client.cid]
        answer = (await operator.ask(f"$SYS.REQ.SERVER.{running.id}.KICK", {"cid": client.cid})).json
        assert list(answer) == ["server"]
        assert await client.client.closed() == []
        assert connection.reason == reasons.KICKED


async def test_kick_without_a_reply_subject_is_not_obeyed() -> None:
    async with system_server() as running:
        operator, client = await running.asker("sys"), await running.asker("app")
        await operator.send(f"$SYS.REQ.SERVER.{running.id}.KICK", {"cid": client.cid})
        assert (await operator.ask("$SYS.REQ.SERVER.PING.IDZ")).json["id"] == running.id
        assert await client.client.barrier() == []


@pytest.mark.parametrize(
    ("body", "code"),
    [({"cid": 999}, 500), ({}, 500), ({"cid": 2**64 - 1}, 500), ({"cid": 1, "tags": 1}, 400)],
)
@pytest.mark.parametrize("service", ["KICK", "LDM"])
async def test_request_about_no_client_is_refused(service: str, body: dict[str, int], code: int) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        answer = (await operator.ask(f"$SYS.REQ.SERVER.{running.id}.{service}", body)).json
        assert answer["error"]["code"] == code
        assert "data" not in answer


@pytest.mark.parametrize(
    "body", ["", "not json", "[]", '{"cid":-1}', '{"cid":1e3}', '{"cid":true}', '{"cid":"1"}']
)
@pytest.mark.parametrize("service", ["KICK", "LDM"])
async def test_request_that_cannot_be_read_is_logged_and_not_answered(service: str, body: str) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("never")
        await operator.send(f"$SYS.REQ.SERVER.{running.id}.{service}", body, "never")
        assert (await operator.ask("$SYS.REQ.SERVER.PING.IDZ")).subject.startswith("_INBOX")
        assert "request names no connection" in running.live.lines.text


async def test_operator_may_kick_itself() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.send(f"$SYS.REQ.SERVER.{running.id}.KICK", {"cid": operator.cid}, "answer")
        assert await operator.client.closed() == []


async def test_client_that_is_told_to_move_gets_info_with_lame_duck_and_stays() -> None:
    async with system_server() as running:
        operator, client = await running.asker("sys"), await running.asker("app")
        answer = (await operator.ask(f"$SYS.REQ.SERVER.{running.id}.LDM", {"cid": client.cid})).json
        assert list(answer) == ["server"]
        lines = await client.client.barrier()
        assert [json.loads(line[5:])["ldm"] for line in lines] == [True]
        assert not running.live.server.is_lame_duck


async def test_client_of_the_first_protocol_cannot_be_told_to_move() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        client = await running.live.client(connect=False)
        await client.send(b'CONNECT {"verbose":false,"protocol":0,"user":"app","pass":"x"}\r\nPING\r\n')
        assert await client.line() == b"PONG"
        cid = json.loads(client.info[5:])["client_id"]
        answer = (await operator.ask(f"$SYS.REQ.SERVER.{running.id}.LDM", {"cid": cid})).json
        assert answer["error"]["code"] == 500


# --- RELOAD ---


async def test_reload_is_done_and_confirmed() -> None:
    async with system_server() as running:
        asked = 0

        async def reload() -> str | None:
            nonlocal asked
            asked += 1
            return None

        running.system.reload = reload
        operator = await running.asker("sys")
        for _ in range(2):
            assert list((await operator.ask(f"$SYS.REQ.SERVER.{running.id}.RELOAD")).json) == ["server"]
        assert asked == 2


async def test_reload_that_is_refused_says_why() -> None:
    async with system_server() as running:

        async def reload() -> str | None:
            return "port cannot be changed"

        running.system.reload = reload
        operator = await running.asker("sys")
        answer = (await operator.ask(f"$SYS.REQ.SERVER.{running.id}.RELOAD")).json
        assert answer["error"] == {"code": 500, "description": "port cannot be changed"}


async def test_reload_is_refused_where_nobody_can_do_it() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        assert (await operator.ask(f"$SYS.REQ.SERVER.{running.id}.RELOAD")).json["error"]["code"] == 500


# --- $SYS.DEBUG.SUBSCRIBERS ---


@pytest.mark.parametrize(
    ("question", "count"),
    [("foo.bar", 3), ("foo.bar q", 1), ("foo.*", 3), ("foo.>", 3), ("none", 0), ("", 0), ("foo..bar", 0)],
)
async def test_subscribers_of_clients_are_counted_and_those_of_the_server_are_not(
    question: str, count: int
) -> None:
    async with system_server(ACCOUNTS) as running:
        operator = await running.asker("sys")
        await operator.client.send(b"SUB foo.bar 1\r\nSUB foo.* 2\r\nSUB foo.bar q 3\r\n")
        assert (await operator.ask("$SYS.DEBUG.SUBSCRIBERS", question)).json == count
        assert (await operator.ask("$SYS.DEBUG.SUBSCRIBERS", "$SYS.REQ.>")).json == 0


async def test_subscribers_of_another_account_are_counted_for_other_servers() -> None:
    async with system_server(ACCOUNTS) as running:
        operator, client = await running.asker("sys"), await running.asker("app")
        await client.listen("foo")
        ask = {"acc": "APP", "subject": "foo", "queue": ""}
        assert (await operator.ask("$SYS.REQ.ACCOUNT.NSUBS", ask)).json == 1
        assert (await operator.ask("$SYS.REQ.ACCOUNT.NSUBS", {**ask, "queue": "cQ=="})).json == 0
        refused = (await operator.ask("$SYS.REQ.ACCOUNT.NSUBS", {**ask, "queue": "?"})).json
        assert refused["error"]["code"] == 400
