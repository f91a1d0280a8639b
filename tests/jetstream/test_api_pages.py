"""Answers that come in pages: of more streams, subjects and messages than one answer holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jetstream.jetstream_servers import SERVERS
from tests.jetstream.raw_client import Arrived, RawClient, message_bytes
from tests.servers import start_server

pytestmark = [pytest.mark.real, pytest.mark.slow]

SERVER = 'jetstream: {store_dir: "${directory}/store", max_mem: 1G, max_file: 1G}'
NAMES_PAGE, LIST_PAGE, SUBJECTS_PAGE = 1024, 256, 100_000


@pytest.fixture(params=SERVERS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    running = start_server(request.param, SERVER, tmp_path_factory.mktemp("pages"))
    connected = RawClient(running.host, running.port)
    yield connected
    connected.close()
    running.stop()


def test_names_and_lists_of_many_streams_come_in_pages(client: RawClient) -> None:
    names = sorted(f"S{number}" for number in range(NAMES_PAGE + 3))
    for name in names:
        client.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory"})
    first = client.api("STREAM.NAMES")
    assert (first["total"], first["offset"], first["limit"]) == (len(names), 0, NAMES_PAGE)
    assert first["streams"] == names[:NAMES_PAGE]
    rest = client.api("STREAM.NAMES", {"offset": NAMES_PAGE})
    assert (rest["offset"], rest["streams"]) == (NAMES_PAGE, names[NAMES_PAGE:])
    page = client.api("STREAM.LIST", {"offset": 300})
    assert (page["total"], page["offset"], page["limit"]) == (len(names), 300, LIST_PAGE)
    assert [stream["config"]["name"] for stream in page["streams"]] == names[300 : 300 + LIST_PAGE]


def test_subjects_of_a_stream_come_in_pages(client: RawClient) -> None:
    count = SUBJECTS_PAGE + 5
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "storage": "memory"})
    subjects = [b"s.%06d" % number for number in range(count)]
    for start in range(0, count, 5000):
        part = subjects[start : start + 5000]
        client.send(b"".join(message_bytes(subject, b"", b"", b"") for subject in part))
        # Not to be ahead of the server further than this.
        client.ask("s.000000")
    first = client.api("STREAM.INFO.S", {"subjects_filter": ">"})
    assert (first["total"], first["offset"], first["limit"]) == (count, 0, SUBJECTS_PAGE)
    assert list(first["state"]["subjects"]) == [subject.decode() for subject in subjects[:SUBJECTS_PAGE]]
    rest = client.api("STREAM.INFO.S", {"subjects_filter": "s.*", "offset": SUBJECTS_PAGE})
    assert (rest["total"], rest["offset"]) == (count, SUBJECTS_PAGE)
    assert list(rest["state"]["subjects"]) == [subject.decode() for subject in subjects[SUBJECTS_PAGE:]]


def test_a_batch_of_direct_gets_is_as_long_as_was_asked(client: RawClient) -> None:
    stream = {"name": "S", "subjects": ["s.*"], "allow_direct": True}
    client.api("STREAM.CREATE.S", stream)
    count = 1000
    client.send(
        b"".join(message_bytes(b"s.%d" % (number % 3), b"", b"x" * 50, b"") for number in range(count))
    )
    client.ask("s.0")
    got = _batch(client, {"seq": 1, "batch": 900})
    assert [_number(message, b"Nats-Sequence") for message in got[:-1]] == list(range(1, 901))
    assert [_number(message, b"Nats-Num-Pending") for message in got[:-1]] == list(range(1000, 100, -1))
    assert (_number(got[-1], b"Nats-Num-Pending"), _number(got[-1], b"Nats-Last-Sequence")) == (101, 900)
    got = _batch(client, {"seq": 1, "batch": 900, "max_bytes": 53 * 300})
    assert len(got) - 1 == 300
    got = _batch(client, {"next_by_subj": "s.1", "batch": 900})
    assert [_number(message, b"Nats-Sequence") for message in got[:-1]] == list(range(2, count + 1, 3))


def test_the_last_messages_of_too_many_subjects_are_not_sent(client: RawClient) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "allow_direct": True})
    client.send(b"".join(message_bytes(b"s.%d" % number, b"", b"", b"") for number in range(1024)))
    client.until_fence(b"s.0")
    got = _batch(client, {"multi_last": [">"]})
    assert len(got) - 1 == 1024
    client.ask("s.new")
    refused = client.ask("$JS.API.DIRECT.GET.S", b"", b'{"multi_last":[">"]}')
    assert refused.block == b"NATS/1.0 413 Too Many Results\r\n\r\n"


def _batch(client: RawClient, request: dict[str, Any]) -> list[Arrived]:
    """Everything up to the end of a batch."""
    client.publish(b"$JS.API.DIRECT.GET.S", b"", json.dumps(request).encode(), b"R.batch")
    found: list[Arrived] = []
    while not found or not found[-1].block.startswith(b"NATS/1.0 204"):
        found.append(client.receive())
    return found


def _number(message: Arrived, key: bytes) -> int:
    return int(dict(message.fields)[key])


def test_names_and_lists_of_many_consumers_come_in_pages(client: RawClient) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "storage": "memory", "max_consumers": 2 * NAMES_PAGE})
    names = sorted(f"C{number}" for number in range(NAMES_PAGE + 3))
    for name in names:
        request = {"stream_name": "S", "config": {"durable_name": name}}
        client.api(f"CONSUMER.CREATE.S.{name}", request)
    first = client.api("CONSUMER.NAMES.S")
    assert (first["total"], first["offset"], first["limit"]) == (len(names), 0, NAMES_PAGE)
    assert first["consumers"] == names[:NAMES_PAGE]
    rest = client.api("CONSUMER.NAMES.S", {"offset": NAMES_PAGE})
    assert (rest["offset"], rest["consumers"]) == (NAMES_PAGE, names[NAMES_PAGE:])
    page = client.api("CONSUMER.LIST.S", {"offset": 300})
    assert (page["total"], page["offset"], page["limit"]) == (len(names), 300, LIST_PAGE)
    assert [consumer["name"] for consumer in page["consumers"]] == names[300 : 300 + LIST_PAGE]
