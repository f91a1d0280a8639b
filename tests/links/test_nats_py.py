"""Three nodes as processes, and the clients that people use: nats-py."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import nats
import nats.errors
import pytest

pytestmark = pytest.mark.real

PATIENCE_S = 20.0


class Process:
    """A node of its own."""

    def __init__(self, number: int, *routes: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.links.serve_node", str(number), *routes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ports = json.loads(self.process.stdout.readline())
        self.url = f"nats://127.0.0.1:{ports['port']}"
        self.cluster: str = ports["cluster"]

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def nodes() -> Iterator[list[Process]]:
    found: list[Process] = []
    try:
        found.append(Process(1))
        found.extend(Process(number, found[0].cluster) for number in (2, 3))
        yield found
    finally:
        for one in found:
            one.stop()


def play(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 60))


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < ends_at, f"it never came to be that {what}"


async def connected(nodes: list[Process], **options: Any) -> list[Any]:
    """A client at each node, once the nodes hear each other."""
    clients = [await nats.connect(one.url, reconnect_time_wait=0.05, **options) for one in nodes]
    for place, client in enumerate(clients):
        heard = asyncio.Event()

        async def hear(_message: Any, heard: asyncio.Event = heard) -> None:
            heard.set()

        subscription = await client.subscribe(f"hello.{place}", cb=hear)
        for other in clients:
            heard.clear()

            async def is_heard(other: Any = other, place: int = place, heard: asyncio.Event = heard) -> bool:
                await other.publish(f"hello.{place}", b"")
                await other.flush()
                try:
                    await asyncio.wait_for(heard.wait(), 0.02)
                except TimeoutError:
                    return False
                return True

            await until(is_heard, "nodes hear each other")
        await subscription.unsubscribe()
    return clients


async def close(clients: list[Any]) -> None:
    for client in clients:
        await client.close()


def test_wildcards_queues_and_requests_work_across_nodes(nodes: list[Process]) -> None:
    async def scene() -> None:
        clients = await connected(nodes)
        seen: Counter[tuple[int, str]] = Counter()
        answered: Counter[int] = Counter()
        for place, client in enumerate(clients):

            async def note(message: Any, place: int = place) -> None:
                seen[place, message.subject] += 1

            async def answer(message: Any, place: int = place) -> None:
                answered[place] += 1
                await message.respond(message.data.upper())

            await client.subscribe("metrics.*.cpu", cb=note)
            await client.subscribe("metrics.>", cb=note)
            if place:
                await client.subscribe("shout", queue="workers", cb=answer)
            await client.flush()

        async def is_answered() -> bool:
            try:
                return (await clients[0].request("shout", b"hi", timeout=1)).data == b"HI"
            except nats.errors.NoRespondersError:
                return False

        await until(is_answered, "the service is found")
        answered.clear()
        for _ in range(200):
            reply = await clients[0].request("shout", b"hello", timeout=5)
            assert reply.data == b"HELLO"
        assert answered[0] == 0 and answered[1] > 40 and answered[2] > 40
        answered.clear()
        for _ in range(50):
            await clients[2].request("shout", b"near", timeout=5)
        assert answered == {2: 50}
        with pytest.raises(nats.errors.NoRespondersError):
            await clients[1].request("nobody", b"", timeout=5)
        for client in clients:
            await client.publish("metrics.a.cpu", b"1")
            await client.flush()

        async def all_seen() -> bool:
            await asyncio.sleep(0)
            return all(seen[place, "metrics.a.cpu"] >= 6 for place in range(3))

        await until(all_seen, "all have seen all")
        # A round trip through every node behind everything else: nothing came twice.
        for client in clients:
            await client.flush()
        assert all(seen[place, "metrics.a.cpu"] == 6 for place in range(3))
        await close(clients)

    play(scene)


def test_a_client_whose_node_is_killed_goes_on_at_another_that_it_was_told_of(nodes: list[Process]) -> None:
    async def scene() -> None:
        clients = await connected(nodes)
        victim = clients[2]
        assert len(victim.discovered_servers) >= 2
        heard = asyncio.Event()

        async def hear(_message: Any) -> None:
            heard.set()

        await victim.subscribe("still.here", cb=hear)
        await victim.flush()
        nodes[2].signal(signal.SIGKILL)

        async def is_heard() -> bool:
            await clients[0].publish("still.here", b"")
            await clients[0].flush()
            await asyncio.sleep(0.01)
            return heard.is_set()

        await until(is_heard, "it is heard again")
        await close(clients)

    play(scene)


def test_a_node_that_stands_still_does_not_stop_the_others_and_comes_back_without_duplicates(
    nodes: list[Process],
) -> None:
    async def scene() -> None:
        clients = await connected(nodes)
        received: dict[int, list[int]] = {1: [], 2: []}
        for place in (1, 2):

            async def note(message: Any, place: int = place) -> None:
                received[place].append(int(message.data[:8]))

            await clients[place].subscribe("flood", cb=note, pending_msgs_limit=-1, pending_bytes_limit=-1)
            await clients[place].flush()

        number = 0

        async def publish(count: int, padding: bytes = b"") -> None:
            nonlocal number
            for _ in range(count):
                await clients[0].publish("flood", b"%08d" % number + padding)
                number += 1
            await clients[0].flush()

        async def both_hear() -> bool:
            await publish(1)
            return all(bool(found) for found in received.values())

        await until(both_hear, "both hear")
        nodes[2].signal(signal.SIGSTOP)
        try:
            first = number
            started = time.monotonic()
            # Much more than may wait for one peer: it is cut off, and the other gets everything.
            await publish(400, bytes(60_000))
            last = number - 1

            async def has_all() -> bool:
                await asyncio.sleep(0.005)
                return received[1][-1] == last

            await until(has_all, "the other node has it all")
            took_s = time.monotonic() - started
            assert [found for found in received[1] if found >= first] == list(range(first, last + 1))
            assert took_s < 10, took_s
        finally:
            nodes[2].signal(signal.SIGCONT)

        async def is_back() -> bool:
            await publish(1)
            return received[2][-1] > last

        await until(is_back, "the node is back")
        assert all(count == 1 for count in Counter(received[2]).values())
        assert received[2] == sorted(received[2])
        await close(clients)

    play(scene)


def test_subscribers_come_and_go_under_load(nodes: list[Process]) -> None:
    async def scene() -> None:
        clients = await connected(nodes)
        received: list[int] = []

        async def note(message: Any) -> None:
            received.append(int(message.data))

        await clients[1].subscribe("load.>", cb=note, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await clients[1].flush()

        async def is_heard() -> bool:
            await clients[0].publish("load.x", b"-1")
            await clients[0].flush()
            return bool(received)

        await until(is_heard, "it is heard")

        async def churn() -> None:
            for _ in range(200):
                subscription = await clients[2].subscribe("load.1")
                await clients[2].flush()
                await subscription.unsubscribe()

        churning = asyncio.create_task(churn())
        for number in range(30_000):
            await clients[0].publish(f"load.{number % 5}", b"%d" % number)
            if number % 500 == 0:
                await clients[0].flush()
        await clients[0].flush()
        await churning

        async def has_all() -> bool:
            await asyncio.sleep(0.005)
            return received[-1] == 29_999

        await until(has_all, "everything has arrived")
        assert [number for number in received if number >= 0] == list(range(30_000))
        await close(clients)

    play(scene)
