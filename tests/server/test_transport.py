"""The plain transport, over real loopback sockets."""

import socket

import pytest
import trio
from tcp_pair import receive_to_end, send_all, socket_pair, tcp_pair

from edged.server.transport import RECEIVE_BUFFER_BYTES, ConnectionLost, PlainTransport


async def test_bytes_flow_both_ways_and_the_end_is_empty_bytes() -> None:
    with tcp_pair() as (transport, peer):
        await peer.send_all(b"PING\r\n")
        assert bytes(await transport.receive()) == b"PING\r\n"
        assert transport.send_nowait(b"PONG\r\n") == 6
        assert await peer.receive_some() == b"PONG\r\n"
        await peer.send_eof()
        assert await transport.receive() == b""


async def test_the_remote_address_is_the_peers_and_nodelay_is_set() -> None:
    with tcp_pair() as (transport, peer):
        assert (transport.remote_ip, transport.remote_port) == peer.socket.getsockname()
        assert transport.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert (transport.kind, transport.tls_version, transport.peer_certificate_der) == (
            "STANDARD",
            None,
            None,
        )


async def test_an_ipv4_peer_of_an_ipv6_socket_is_shown_as_ipv4() -> None:
    with socket.socket(socket.AF_INET6) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            listener.bind(("::", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        listener.listen(1)
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
            transport = PlainTransport(listener.accept()[0])
            assert transport.remote_ip == "127.0.0.1"
            transport.close()


async def test_more_than_a_buffer_full_arrives_whole_and_in_order() -> None:
    data = bytes(range(256)) * (5 * RECEIVE_BUFFER_BYTES // 256) + b"tail"
    with tcp_pair() as (transport, peer):
        received = bytearray()

        async def receive() -> None:
            while chunk := await transport.receive():
                received.extend(chunk)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await peer.send_all(data)
            await peer.send_eof()
    assert bytes(received) == data


async def test_a_flood_does_not_keep_other_tasks_from_running() -> None:
    """Full reads do not wait for the socket, so they must give way by themselves."""
    with tcp_pair() as (transport, peer):
        turns = 0
        stop = trio.Event()

        async def other() -> None:
            nonlocal turns
            while not stop.is_set():
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, bytes(64 * RECEIVE_BUFFER_BYTES))
            nursery.start_soon(other)
            remaining = 64 * RECEIVE_BUFFER_BYTES
            while remaining:
                remaining -= len(await transport.receive())
            stop.set()
    assert turns >= 8


async def test_a_peer_that_does_not_read_makes_send_accept_nothing_until_it_reads() -> None:
    with tcp_pair(buffer_bytes=4096) as (transport, peer):
        accepted = 0
        while count := transport.send_nowait(bytes(100_000)):
            accepted += count
        assert transport.send_nowait(b"x") == 0
        with trio.move_on_after(0) as scope:
            await transport.wait_sendable()
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.wait_sendable)
            while accepted > 0:
                accepted -= len(await peer.receive_some(65_536))
        assert transport.send_nowait(b"x") == 1


async def test_close_wakes_a_waiting_receiver_and_sender_with_connection_lost() -> None:
    with tcp_pair(buffer_bytes=4096) as (transport, _peer):
        while transport.send_nowait(bytes(100_000)):
            pass
        lost = []

        async def receive() -> None:
            with pytest.raises(ConnectionLost):
                await transport.receive()
            lost.append("receive")

        async def wait_sendable() -> None:
            with pytest.raises(ConnectionLost):
                await transport.wait_sendable()
            lost.append("send")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            nursery.start_soon(wait_sendable)
            await trio.testing.wait_all_tasks_blocked()
            transport.close()
    assert sorted(lost) == ["receive", "send"]


async def test_a_closed_transport_refuses_everything_and_closes_twice() -> None:
    with tcp_pair() as (transport, _peer):
        transport.close()
        transport.close()
        with pytest.raises(ConnectionLost):
            await transport.receive()
        with pytest.raises(ConnectionLost):
            await transport.wait_sendable()
        with pytest.raises(ConnectionLost):
            transport.send_nowait(b"x")
        await transport.shutdown()


async def test_a_reset_by_the_peer_is_connection_lost() -> None:
    with tcp_pair() as (transport, peer):
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        peer.socket.close()
        with pytest.raises(ConnectionLost):
            await transport.receive()
        with pytest.raises(ConnectionLost):
            for _attempt in range(3):
                transport.send_nowait(b"x")


async def test_shutdown_delivers_the_last_words_although_input_was_left_unread() -> None:
    with tcp_pair() as (transport, peer):
        await peer.send_all(bytes(100_000))
        await transport.wait_receivable()
        assert transport.send_nowait(b"-ERR 'Authorization Violation'\r\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.shutdown)
            received = b""
            while chunk := await peer.receive_some():
                received += chunk
            await peer.aclose()
    assert received == b"-ERR 'Authorization Violation'\r\n"


async def test_shutdown_does_not_wait_for_a_peer_that_stays(autojump_clock: trio.testing.MockClock) -> None:
    with tcp_pair() as (transport, _peer):
        started_s = trio.current_time()
        await transport.shutdown(timeout_s=1.0)
        assert trio.current_time() - started_s == pytest.approx(1.0)
        with pytest.raises(ConnectionLost):
            transport.send_nowait(b"x")


async def test_shutdown_works_inside_a_cancelled_scope() -> None:
    with tcp_pair() as (transport, peer):
        transport.send_nowait(b"bye")
        await peer.send_eof()
        with trio.CancelScope() as scope:
            scope.cancel()
            await transport.shutdown()
        assert await peer.receive_some() == b"bye"
        assert await peer.receive_some() == b""


async def test_an_idle_transport_owns_no_buffer() -> None:
    """5,000 idle connections share one receive buffer."""
    import sys

    ours, peer = socket_pair()
    transport = PlainTransport(ours)
    owned = sum(sys.getsizeof(getattr(transport, name)) for name in PlainTransport.__slots__)
    assert owned + sys.getsizeof(transport) < 1500
    transport.close()
    peer.close()


async def test_a_long_transfer_in_both_directions_at_once_is_intact() -> None:
    upward, downward = b"up" * 1_000_000, b"down" * 500_000
    with tcp_pair(buffer_bytes=16_384) as (transport, peer):
        received_by_peer = bytearray()

        async def peer_receives() -> None:
            async for chunk in peer:
                received_by_peer.extend(chunk)

        async def peer_sends() -> None:
            await peer.send_all(upward)
            await peer.send_eof()

        async def we_send() -> None:
            await send_all(transport, downward)
            transport.socket.shutdown(socket.SHUT_WR)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer_receives)
            nursery.start_soon(peer_sends)
            nursery.start_soon(we_send)
            assert await receive_to_end(transport) == upward
    assert bytes(received_by_peer) == downward
