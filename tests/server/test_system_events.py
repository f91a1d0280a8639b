"""Events of the system account: who hears what, and when."""

from __future__ import annotations

import json

from trio.testing import MockClock, wait_all_tasks_blocked

from edged.config.options import Options
from edged.server import reasons
from tests.server.system_client import ACCOUNTS, account, system_server, user

BOTH_CONNS = {"$SYS.SERVER.ACCOUNT.APP.CONNS", "$SYS.ACCOUNT.APP.SERVER.CONNS"}


async def test_connect_and_disconnect_are_told_with_who_it_was_and_what_it_did() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.ACCOUNT.*.CONNECT")
        await operator.listen("$SYS.ACCOUNT.*.DISCONNECT")
        client = await running.asker("app", b',"name":"n","lang":"py","version":"1.0"')
        event = await operator.message()
        assert event.subject == "$SYS.ACCOUNT.APP.CONNECT"
        assert list(event.json) == ["type", "id", "timestamp", "server", "client"]
        assert event.json["type"] == "io.nats.server.advisory.v1.client_connect"
        assert list(event.json["client"]) == (
            ["start", "host", "id", "acc", "user", "name", "lang", "ver", "name_tag", "kind", "client_type"]
        )
        assert event.json["client"]["id"] == client.cid
        await client.send("subject", b"abc")
        await client.client.barrier()
        await client.client.stream.aclose()
        event = await operator.message()
        assert event.subject == "$SYS.ACCOUNT.APP.DISCONNECT"
        assert list(event.json) == [
            "type",
            "id",
            "timestamp",
            "server",
            "client",
            "sent",
            "received",
            "reason",
        ]
        assert event.json["sent"] == {"msgs": 1, "bytes": 3}
        assert event.json["received"] == {"msgs": 0, "bytes": 0}
        assert event.json["reason"] == reasons.CLIENT_CLOSED
        assert event.json["client"]["stop"] == event.json["timestamp"]
        assert event.json["client"]["rtt"] > 0


async def test_number_of_connections_is_told_on_both_subjects_when_it_changes() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        for subject in BOTH_CONNS:
            await operator.listen(subject)
        client = await running.asker("app")
        events = [await operator.message() for _ in range(2)]
        assert {event.subject for event in events} == BOTH_CONNS
        assert [event.json["conns"] for event in events] == [1, 1]
        assert events[0].json["id"] == events[1].json["id"]
        assert events[0].json["server"]["seq"] < events[1].json["server"]["seq"]
        await client.client.stream.aclose()
        events = [await operator.message() for _ in range(2)]
        assert [event.json["total_conns"] for event in events] == [0, 0]


async def test_connections_of_the_default_account_are_not_counted_out_loud() -> None:
    async with system_server(Options(accounts=(account("SYS"),), system_account="SYS")) as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.ACCOUNT.>")
        await operator.listen("$SYS.SERVER.ACCOUNT.>")
        await running.asker(None)
        assert (await operator.message()).subject == "$SYS.ACCOUNT.$G.CONNECT"
        assert await operator.client.barrier() == []


async def test_failed_login_is_told_to_operators_with_the_name_that_was_claimed() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.SERVER.*.CLIENT.AUTH.ERR")
        stranger = await running.live.client(connect=False)
        await stranger.send(b'CONNECT {"user":"app","pass":"secret-guess","verbose":false}\r\nPING\r\n')
        assert await stranger.closed() == [b"-ERR 'Authorization Violation'"]
        event = await operator.message()
        assert event.subject == f"$SYS.SERVER.{running.id}.CLIENT.AUTH.ERR"
        assert event.json["type"] == "io.nats.server.advisory.v1.client_disconnect"
        assert event.json["reason"] == reasons.AUTHENTICATION_VIOLATION
        assert (event.json["client"]["user"], event.json["client"]["acc"]) == ("app", "$G")
        assert b"secret-guess" not in event.body


async def test_failed_login_is_told_in_the_account_of_the_connection() -> None:
    options = Options(
        accounts=(account("SYS"), account("$G", user("g", "$G"))), system_account="SYS", no_auth_user="g"
    )
    async with system_server(options) as running:
        owner = await running.asker("g")
        await owner.listen("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
        stranger = await running.live.client(connect=False)
        await stranger.send(b'CONNECT {"user":"g","pass":"wrong","verbose":false}\r\n')
        await stranger.closed()
        assert (await owner.message()).json["reason"] == reasons.AUTHENTICATION_VIOLATION


async def test_token_of_a_failed_login_is_not_told() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.SERVER.*.CLIENT.AUTH.ERR")
        stranger = await running.live.client(connect=False)
        await stranger.send(b'CONNECT {"auth_token":"secret-token","verbose":false}\r\n')
        await stranger.closed()
        event = await operator.message()
        assert event.json["client"]["user"] == "[REDACTED]"
        assert b"secret-token" not in event.body


async def test_client_that_names_an_account_is_told_of_without_a_user() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.SERVER.*.CLIENT.AUTH.ERR")
        stranger = await running.live.client(connect=False)
        await stranger.send(b'CONNECT {"user":"app","pass":"x","account":"SYS","verbose":false}\r\n')
        await stranger.closed()
        assert "user" not in (await operator.message()).json["client"]


async def test_events_that_nobody_listens_to_are_not_made() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        before = (await operator.ask("$SYS.REQ.SERVER.PING.VARZ")).json["server"]["seq"]
        client = await running.asker("app")
        await client.client.stream.aclose()
        running.system.announce_lame_duck()
        after = (await operator.ask("$SYS.REQ.SERVER.PING.VARZ")).json["server"]["seq"]
        assert after == before + 1


async def test_account_whose_name_would_break_a_line_has_no_events() -> None:
    odd = account("APP", user("odd", "A B"))
    async with system_server(accounts=(account("SYS"), odd, account("A B", user("odd2", "A B")))) as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.ACCOUNT.>")
        await running.asker("odd2")
        await running.asker("app")
        subjects = [(await operator.message()).subject for _ in range(2)]
        assert subjects == ["$SYS.ACCOUNT.APP.SERVER.CONNS", "$SYS.ACCOUNT.APP.CONNECT"]


async def test_figures_are_told_soon_after_the_start_and_then_every_ten_seconds(
    mock_clock: MockClock,
) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.SERVER.*.STATSZ")
        for interval_s in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
            await wait_all_tasks_blocked()
            mock_clock.jump(interval_s - 0.01)
            await wait_all_tasks_blocked()
            assert b"STATSZ" not in b"".join(await operator.client.barrier())
            mock_clock.jump(0.01)
            assert (await operator.message()).json["statsz"]["connections"] == 1


async def test_number_of_connections_is_repeated_for_those_who_came_later(mock_clock: MockClock) -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await running.asker("app")
        await operator.listen("$SYS.ACCOUNT.*.SERVER.CONNS")
        for _ in range(2):
            await wait_all_tasks_blocked()
            mock_clock.jump(30.0)
            accounts = {(await operator.message()).json["acc"] for _ in range(2)}
            assert accounts == {"SYS", "APP"}


async def test_lame_duck_and_shutdown_are_told_with_the_description_of_the_server() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.SERVER.*.*")
        running.system.announce_lame_duck()
        event = await operator.message()
        assert event.subject == f"$SYS.SERVER.{running.id}.LAMEDUCK"
        assert list(event.json) == ["name", "host", "id", "ver", "tags", "jetstream", "flags", "seq", "time"]
        running.system.announce_shutdown()
        assert (await operator.message()).subject == f"$SYS.SERVER.{running.id}.SHUTDOWN"


async def test_nobody_is_told_of_clients_that_go_with_the_server() -> None:
    async with system_server() as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.ACCOUNT.>")
        client = await running.asker("app")
        assert {(await operator.message()).subject for _ in range(2)}
        running.system.announce_shutdown()
        running.live.server.connections[client.cid].close(reasons.SERVER_SHUTDOWN)
        assert await client.client.closed() == []
        assert await operator.client.barrier() == []


async def test_name_of_a_client_that_is_no_text_is_replaced_in_events() -> None:
    async with system_server(ACCOUNTS) as running:
        operator = await running.asker("sys")
        await operator.listen("$SYS.ACCOUNT.APP.CONNECT")
        await running.asker("app", b',"name":"half \\ud800 <b>"')
        event = await operator.message()
        assert json.loads(event.body)["client"]["name"] == "half \N{REPLACEMENT CHARACTER} <b>"
