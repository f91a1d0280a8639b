"""The reactor: it reads for parked tasks, lingers while traffic comes, and never keeps others waiting."""

from __future__ import annotations

import select

import trio
import trio.testing

from edged.server.reactor import TURN_S, _epoll_of_the_loop
from tests.server.live import live_server


async def test_the_loop_shows_its_epoll_so_that_turns_can_linger() -> None:
    assert isinstance(_epoll_of_the_loop(), select.epoll)


async def test_a_plain_connection_is_read_without_its_task() -> None:
    async with live_server() as live:
        client = await live.client()
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = live.server.connections.values()
        assert connection.transport.socket.fileno() in live.server.reactor._attended  # type: ignore[attr-defined]
        await client.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert await client.barrier() == [b"MSG a 1 2", b"hi"]


async def test_tasks_get_their_turn_while_clients_never_pause() -> None:
    async with live_server() as live:
        client = await live.client()
        await client.send(b"SUB a 1\r\n")
        turns = 0
        with trio.move_on_after(0.5):
            async with trio.open_nursery() as nursery:

                async def chatter() -> None:
                    while True:
                        await client.send(b"PUB a 2\r\nhi\r\n" * 50)
                        await client.barrier()

                nursery.start_soon(chatter)
                while True:
                    before = trio.current_time()
                    await trio.sleep(0.001)
                    assert trio.current_time() - before < 100 * TURN_S
                    turns += 1
        assert turns > 5


async def test_closed_connections_leave_nothing_behind_in_the_reactor() -> None:
    async with live_server() as live:
        clients = [await live.client() for _ in range(20)]
        for client in clients[:10]:
            await client.stream.aclose()
        for client in clients[10:]:
            await client.send(b"NONSENSE\r\n")
            await client.closed()
        while live.server.connections:
            await trio.testing.wait_all_tasks_blocked()
        assert live.server.reactor._attended == {}


async def test_a_second_connect_goes_to_the_task_and_back_to_the_reactor() -> None:
    async with live_server() as live:
        client = await live.client()
        again = b'CONNECT {"verbose":false,"pedantic":false,"name":"again"}\r\n'
        for _ in range(3):
            await client.send(b"SUB a 1\r\n" + again + b"SUB b 2\r\nPUB a 1\r\nx\r\nPUB b 1\r\ny\r\n")
            assert await client.barrier() == [b"MSG b 2 1", b"y"]
            await client.send(b"UNSUB 2\r\n")
        (connection,) = live.server.connections.values()
        assert connection.fields.name == "again"
