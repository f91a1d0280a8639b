"""Snapshots that a real nats-server made, read by us, and archives that we made, restored by it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edged.core.archive import ArchiveWriter
from edged.core.archive_parts import (
    ArchivedConsumer,
    ArchiveLimits,
    ConsumerPosition,
    PendingMessage,
    SeqPair,
)
from edged.core.archive_reader import ArchiveContents
from edged.core.message import Message, counted_bytes
from tests.core.archive_cases import DATA, NEW, TAR, read
from tests.jetstream import archive_recipe as recipe
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import start_server

pytestmark = pytest.mark.real

CONFIG = 'jetstream: {store_dir: "${directory}/store"}'
LIMITS = ArchiveLimits(output_bytes_max=1 << 26, message_bytes_max=1 << 20)
TS_NS = 1_700_000_000_123_456_789


# A server for each test: it deletes streams in the background, and one of the same name may fail meanwhile.
@pytest.fixture
def client(tmp_path: Path) -> Iterator[SnapshotClient]:
    yield from client_of_new_server(tmp_path / "server")


@pytest.fixture
def other_client(tmp_path: Path) -> Iterator[SnapshotClient]:
    yield from client_of_new_server(tmp_path / "other")


def client_of_new_server(directory: Path) -> Iterator[SnapshotClient]:
    running = start_server("nats-server", CONFIG, directory)
    try:
        connected = SnapshotClient(running.host, running.port)
        yield connected
        connected.close()
    finally:
        running.stop()


def kept(client: SnapshotClient, stream: str, seqs: range) -> list[Message]:
    """The messages of a stream as the server gives them, one after the other."""
    found = []
    for seq in seqs:
        answer = client.ask(
            f"$JS.API.STREAM.MSG.GET.{stream}", b"", json.dumps({"seq": seq}).encode()
        ).document
        if "message" not in answer:
            assert answer["error"]["err_code"] == 10037, answer
            continue
        message = answer["message"]
        block = base64.b64decode(message.get("hdrs", ""))
        data = block + base64.b64decode(message.get("data", ""))
        found.append(Message(message["seq"], 0, message["subject"].encode(), len(block), data))
    return found


def without_times(messages: list[Message]) -> list[Message]:
    return [message._replace(ts_ns=0) for message in messages]


def publish_many(client: SnapshotClient, name: str, count: int) -> None:
    for number in range(count):
        block = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else b""
        client.publish(f"{name}.{number % 17}".encode(), block, b"%d," % number**9 * (number % 90))
    client.ask(f"{name}.last", b"", b"")


def agrees(contents: ArchiveContents, state: dict[str, Any]) -> None:
    found = contents.state
    assert found.messages == state["messages"]
    assert found.size_bytes == state["bytes"]
    assert (found.first_seq, found.last_seq) == (max(state["first_seq"], 1), state["last_seq"])
    assert found.consumers == state["consumer_count"]


# --- its snapshots, read by us ---


def test_a_snapshot_of_everything_at_once_is_read(client: SnapshotClient) -> None:
    recipe.fill(client)
    answer, archive = client.snapshot(recipe.STREAM)
    contents, messages = read(archive, LIMITS, step=333)
    assert [message.seq for message in messages] == recipe.LIVE_SEQS
    assert without_times(messages) == kept(client, recipe.STREAM, range(1, 17))
    agrees(contents, {**answer["state"], "consumer_count": 1})
    (consumer,) = contents.consumers
    info = client.api(f"CONSUMER.INFO.{recipe.STREAM}.{recipe.CONSUMER}")
    # The server adds to the metadata when it is asked.
    assert consumer.config == info["config"] | {"metadata": consumer.config["metadata"]}
    assert consumer.position.delivered.stream_seq == info["delivered"]["stream_seq"]
    assert consumer.position.ack_floor == SeqPair(**without_last_active(info["ack_floor"]))
    assert consumer.position.pending.keys() == recipe.PENDING_SEQS
    assert consumer.position.redelivered == recipe.REDELIVERED


def without_last_active(pair: dict[str, Any]) -> dict[str, int]:
    return {key: pair[key] for key in ("consumer_seq", "stream_seq")}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"storage": "memory"},
        {"compression": "s2", "max_bytes": 400_000},
        {"max_msgs_per_subject": 3},
        {"first_seq": 1_000_000, "max_msgs": 100},
    ],
    ids=str,
)
def test_a_snapshot_of_many_messages_is_read(client: SnapshotClient, more: dict[str, Any]) -> None:
    client.api("STREAM.CREATE.MANY", {"name": "MANY", "subjects": ["MANY.>"], **more})
    publish_many(client, "MANY", 2000)
    client.api("STREAM.PURGE.MANY", {"filter": "MANY.5"})
    answer, archive = client.snapshot("MANY")
    contents, messages = read(archive, LIMITS, step=10_000)
    agrees(contents, answer["state"])
    state = contents.state
    assert without_times(messages) == kept(client, "MANY", range(state.first_seq, state.last_seq + 1))


def test_a_snapshot_of_an_emptied_stream_is_read(client: SnapshotClient) -> None:
    client.api("STREAM.CREATE.EMPTY", {"name": "EMPTY", "subjects": ["EMPTY.>"]})
    contents, messages = read(client.snapshot("EMPTY")[1], LIMITS)
    assert (messages, contents.state.first_seq, contents.state.last_seq) == ([], 1, 0)
    publish_many(client, "EMPTY", 20)
    client.api("STREAM.PURGE.EMPTY")
    contents, messages = read(client.snapshot("EMPTY")[1], LIMITS)
    assert (messages, contents.state.first_seq, contents.state.last_seq) == ([], 22, 21)


def test_a_snapshot_without_consumers_counts_none(client: SnapshotClient) -> None:
    recipe.fill(client)
    contents, _ = read(client.snapshot(recipe.STREAM, consumers=False)[1], LIMITS)
    assert (contents.consumers, contents.state.consumers) == ((), 0)


# --- our archives, restored by it ---


def state_of(messages: list[Message], first_seq: int, last_seq: int, consumers: int) -> dict[str, Any]:
    size_bytes = sum(
        counted_bytes(len(message.subject), message.header_bytes, len(message.data)) for message in messages
    )
    return {
        "messages": len(messages),
        "bytes": size_bytes,
        "first_seq": first_seq,
        "first_ts": "2023-11-14T22:13:20Z",
        "last_seq": last_seq,
        "last_ts": "2023-11-14T22:13:20Z",
        "consumer_count": consumers,
    }


def written(state: dict[str, Any], consumers: list[ArchivedConsumer], messages: list[Message]) -> bytes:
    writer = ArchiveWriter()
    parts = [writer.begin(state, TS_NS), *(writer.consumer(consumer, TS_NS) for consumer in consumers)]
    parts += [writer.messages([message]) for message in messages]
    return b"".join([*parts, writer.finish()])


def some_messages() -> list[Message]:
    """Of all sizes, with gaps, more than one block of the compression."""
    messages = []
    for seq in range(11, 1500, 3):
        block = b"NATS/1.0\r\nSeq: %d\r\n\r\n" % seq if seq % 4 else b""
        payload = b"%d;" % seq**7 * (seq % 200)
        messages.append(Message(seq, TS_NS + seq, f"OURS.{seq % 9}.ä".encode(), len(block), block + payload))
    return messages


def test_an_archive_of_ours_is_restored_by_nats_server(client: SnapshotClient) -> None:
    messages = some_messages()
    pending = {44: PendingMessage(21, TS_NS), 80: PendingMessage(40, TS_NS)}
    position = ConsumerPosition(SeqPair(40, 80), SeqPair(20, 41), pending, {44: 3})
    consumer = ArchivedConsumer("C", {"durable_name": "C", "name": "C", "ack_policy": "explicit"}, position)
    config = {"name": "OURS", "subjects": ["OURS.>"], "storage": "file"}
    state = state_of(messages, 11, 1510, 1)
    answer = client.restore(config, state, written(state, [consumer], messages))
    assert "error" not in answer, answer
    found = client.api("STREAM.INFO.OURS")["state"]
    assert {key: found[key] for key in ("messages", "bytes", "first_seq", "last_seq", "consumer_count")} == {
        key: state[key] for key in ("messages", "bytes", "first_seq", "last_seq", "consumer_count")
    }
    assert kept(client, "OURS", range(1, 1511)) == without_times(messages)
    stored = client.api("STREAM.MSG.GET.OURS", {"seq": 11})["message"]
    assert stored["time"] == "2023-11-14T22:13:20.1234568Z"
    info = client.api("CONSUMER.INFO.OURS.C")
    assert without_last_active(info["delivered"]) == position.delivered._asdict()
    assert without_last_active(info["ack_floor"]) == position.ack_floor._asdict()
    assert (info["num_ack_pending"], info["num_redelivered"]) == (2, 1)


def test_an_empty_archive_of_ours_is_restored_by_nats_server(client: SnapshotClient) -> None:
    state = state_of([], 34, 33, 0)
    answer = client.restore({"name": "OURS", "subjects": ["OURS.>"]}, state, written(state, [], []))
    assert "error" not in answer, answer
    assert client.ask("OURS.x", b"", b"next").document["seq"] == 34


def test_what_nats_server_wrote_and_we_wrote_again_is_restored(
    client: SnapshotClient, other_client: SnapshotClient
) -> None:
    recipe.fill(client)
    answer, archive = client.snapshot(recipe.STREAM)
    contents, messages = read(archive, LIMITS)
    state = {**answer["state"], "consumer_count": 1}
    ours = written(state, list(contents.consumers), messages)
    restored = other_client.restore(answer["config"], state, ours)
    assert "error" not in restored, restored
    again_contents, again_messages = read(other_client.snapshot(recipe.STREAM)[1], LIMITS)
    assert again_messages == messages
    assert again_contents == contents


@pytest.mark.parametrize("name", [NEW, TAR])
def test_the_kept_archives_are_what_nats_server_restores(client: SnapshotClient, name: str) -> None:
    archive = (DATA / name).read_bytes()
    contents, messages = read(archive)
    state = state_of(messages, 5, 16, 1)
    restored = client.restore(recipe.CONFIG, state, archive)
    assert "error" not in restored, restored
    agrees(contents, client.api(f"STREAM.INFO.{recipe.STREAM}")["state"])
    assert kept(client, recipe.STREAM, range(1, 17)) == without_times(messages)
