"""Attacks on the wire protocol: sizes, lines, headers, CONNECT documents, floods of small operations."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.attacks.victims import attack, first_words, still_serves, victim

UNKNOWN = [b"-ERR 'Unknown Protocol Operation'"]
TOO_LARGE = [b"-ERR 'Maximum Payload Violation'"]
TOO_LONG = [b"-ERR 'maximum control line exceeded'"]
SILENCE: list[bytes] = []
CONTROL_LINE_MAX = 4096


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"PUB o 680444720440\r\n", SILENCE),
        (b"PUB a -1\r\n", SILENCE),
        (b"PUB a 99999999999999999999\r\n", SILENCE),
        (b"PUB a 1048577\r\n", TOO_LARGE),
        (b"PUB a 999999999\r\n", TOO_LARGE),
        (b"HPUB a 12 1048577\r\n", TOO_LARGE),
        (b"PUB a 0x10\r\n", SILENCE),
        (b"PUB a 1e3\r\n", SILENCE),
        (b"PUB a \xd9\xa1\r\n", SILENCE),
    ],
)
async def test_size_that_is_too_large_negative_or_no_number_ends_the_connection_before_any_payload(
    line: bytes, expected: list[bytes]
) -> None:
    async with victim() as live:
        assert await attack(live, line) == expected
        await still_serves(live)


@pytest.mark.parametrize("verb", [b"PUB ", b"SUB ", b"CONNECT ", b"UNSUB ", b"INFO ", b"HPUB "])
async def test_control_line_without_end_is_cut_at_its_limit(verb: bytes) -> None:
    async with victim() as live:
        assert await attack(live, verb + b"a" * (CONTROL_LINE_MAX + 1)) == TOO_LONG
        await still_serves(live)


async def test_control_line_of_blanks_only_is_cut_at_its_limit() -> None:
    async with victim() as live:
        assert await attack(live, b"SUB " + b" " * (CONTROL_LINE_MAX + 1)) == TOO_LONG
        await still_serves(live)


async def test_line_that_drips_in_byte_by_byte_is_cut_at_the_authentication_timeout(
    mock_clock: MockClock,
) -> None:
    async with victim("authorization { user: a, password: b, timeout: 2 }") as live:
        client = await live.client(connect=False)
        started = trio.current_time()
        for byte in b"CONN":
            await client.stream.send_all(bytes((byte,)))
            await wait_all_tasks_blocked()
            mock_clock.jump(0.6)
            # The bytes go through the kernel, which the clock of the test knows nothing of.
            await wait_all_tasks_blocked()
        assert await client.closed() == [b"-ERR 'Authentication Timeout'"]
        assert trio.current_time() - started < 3.0


async def test_silent_connection_is_closed_at_the_authentication_timeout(mock_clock: MockClock) -> None:
    async with victim("authorization { user: a, password: b, timeout: 2 }") as live:
        client = await live.client(connect=False)
        mock_clock.jump(2.1)
        assert await client.closed() == [b"-ERR 'Authentication Timeout'"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x00\r\n", UNKNOWN),
        (b"\r", UNKNOWN),
        (b"\n", UNKNOWN),
        (b"\r\nPING\r\n", UNKNOWN),
        (b"PUB a\rb 1\r\nx\r\n", SILENCE),
        (b"PUB a\nb 1\r\nx\r\n", SILENCE),
        (b"SUB a\rPING 1\r\n", SILENCE),
        (b"SUB a q\r 1\r\n", SILENCE),
        (b"UNSUB 1\r2\r\n", SILENCE),
        (b"PUB a 1\r\nx\n", UNKNOWN),
        (b"PUB a 1\r\nxx\r\n", UNKNOWN),
        (b"PUB\r\n", UNKNOWN),
        (b"SUB\r\n", UNKNOWN),
        (b"PUB a b c d e f g h 1\r\n", SILENCE),
        (b"SUB a b c d e f g h\r\n", SILENCE),
        (b"HPUB a b c d e f g h\r\n", SILENCE),
        (b"-ERR 'x'\r\n", SILENCE),
        (b"MSG a 1 1\r\nx\r\n", UNKNOWN),
        (b"RS+ $G a 1\r\n", UNKNOWN),
        (b"LS+ a\r\n", UNKNOWN),
        (b"A+ a\r\n", UNKNOWN),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", UNKNOWN),
        (b"\x16\x03\x01\x02\x00\x01", UNKNOWN),
    ],
)
async def test_line_that_is_no_operation_of_a_client_ends_the_connection(
    data: bytes, expected: list[bytes]
) -> None:
    async with victim() as live:
        assert await attack(live, data) == expected
        await still_serves(live)


async def test_subject_with_nul_and_bytes_that_are_no_text_reaches_its_subscriber_verbatim() -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB a.> 1\r\nPUB a.\x00\xff\xfe 1\r\nx\r\n")
        assert await client.line() == b"MSG a.\x00\xff\xfe 1 1"
        assert await client.line() == b"x"
        await still_serves(live)


@pytest.mark.parametrize(
    "line",
    [
        b"HPUB a 6 5\r\nhello\r\n",
        b"HPUB a -1 5\r\nhello\r\n",
        b"HPUB a 99999999999 5\r\nhello\r\n",
        b"HPUB a 5\r\nhello\r\n",
    ],
)
async def test_header_longer_than_its_message_or_no_number_ends_the_connection(line: bytes) -> None:
    async with victim() as live:
        assert await attack(live, line) == SILENCE
        await still_serves(live)


@pytest.mark.parametrize(
    "block",
    [
        b"no version at all\r\n\r\n",
        b"NATS/1.0\r\nKey: lone\rreturn\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Msg-Id: 2\r\n\r\n",
        b"NATS/1.0\r\nNats-Expected-Last-Sequence: 18446744073709551616\r\n\r\n",
        b"NATS/1.0\r\nNats-Expected-Last-Sequence: many\r\n\r\n",
        b"NATS/1.0\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
        b"\x00" * 64,
    ],
    ids=["no version", "lone CR", "twice", "too large", "no number", "many headers", "zeros"],
)
async def test_strange_header_block_is_passed_on_verbatim(block: bytes) -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB a 1\r\nHPUB a %d %d\r\n%s\r\n" % (len(block), len(block), block))
        assert await client.line() == b"HMSG a 1 %d %d" % (len(block), len(block))
        assert await client.exactly(len(block) + 2) == block + b"\r\n"
        await still_serves(live)


async def test_header_of_no_bytes_makes_a_message_without_header() -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB a 1\r\nHPUB a 0 5\r\nhello\r\n")
        assert await client.line() == b"MSG a 1 5"
        await still_serves(live)


@pytest.mark.parametrize(
    "document",
    [
        b"{",
        b"[1]",
        b'"text"',
        b"1",
        b'{"verbose":"yes"}',
        b'{"user":5}',
        b'{"protocol":99999999999999999999999999}',
        b'{"protocol":1e400}',
        b'{"a":' + b"9" * 4000 + b'x"}',
        b"[" * 4000,
        b'{"a":' * 600 + b"1",
    ],
)
async def test_connect_that_is_no_document_of_a_client_ends_the_connection(document: bytes) -> None:
    async with victim() as live:
        assert await first_words(live, b"CONNECT " + document + b"\r\n") == SILENCE
        await still_serves(live)


async def test_connect_of_a_megabyte_is_cut_at_the_control_line() -> None:
    async with victim() as live:
        assert await first_words(live, b'CONNECT {"name":"' + b"x" * 2**20) == TOO_LONG
        await still_serves(live)


async def test_connect_nested_ten_to_the_fifth_deep_is_refused_even_with_a_long_control_line() -> None:
    async with victim("max_control_line: 1MB") as live:
        deep = b"[" * 100_000 + b"]" * 100_000
        assert await first_words(live, b'CONNECT {"a":' + deep + b"}\r\n") == SILENCE
        await still_serves(live)


@pytest.mark.parametrize(
    "document",
    [
        b'{"verbose":false,"user":"a","user":"b","USER":"c"}',
        b'{"verbose":false,"a":' + b"9" * 3000 + b"}",
        b'{"verbose":false,"a":-1e999,"b":[[[[[[{}]]]]]]}',
        b'{"verbose":false,"name":"\\ud800","lang":"\\udfff","version":"\\u0000"}',
        b'{"verbose":false,"name":"\xff\xfe"}',
        b'{"verbose":false,"name":"\\r\\nINFO {}\\r\\n"}',
    ],
)
async def test_connect_with_strange_but_harmless_fields_is_accepted(document: bytes) -> None:
    async with victim() as live:
        client = await live.client(connect=False)
        await client.send(b"CONNECT " + document + b"\r\nPING\r\n")
        assert await client.line() == b"PONG"
        assert live.server.connections
        await still_serves(live)


async def test_connect_sent_over_and_over_with_new_fields_keeps_nothing_of_them() -> None:
    async with victim() as live:
        client = await live.client()
        for number in range(50):
            await client.send(b'CONNECT {"verbose":false,"field%d":"%s"}\r\n' % (number, b"x" * 1000))
        await client.barrier()
        (connection,) = live.server.connections.values()
        assert len(json.dumps(connection.fields.credentials)) < 1000
        await still_serves(live)


async def test_operation_before_connect_is_refused_when_a_login_is_required() -> None:
    async with victim("authorization { user: a, password: b }") as live:
        for operation in (b"PING\r\n", b"SUB a 1\r\n", b"PUB a 1\r\nx\r\n", b"INFO {}\r\n", b"+OK\r\n"):
            assert await first_words(live, operation) == [b"-ERR 'Authorization Violation'"], operation
        await still_serves(live, b',"user":"a","pass":"b"')


async def test_info_from_a_client_changes_nothing() -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b'INFO {"server_id":"x","max_payload":1,"auth_required":true}\r\nSUB a 1\r\n')
        await client.send(b"PUB a 5\r\nhello\r\n")
        assert await client.line() == b"MSG a 1 5"
        assert await attack(live, b"INFO no json\r\n") == SILENCE
        await still_serves(live)


async def test_ping_flood_is_answered_ping_by_ping() -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"PING\r\n" * 10_000)
        assert await client.exactly(60_000) == b"PONG\r\n" * 10_000
        await still_serves(live)


async def test_subscription_flood_ends_at_the_limit_of_subscriptions() -> None:
    async with victim("max_subscriptions: 100") as live:
        client = await live.client()
        await client.send(b"".join(b"SUB a.%d %d\r\n" % (number, number) for number in range(1000)))
        lines = await client.barrier()
        assert lines == [b"-ERR 'maximum subscriptions exceeded'"] * 900
        (connection,) = live.server.connections.values()
        assert len(connection.subscriptions) == 100
        await still_serves(live)


async def test_same_sid_again_and_again_is_one_subscription() -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"".join(b"SUB a.%d 1\r\n" % number for number in range(1000)))
        assert await client.barrier() == []
        (connection,) = live.server.connections.values()
        assert len(connection.subscriptions) == 1
        assert len(connection.account.subscriptions) == 1


@pytest.mark.parametrize("count", [b"9223372036854775807", b"9223372036854775808", b"-5", b"x", b"9" * 500])
async def test_unsubscribe_after_an_impossible_count_ends_the_subscription(count: bytes) -> None:
    async with victim() as live:
        client = await live.client()
        await client.send(b"SUB a 1\r\nUNSUB 1 %s\r\nPUB a 1\r\nx\r\n" % count)
        assert await client.barrier() == []
        await still_serves(live)


async def test_error_text_quotes_a_subject_on_one_line() -> None:
    config = 'authorization { users [{user: a, password: b, permissions: {publish: "ok", subscribe: "ok"}}] }'
    async with victim(config) as live:
        client = await live.client(b',"user":"a","pass":"b"')
        await client.send(b"PUB x'\x00\x1b[31m 1\r\nx\r\nSUB y'\x07 q\x08 1\r\n")
        lines = await client.barrier()
        assert len(lines) == 2
        for line in lines:
            assert line.startswith(b"-ERR 'Permissions Violation for ")
            assert all(0x20 <= byte < 0x7F for byte in line), line
