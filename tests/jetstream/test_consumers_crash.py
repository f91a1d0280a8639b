"""Consumers of an edged that is killed: what was confirmed stays so, everything else comes again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.jetstream_servers import CONFIG
from tests.jetstream.raw_client import Arrived, RawClient
from tests.servers import start_server

pytestmark = pytest.mark.real

SECOND = 1_000_000_000


@contextmanager
def life(directory: Path, end: str = "stop") -> Iterator[RawClient]:
    """A client of an edged that lives as long as the block, and ends in an orderly way or by a `kill`."""
    server = start_server("edged", CONFIG, directory)
    client = RawClient(server.host, server.port)
    try:
        yield client
    finally:
        client.close()
        if end == "kill":
            server.signal(signal.SIGKILL)
            server.wait_exit()
        else:
            assert server.stop() == 0


def create(client: RawClient, name: str = "c", **config: Any) -> None:
    wanted = {"durable_name": name, "ack_policy": "explicit", "ack_wait": SECOND // 2, **config}
    client.api(f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": wanted})


def filled(client: RawClient, count: int, **config: Any) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})
    for number in range(count):
        client.ask("s.a", b"", b"%d" % number)


def pull(client: RawClient, count: int, name: str = "c") -> list[Arrived]:
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}".encode(), b"", b'{"batch":%d}' % count, b"R.pull")
    return [client.receive() for _ in range(count)]


def test_a_confirmed_acknowledgement_survives_and_the_rest_comes_again(tmp_path: Path) -> None:
    with life(tmp_path, "kill") as client:
        filled(client, 6)
        create(client)
        arrived = pull(client, 4)
        for place in (0, 2):
            assert client.ask(arrived[place].reply).payload == b""
    with life(tmp_path) as client:
        info = client.api("CONSUMER.INFO.S.c")
        assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (1, 2)
        assert (info["delivered"]["stream_seq"], info["num_pending"]) == (4, 2)
        again = pull(client, 4)
        assert sorted(one.payload for one in again) == [b"1", b"3", b"4", b"5"]
        deliveries = {one.payload: one.reply.split(b".")[4] for one in again}
        assert deliveries == {b"1": b"2", b"3": b"2", b"4": b"1", b"5": b"1"}


def test_what_was_delivered_just_before_a_crash_is_delivered_again(tmp_path: Path) -> None:
    with life(tmp_path, "kill") as client:
        filled(client, 3)
        create(client)
        pull(client, 3)
    with life(tmp_path) as client:
        assert sorted(one.payload for one in pull(client, 3)) == [b"0", b"1", b"2"]


def test_a_queue_keeps_exactly_what_nobody_confirmed(tmp_path: Path) -> None:
    with life(tmp_path, "kill") as client:
        filled(client, 5, retention="workqueue")
        create(client)
        arrived = pull(client, 5)
        for place in (1, 4):
            assert client.ask(arrived[place].reply, b"", b"+ACK").payload == b""
    with life(tmp_path) as client:
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 3
        assert sorted(one.payload for one in pull(client, 3)) == [b"0", b"2", b"3"]


def test_an_orderly_end_forgets_no_delivery(tmp_path: Path) -> None:
    with life(tmp_path) as client:
        filled(client, 4)
        create(client, ack_policy="none")
        create(client, "acks", ack_wait=60 * SECOND)
        pull(client, 3)
        pull(client, 2, "acks")
    with life(tmp_path) as client:
        assert client.api("CONSUMER.INFO.S.c")["delivered"]["stream_seq"] == 3
        info = client.api("CONSUMER.INFO.S.acks")
        assert (info["delivered"]["consumer_seq"], info["num_ack_pending"]) == (2, 2)
        assert [one.payload for one in pull(client, 1)] == [b"3"]


def test_a_consumer_in_memory_is_gone_after_a_restart(tmp_path: Path) -> None:
    with life(tmp_path) as client:
        filled(client, 2)
        create(client, mem_storage=True)
        arrived = pull(client, 2)
        assert client.ask(arrived[1].reply).payload == b""
        assert client.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 1
    with life(tmp_path) as client:
        answer = client.ask("$JS.API.CONSUMER.INFO.S.c").document
        assert answer["error"]["description"] == "consumer not found"
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 2
