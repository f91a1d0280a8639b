"""Looking at what a connection says first, over real loopback sockets."""

import pytest
import trio
from tcp_pair import tcp_pair

from edged.core.proxy_header import ProxyHeader, ProxyHeaderError
from edged.server.first_bytes import looks_like_tls, read_proxy_header

TEXT_HEADER = b"PROXY TCP4 192.0.2.7 10.0.0.1 5555 4222\r\n"


@pytest.mark.parametrize(
    ("first", "is_tls"), [(b"\x16\x03\x01", True), (b"\x16", True), (b"CONNECT {}\r\n", False)]
)
async def test_a_client_hello_is_told_from_connect_and_nothing_is_taken(first: bytes, is_tls: bool) -> None:
    with tcp_pair() as (transport, peer):
        await peer.send_all(first)
        assert await looks_like_tls(transport, 2.0) is is_tls
        assert bytes(await transport.receive()) == first


async def test_a_silent_or_gone_client_does_not_look_like_tls(autojump_clock: trio.testing.MockClock) -> None:
    with tcp_pair() as (transport, peer):
        started_s = trio.current_time()
        assert not await looks_like_tls(transport, 2.0)
        assert trio.current_time() - started_s == pytest.approx(2.0)
        await peer.send_eof()
        assert not await looks_like_tls(transport, 2.0)


async def test_a_proxy_header_is_taken_out_and_names_the_remote_address() -> None:
    with tcp_pair() as (transport, peer):
        await peer.send_all(TEXT_HEADER + b"CONNECT {}\r\n")
        assert await read_proxy_header(transport) == ProxyHeader(len(TEXT_HEADER), "192.0.2.7", 5555)
        assert (transport.remote_ip, transport.remote_port) == ("192.0.2.7", 5555)
        assert bytes(await transport.receive()) == b"CONNECT {}\r\n"


async def test_a_proxy_header_that_comes_byte_by_byte_is_waited_for_without_spinning() -> None:
    with tcp_pair() as (transport, peer):
        header = None

        async def read() -> None:
            nonlocal header
            header = await read_proxy_header(transport)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for position in range(len(TEXT_HEADER)):
                # Blocked although some bytes are there unread: the socket counts as readable only with more.
                await trio.testing.wait_all_tasks_blocked()
                assert header is None
                await peer.send_all(TEXT_HEADER[position : position + 1])
        assert header == ProxyHeader(len(TEXT_HEADER), "192.0.2.7", 5555)
        await peer.send_all(b"x")
        assert bytes(await transport.receive()) == b"x"


async def test_a_connection_without_header_is_left_alone() -> None:
    with tcp_pair() as (transport, peer):
        before = (transport.remote_ip, transport.remote_port)
        await peer.send_all(b"PING\r\n")
        assert await read_proxy_header(transport) is None
        assert (transport.remote_ip, transport.remote_port) == before
        assert bytes(await transport.receive()) == b"PING\r\n"


async def test_a_silent_connection_has_no_header_and_works_afterwards(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with tcp_pair() as (transport, peer):
        assert await read_proxy_header(transport) is None
        await peer.send_all(b"x")
        assert bytes(await transport.receive()) == b"x"


async def test_half_a_header_is_refused_after_two_seconds(autojump_clock: trio.testing.MockClock) -> None:
    with tcp_pair() as (transport, peer):
        await peer.send_all(TEXT_HEADER[:20])
        started_s = trio.current_time()
        with pytest.raises(ProxyHeaderError):
            await read_proxy_header(transport)
        assert trio.current_time() - started_s == pytest.approx(2.0)


async def test_an_end_inside_the_header_is_refused_at_once() -> None:
    with tcp_pair() as (transport, peer):
        await peer.send_all(TEXT_HEADER[:20])
        await peer.send_eof()
        with pytest.raises(ProxyHeaderError):
            await read_proxy_header(transport)


async def test_a_wrong_header_is_refused() -> None:
    with tcp_pair() as (transport, peer):
        await peer.send_all(b"PROXY NONSENSE\r\n")
        with pytest.raises(ProxyHeaderError):
            await read_proxy_header(transport)
