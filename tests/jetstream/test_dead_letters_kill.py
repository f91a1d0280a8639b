"""Messages are given up while their server is killed, again and again: each has one letter in the end.

The stream that takes the letters forgets the ids of messages almost at once, so that nothing rests on its
window for duplicates. The server is killed when a letter was just seen, which is between its being stored and
its being written off, or close to it.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.jetstream.jetstream_servers import CONFIG, kept
from tests.jetstream.raw_client import DEADLINE_S, RawClient
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import start_server

pytestmark = pytest.mark.real

MESSAGES = 100
ROUNDS = 3
BATCH = 20
WINDOW_NS = 100_000_000
ACK_WAIT_NS = 100_000_000


@pytest.mark.parametrize("is_terminated", [True, False])
def test_each_message_that_is_given_up_has_one_letter(tmp_path: Path, is_terminated: bool) -> None:
    chance = random.Random(is_terminated)
    for number in range(ROUNDS):
        server = start_server("edged", CONFIG, tmp_path)
        client = SnapshotClient(server.host, server.port)
        try:
            if number == 0:
                _fill(client)
            is_last = number == ROUNDS - 1
            _give_up(client, is_terminated, MESSAGES if is_last else chance.randrange(10, 40))
            if is_last:
                _check(client)
        finally:
            server.signal(signal.SIGKILL)
            server.wait_exit()
            client.close()


def _fill(client: RawClient) -> None:
    metadata = {"edged.dead_letter": "dead"}
    dead = {"name": "D", "subjects": ["dead"], "duplicate_window": WINDOW_NS, "max_age": 10**12}
    client.api("STREAM.CREATE.D", dead)
    queue = {"name": "S", "subjects": ["s"], "retention": "workqueue", "metadata": metadata}
    client.api("STREAM.CREATE.S", queue)
    for _ in range(MESSAGES):
        client.ask("s", b"", b"x")
    config = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 2, "ack_wait": ACK_WAIT_NS}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})


def _give_up(client: RawClient, is_terminated: bool, letters: int) -> None:
    """Let messages be given up until so many letters were seen, or all are there."""
    client.subscribe("dead")
    client.send(b"SUB W.> 9\r\n")
    seen = 0
    while seen < letters and _letters(client) < MESSAGES:
        body = b'{"batch":%d,"expires":200000000}' % BATCH
        client.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", body, b"W.pull")
        left = BATCH
        while left and seen < letters:
            arrived = client.receive()
            if arrived.subject == b"dead":
                seen += 1
            elif arrived.reply:
                left -= 1
                if is_terminated:
                    client.publish(arrived.reply, b"", b"+TERM why")
            else:
                # The request has ended.
                left = 0


def _letters(client: RawClient) -> int:
    count: int = client.api("STREAM.INFO.D")["state"]["messages"]
    return count


def _check(client: RawClient) -> None:
    # Whoever listens hears of a letter before the stream has it on its disk.
    deadline = time.monotonic() + DEADLINE_S
    while _letters(client) < MESSAGES:
        assert time.monotonic() < deadline
    found = Counter(
        line
        for message in kept(client, "D")
        for line in message["hdrs"].split(b"\r\n")
        if line.startswith(b"Edged-Dead-Letter-Sequence: ")
    )
    assert set(found.values()) == {1}, found.most_common(3)
    assert len(found) == MESSAGES
