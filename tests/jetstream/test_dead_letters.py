"""Dead letters of a running server: who gets them, and what is told if nobody does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamConfig

from tests.jetstream.jetstream_servers import CONFIG, kept, new_name, running
from tests.jetstream.raw_client import RawClient, block_of
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

ACK_WAIT_NS = 50_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running("edged", tmp_path_factory.mktemp("letters")) as found:
        yield found


@pytest.fixture
def client(server: RunningServer) -> Iterator[SnapshotClient]:
    found = SnapshotClient(server.host, server.port)
    yield found
    found.close()


def make(client: RawClient, dead: str, **config: Any) -> str:
    """A stream whose dead letters go to a subject, with three messages."""
    name = new_name("L")
    config = {"name": name, "subjects": [name], "metadata": {"edged.dead_letter": dead}, **config}
    client.api(f"STREAM.CREATE.{name}", config)
    for number in range(3):
        client.ask(name, block_of(A=str(number), Nats_Msg_Id=f"id-{number}"), b"%d" % number)
    return name


def add(client: RawClient, stream: str, **config: Any) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, **config}
    client.api(f"CONSUMER.CREATE.{stream}.c", {"stream_name": stream, "config": config})


def wait_messages(client: RawClient, stream: str, count: int) -> list[dict[str, Any]]:
    """What a stream holds once it has so many; the last one is waited for by a consumer of its own."""
    deliver = f"wait.{stream}.{count}"
    client.subscribe(deliver)
    client.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": {"deliver_subject": deliver}})
    for _ in range(count):
        assert client.receive().reply.startswith(b"$JS.ACK")
    return kept(client, stream)


def fields_of(message: dict[str, Any]) -> dict[str, str]:
    lines = message["hdrs"].decode().split("\r\n")[1:-2]
    return dict(line.split(": ", 1) for line in lines)


def test_a_terminated_message_is_in_the_stream_that_takes_its_letter(client: SnapshotClient) -> None:
    client.api("STREAM.CREATE.D1", {"name": "D1", "subjects": ["d1.>"]})
    name = make(client, "d1.x", retention="workqueue")
    add(client, name, ack_wait=60_000_000_000)
    replies = client.pull(name, "c", 3)
    client.ask(replies[1], b"", b"+TERM it is\r\nbroken")
    (letter,) = wait_messages(client, "D1", 1)
    assert (letter["subject"], letter["data"]) == ("d1.x", b"1")
    fields = fields_of(letter)
    assert fields["A"] == "1"
    assert fields["Edged-Original-Nats-Msg-Id"] == "id-1"
    assert fields["Edged-Dead-Letter-Reason"] == "terminated"
    assert fields["Edged-Dead-Letter-Text"] == "it is broken"
    assert fields["Edged-Dead-Letter-Stream"] == fields["Edged-Dead-Letter-Subject"] == name
    assert fields["Edged-Dead-Letter-Consumer"] == "c"
    assert fields["Edged-Dead-Letter-Sequence"] == "2"
    assert fields["Edged-Dead-Letter-Deliveries"] == "1"


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_message_that_nobody_acknowledges_is_a_letter_after_its_last_delivery(
    client: SnapshotClient, storage: str
) -> None:
    target = new_name("D")
    client.api(f"STREAM.CREATE.{target}", {"name": target, "subjects": [target], "storage": storage})
    name = make(client, target, storage=storage)
    add(client, name, max_deliver=2)
    client.pull(name, "c", 3)
    client.pull(name, "c", 3)
    letters = wait_messages(client, target, 3)
    assert sorted(fields_of(one)["Edged-Dead-Letter-Sequence"] for one in letters) == ["1", "2", "3"]
    assert {fields_of(one)["Edged-Dead-Letter-Reason"] for one in letters} == {"max_deliver"}
    assert {fields_of(one)["Edged-Dead-Letter-Deliveries"] for one in letters} == {"2"}
    # As without dead letters it stays in its stream.
    assert len(kept(client, name)) == 3


def test_a_consumer_that_acknowledges_all_before_gives_up_only_what_it_terminates(
    client: SnapshotClient,
) -> None:
    target = new_name("D")
    client.api(f"STREAM.CREATE.{target}", {"name": target, "subjects": [target]})
    name = make(client, target)
    add(client, name, ack_policy="all")
    replies = client.pull(name, "c", 3)
    client.ask(replies[1], b"", b"+TERM")
    (letter,) = wait_messages(client, target, 1)
    assert fields_of(letter)["Edged-Dead-Letter-Sequence"] == "2"
    info = client.api(f"CONSUMER.INFO.{name}.c")
    assert info["ack_floor"]["stream_seq"] == 2


def test_a_letter_of_a_consumer_in_memory_is_sent_as_well(client: SnapshotClient) -> None:
    target = new_name("D")
    client.api(f"STREAM.CREATE.{target}", {"name": target, "subjects": [target]})
    name = make(client, target)
    add(client, name, mem_storage=True)
    client.ask(client.pull(name, "c", 1)[0], b"", b"+TERM")
    (letter,) = wait_messages(client, target, 1)
    assert fields_of(letter)["Edged-Dead-Letter-Sequence"] == "1"


def test_a_subscriber_gets_the_letter_where_no_stream_takes_it(client: SnapshotClient) -> None:
    subject = new_name("plain")
    client.subscribe(subject)
    name = make(client, subject, retention="workqueue")
    add(client, name)
    client.ask(client.pull(name, "c", 1)[0], b"", b"+TERM")
    letter = client.receive()
    assert (letter.subject, letter.payload, letter.reply) == (subject.encode(), b"0", b"")


def test_a_letter_that_nobody_takes_is_told_once_and_waits(
    client: SnapshotClient, server: RunningServer
) -> None:
    subject = new_name("later")
    client.subscribe("$JS.EVENT.ADVISORY.STREAM.DEAD_LETTERS.>")
    name = make(client, subject, retention="workqueue")
    add(client, name, max_deliver=1)
    client.pull(name, "c", 3)
    advisory = client.receive().document
    assert advisory["type"] == "io.edged.jetstream.advisory.v1.stream_dead_letters"
    assert (advisory["stream"], advisory["subject"]) == (name, subject)
    assert advisory["reason"] == "nobody listens to the subject, and no stream takes it"
    # By now it was tried again, but told no more.
    assert [one for one in client.until_fence(name.encode()) if b"ADVISORY" in one.subject] == []
    client.api(f"STREAM.CREATE.{subject}", {"name": subject, "subjects": [subject]})
    assert [one["data"] for one in wait_messages(client, subject, 3)] == [b"0", b"1", b"2"]
    text = server.log_path.read_text()
    lines = [line for line in text.splitlines() if "dead letters" in line and subject in line]
    assert len(lines) == 1, lines


def test_a_stream_that_refuses_letters_gets_them_when_there_is_room(client: SnapshotClient) -> None:
    target = new_name("D")
    config = {"name": target, "subjects": [target], "max_msgs": 1, "discard": "new"}
    client.api(f"STREAM.CREATE.{target}", config)
    name = make(client, target, retention="workqueue")
    add(client, name)
    client.subscribe(f"$JS.EVENT.ADVISORY.STREAM.DEAD_LETTERS.{name}")
    for reply in client.pull(name, "c", 3):
        client.ask(reply, b"", b"+TERM")
    reason = client.receive().document["reason"]
    assert reason == f"stream {target}: maximum messages exceeded"
    assert len(kept(client, target)) == 1
    client.api(f"STREAM.UPDATE.{target}", {**config, "max_msgs": 10})
    letters = wait_messages(client, target, 3)
    assert sorted(one["data"] for one in letters) == [b"0", b"1", b"2"]


def test_a_message_that_is_gone_leaves_a_letter_without_payload(client: SnapshotClient) -> None:
    subject = new_name("gone")
    client.subscribe("$JS.EVENT.ADVISORY.STREAM.DEAD_LETTERS.>")
    name = make(client, subject)
    add(client, name)
    client.ask(client.pull(name, "c", 1)[0], b"", b"+TERM")
    client.receive()
    client.api(f"STREAM.PURGE.{name}")
    client.subscribe(subject)
    letter = client.receive()
    assert dict(letter.fields)[b"Edged-Dead-Letter-Missing"] == b"true"
    assert letter.payload == b""


def test_a_subject_that_cannot_be_is_refused_when_a_stream_is_made_or_changed(client: SnapshotClient) -> None:
    request = {"name": "R1", "subjects": ["r1"], "metadata": {"edged.dead_letter": "r1"}}
    refused = client.ask("$JS.API.STREAM.CREATE.R1", b"", json.dumps(request).encode()).document
    words = "edged.dead_letter must not be a subject of the stream itself"
    assert refused["error"] == {"code": 500, "err_code": 10052, "description": words}
    name = make(client, "fine")
    request = {"name": name, "subjects": [name], "metadata": {"edged.dead_letter": "a.*"}}
    refused = client.ask(f"$JS.API.STREAM.UPDATE.{name}", b"", json.dumps(request).encode()).document
    assert refused["error"]["description"] == "edged.dead_letter must be a subject without wildcards"


def test_letters_that_nobody_took_are_sent_after_a_restart(tmp_path: Path) -> None:
    with running("edged", tmp_path, CONFIG) as first:
        client = SnapshotClient(first.host, first.port)
        name = make(client, "later", retention="workqueue")
        add(client, name)
        client.ask(client.pull(name, "c", 2)[1], b"", b"+TERM why")
        client.close()
    with running("edged", tmp_path, CONFIG) as second:
        client = SnapshotClient(second.host, second.port)
        assert [one["seq"] for one in kept(client, name)] == [1, 2, 3]
        client.api("STREAM.CREATE.later", {"name": "later", "subjects": ["later"]})
        (letter,) = wait_messages(client, "later", 1)
        assert (letter["data"], fields_of(letter)["Edged-Dead-Letter-Text"]) == (b"1", "why")
        client.close()


def test_a_worker_with_nats_py_finds_what_it_terminated(server: RunningServer) -> None:
    async def work() -> tuple[bytes, dict[str, str]]:
        connection = await nats.connect(f"nats://{server.host}:{server.port}")
        streams = connection.jetstream()
        await streams.add_stream(StreamConfig(name="PYDEAD", subjects=["pydead"]))
        metadata = {"edged.dead_letter": "pydead"}
        await streams.add_stream(StreamConfig(name="PY", subjects=["py"], metadata=metadata))
        await streams.publish("py", b"work", headers={"A": "b"})
        queue = await streams.pull_subscribe("py", "worker", config=ConsumerConfig(max_deliver=3))
        (message,) = await queue.fetch(1)
        await message.term()
        dead = await streams.pull_subscribe("pydead", "reader")
        (letter,) = await dead.fetch(1)
        await letter.ack_sync()
        await connection.close()
        return letter.data, dict(letter.headers or {})

    data, fields = asyncio.run(work())
    assert data == b"work"
    assert (fields["A"], fields["Edged-Dead-Letter-Reason"]) == ("b", "terminated")
    assert (fields["Edged-Dead-Letter-Stream"], fields["Edged-Dead-Letter-Consumer"]) == ("PY", "worker")
