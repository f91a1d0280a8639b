"""Archives that are cut, damaged, enormous or not for this stream: they are refused, and nothing is left."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edged.core.archive import ArchiveWriter
from edged.core.message import Message, counted_bytes
from tests.core.archive_cases import DATA, NEW, OLD_TAR, TAR, compressed
from tests.jetstream import archive_recipe as recipe
from tests.jetstream.jetstream_servers import kept, new_name, running
from tests.jetstream.raw_client import message_bytes
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

STORE_BYTES = 16 * 1024 * 1024
CONFIG = f'jetstream: {{store_dir: "${{directory}}/store", max_file_store: {STORE_BYTES}}}'
RESTORE_FAILED = 10062
STREAM_NOT_FOUND = 10059
TS_NS = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running("edged", tmp_path_factory.mktemp("edged"), CONFIG) as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[SnapshotClient]:
    connected = SnapshotClient(server.host, server.port)
    yield connected
    connected.close()


def archive_of(messages: list[Message], state: dict[str, Any] | None = None) -> bytes:
    """`state` are fields of the archive's own account of itself that are otherwise than they should be."""
    size_bytes = sum(
        counted_bytes(len(message.subject), message.header_bytes, len(message.data)) for message in messages
    )
    document = {
        "messages": len(messages),
        "bytes": size_bytes,
        "first_seq": messages[0].seq if messages else 1,
        "last_seq": messages[-1].seq if messages else 0,
        "consumer_count": 0,
        **(state or {}),
    }
    writer = ArchiveWriter()
    parts = [writer.begin(document, TS_NS), writer.messages(messages), writer.finish()]
    return b"".join(parts)


def some(name: str, count: int, payload: bytes = b"payload") -> list[Message]:
    return [Message(seq, TS_NS + seq, f"{name}.x".encode(), 0, payload) for seq in range(1, count + 1)]


def refused(client: SnapshotClient, name: str, archive: bytes) -> str:
    """The reason why an archive is not taken. There is nothing of it afterwards."""
    answer = client.restore({"name": name, "subjects": [f"{name}.>"]}, {}, archive)
    error = answer["error"]
    assert (error["code"], error["err_code"]) == (500, RESTORE_FAILED), answer
    assert_nothing_of(client, name)
    return str(error["description"]).removeprefix("restore failed: ")


def assert_nothing_of(client: SnapshotClient, name: str) -> None:
    info = client.ask(f"$JS.API.STREAM.INFO.{name}").document
    assert info["error"]["err_code"] == STREAM_NOT_FOUND, info
    account = client.api("INFO")
    assert (account["streams"], account["storage"], account["memory"]) == (0, 0, 0), account


def test_an_archive_that_is_cut_anywhere_is_refused(client: SnapshotClient) -> None:
    name = new_name("cut")
    archive = archive_of(some(name, 20))
    for end in range(0, len(archive), 7):
        refused(client, name, archive[:end])


@pytest.mark.parametrize("archive_name", [NEW, TAR, OLD_TAR])
def test_an_archive_with_a_flipped_bit_is_refused(client: SnapshotClient, archive_name: str) -> None:
    archive = (DATA / archive_name).read_bytes()
    chance = random.Random(archive_name)
    for _ in range(40):
        damaged = bytearray(archive)
        damaged[chance.randrange(len(archive))] ^= 1 << chance.randrange(8)
        refused(client, recipe.STREAM, bytes(damaged))


def test_what_is_no_archive_is_refused(client: SnapshotClient) -> None:
    chance = random.Random(5)
    for data in (b"x", b"\0" * 9000, chance.randbytes(9000), compressed(b"{}"), compressed(bytes(9000))):
        refused(client, new_name("none"), data)


def test_an_archive_of_another_stream_is_refused(client: SnapshotClient) -> None:
    assert refused(client, new_name("other"), (DATA / TAR).read_bytes()) == "stream names do not match"


def test_an_archive_that_unpacks_to_more_than_the_store_is_refused(client: SnapshotClient) -> None:
    refused(client, new_name("bomb"), compressed(bytes(4 * STORE_BYTES)))
    name = new_name("bomb")
    refused(client, name, archive_of(some(name, 4 * STORE_BYTES // 900_000, bytes(900_000))))


def test_a_message_that_nobody_could_publish_is_refused(client: SnapshotClient) -> None:
    name = new_name("large")
    refused(client, name, archive_of(some(name, 1, bytes(1024 * 1024 + 1))))


@pytest.mark.parametrize(
    "state",
    [
        {"first_seq": 7, "last_seq": 3},
        {"last_seq": -1},
        {"last_seq": 1 << 63},
        {"messages": "x"},
    ],
    ids=str,
)
def test_an_archive_that_contradicts_itself_is_refused(client: SnapshotClient, state: dict[str, Any]) -> None:
    name = new_name("contradiction")
    refused(client, name, archive_of(some(name, 3), state))


def test_more_chunks_at_a_time_than_are_kept_end_the_restore(client: SnapshotClient) -> None:
    name = new_name("flood")
    subject = begun(client, name)
    chunk = bytes(1000)
    client.send(b"".join(message_bytes(subject, b"", chunk, b"R.flood") for _ in range(1000)))
    answers = [client.receive()]
    while not answers[-1].payload:
        answers.append(client.receive())
    assert answers[-1].document["error"]["err_code"] == RESTORE_FAILED
    assert_nothing_of(client, name)


def begun(client: SnapshotClient, name: str) -> bytes:
    """Where the archive of a stream is expected."""
    answer = client.api(f"STREAM.RESTORE.{name}", {"config": {"name": name, "subjects": [f"{name}.>"]}})
    return str(answer["deliver_subject"]).encode()


def test_a_chunk_without_a_reply_subject_ends_the_restore(client: SnapshotClient) -> None:
    name = new_name("mute")
    archive = archive_of(some(name, 5))
    client.publish(begun(client, name), b"", archive)
    # Both are decided by now: the request is answered after the chunk has arrived.
    assert_nothing_of(client, name)
    while (
        "error"
        in client.ask(
            f"$JS.API.STREAM.RESTORE.{name}", b"", json.dumps({"config": {"name": name}}).encode()
        ).document
    ):
        pass


def test_a_name_is_taken_while_its_archive_is_awaited(client: SnapshotClient) -> None:
    name = new_name("awaited")
    subject = begun(client, name)
    request = json.dumps({"config": {"name": name}}).encode()
    answer = client.ask(f"$JS.API.STREAM.RESTORE.{name}", b"", request).document
    assert answer["error"]["err_code"] == 10130, answer
    client.ask(subject)
    assert_nothing_of(client, name)


def test_a_stream_that_was_made_meanwhile_stays_and_the_restore_fails(client: SnapshotClient) -> None:
    name, rival = new_name("late"), new_name("rival")
    archive = archive_of(some(name, 5))
    for config, err_code in (
        ({"name": name, "subjects": ["other"]}, 10130),
        ({"name": rival, "subjects": [f"{name}.x"]}, 10065),
    ):
        subject = begun(client, name)
        client.ask(subject, b"", archive)
        client.api(f"STREAM.CREATE.{config['name']}", config)
        answer = client.ask(subject).document
        assert answer["error"]["err_code"] == err_code, answer
        assert client.api("STREAM.NAMES")["streams"] == [config["name"]]
        assert client.api(f"STREAM.INFO.{config['name']}")["state"]["messages"] == 0
        client.api(f"STREAM.DELETE.{config['name']}")


def test_streams_that_are_made_and_restored_at_the_same_time_are_all_there(client: SnapshotClient) -> None:
    names = [new_name("many") for _ in range(20)]
    subjects = [begun(client, name) for name in names]
    for name, subject in zip(names, subjects, strict=True):
        client.ask(subject, b"", archive_of(some(name, 3)))
    others = [new_name("made") for _ in range(20)]
    for subject, other in zip(subjects, others, strict=True):
        client.publish(subject, b"", b"", b"R.restored")
        config = json.dumps({"name": other, "subjects": [f"{other}.>"]}).encode()
        client.publish(f"$JS.API.STREAM.CREATE.{other}".encode(), b"", config, b"R.made")
    answers = [client.receive().document for _ in range(40)]
    assert not [answer for answer in answers if "error" in answer]
    assert client.api("STREAM.NAMES")["streams"] == sorted([*names, *others])
    assert [len(kept(client, name)) for name in (*names, *others)] == [3] * 20 + [0] * 20
    for name in (*names, *others):
        client.api(f"STREAM.DELETE.{name}")


def test_a_stream_that_could_not_go_on_is_refused(client: SnapshotClient) -> None:
    name = new_name("end")
    refused(client, name, archive_of(some(name, 3), {"last_seq": (1 << 63) - 1}))


# --- the server ends ---


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_during_a_restore_has_nothing_of_it_afterwards(
    tmp_path: Path, number: signal.Signals
) -> None:
    config = 'jetstream: {store_dir: "${directory}/store"}'
    archive = archive_of(some("half", 20_000, b"x" * 100))
    server = start_server("edged", config, tmp_path)
    try:
        client = SnapshotClient(server.host, server.port)
        subject = begun(client, "half")
        for start in range(0, len(archive), 500_000):
            client.ask(subject, b"", archive[start : start + 500_000])
        client.publish(subject, b"", b"", b"R.end")
        # The stream is in the journal, under the mark that says that it is not whole.
        while not any(b"edged.restoring" in beginning for beginning in journal_beginnings(tmp_path)):
            pass
        server.signal(number)
        server.wait_exit()
        client.close()
    finally:
        server.stop()
    with running("edged", tmp_path, config) as again:
        client = SnapshotClient(again.host, again.port)
        assert client.api("STREAM.NAMES")["streams"] is None
        assert client.api("INFO")["storage"] == 0
        assert "was not restored completely stream=half" in again.log_tail()
        assert "error" not in client.restore({"name": "half", "subjects": ["half.>"]}, {}, archive)
        assert client.api("STREAM.INFO.half")["state"]["messages"] == 20_000
        client.close()


def journal_beginnings(directory: Path) -> list[bytes]:
    """The first bytes of the journal's files, which are made larger than what they hold."""
    beginnings = []
    for path in (directory / "store" / "jetstream" / "journal").iterdir():
        with path.open("rb") as file:
            beginnings.append(file.read(16 * 1024))
    return beginnings
