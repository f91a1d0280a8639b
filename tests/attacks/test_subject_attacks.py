"""Attacks through subjects: shapes that must match nothing, subjects of the server, and denials."""

from __future__ import annotations

import pytest

from tests.attacks.victims import still_serves, victim

LOGIN = b',"user":"a","pass":"b"'


def permissions(rules: str) -> str:
    users = f"{{user: a, password: b, permissions: {{{rules}}}}}, {{user: root, password: r}}"
    return f"authorization {{ users [{users}] }}"


@pytest.mark.parametrize("subject", [b".", b"a.", b".a", b"a..b", b"..", b">.a", b"a.>.b", b"*..>"])
async def test_subscription_with_an_empty_token_or_a_tail_in_the_middle_is_refused(subject: bytes) -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB %s 1\r\n" % subject)
        assert await client.barrier() == [b"-ERR 'Invalid Subject'"]
        assert len(live.server.default_account.subscriptions) == 0
        await still_serves(live)


@pytest.mark.parametrize("subject", [b".", b"a.", b".a", b"a..b", b".."])
async def test_publish_with_an_empty_token_reaches_nobody(subject: bytes) -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB > 1\r\nPUB %s 1\r\nx\r\n" % subject)
        assert await client.barrier() == []
        await still_serves(live)


@pytest.mark.parametrize("pattern", [b"*a", b"a*", b">a", b"a>", b"a.b*.c"])
async def test_wildcard_inside_of_a_token_is_an_ordinary_character(pattern: bytes) -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(
            b"SUB %s 1\r\nPUB xa 1\r\nx\r\nPUB a.bx.c 1\r\nx\r\nPUB %s 1\r\ny\r\n" % (pattern, pattern)
        )
        assert await client.barrier() == [b"MSG %s 1 1" % pattern, b"y"]


async def test_subject_of_ten_thousand_tokens_is_cut_or_served_in_no_time() -> None:
    async with victim("max_control_line: 64KB") as live:
        client = await live.client()
        deep = b".".join([b"t"] * 10_000)
        stars = b".".join([b"*"] * 10_000)
        await client.send(b"SUB %s 1\r\nSUB > 2\r\nPUB %s 1\r\nx\r\n" % (stars, deep))
        lines = await client.barrier()
        assert sorted(lines) == sorted([b"MSG %s 1 1" % deep, b"x", b"MSG %s 2 1" % deep, b"x"])
        await still_serves(live)


async def test_too_many_tokens_are_refused_where_a_limit_is_configured() -> None:
    async with victim("max_subscription_tokens: 8") as live:
        client = await live.client()
        await client.send(b"SUB a.b.c.d.e.f.g.h.i 1\r\n")
        (line,) = await client.barrier()
        assert line.startswith(b"-ERR 'Permissions Violation for Subscription to")


async def test_patterns_that_multiply_are_matched_in_time_linear_in_their_number() -> None:
    async with victim() as live:
        client = await live.client()
        # Every subset of places is a wildcard: each level of the list has both ways for all that lie above.
        patterns = [
            b".".join(b"*" if number >> place & 1 else b"a" for place in range(10)) for number in range(1024)
        ]
        await client.send(
            b"".join(b"SUB %s %d\r\n" % item for item in zip(patterns, range(1024), strict=True))
        )
        await client.send(b"PUB a.a.a.a.a.a.a.a.a.a 1\r\nx\r\n")
        assert len(await client.barrier()) == 2 * 1024


async def test_published_wildcard_is_no_pattern() -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB a.b 1\r\nSUB a.* 2\r\nPUB a.* 1\r\nx\r\nPUB > 1\r\ny\r\n")
        assert await client.barrier() == [b"MSG a.* 2 1", b"x"]


async def test_published_wildcard_is_an_error_for_a_pedantic_client() -> None:
    async with victim() as live:
        client = await live.client(b',"pedantic":true')
        await client.send(b"PUB a.* 1\r\nx\r\n")
        assert await client.barrier() == [b"-ERR 'Invalid Publish Subject'"]


@pytest.mark.parametrize("subject", [b"$SYS.REQ.SERVER.PING", b"$SYS.ACCOUNT.A.CONNECT", b"$JS.API.INFO"])
async def test_publish_to_a_subject_of_the_server_reaches_no_other_account(subject: bytes) -> None:
    config = (
        "accounts { SYS { users [{user: s, password: s}] }, A { users [{user: a, password: b}] } }\n"
        "system_account: SYS"
    )
    async with victim(config) as live:
        operator = await live.client(b',"user":"s","pass":"s"')
        await operator.send(b"SUB $SYS.> 1\r\nSUB $JS.> 2\r\n")
        await operator.barrier()
        client = await live.client(LOGIN)
        await client.send(b"PUB %s 1\r\nx\r\n" % subject)
        await client.barrier()
        heard = b"\n".join(await operator.barrier())
        assert b"MSG " + subject + b" " not in heard
        await still_serves(live, LOGIN)


@pytest.mark.parametrize("subject", [b"_GR_.x", b"$GR.x", b"$NRG.x"])
async def test_publish_to_what_only_servers_use_is_refused(subject: bytes) -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"PUB %s 1\r\nx\r\n" % subject)
        (line,) = await client.barrier()
        assert line == b"-ERR 'Permissions Violation for Publish to \"%s\"'" % subject


@pytest.mark.parametrize("reply", [b"_R_.x", b"$JS.ACK.x", b"_GR_.x", b"$GR.x"])
async def test_reply_that_only_servers_make_is_refused(reply: bytes) -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB a 1\r\nPUB a %s 1\r\nx\r\n" % reply)
        assert await client.barrier() == [
            b"-ERR 'Permissions Violation for Publish with Reply of \"%s\"'" % reply
        ]


async def test_denials_that_overlap_a_wildcard_subscription_hold_at_delivery() -> None:
    async with victim(permissions('subscribe: {deny: ["foo.*.secret", "*.bar.>"]}')) as live:
        root = await live.client(b',"user":"root","pass":"r"')
        client = await live.client(LOGIN)
        await client.send(b"SUB foo.> 1\r\nSUB *.*.* 2\r\nSUB > 3\r\n")
        assert await client.barrier() == []
        await root.send(
            b"PUB foo.x.secret 1\r\nn\r\nPUB foo.bar.y 1\r\nn\r\nPUB x.bar.y 1\r\nn\r\nPUB foo.x.y 1\r\ny\r\n"
        )
        await root.barrier()
        lines = await client.barrier()
        assert lines.count(b"y") == 3 and b"n" not in lines


async def test_subscription_that_a_denial_covers_is_refused_for_queues_as_well() -> None:
    async with victim(permissions('subscribe: {deny: ["foo.*", "bar q.*"]}')) as live:
        client = await live.client(LOGIN)
        for number, line in enumerate((b"foo.a", b"foo.*", b"foo.a q1", b"foo.* q1", b"bar q.1")):
            await client.send(b"SUB %s %d\r\n" % (line, number))
            (answer,) = await client.barrier()
            assert answer.startswith(b"-ERR 'Permissions Violation for Subscription"), line
        await client.send(b"SUB bar 10\r\nSUB bar other 11\r\n")
        assert await client.barrier() == []


async def test_publish_denial_holds_for_every_spelling_of_the_subject() -> None:
    async with victim(permissions('publish: {deny: ["secret.>", "*.admin"]}')) as live:
        root = await live.client(b',"user":"root","pass":"r"')
        await root.send(b"SUB > 1\r\n")
        await root.barrier()
        client = await live.client(LOGIN)
        for subject in (b"secret.a", b"secret.*", b"secret.>", b"x.admin", b"*.admin", b"secret.a.b.c"):
            await client.send(b"PUB %s 1\r\nx\r\n" % subject)
            (answer,) = await client.barrier()
            assert answer.startswith(b"-ERR 'Permissions Violation for Publish"), subject
        assert await root.barrier() == []


async def test_denial_holds_behind_a_subject_mapping() -> None:
    config = permissions('publish: {deny: "secret"}') + '\nmappings { "open": "secret", "a.*": "secret.$1" }'
    async with victim(config) as live:
        root = await live.client(b',"user":"root","pass":"r"')
        await root.send(b"SUB secret 1\r\n")
        await root.barrier()
        client = await live.client(LOGIN)
        await client.send(b"PUB open 1\r\nx\r\n")
        (answer,) = await client.barrier()
        assert answer.startswith(b"-ERR 'Permissions Violation for Publish")
        assert await root.barrier() == []
