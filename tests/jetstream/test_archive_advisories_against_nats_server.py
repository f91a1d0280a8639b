"""Snapshots and restores are told as nats-server tells them: the same advisories with the same fields."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.jetstream.jetstream_servers import SERVERS, new_name, running
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

CONFIG = 'jetstream: {store_dir: "${directory}/store", domain: edge}'
ADVISORIES = "$JS.EVENT.ADVISORY.STREAM."
# What no two servers have in common. That it is there, and where, is compared all the same.
OWN = {"id", "timestamp", "start", "end", "rtt", "server", "first_ts", "last_ts"}

Act = Callable[[SnapshotClient], None]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    first, second = SERVERS
    with (
        running(first, tmp_path_factory.mktemp(first), CONFIG) as one,
        running(second, tmp_path_factory.mktemp(second), CONFIG) as other,
    ):
        yield [one, other]


@pytest.fixture
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], bytes]:
    """An archive of a stream that neither of the two servers has, and what nats-server says of it."""
    with running("nats-server", tmp_path_factory.mktemp("source")) as source:
        client = SnapshotClient(source.host, source.port)
        answer, data = client.snapshot(filled(client))
        client.close()
    return answer, data


def filled(client: SnapshotClient) -> str:
    """A new stream with some messages that do not compress."""
    name = new_name("told")
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    for number in range(5):
        client.ask(name, b"", random.Random(number).randbytes(6000))
    return name


def told(server: RunningServer, act: Act, *awaited: str) -> list[tuple[str, Any]]:
    """The advisories while a client acts, until all `awaited` ones have come: subjects, and what they say."""
    listener = SnapshotClient(server.host, server.port)
    listener.subscribe(ADVISORIES + ">")
    listener.api("INFO")
    client = SnapshotClient(server.host, server.port, name="worker", lang="script", version="2")
    act(client)
    found: list[tuple[str, Any]] = []
    while not set(awaited) <= set(words(found)):
        arrived = listener.receive()
        subject = arrived.subject.decode()
        if subject.startswith(ADVISORIES):
            document = arrived.document
            assert document.get("start", "") <= document.get("end", "9")
            found.append((subject.removeprefix(ADVISORIES), comparable(document)))
    client.close()
    listener.close()
    return found


def comparable(value: Any) -> Any:
    """A document as a list, so that the order of its fields counts; of what is the server's own, the type."""
    if not isinstance(value, dict):
        return value
    return [(key, type(one).__name__ if key in OWN else comparable(one)) for key, one in value.items()]


def words(advisories: list[tuple[str, Any]]) -> list[str]:
    return [subject.split(".")[0] for subject, _ in advisories]


def test_a_snapshot_is_told_when_it_begins_and_when_it_is_complete(servers: list[RunningServer]) -> None:
    names: list[str] = []

    def act(client: SnapshotClient) -> None:
        client.snapshot(names[-1])

    both = []
    for server in servers:
        client = SnapshotClient(server.host, server.port)
        names.append(filled(client))
        client.close()
        both.append(json.loads(json.dumps(told(server, act, "SNAPSHOT_COMPLETE")).replace(names[-1], "NAME")))
    assert both[0] == both[1]
    assert words(both[0]) == ["SNAPSHOT_CREATE", "SNAPSHOT_COMPLETE"]


def test_a_snapshot_whose_receiver_goes_away_is_told_with_the_reason(servers: list[RunningServer]) -> None:
    names: list[str] = []

    def act(client: SnapshotClient) -> None:
        client.subscribe("S.gone")
        request = {"deliver_subject": "S.gone", "chunk_size": 1024, "window_size": 1024}
        subject = f"$JS.API.STREAM.SNAPSHOT.{names[-1]}".encode()
        client.publish(subject, b"", json.dumps(request).encode(), b"R.gone")
        while client.receive().subject != b"S.gone":
            continue
        client.send(b"UNSUB 2\r\n")

    both = []
    for server in servers:
        client = SnapshotClient(server.host, server.port)
        names.append(filled(client))
        client.close()
        both.append(json.loads(json.dumps(told(server, act, "SNAPSHOT_COMPLETE")).replace(names[-1], "NAME")))
    assert both[0] == both[1]
    assert both[0][-1][1][-1] == ["error", "no interest"]


def test_a_restore_is_told_with_its_size_and_the_stream_that_came_of_it(
    servers: list[RunningServer], archive: tuple[dict[str, Any], bytes]
) -> None:
    answer, data = archive

    def act(client: SnapshotClient) -> None:
        assert "error" not in client.restore(answer["config"], answer["state"], data)

    both = [told(server, act, "CREATED", "RESTORE_COMPLETE") for server in servers]
    # nats-server tells of the stream from a thread of its own: sometimes after the end of the restore.
    assert sorted(both[0]) == sorted(both[1])
    assert words(both[1]) == ["RESTORE_CREATE", "CREATED", "RESTORE_COMPLETE"]
    assert ("bytes", len(data)) in both[1][-1][1]


@pytest.mark.parametrize("size", [0, 700, 5000])
def test_a_restore_that_fails_is_told_with_what_came(
    servers: list[RunningServer], archive: tuple[dict[str, Any], bytes], size: int
) -> None:
    answer, data = archive

    def act(client: SnapshotClient) -> None:
        error = client.restore(answer["config"], answer["state"], data[:size])["error"]
        assert (error["code"], error["err_code"]) == (500, 10062)
        # The reason after these words is each server's own.
        assert error["description"].startswith("restore failed: ")

    both = [told(server, act, "RESTORE_COMPLETE") for server in servers]
    assert both[0] == both[1]
    assert words(both[0]) == ["RESTORE_CREATE", "RESTORE_COMPLETE"]
    assert ("bytes", size) in both[0][-1][1]
