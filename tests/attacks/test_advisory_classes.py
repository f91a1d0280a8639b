"""One test for each class of advisory about NATS servers that concerns core messaging.

Each comment names the class. Classes about logins, denials and memory have their tests with those attacks as
well; here is the shortest form of each.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from edged.config.load import load_text
from edged.server.listener import Listener, bind
from tests.attacks.victims import first_words, monitored_victim, still_serves, victim
from tests.server.live import LiveClient, LiveServer, live_server

REFUSED = [b"-ERR 'Authorization Violation'"]
A_LOGIN, B_LOGIN = b',"user":"a","pass":"a"', b',"user":"b","pass":"b"'


# Account switch: fields of CONNECT that choose an account, the system account included.
@pytest.mark.parametrize(
    "fields",
    [b'"account":"B"', b'"account":"$SYS"', b'"account":"B","new_account":true', b'"new_account":true'],
)
async def test_connect_cannot_choose_its_account(fields: bytes) -> None:
    config = "accounts { A { users [{user: a, password: a}] }, B { users [{user: b, password: b}] } }"
    async with victim(config) as live:
        login = b'CONNECT {"user":"a","pass":"a",' + fields + b"}\r\n"
        assert await first_words(live, login) == REFUSED
        assert not live.server.accounts["B"].connections
        await still_serves(live, A_LOGIN)
    async with victim() as live:
        assert await first_words(live, b"CONNECT {" + fields + b"}\r\n") == REFUSED
        await still_serves(live)


# Accounts block with the system account only: it must not switch authentication off.
async def test_system_account_alone_opens_nothing_that_an_authorization_block_closes() -> None:
    config = (
        "accounts { $SYS { users [{user: s, password: s}] } }\n"
        "authorization { users [{user: a, password: a}] }"
    )
    async with victim(config) as live:
        for login in (b"PING\r\n", b"CONNECT {}\r\n", b'CONNECT {"user":"x","pass":"y"}\r\n'):
            assert await first_words(live, login) == REFUSED, login
        await still_serves(live, A_LOGIN)


async def test_system_account_alone_lets_nobody_into_the_system_account_without_its_password() -> None:
    async with victim("accounts { $SYS { users [{user: s, password: s}] } }") as live:
        client = await live.client()
        await client.send(b"SUB > 1\r\nPUB $SYS.REQ.SERVER.PING r 0\r\n\r\n")
        await client.barrier()
        system = live.server.system_account
        assert system is not None and not system.connections


# First operation other than CONNECT: the default user's limits and rights must hold for it.
async def test_default_user_is_limited_from_its_first_operation_on() -> None:
    config = (
        "accounts { G { users [{user: guest, password: g, permissions: {publish: ok, subscribe: ok}}],\n"
        "limits: {max_payload: 10, max_subscriptions: 1} }, H { users [{user: h, password: h}] } }\n"
        "no_auth_user: guest"
    )
    async with victim(config) as live:
        client = await live.client(connect=False)
        # It has not said CONNECT, so it is verbose.
        await client.send(b"PUB secret 1\r\nx\r\nSUB secret 1\r\nSUB ok 1\r\nSUB ok 2\r\nPING\r\n")
        lines = [await client.line() for _ in range(5)]
        assert lines[0] == b"-ERR 'Permissions Violation for Publish to \"secret\"'"
        assert lines[1] == b"-ERR 'Permissions Violation for Subscription to \"secret\"'"
        assert lines[2:] == [b"+OK", b"-ERR 'maximum subscriptions exceeded'", b"PONG"]
        assert await first_words(live, b"PUB ok 11\r\n") == [b"-ERR 'Maximum Payload Violation'"]


async def test_default_user_counts_as_a_connection_of_its_account_from_its_first_operation_on() -> None:
    config = (
        "accounts { G { users [{user: guest, password: g}], limits: {max_connections: 1} } }\n"
        "no_auth_user: guest"
    )
    async with victim(config) as live:
        first = await live.client(connect=False)
        await first.send(b"PING\r\n")
        assert await first.line() == b"PONG"
        assert await first_words(live, b"PING\r\n") == [b"-ERR 'maximum account active connections exceeded'"]


# Denial that overlaps a wildcard, and denial of a queue subscription.
@pytest.mark.parametrize("subscription", [b"foo.*", b"*.bar", b"foo.>", b">", b"foo.* q", b"> q", b"*.* q"])
async def test_denied_subject_reaches_no_wildcard_and_no_queue(subscription: bytes) -> None:
    config = (
        "authorization { users [{user: a, password: a, permissions: {subscribe: {deny: foo.bar}}},\n"
        "{user: b, password: b}] }"
    )
    async with victim(config) as live:
        reader, writer = await live.client(A_LOGIN), await live.client(B_LOGIN)
        await reader.send(b"SUB %s 1\r\n" % subscription)
        assert await reader.barrier() == []
        await writer.send(b"PUB foo.bar 1\r\nx\r\n")
        await writer.barrier()
        assert await reader.barrier() == []


# Header that makes the server publish where its sender may not.
async def test_trace_header_publishes_nowhere() -> None:
    config = (
        "authorization { users [{user: a, password: a, permissions: {publish: ok}}, {user: b, password: b}] }"
    )
    async with victim(config) as live:
        reader, writer = await live.client(B_LOGIN), await live.client(A_LOGIN)
        await reader.send(b"SUB secret.> 1\r\n")
        await reader.barrier()
        block = b"NATS/1.0\r\nNats-Trace-Dest: secret.trace\r\nTraceparent: 00-00-00-01\r\n\r\n"
        await writer.send(b"HPUB ok %d %d\r\n%s\r\n" % (len(block), len(block), block))
        await writer.barrier()
        assert await reader.barrier() == []


SHARING = (
    "accounts { S { users [{user: s, password: s}], exports [{service: svc}] },\n"
    "A { users [{user: a, password: a}], imports [{service: {account: S, subject: svc}, share: %s}] } }"
)


async def request_seen_by_service(block: bytes, extra: bytes = b"", share: str = "true") -> bytes:
    """The header block that a service gets for a request with this one."""
    async with victim(SHARING % share) as live:
        service = await live.client(b',"user":"s","pass":"s"')
        await service.send(b"SUB svc 1\r\n")
        await service.barrier()
        client = await live.client(A_LOGIN + extra)
        await client.send(b"HPUB svc reply %d %d\r\n%s\r\n" % (len(block), len(block), block))
        await client.barrier()
        words = (await service.line()).split(b" ")
        assert words[0] == b"HMSG", words
        message = await service.exactly(int(words[-1]))
        return message[: int(words[-2])]


# Spoofed requester: a header of the client that a service takes for the server's word.
@pytest.mark.parametrize(
    "lines",
    [
        b'Nats-Request-Info: {"acc":"ADMIN"}\r\n\r\n',
        b'Nats-Request-Info: {"acc":"ADMIN"}\r\nNats-Request-Info: {"acc":"ADMIN"}\r\n\r\n',
        b'nats-request-info: {"acc":"ADMIN"}\r\n\r\n',
        b'NATS-REQUEST-INFO:{"acc":"ADMIN"}\r\n\r\n',
        b'Nats-Request-Info : {"acc":"ADMIN"}\r\n\r\n',
        b' Nats-Request-Info: {"acc":"ADMIN"}\r\n\r\n',
        b'A: b\nNats-Request-Info: {"acc":"ADMIN"}\r\n\r\n',
        b'A: b\rNats-Request-Info: {"acc":"ADMIN"}\r\n\r\n',
        b'Nats-Request-Info: {"acc":"ADMIN"}\n\n',
        b'Nats-Request-Info: {"acc":"ADMIN"}\r\n',
        b'Nats-Request-Info: {"acc":"ADMIN"}',
        b'Nats-Request-Info: {"acc":"ADMIN"}  ',
    ],
)
async def test_requester_is_described_by_the_server_and_never_by_itself(lines: bytes) -> None:
    block = await request_seen_by_service(b"NATS/1.0\r\n" + lines)
    assert b"ADMIN" not in block, block
    (shown,) = [line for line in block.splitlines() if line.startswith(b"Nats-Request-Info: ")]
    assert json.loads(shown.partition(b": ")[2])["acc"] == "A"


# Quadratic time: one message with very many lines of the header that the server takes out.
async def test_very_many_spoofed_headers_are_taken_out_in_no_time() -> None:
    lines = b"Nats-Request-Info: x\r\n" * 45_000
    started = trio.current_time()
    block = await request_seen_by_service(b"NATS/1.0\r\n" + lines + b"\r\n")
    assert block.count(b"Nats-Request-Info") == 1
    assert trio.current_time() - started < 2.0


# CR/LF injection: texts of a client that the server puts into lines of its own.
async def test_line_ends_in_a_clients_name_stay_inside_the_header_about_it() -> None:
    name = b',"name":"n\\r\\nNats-Request-Info: {}\\r\\n\\r\\n","lang":"\\u2028\\u0085"'
    block = await request_seen_by_service(b"NATS/1.0\r\n\r\n", name)
    assert len(block.split(b"\r\n")) == 4, block
    assert json.loads(block.split(b"\r\n")[1].partition(b": ")[2])["name"].startswith("n\r\n")


@pytest.mark.parametrize(
    "operation", [b"SUB a\rb 1\r\n", b"PUB a r\rb 0\r\n\r\n", b"SUB a q\rq 1\r\n", b"SUB a 1\r1\r\n"]
)
async def test_lone_return_in_a_subject_a_queue_or_a_sid_ends_the_connection(operation: bytes) -> None:
    async with victim() as live:
        listener = await live.client()
        await listener.send(b"SUB > 1\r\n")
        await listener.barrier()
        attacker = await live.client()
        await attacker.send(operation)
        assert await attacker.closed() == []
        assert await listener.barrier() == []


# Numbers of monitoring that overflow.
@pytest.mark.parametrize(
    "query",
    [
        "offset=9223372036854775807&limit=9223372036854775807",
        "offset=-9223372036854775808&limit=-9223372036854775808",
        "offset=9223372036854775808",
        "limit=18446744073709551616",
        "offset=1&limit=9223372036854775807",
        "cid=18446744073709551615",
        "cid=-1",
        "offset=" + "9" * 5000,
        "limit=NaN",
    ],
)
async def test_paging_that_overflows_is_an_empty_page_or_refused(query: str) -> None:
    async with monitored_victim() as server:
        await server.live.client()
        for page in ("connz", "subsz", "jsz"):
            answer = await server.get(f"/{page}?{query}")
            assert answer.status in (200, 400), (page, answer)
            if answer.status == 200 and page == "connz":
                assert len(answer.json["connections"]) <= 1
        await still_serves(server.live)


# --- WebSocket ---


@asynccontextmanager
async def websocket_victim() -> AsyncIterator[tuple[LiveServer, Listener]]:
    config = "websocket { port: -1, no_tls: true, compression: true }\nauthorization { user: a, password: a }"
    async with live_server(load_text(config, {}).options) as live:
        listener = Listener(live.server, bind("127.0.0.1", -1), is_websocket=True)
        live.server.nursery.start_soon(listener.run)
        try:
            yield live, listener
        finally:
            listener.close()


async def upgraded(live: LiveServer, listener: Listener) -> LiveClient:
    """A WebSocket that need not mask, with the HTTP answer and INFO read."""
    client = LiveClient(await trio.open_tcp_stream("127.0.0.1", listener.port))
    live.clients.append(client)
    await client.send(
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nNats-No-Masking: true\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    while await client.line():
        pass  # The lines of the HTTP answer end with an empty one.
    kind, size = await client.exactly(2)
    assert kind == 0xC2, "INFO comes in a compressed frame"
    await client.exactly(size if size < 126 else int.from_bytes(await client.exactly(2), "big"))
    return client


async def reason_of_end(live: LiveServer) -> str | None:
    """Why the WebSocket ended, once the server is done with it."""
    with trio.fail_after(10):
        while True:
            for connection in live.server.closed:
                if connection.connection_type == "WEBSOCKET":
                    return connection.reason
            await trio.lowlevel.checkpoint()


# WebSocket frame whose length overflows before anybody has logged in.
@pytest.mark.parametrize(
    "frame",
    [
        b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00",
        b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x01x",
        b"\x89\x7e\x00\x7e" + bytes(126),
        b"\x09\x00",
        b"\x83\x00",
        b"\x80\x00",
        b"\x92\x00",
        b"\x88\x01x",
        b"\x81\x02\xff\xfe",
    ],
)
async def test_websocket_frame_of_an_impossible_length_or_kind_harms_nobody(frame: bytes) -> None:
    async with websocket_victim() as (live, listener):
        client = await upgraded(live, listener)
        await client.send(frame)
        await still_serves(live, A_LOGIN)
        await client.stream.send_eof()
        await client.closed()
        assert await reason_of_end(live) in ("Client Closed", "Read Error")


# Compressed WebSocket message that inflates to very much, before anybody has logged in.
async def test_websocket_bomb_is_cut_at_the_largest_message() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = compressor.compress(bytes(200 * 2**20)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    async with websocket_victim() as (live, listener):
        client = await upgraded(live, listener)
        # It may be cut while we are still sending.
        with contextlib.suppress(trio.BrokenResourceError):
            await client.send(b"\xc2\x7f" + len(bomb).to_bytes(8, "big") + bomb)
        frame = await client.exactly(4)
        assert frame[0] == 0x88 and frame[2:] == (1009).to_bytes(2, "big"), "closed because it is too big"
        await client.stream.aclose()
        assert await reason_of_end(live) == "Read Error"
        await still_serves(live, A_LOGIN)
