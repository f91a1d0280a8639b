"""Consumers of edged with much to do: slow clients, many clients, and long batches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.jetstream_servers import running
from tests.jetstream.raw_client import DEADLINE_S, RawClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

# A client that has more than this to read is cut off.
PENDING_BYTES_MAX = 4 * 1024 * 1024
CONFIG = f'jetstream: {{store_dir: "${{directory}}/store"}}\nmax_pending: {PENDING_BYTES_MAX}\n'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running("edged", tmp_path, CONFIG) as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
    connected = RawClient(server.host, server.port)
    yield connected
    connected.close()


def filled(client: RawClient, count: int, payload_bytes: int) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    message = b"PUB s %d\r\n%s\r\n" % (payload_bytes, b"x" * payload_bytes)
    client.send(message * count)
    until = time.monotonic() + DEADLINE_S
    while client.api("STREAM.INFO.S")["state"]["messages"] < count:
        assert time.monotonic() < until


def create(client: RawClient, **config: Any) -> None:
    wanted = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1, **config}
    client.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": wanted})


def delivered(client: RawClient) -> bytes:
    """The ack subject of the next message of the stream; what is said to other clients is passed over."""
    while (arrived := client.receive()).subject != b"s":
        pass
    return arrived.reply


def delivered_seq(client: RawClient) -> int:
    """The seq of the next message of the stream."""
    return int(delivered(client).split(b".")[5])


@pytest.mark.parametrize("kind", ["pull", "push"])
def test_a_client_that_does_not_read_is_waited_for_and_gets_everything(
    server: RunningServer, client: RawClient, kind: str
) -> None:
    count = 12_000
    filled(client, count, 1000)
    slow = RawClient(server.host, server.port)
    slow.subscribe("D.slow")
    create(client, **({"deliver_subject": "D.slow"} if kind == "push" else {}))
    if kind == "pull":
        slow.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", b'{"batch":%d}' % count, b"D.slow")
    # Deliveries stop well before everything was sent, as nobody reads.
    delivered = -1
    until = time.monotonic() + DEADLINE_S
    while True:
        found = client.api("CONSUMER.INFO.S.c")["delivered"]["stream_seq"]
        if found == delivered and found > 0:
            break
        assert time.monotonic() < until
        delivered = found
        time.sleep(0.1)
    assert delivered < count
    seqs = {delivered_seq(slow) for _ in range(count)}
    assert seqs == set(range(1, count + 1))
    slow.close()


def test_clients_that_ask_at_the_same_time_share_the_messages(
    server: RunningServer, client: RawClient
) -> None:
    filled(client, 1, 10)
    create(client)
    client.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", b"1", b"R.first")
    client.receive()
    workers = [RawClient(server.host, server.port) for _ in range(3)]
    for number, worker in enumerate(workers):
        worker.subscribe(f"W.{number}")
        worker.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", b"100", b"W.%d" % number)
    until = time.monotonic() + DEADLINE_S
    while client.api("CONSUMER.INFO.S.c")["num_waiting"] < len(workers):
        assert time.monotonic() < until
    client.send(b"PUB s 1\r\nx\r\n" * 150)
    got: Counter[int] = Counter()
    seqs = set()
    for number, worker in enumerate(workers):
        for _ in range(50):
            seqs.add(delivered_seq(worker))
            got[number] += 1
        worker.close()
    assert len(seqs) == 150
    assert set(got.values()) == {50}


def test_many_acknowledgements_at_once_settle_everything(server: RunningServer, client: RawClient) -> None:
    count = 5000
    filled(client, count, 10)
    create(client)
    client.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", b"%d" % count, b"R.all")
    replies = [client.receive().reply for _ in range(count)]
    assert len(set(replies)) == count
    client.send(b"".join(b"PUB %s 4\r\n+ACK\r\n" % reply for reply in replies[:-1]))
    assert client.ask(replies[-1]).payload == b""
    info = client.api("CONSUMER.INFO.S.c")
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, count)


def test_what_waits_for_acknowledgement_never_seems_more_than_may(
    server: RunningServer, client: RawClient
) -> None:
    count, limit = 3000, 50
    filled(client, count, 10)
    client.subscribe("D")
    create(client, max_ack_pending=limit, deliver_subject="D")
    asking = RawClient(server.host, server.port)
    for number in range(count):
        client.send(b"PUB %s 0\r\n\r\n" % delivered(client))
        if number % 100 == 0:
            assert asking.api("CONSUMER.INFO.S.c")["num_ack_pending"] <= limit
    until = time.monotonic() + DEADLINE_S
    while asking.api("CONSUMER.INFO.S.c")["num_ack_pending"]:
        assert time.monotonic() < until
    assert asking.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == count
    asking.close()


def test_acknowledged_messages_leave_a_queue_though_their_consumer_goes_at_once(client: RawClient) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": "workqueue"})
    client.send(b"PUB s 1\r\nx\r\n" * 5)
    create(client)
    client.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", b"5", b"R.all")
    for reply in [delivered(client) for _ in range(4)]:
        client.publish(reply, b"", b"")
    client.api("CONSUMER.DELETE.S.c")
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1
