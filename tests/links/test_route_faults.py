"""Routes that break, that are slow, or that carry nonsense; and clients that come and go."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import trio

from edged.config.options import ClusterOptions, CompressionOptions, Options
from tests.links.clients import message, nothing_for, settled
from tests.links.nodes import CLUSTER, node, three_nodes, until


async def test_a_route_that_is_cut_heals_with_its_interest_and_without_duplicates() -> None:
    async with three_nodes() as nodes:
        first, second, _ = nodes
        listener, publisher = await second.client(), await first.client()
        await listener.send(b"SUB a.* 1\r\nSUB q workers 2\r\n")
        await listener.barrier()
        await settled(*nodes)
        for round_number in range(5):
            peer = first.links.peers[2]
            link = peer.route if round_number % 2 else peer.control
            assert link is not None
            link.close("cut by the test")
            await until(
                lambda: not first.server.default_account.has_interest(b"a.b"), "interest is withdrawn"
            )
            await first.linked(second)
            await first.hears(b"a.b")
            await first.hears(b"q")
            await publisher.send(b"PUB a.b 1\r\n%d\r\nPUB q 1\r\n%d\r\n" % (round_number, round_number))
            await publisher.barrier()
            text = b"%d" % round_number
            assert [await message(listener) for _ in range(2)] == [(b"a.b 1 1", text), (b"q 2 1", text)]
            await settled(*nodes)
            await nothing_for(listener)


async def test_subscribers_that_come_and_go_during_load_get_what_is_theirs_in_order() -> None:
    async with three_nodes() as nodes:
        first, second, third = nodes
        steady, churning = await second.client(), await third.client()
        await steady.send(b"SUB load.* 1\r\n")
        await steady.barrier()
        await settled(*nodes)
        publisher = await first.client()
        received: list[int] = []

        async def churn() -> None:
            for sid in range(100):
                await churning.send(b"SUB load.%d %d\r\nSUB load.> w %d\r\n" % (sid % 7, sid, 1000 + sid))
                await churning.barrier()
                await churning.send(b"UNSUB %d\r\nUNSUB %d\r\n" % (sid, 1000 + sid))

        async def read() -> None:
            while len(received) < 6_000:
                received.append(int((await message(steady))[1]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(churn)
            nursery.start_soon(read)
            for start in range(0, 6_000, 200):
                batch = (b"%d" % number for number in range(start, start + 200))
                await publisher.send(
                    b"".join(b"PUB load.%d %d\r\n%s\r\n" % (int(text) % 7, len(text), text) for text in batch)
                )
        assert received == list(range(6_000))
        await settled(*nodes)
        assert first.server.default_account.subscriptions.match(b"load.1").queues == []


async def test_a_peer_that_does_not_read_is_cut_off_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = Options(max_pending=1024 * 1024)
    async with three_nodes(options) as nodes:
        first, second, third = nodes
        slow, quick = await second.client(), await third.client()
        for listener in (slow, quick):
            await listener.send(b"SUB flood 1\r\n")
            await listener.barrier()
        await settled(*nodes)
        route = second.links.peers[1].route
        stuck = first.links.peers[2].route
        assert route is not None and stuck is not None
        # The other end of the route is not read any more.
        second.server.reactor.release(route.transport.socket)
        publisher = await first.client()
        payload = b"PUB flood 65536\r\n%s\r\n" % bytes(65536)
        received = 0
        highest = 0

        async def read() -> None:
            nonlocal received
            while received < 250:
                await message(quick)
                received += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for _ in range(250):
                await publisher.send(payload)
                highest = max(highest, stuck.outbox.pending_bytes)
        assert received == 250
        await until(lambda: stuck.why is not None, "the slow peer is cut off")
        assert highest <= 1024 * 1024
        assert "slow peer" in first.lines.text
        # The other end finds out when it reads again; then the route is made anew, and works.
        route.close("noticed at last")
        await first.linked(second)
        await first.hears(b"flood", count=2)


@pytest.mark.parametrize(
    "data",
    [
        b"SUB nowhere 99:1\r\n",
        b"SUB bad..subject 1:1\r\n",
        b"SUB x y\r\n",
        b"INFO {\r\n",
        b'INFO {"account":7,"number":1}\r\n',
        b"INFO not-a-number\r\n",
        b"NONSENSE\r\n",
        b"CONNECT {}\r\n",
        b"PUB x 99999999\r\n",
        b"X" * 300_000,
    ],
)
async def test_a_peer_that_sends_nonsense_on_a_route_is_cut_off(data: bytes) -> None:
    async with node(1) as first, node(2, first.address) as second:
        await first.linked(second)
        await second.linked(first)
        route, other = second.links.peers[1].route, first.links.peers[2].route
        assert route is not None and other is not None
        route.writer.send(data)
        second.server.flush()
        await until(lambda: other.why is not None, "it is cut off")
        assert "cannot be read" in first.lines.text
        await first.linked(second)


async def test_messages_for_addresses_that_do_not_exist_are_dropped() -> None:
    async with node(1) as first, node(2, first.address) as second:
        await first.linked(second)
        await second.linked(first)
        route = second.links.peers[1].route
        assert route is not None
        route.writer.send(b"PUB early 1\r\nx\r\nINFO 77\r\nPUB x 1\r\nx\r\nINFO 77!\r\nPUB x 1\r\nx\r\n")
        second.server.flush()
        await settled(first, second)
        assert route.why is None


async def test_messages_pass_compressed_routes() -> None:
    cluster: ClusterOptions = replace(CLUSTER, compression=CompressionOptions("s2_fast"))
    async with three_nodes(cluster=cluster) as nodes:
        first, second, _ = nodes
        listener, publisher = await second.client(), await first.client()
        await listener.send(b"SUB big 1\r\n")
        await listener.barrier()
        await settled(*nodes)
        payload = json.dumps(list(range(50_000))).encode()
        await publisher.send(b"PUB big %d\r\n%s\r\n" % (len(payload), payload) * 5)
        for _ in range(5):
            assert await message(listener) == (b"big 1 %d" % len(payload), payload)
