"""Client connections over real sockets, seen from the inside as well."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from edged.config.options import Authorization, PermissionsOptions, ResponseRule, SubjectRules, UserOptions
from edged.core.wire import Event
from edged.server import reasons
from edged.server.client import ClientConnection
from tests.server.live import live_server

ALICE = Authorization(users=(UserOptions(user="alice", password="secret-of-alice"),))


async def test_subscriptions_leave_no_trace_once_their_connection_is_closed() -> None:
    async with live_server() as live:
        client = await live.client()
        await client.send(b"".join(b"SUB s.%d.* %d\r\n" % (i, i) for i in range(1000)))
        await client.barrier()
        account = live.server.default_account
        assert len(account.subscriptions) == 1000
        await client.stream.aclose()
        while live.server.connections:
            await trio.testing.wait_all_tasks_blocked()
        assert len(account.subscriptions) == 0
        assert not account.connections


async def test_a_cached_route_is_dropped_when_interest_comes_and_goes() -> None:
    async with live_server() as live:
        publisher, subscriber = await live.client(), await live.client()
        await publisher.send(b"PUB a.b 1\r\n1\r\n")
        await publisher.barrier()
        await subscriber.send(b"SUB a.b 1\r\nSUB a.* 2\r\n")
        await subscriber.barrier()
        await publisher.send(b"PUB a.b 1\r\n2\r\n")
        await publisher.barrier()
        assert sorted(await subscriber.barrier()) == [b"2", b"2", b"MSG a.b 1 1", b"MSG a.b 2 1"]
        await subscriber.send(b"UNSUB 2\r\n")
        await subscriber.barrier()
        await publisher.send(b"PUB a.b 1\r\n3\r\n")
        await publisher.barrier()
        assert await subscriber.barrier() == [b"MSG a.b 1 1", b"3"]


async def test_a_subscriber_that_never_reads_is_closed_and_memory_stays_flat() -> None:
    async with live_server(max_pending=1 << 20, no_fast_producer_stall=True) as live:
        stuck, publisher = await live.client(), await live.client()
        await stuck.send(b"SUB flood 1\r\n")
        await stuck.barrier()
        (connection,) = [c for c in live.server.connections.values() if c.subscriptions]
        for _ in range(200):
            await publisher.send((b"PUB flood 1000\r\n" + b"x" * 1000 + b"\r\n") * 100)
            await publisher.barrier()
            assert connection.outbox.pending_bytes <= 1 << 20
            if connection.reason is not None:
                break
        assert connection.reason == reasons.SLOW_CONSUMER_PENDING
        assert live.server.slow_consumers[reasons.SLOW_CONSUMER_PENDING] == 1
        assert connection.outbox.pending_bytes == 0
        assert "slow consumer" in live.lines.text


async def test_a_subscriber_that_takes_nothing_for_the_write_deadline_is_closed() -> None:
    async with live_server(write_deadline_s=0.05) as live:
        stuck, publisher = await live.client(), await live.client()
        await stuck.send(b"SUB flood 1\r\n")
        await stuck.barrier()
        (connection,) = [c for c in live.server.connections.values() if c.subscriptions]
        with trio.fail_after(10):
            while connection.reason is None:
                await publisher.send((b"PUB flood 1000\r\n" + b"x" * 1000 + b"\r\n") * 200)
                await publisher.barrier()
        assert connection.reason == reasons.SLOW_CONSUMER_DEADLINE


async def test_a_slow_subscriber_holds_its_publisher_back_instead_of_filling_memory() -> None:
    async with live_server() as live:
        slow, publisher = await live.client(), await live.client()
        await slow.send(b"SUB flood 1\r\n")
        await slow.barrier()
        (connection,) = [c for c in live.server.connections.values() if not c.subscriptions]
        message = b"PUB flood 10000\r\n" + b"x" * 10000 + b"\r\n"
        for _ in range(1000):
            await publisher.send(message)
            await publisher.barrier()
            if connection.stalls:
                break
        assert connection.stalls > 0
        stalls = connection.stalls
        await publisher.send(b"PUB elsewhere 1\r\nx\r\n")
        await publisher.barrier()
        assert connection.stalls == stalls, "only what goes to the slow one waits"


async def test_before_authentication_a_connection_holds_little_memory() -> None:
    async with live_server(authorization=ALICE) as live:
        client = await live.client(connect=False)
        (connection,) = live.server.connections.values()
        await client.send(b"CONNECT " + b"x" * 4000)
        await trio.testing.wait_all_tasks_blocked()
        assert connection.parser.buffered_bytes <= 4096 + 16
        await client.send(b"x" * 200)
        assert await client.closed() == [b"-ERR 'maximum control line exceeded'"]


async def test_before_authentication_nothing_but_connect_is_taken() -> None:
    for operation in (b"PUB a 1000000\r\n", b"SUB a 1\r\n", b"PING\r\n", b"NONSENSE\r\n", b"UNSUB 1\r\n"):
        async with live_server(authorization=ALICE) as live:
            client = await live.client(connect=False)
            await client.send(operation)
            assert await client.closed() == [b"-ERR 'Authorization Violation'"]


async def test_a_client_that_does_not_log_in_is_closed_in_time() -> None:
    async with live_server(authorization=Authorization(users=ALICE.users, timeout_s=0.05)) as live:
        client = await live.client(connect=False)
        await client.send(b"CONN")
        assert await client.closed() == [b"-ERR 'Authentication Timeout'"]


async def test_secrets_are_in_no_log_line_even_when_everything_is_traced() -> None:
    async with live_server(authorization=ALICE) as live:
        live.server.log.is_trace = True
        client = await live.client(b',"user":"alice","pass":"secret-of-alice"')
        await client.barrier()
        wrong = await live.client(connect=False)
        await wrong.send(b'CONNECT {"user":"alice","pass":"not-the-secret","auth_token":"token-secret"}\r\n')
        assert await wrong.closed() == [b"-ERR 'Authorization Violation'"]
        assert "CONNECT" in live.lines.text
        assert "[PONG]" in live.lines.text
        for secret in ("secret-of-alice", "not-the-secret", "token-secret"):
            assert secret not in live.lines.text


async def test_an_answer_is_allowed_once_and_only_to_who_was_asked() -> None:
    rights = PermissionsOptions(publish=SubjectRules(allow=()), allow_responses=ResponseRule(max_messages=1))
    users = (
        UserOptions(user="alice", password="a"),
        UserOptions(user="service", password="s", permissions=rights),
    )
    async with live_server(authorization=Authorization(users=users)) as live:
        alice = await live.client(b',"user":"alice","pass":"a"')
        service = await live.client(b',"user":"service","pass":"s"')
        await service.send(b"SUB do 1\r\n")
        await service.barrier()
        await alice.send(b"SUB answers 1\r\nPUB do answers 0\r\n\r\n")
        await alice.barrier()
        assert await service.line() == b"MSG do 1 answers 0"
        assert await service.line() == b""
        await service.send(b"PUB answers 2\r\nok\r\nPUB answers 2\r\nno\r\nPUB other 2\r\nno\r\n")
        refused = await service.barrier()
        assert refused == [
            b"-ERR 'Permissions Violation for Publish to \"answers\"'",
            b"-ERR 'Permissions Violation for Publish to \"other\"'",
        ]
        assert await alice.barrier() == [b"MSG answers 1 2", b"ok"]


async def test_a_second_connect_drops_subscriptions_and_rights_of_the_first() -> None:
    users = (UserOptions(user="a", password="a"), UserOptions(user="b", password="b"))
    async with live_server(authorization=Authorization(users=users)) as live:
        client = await live.client(b',"user":"a","pass":"a"')
        await client.send(b"SUB x 1\r\n")
        again = b'CONNECT {"verbose":false,"pedantic":false,"user":"b","pass":"b"}\r\n'
        await client.send(again + b"PUB x 1\r\ny\r\n")
        assert await client.barrier() == []
        (connection,) = live.server.connections.values()
        assert connection.identity is not None
        assert connection.identity.user == "b"
        assert len(live.server.default_account.connections) == 1


async def test_ten_thousand_pings_and_subscriptions_are_answered_and_bounded() -> None:
    async with live_server(max_subscriptions=100) as live:
        client = await live.client()
        await client.send(b"PING\r\n" * 10_000)
        assert await client.exactly(60_000) == b"PONG\r\n" * 10_000
        await client.send(b"".join(b"SUB a %d\r\n" % i for i in range(10_000)))
        errors = await client.barrier()
        assert errors == [b"-ERR 'maximum subscriptions exceeded'"] * 9900


async def test_reply_subjects_reach_their_client_whatever_else_comes_and_goes() -> None:
    async with live_server() as live:
        asker, service = await live.client(), await live.client()
        await asker.send(b"SUB _INBOX.me.* 1\r\n")
        await asker.barrier()

        async def answered(subject: bytes) -> list[bytes]:
            await service.send(b"PUB %s 2\r\nok\r\n" % subject)
            await service.barrier()
            return await asker.barrier()

        assert await answered(b"_INBOX.me.1") == [b"MSG _INBOX.me.1 1 2", b"ok"]
        assert await answered(b"_INBOX.me.2") == [b"MSG _INBOX.me.2 1 2", b"ok"]
        assert await answered(b"_INBOX.you.1") == []
        assert await answered(b"_INBOX.me.") == []
        await asker.send(b"SUB _INBOX.me.3 2\r\n")
        await asker.barrier()
        assert len(await answered(b"_INBOX.me.3")) == 4
        await asker.send(b"SUB _INBOX.> 3\r\n")
        await asker.barrier()
        assert len(await answered(b"_INBOX.me.4")) == 4
        await asker.send(b"UNSUB 1\r\nUNSUB 3\r\n")
        await asker.barrier()
        assert await answered(b"_INBOX.me.4") == []


async def test_a_fault_of_ours_ends_the_connection_it_came_up_in_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with live_server() as live:
        unlucky, other = await live.client(), await live.client()
        victim = next(iter(live.server.connections.values()))

        operate = ClientConnection._operate

        def faulty(connection: ClientConnection, event: Event) -> None:
            if connection is victim:
                raise RuntimeError("planted")
            operate(connection, event)

        monkeypatch.setattr(ClientConnection, "_operate", faulty)
        await unlucky.send(b"SUB a 1\r\n")
        assert await unlucky.closed() == []
        assert victim.reason == reasons.INTERNAL_ERROR
        assert "planted" in live.lines.text
        await other.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert await other.barrier() == [b"MSG a 1 2", b"hi"]
