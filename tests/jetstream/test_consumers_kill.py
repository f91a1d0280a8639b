"""A worker acknowledges messages while its server is killed, again and again.

What must hold: a message whose acknowledgement was confirmed is never delivered again, and every other one
is, until it is acknowledged.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.jetstream.jetstream_servers import CONFIG
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

MESSAGES = 400
ROUNDS = 4
ACK_WAIT_NS = 200_000_000


class Worker:
    """One client, and what it knows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.confirmed: set[int] = set()
        # Acknowledged by a client that did not live to hear of it.
        self.open: set[int] = set()

    def work(self, server: RunningServer, confirmations: int) -> None:
        """Ask for messages and acknowledge most of them, until so many were confirmed or nothing is left."""
        client = RawClient(server.host, server.port)
        client.send(b"SUB W.> 9\r\n")
        until = len(self.confirmed) + confirmations
        while len(self.confirmed) < until and _left(client):
            self._batch(client, until)
        client.close()

    def _batch(self, client: RawClient, until: int) -> None:
        """Take a batch; with the last confirmation that counts everything is left as it is."""
        left = self.random.randrange(1, 40)
        body = b'{"batch":%d,"no_wait":true,"expires":500000000}' % left
        client.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", body, b"W.pull")
        waiting: set[int] = set()
        while (left or waiting) and len(self.confirmed) < until:
            arrived = client.receive()
            if arrived.subject.startswith(b"W.done."):
                seq = int(arrived.subject.rpartition(b".")[2])
                waiting.discard(seq)
                self.open.discard(seq)
                self.confirmed.add(seq)
            elif arrived.reply:
                seq = int(arrived.reply.split(b".")[5])
                assert seq not in self.confirmed, f"{seq} was confirmed, and came again"
                left -= 1
                if self.random.random() < 0.8:
                    waiting.add(seq)
                    client.publish(arrived.reply, b"", b"+ACK", b"W.done.%d" % seq)
            elif arrived.subject == b"W.pull":
                left = 0
        self.open |= waiting


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_what_was_confirmed_stays_so_and_the_rest_comes_again(tmp_path: Path, retention: str) -> None:
    worker = Worker(len(retention))
    for number in range(ROUNDS):
        server = start_server("edged", CONFIG, tmp_path)
        try:
            if number == 0:
                _fill(server, retention)
            worker.work(server, MESSAGES if number == ROUNDS - 1 else worker.random.randrange(20, 120))
        finally:
            server.signal(signal.SIGKILL)
            server.wait_exit()
    assert worker.confirmed | worker.open == set(range(1, MESSAGES + 1))


def _left(client: RawClient) -> int:
    """How many messages are not settled; a queue has those and no others."""
    info = client.api("CONSUMER.INFO.S.c")
    left: int = info["num_pending"] + info["num_ack_pending"]
    stream = client.api("STREAM.INFO.S")
    kept = stream["state"]["messages"]
    assert kept == (left if stream["config"]["retention"] == "workqueue" else MESSAGES)
    return left


def _fill(server: RunningServer, retention: str) -> None:
    client = RawClient(server.host, server.port)
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": retention})
    for _ in range(MESSAGES):
        client.ask("s", b"", b"x")
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, "max_ack_pending": 50}
    client.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    client.close()
