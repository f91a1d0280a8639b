"""WebSocket over real loopback sockets; the peer is wsproto's client, or raw bytes that misbehave."""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import trio
import trustme
from tcp_pair import receive_exactly, receive_to_end, send_all, tcp_pair
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong
from wsproto.extensions import PerMessageDeflate

from edged.config.options import TlsOptions, WebsocketOptions
from edged.server.layered import CHUNK_BYTES, CONTROL_BYTES_MAX
from edged.server.tls import accept_tls
from edged.server.tls_context import server_context
from edged.server.transport import ConnectionLost, PlainTransport
from edged.server.websocket import WebSocketRefused, WebSocketTransport, accept_websocket

AUTHORITY = trustme.CA()
OPTIONS = WebsocketOptions(port=-1, no_tls=True)
COMPRESSED = replace(OPTIONS, compression=True)
HEAD = (
    b"GET %s HTTP/1.1\r\nHost: edge.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n"
)
OFFER = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


class Peer:
    """A WebSocket client on a trio stream."""

    def __init__(self, stream: trio.abc.Stream, deflate: bool) -> None:
        self.stream = stream
        extension = PerMessageDeflate()
        if deflate:
            extension.finalize("permessage-deflate; client_no_context_takeover; server_no_context_takeover")
        self.connection = Connection(ConnectionType.CLIENT, [extension] if deflate else [])
        self.events: list[Event] = []

    async def send(self, event: Event) -> None:
        await self.stream.send_all(self.connection.send(event))

    async def next_event(self) -> Event:
        while not self.events:
            data = await self.stream.receive_some()
            assert data, "the stream ended"
            self.connection.receive_data(data)
            self.events.extend(self.connection.events())
        return self.events.pop(0)

    async def receive_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            event = await self.next_event()
            assert isinstance(event, BytesMessage), event
            data += event.data
        return data


@asynccontextmanager
async def websocket_pair(
    options: WebsocketOptions = OPTIONS,
    extra: bytes = b"",
    path: bytes = b"/",
    buffer_bytes: int | None = None,
    inflated_bytes_max: int = 100_000,
) -> AsyncIterator[tuple[WebSocketTransport, Peer]]:
    with tcp_pair(buffer_bytes) as (wire, stream):
        await stream.send_all(HEAD % (path, extra))
        transport = await accept_websocket(wire, options, inflated_bytes_max=inflated_bytes_max)
        answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert answer.endswith(b"\r\n\r\n")
        yield transport, Peer(stream, deflate=b"permessage-deflate" in answer)


def masked(first: int, payload: bytes, size: bytes | None = None) -> bytes:
    if size is None:
        length = len(payload)
        size = bytes((length,)) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
    return bytes((first, 0x80 | size[0])) + size[1:] + b"\0\0\0\0" + payload


async def refused(
    wire: PlainTransport, stream: trio.SocketStream, options: WebsocketOptions = OPTIONS
) -> bytes:
    with pytest.raises(WebSocketRefused):
        await accept_websocket(wire, options)
    await wire.shutdown(timeout_s=0.1)
    received = b""
    while chunk := await stream.receive_some():
        received += chunk
    return received


async def test_bytes_flow_both_ways_as_binary_frames() -> None:
    async with websocket_pair() as (transport, peer):
        assert (transport.kind, transport.remote_port) == ("WEBSOCKET", transport.wire.remote_port)
        assert transport.send_nowait(b"INFO {}\r\n") == 9
        assert await peer.next_event() == BytesMessage(b"INFO {}\r\n")
        await peer.send(BytesMessage(b"CONNECT {}\r\nPING\r\n"))
        assert await transport.receive() == b"CONNECT {}\r\nPING\r\n"


async def test_text_fragments_and_many_frames_are_one_stream() -> None:
    async with websocket_pair() as (transport, peer):
        wire = (
            masked(0x01, b"PUB \xc3")
            + masked(0x89, b"")
            + masked(0x80, b"\xbc 2\r\n")
            + masked(0x82, b"hi\r\n")
        )
        await peer.stream.send_all(wire)
        assert await receive_exactly(transport, 13) == "PUB ü 2\r\nhi\r\n".encode()


async def test_a_frame_of_any_cut_arrives_whole() -> None:
    async with websocket_pair() as (transport, peer):
        wire = masked(0x82, b"PING\r\n") + masked(0x82, bytes(300))
        received = b""
        for position in range(len(wire)):
            await peer.stream.send_all(wire[position : position + 1])
            with trio.move_on_after(0.001):
                received += await transport.receive()
        received += await receive_exactly(transport, 306 - len(received))
        assert received == b"PING\r\n" + bytes(300)


async def test_a_leafnode_path_is_a_leafnode_and_may_do_without_masks() -> None:
    async with websocket_pair(path=b"/leafnode", extra=b"Nats-No-Masking: true\r\n") as (transport, peer):
        assert transport.kind == "LEAFNODE_WS"
        await peer.stream.send_all(b"\x82\x06PING\r\n")
        assert await transport.receive() == b"PING\r\n"
        transport.send_nowait(b"PONG\r\n")
        assert await peer.next_event() == BytesMessage(b"PONG\r\n")


async def test_credentials_in_cookies_and_the_forwarded_address_are_exposed() -> None:
    options = replace(OPTIONS, jwt_cookie="jwt", user_cookie="name", pass_cookie="word", token_cookie="token")
    extra = b"Cookie: jwt=a.b.c; name=device; word=secret\r\nX-Forwarded-For: 192.0.2.9\r\n"
    async with websocket_pair(options, extra) as (transport, _peer):
        assert (transport.cookie_jwt, transport.cookie_user) == ("a.b.c", "device")
        assert (transport.cookie_password, transport.cookie_token) == ("secret", None)
        assert transport.forwarded_for == "192.0.2.9"


async def test_compressed_messages_flow_both_ways() -> None:
    data = b"MSG a 1 5\r\nhello\r\n" * 1000
    async with websocket_pair(COMPRESSED, OFFER) as (transport, peer):
        assert transport.send_nowait(data) == len(data)
        assert await peer.receive_exactly(len(data)) == data
        await peer.send(BytesMessage(data))
        await peer.send(BytesMessage(b"PING\r\n"))
        assert await receive_exactly(transport, len(data) + 6) == data + b"PING\r\n"


async def test_large_transfers_in_both_directions_are_intact_through_small_socket_buffers() -> None:
    upward, downward = b"up" * 300_000, bytes(range(256)) * 4_000
    async with websocket_pair(buffer_bytes=8192) as (transport, peer):
        received_by_peer: list[bytes] = []

        async def peer_receives() -> None:
            received_by_peer.append(await peer.receive_exactly(len(downward)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer_receives)
            nursery.start_soon(peer.send, BytesMessage(upward))
            nursery.start_soon(send_all, transport, downward)
            assert await receive_exactly(transport, len(upward)) == upward
    assert received_by_peer == [downward]


async def test_what_is_held_for_a_peer_that_does_not_read_is_bounded() -> None:
    async with websocket_pair(buffer_bytes=4096) as (transport, peer):
        accepted = 0
        while count := transport.send_nowait(bytes(1_000_000)):
            accepted += count
        assert len(transport._tail) <= CHUNK_BYTES + CONTROL_BYTES_MAX
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, transport, bytes(10))
            await peer.receive_exactly(accepted + 10)


async def test_a_ping_is_answered_and_not_seen_by_the_caller() -> None:
    async with websocket_pair() as (transport, peer):
        await peer.send(Ping(b"are you there"))
        await peer.send(BytesMessage(b"x"))
        assert await transport.receive() == b"x"
        assert await peer.next_event() == Pong(b"are you there")


async def test_a_flood_of_pings_from_a_peer_that_does_not_read_is_cut_off() -> None:
    async with websocket_pair(buffer_bytes=4096) as (transport, peer):
        while transport.send_nowait(bytes(100_000)):
            pass

        async def flood() -> None:
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await peer.stream.send_all(masked(0x89, bytes(125)) * 100)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            with pytest.raises(ConnectionLost, match="does not read"):
                while True:
                    assert await transport.receive() == b""
            transport.close()


async def test_a_flood_of_tiny_frames_does_not_keep_other_tasks_from_running() -> None:
    async with websocket_pair() as (transport, peer):
        await peer.stream.send_all(masked(0x8A, b"") * 5_000 + masked(0x82, b"x"))
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            assert await transport.receive() == b"x"
            nursery.cancel_scope.cancel()
        assert turns >= 10


@pytest.mark.parametrize(
    ("frame", "answer"),
    [(b"", b"\x88\x00"), (b"\x03\xe8bye", b"\x88\x05\x03\xe8bye"), (b"\x0f\xa0", b"\x88\x02\x0f\xa0")],
)
async def test_the_peers_close_is_answered_and_is_the_end_of_the_stream(frame: bytes, answer: bytes) -> None:
    async with websocket_pair() as (transport, peer):
        await peer.stream.send_all(masked(0x82, b"last") + masked(0x88, frame) + masked(0x82, b"late"))
        assert await receive_to_end(transport) == b"last"
        assert await transport.receive() == b""
        with pytest.raises(ConnectionLost):
            transport.send_nowait(b"x")
        assert await peer.stream.receive_some() == answer


async def test_an_end_without_close_is_the_end_of_the_stream() -> None:
    async with websocket_pair() as (transport, peer):
        await peer.stream.send_all(masked(0x82, b"last") + b"\x82")
        await peer.stream.send_eof()
        assert await receive_to_end(transport) == b"last"


async def test_shutdown_sends_what_was_accepted_then_the_reason() -> None:
    async with websocket_pair() as (transport, peer):
        transport.send_nowait(b"-ERR 'Authorization Violation'\r\n")
        transport.close_status, transport.close_text = 1008, "Authentication Failure"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.shutdown)
            assert await peer.next_event() == BytesMessage(b"-ERR 'Authorization Violation'\r\n")
            assert await peer.next_event() == CloseConnection(1008, "Authentication Failure")
            assert await peer.stream.receive_some() == b""
            await peer.stream.aclose()


async def test_close_wakes_a_waiting_receiver() -> None:
    async with websocket_pair() as (transport, _peer):

        async def receive() -> None:
            with pytest.raises(ConnectionLost):
                await transport.receive()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            transport.close()


def bomb(size: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (compressor.compress(bytes(size)) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


# Attack inputs: the close frame says why, and nothing of the frame reaches the caller.


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"\x82\x06PING\r\n", 1002),
        (masked(0xC2, b"x"), 1002),
        (masked(0xA2, b"x"), 1002),
        (masked(0x83, b"x"), 1002),
        (masked(0x80, b"x"), 1002),
        (masked(0x02, b"") + masked(0x82, b""), 1002),
        (masked(0x09, b""), 1002),
        (masked(0x89, bytes(126)), 1002),
        (masked(0x82, b"", size=b"\x7f" + b"\xff" * 8), 1002),
        (masked(0x82, b"", size=b"\x7f\x80" + bytes(7)), 1002),
        (masked(0x82, b"x", size=b"\x7e\x00\x01"), 1002),
        (masked(0x81, b"\xff"), 1007),
        (masked(0x88, b"\x03"), 1002),
        (masked(0x88, b"\x03\xee"), 1002),
        (masked(0x88, b"\x03\xe8\xff"), 1007),
    ],
    ids=[
        "no mask",
        "compressed without agreement",
        "reserved bit",
        "unknown opcode",
        "continuation of nothing",
        "message inside a message",
        "fragmented ping",
        "long ping",
        "length with top bit, all ones",
        "length with top bit",
        "length in too many bytes",
        "text that is not UTF-8",
        "close of one byte",
        "close with reserved status",
        "close with reason that is not UTF-8",
    ],
)
async def test_attack_a_frame_that_breaks_the_rules_closes_with_a_status(wire: bytes, status: int) -> None:
    async with websocket_pair() as (transport, peer):
        await peer.stream.send_all(wire)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_close, peer, status)
            with pytest.raises(ConnectionLost, match="WebSocket: "):
                await transport.receive()


async def expect_close(peer: Peer, status: int) -> None:
    event = await peer.next_event()
    assert isinstance(event, CloseConnection)
    assert event.code == status
    await peer.stream.aclose()


async def test_attack_a_deflate_bomb_is_closed_with_1009_after_a_bounded_amount() -> None:
    async with websocket_pair(COMPRESSED, OFFER, inflated_bytes_max=100_000) as (transport, peer):
        await peer.stream.send_all(masked(0xC2, bomb(30_000_000)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_close, peer, 1009)
            received = 0
            with pytest.raises(ConnectionLost):
                while chunk := await transport.receive():
                    received += len(chunk)
        assert received <= 100_000


async def test_attack_many_small_bombs_are_given_out_a_bounded_amount_at_a_time() -> None:
    async with websocket_pair(COMPRESSED, OFFER, inflated_bytes_max=100_000) as (transport, peer):
        one = masked(0xC2, bomb(100_000))
        await peer.stream.send_all(one * 50)
        received = 0
        while received < 5_000_000:
            chunk = await transport.receive()
            assert len(chunk) <= 256 * 1024 + 100_000
            received += len(chunk)


async def test_attack_a_claimed_length_allocates_nothing_and_its_bytes_stream_through() -> None:
    async with websocket_pair() as (transport, peer):
        await peer.stream.send_all(masked(0x82, b"start", size=b"\x7f\x7f" + b"\xff" * 7))
        assert await transport.receive() == b"start"


async def test_attack_a_slow_request_is_refused_when_the_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with tcp_pair() as (wire, stream):

        async def drip() -> None:
            for byte in HEAD:
                await stream.send_all(bytes((byte,)))
                await trio.sleep(0.3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            started_s = trio.current_time()
            with pytest.raises(WebSocketRefused, match="within 2 s"):
                await accept_websocket(wire, OPTIONS)
            assert trio.current_time() - started_s == pytest.approx(2.0)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"CONNECT {}\r\nPING\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x00\x05abcde\r\n\r\n", b"400"),
        (HEAD.replace(b"GET", b"PUT") % (b"/", b""), b"405"),
        (HEAD % (b"/mqtt", b""), b"404"),
        (HEAD % (b"/", b"X: " + b"a" * 100_000 + b"\r\n"), b"431"),
        (HEAD % (b"/", b"") + masked(0x82, b"early"), b"400"),
    ],
    ids=["NATS in clear", "TLS", "method", "MQTT", "long head", "early data"],
)
async def test_attack_what_is_no_upgrade_gets_an_http_answer(request_bytes: bytes, status: bytes) -> None:
    with tcp_pair() as (wire, stream):
        await stream.send_all(request_bytes)
        assert (await refused(wire, stream)).startswith(b"HTTP/1.1 " + status + b" ")


async def test_a_foreign_origin_is_forbidden() -> None:
    with tcp_pair() as (wire, stream):
        await stream.send_all(HEAD % (b"/", b"Origin: http://evil.example\r\n"))
        assert (await refused(wire, stream, replace(OPTIONS, same_origin=True))).startswith(b"HTTP/1.1 403 ")


@pytest.fixture
def server_tls(tmp_path: Path) -> ssl.SSLContext:
    certificate = AUTHORITY.issue_cert("edge.example")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    return server_context(
        TlsOptions(cert_file=str(tmp_path / "cert.pem"), key_file=str(tmp_path / "key.pem"))
    )


async def test_over_tls_large_transfers_are_intact_and_the_origin_is_https(
    server_tls: ssl.SSLContext,
) -> None:
    """Two layers, each of which may hold a byte back."""
    client = ssl.create_default_context()
    AUTHORITY.configure_trust(client)
    downward = bytes(range(256)) * 4_000
    with tcp_pair(buffer_bytes=8192) as (wire, stream):
        secure = trio.SSLStream(stream, client, server_hostname="edge.example")
        received: list[bytes] = []

        async def connect() -> None:
            await secure.send_all(HEAD % (b"/", b"Origin: https://edge.example\r\n"))
            assert (await secure.receive_some()).endswith(b"\r\n\r\n")
            received.append(await Peer(secure, deflate=False).receive_exactly(len(downward)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect)
            tls = await accept_tls(wire, server_tls)
            transport = await accept_websocket(tls, replace(OPTIONS, same_origin=True))
            assert transport.tls_version == "1.3"
            await send_all(transport, downward)
    assert received == [downward]


@pytest.mark.real
async def test_a_real_client_library_talks_to_us_with_and_without_compression() -> None:
    payload = b"MSG a 1 5\r\nhello\r\n" * 500

    async def talk(port: int, compress: int) -> list[object]:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://127.0.0.1:{port}/", compress=compress) as websocket,
        ):
            await websocket.send_bytes(payload)
            answer = await websocket.receive_bytes()
            return [answer, websocket.compress]

    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))
    listener.listen(2)
    with listener:
        for compress in (0, 15):
            results: list[list[object]] = []

            async def run_client(compress: int = compress, results: list[list[object]] = results) -> None:
                port = listener.getsockname()[1]
                results.append(await trio.to_thread.run_sync(lambda: asyncio.run(talk(port, compress))))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_client)
                accepted, _address = await listener.accept()
                wire = PlainTransport(accepted._sock)  # type: ignore[attr-defined]
                transport = await accept_websocket(wire, COMPRESSED)
                assert await receive_exactly(transport, len(payload)) == payload
                await send_all(transport, payload)
                assert await receive_to_end(transport) == b""
                await transport.shutdown()
            assert results == [[payload, compress]]
