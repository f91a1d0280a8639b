"""Three real nodes and stock clients: the same over nats-server and over edged-hub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamConfig

from tests.hub.real_cluster import RealCluster, real_cluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

PATIENCE_S = 20.0


@pytest.fixture(params=["nats-server", "edged-hub"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealCluster]:
    with real_cluster(request.param, tmp_path) as running:
        yield running


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 90)

    asyncio.run(bounded())


async def connect(url: str) -> Client:
    return await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)


async def until(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Try until it succeeds: leaders are being elected."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while True:
        try:
            return await attempt()
        except (nats.errors.Error, TimeoutError):
            if loop.time() > deadline:
                raise
            await asyncio.sleep(0.05)


async def make_stream(client: Client, name: str = "ORDERS", replicas: int = 3, **fields: Any) -> None:
    config = StreamConfig(name=name, subjects=[f"{name}.>"], num_replicas=replicas, **fields)
    await until(lambda: client.jetstream().add_stream(config))


async def contents(client: Client, name: str) -> list[tuple[int, bytes]]:
    """All messages, as one node hands them out."""
    js = client.jetstream()
    info = await until(lambda: js.stream_info(name))
    found = []
    for seq in range(info.state.first_seq, info.state.last_seq + 1):
        message = await until(lambda seq=seq: js.get_msg(name, seq))
        found.append((seq, message.data))
    return found


def test_stream_of_three_nodes_takes_and_gives_through_every_node(cluster: RealCluster) -> None:
    async def scenario() -> None:
        clients = [await connect(url) for url in cluster.urls]
        await make_stream(clients[0])
        for number in range(30):
            client = clients[number % 3]
            ack = await until(
                lambda client=client, number=number: client.jetstream().publish("ORDERS.new", b"%d" % number)
            )
            assert (ack.stream, ack.seq) == ("ORDERS", number + 1)
        expected = [(number + 1, b"%d" % number) for number in range(30)]
        for client in clients:
            assert await contents(client, "ORDERS") == expected
        info = await clients[1].jetstream().stream_info("ORDERS")
        assert info.cluster is not None and info.cluster.replicas is not None
        assert {info.cluster.leader, *(peer.name for peer in info.cluster.replicas)} == {"n1", "n2", "n3"}
        for client in clients:
            await client.close()

    run(scenario)


def test_publishes_go_on_after_the_leader_is_killed_and_nothing_is_lost(cluster: RealCluster) -> None:
    async def scenario() -> None:
        client = await nats.connect(cluster.urls, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
        await make_stream(client)
        js = client.jetstream()
        acknowledged: dict[int, bytes] = {}
        for number in range(60):
            data = b"%d" % number
            if number in (20, 40):
                info = await until(lambda: js.stream_info("ORDERS"))
                assert info.cluster is not None and info.cluster.leader is not None
                leader = cluster.named(info.cluster.leader)
                leader.kill()
                others = [node for node in cluster.nodes if node is not leader]
                assert all(node.server is not None for node in others)
            headers = {"Nats-Msg-Id": str(number)}
            ack = await until(partial(js.publish, "ORDERS.new", data, headers=headers))
            acknowledged[ack.seq] = data
            if number in (20, 40):
                leader.start()
        assert sorted(acknowledged) == list(range(1, 61))
        for url in cluster.urls:
            reader = await connect(url)
            assert await contents(reader, "ORDERS") == sorted(acknowledged.items())
            await reader.close()
        await client.close()

    run(scenario)


def test_consumer_goes_on_behind_its_confirmed_acknowledgements(cluster: RealCluster) -> None:
    async def scenario() -> None:
        client = await nats.connect(cluster.urls, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
        await make_stream(client)
        js = client.jetstream()
        for number in range(40):
            await until(lambda number=number: js.publish("ORDERS.new", b"%d" % number))
        config = ConsumerConfig(durable_name="worker", ack_wait=2)
        await until(lambda: js.add_consumer("ORDERS", config))
        subscription = await js.pull_subscribe_bind("worker", "ORDERS")
        settled: set[int] = set()
        for turn in range(4):
            if turn == 2:
                info = await until(lambda: js.stream_info("ORDERS"))
                assert info.cluster is not None and info.cluster.leader is not None
                cluster.named(info.cluster.leader).kill()
            wanted = 10 * (turn + 1)
            while len(settled) < wanted:
                messages = await until(partial(subscription.fetch, wanted - len(settled), timeout=2))
                for message in messages:
                    seq = message.metadata.sequence.stream
                    assert seq not in settled, "what was confirmed does not come again"
                    try:
                        await message.ack_sync(timeout=2)
                    except (nats.errors.Error, TimeoutError):
                        continue
                    settled.add(seq)
        assert settled == set(range(1, 41))
        await client.close()

    run(scenario)


def test_request_finds_its_responder_and_queue_members_share_across_nodes(cluster: RealCluster) -> None:
    async def scenario() -> None:
        clients = [await connect(url) for url in cluster.urls]
        got: list[int] = []

        async def answer(number: int, message: Any) -> None:
            got.append(number)
            await message.respond(b"%d" % number)

        for number in (1, 2):

            async def handler(message: Any, number: int = number) -> None:
                await answer(number, message)

            await clients[number].subscribe("ask", queue="q", cb=handler)
            await clients[number].flush()
        await until(lambda: clients[0].request("ask", b"", timeout=1))
        got.clear()
        for _ in range(50):
            await clients[0].request("ask", b"", timeout=5)
        assert len(got) == 50 and set(got) == {1, 2}
        for client in clients:
            await client.close()

    run(scenario)


def test_client_that_knows_one_node_is_told_of_the_others_and_goes_on_when_that_one_is_killed(
    cluster: RealCluster,
) -> None:
    async def scenario() -> None:
        client = await connect(cluster.urls[0])

        async def told_of_all() -> None:
            if len(client.servers) < 3:
                raise TimeoutError(client.servers)

        await until(told_of_all)
        await make_stream(client)
        for number in range(20):
            if number == 10:
                cluster.nodes[0].kill()
            headers = {"Nats-Msg-Id": str(number)}
            data = b"%d" % number
            await until(partial(client.jetstream().publish, "ORDERS.new", data, headers=headers))
        assert await contents(client, "ORDERS") == [(number + 1, b"%d" % number) for number in range(20)]
        assert client.connected_url is not None and client.connected_url.netloc in {
            url.removeprefix("nats://") for url in cluster.urls
        }
        await client.close()

    run(scenario)


def test_stream_gets_fewer_copies_and_more_again_and_goes_on(cluster: RealCluster) -> None:
    async def scenario() -> None:
        client = await connect(cluster.urls[0])
        js = client.jetstream()
        await make_stream(client)
        for number, replicas in enumerate((3, 1, 3), 1):
            config = StreamConfig(name="ORDERS", subjects=["ORDERS.>"], num_replicas=replicas)
            await until(lambda config=config: js.update_stream(config))

            async def settled(replicas: int = replicas) -> None:
                found = await js.stream_info("ORDERS")
                others = (found.cluster and found.cluster.replicas) or []
                if len(others) != replicas - 1 or not all(one.current for one in others):
                    raise TimeoutError(f"{replicas} copies are asked for: {found.cluster}")

            await until(settled)
            ack = await until(lambda: js.publish("ORDERS.new", b"x"))
            assert ack.seq == number
        for url in cluster.urls:
            reader = await connect(url)
            assert len(await contents(reader, "ORDERS")) == 3
            await reader.close()
        await client.close()

    run(scenario)


def test_streams_of_one_node_are_found_from_everywhere_and_removed(cluster: RealCluster) -> None:
    async def scenario() -> None:
        clients = [await connect(url) for url in cluster.urls]
        for number, client in enumerate(clients):
            await make_stream(client, f"S{number}", replicas=1)
            await until(lambda client=client, number=number: client.jetstream().publish(f"S{number}.x", b"x"))
        for client in clients:
            js = client.jetstream()
            for number in range(3):
                info = await until(lambda js=js, number=number: js.stream_info(f"S{number}"))
                assert info.state.messages == 1
            assert sorted(one.config.name for one in await js.streams_info()) == ["S0", "S1", "S2"]
        await until(lambda: clients[1].jetstream().delete_stream("S0"))
        with pytest.raises(nats.js.errors.NotFoundError):
            await clients[2].jetstream().stream_info("S0")
        for client in clients:
            await client.close()

    run(scenario)
