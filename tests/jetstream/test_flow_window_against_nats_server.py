"""How much is sent before an answer to flow control, and how that grows: as with nats-server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.consumer_pair import SECOND, ConsumerPair, connected, running_both, statuses
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

PAYLOAD = b"x" * 250_000
MESSAGES = 30
IDLE = SECOND // 5
STALLED = b"Nats-Consumer-Stalled: "


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    with running_both(tmp_path_factory.mktemp("window")) as both:
        yield both


@pytest.fixture
def clients(servers: list[RunningServer]) -> Iterator[list[RawClient]]:
    with connected(servers) as both:
        yield both


def window(client: RawClient) -> tuple[int, int, bytes]:
    """How many messages come until an answer is waited for, how many of them before it was asked for, and
    where to. Heartbeats come more than once while nobody reads.
    """
    messages = before = 0
    asked = b""
    while True:
        arrived = client.receive()
        if arrived.payload:
            messages += 1
        elif b"FlowControl" in arrived.block:
            before, asked = messages, arrived.reply
        elif asked and STALLED + asked + b"\r\n" in arrived.block:
            return messages, before, asked


def test_a_window_is_sent_and_the_next_one_is_larger(clients: list[RawClient]) -> None:
    pair = ConsumerPair(clients)
    pair.publish(MESSAGES, payload=PAYLOAD)
    for client in clients:
        client.subscribe("P.window")
    pair.create(deliver_subject="P.window", flow_control=True, idle_heartbeat=IDLE, ack_policy="none")
    windows = []
    for client in clients:
        sizes = []
        for _ in range(2):
            *size, asked = window(client)
            sizes.append(size)
            client.publish(asked)
        windows.append(sizes)
    assert windows[0] == windows[1]
    assert windows[0][1][0] > windows[0][0][0]


def test_an_answer_to_nothing_reaches_nobody_and_does_no_harm(clients: list[RawClient]) -> None:
    pair = ConsumerPair(clients, 1)
    for client in clients:
        client.subscribe("P.calm")
    pair.create(deliver_subject="P.calm", flow_control=True, idle_heartbeat=IDLE, ack_policy="none")
    pair.take(b"", 1)
    for client in clients:
        client.publish(f"$JS.FC.{pair.stream}.c.abcd".encode())
    assert statuses(pair.take(b"", 1)) == [b"100 Idle Heartbeat"]
