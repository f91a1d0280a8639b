"""How chunks of a snapshot follow each other: a window at a time, and none to whoever stays silent."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.core.archive_cases import read
from tests.jetstream.jetstream_servers import SERVERS, new_name, running
from tests.jetstream.raw_client import message_bytes
from tests.jetstream.snapshot_client import SnapshotClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

PATIENCE_S = 20.0
"""Longer than a server waits for acknowledgements, or for chunks, which is 5 s."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningServer]]:
    with (
        running("edged", tmp_path_factory.mktemp("edged")) as edged,
        running("nats-server", tmp_path_factory.mktemp("nats-server")) as nats_server,
    ):
        yield {"edged": edged, "nats-server": nats_server}


@dataclass(frozen=True, slots=True)
class Chunk:
    reply: bytes
    block: bytes
    payload: bytes


class Receiver(SnapshotClient):
    """Asks for a snapshot, and acknowledges when it is told to."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._early: list[tuple[bytes, bytes, bytes, bytes]] = []

    def fill(self, chunk_bytes: int) -> str:
        """A stream whose archive has about 20 chunks."""
        name = new_name("flow")
        self.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        for number in range(20):
            self.ask(name, b"", random.Random(number).randbytes(chunk_bytes))
        return name

    def begin(self, name: str, chunk_bytes: int, window_bytes: int) -> None:
        self.subscribe("S.flow")
        request = {"deliver_subject": "S.flow", "chunk_size": chunk_bytes, "window_size": window_bytes}
        subject = f"$JS.API.STREAM.SNAPSHOT.{name}".encode()
        self.publish(subject, b"", json.dumps(request).encode(), b"R.snap")
        # With nats-server the first chunk may overtake the answer.
        while (arrived := self._receive_with_reply())[0] != b"R.snap":
            self._early.append(arrived)

    def chunk(self) -> Chunk:
        subject, *rest = self._early.pop(0) if self._early else self._receive_with_reply()
        assert subject == b"S.flow", (subject, rest)
        return Chunk(*rest)

    def is_quiet(self) -> bool:
        """Nothing more came before the answer to a request that was made now."""
        self.publish(b"$JS.API.INFO", b"", b"", b"R.quiet")
        return self._receive_with_reply()[0] == b"R.quiet"

    def wait_long(self) -> None:
        self._socket.settimeout(PATIENCE_S)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    ("chunk_bytes", "window_bytes", "in_flight"), [(1024, 4096, 4), (2048, 1, 1), (1, 1, 1), (4096, 9000, 2)]
)
def test_no_more_than_a_window_is_on_its_way(
    servers: dict[str, RunningServer], kind: str, chunk_bytes: int, window_bytes: int, in_flight: int
) -> None:
    client = Receiver(servers[kind].host, servers[kind].port)
    name = client.fill(max(chunk_bytes, 1024))
    client.begin(name, chunk_bytes, window_bytes)
    chunks = [client.chunk() for _ in range(in_flight)]
    assert client.is_quiet()
    for number in range(3):
        client.publish(chunks[number].reply)
        chunks.append(client.chunk())
        assert client.is_quiet()
    for number, chunk in enumerate(chunks, 1):
        assert chunk.reply.split(b".")[-2:] == [b"%d" % len(chunk.payload), b"%d" % number]
        assert len(chunk.payload) == max(chunk_bytes, 1024)
    waiting = chunks[3:]
    while chunks[-1].payload:
        if waiting:
            client.publish(waiting.pop(0).reply)
        chunks.append(client.chunk())
        if chunks[-1].reply:
            waiting.append(chunks[-1])
    assert chunks[-1].block == b"NATS/1.0 204\r\n\r\n"
    _, messages = read(b"".join(chunk.payload for chunk in chunks))
    assert len(messages) == 20
    client.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_an_archive_that_fits_one_chunk_comes_without_flow_control(
    servers: dict[str, RunningServer], kind: str
) -> None:
    client = Receiver(servers[kind].host, servers[kind].port)
    name = new_name("small")
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    client.begin(name, 0, 0)
    only, end = client.chunk(), client.chunk()
    assert (only.reply, only.block, end) == (b"", b"", Chunk(b"", b"", b""))
    assert read(only.payload)[1] == []
    client.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_chunks_wait_for_a_subscription_to_just_their_subject(
    servers: dict[str, RunningServer], kind: str
) -> None:
    """As the nats command asks: its answers come by a wildcard, and chunks by a subscription made later."""
    client = Receiver(servers[kind].host, servers[kind].port)
    name = new_name("later")
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    subject = f"$JS.API.STREAM.SNAPSHOT.{name}".encode()
    client.publish(subject, b"", b'{"deliver_subject":"R.later"}', b"R.snap")
    assert client.receive().subject == b"R.snap"
    # Nothing comes by the wildcard of this client meanwhile.
    assert client.until_fence(b"$JS.API.INFO") == []
    client.send(b"SUB R.later 77\r\n")
    arrived = [client.receive() for _ in range(4)]
    # Each of two messages, once for each subscription.
    assert {one.subject for one in arrived} == {b"R.later"}
    assert sorted(bool(one.payload) for one in arrived) == [False, False, True, True]
    client.close()


def test_a_receiver_that_stays_silent_is_given_up(servers: dict[str, RunningServer]) -> None:
    # At the same time with both: it takes them 5 s.
    clients = [Receiver(server.host, server.port) for server in servers.values()]
    for client in clients:
        client.begin(client.fill(1024), 1024, 2048)
        client.wait_long()
    for client in clients:
        chunks = [client.chunk() for _ in range(3)]
        assert [bool(chunk.reply) for chunk in chunks] == [True, True, False]
        assert chunks[-1] == Chunk(b"", b"NATS/1.0 408 No Flow Response\r\n\r\n", b"")
        client.close()


def test_a_sender_that_stays_silent_is_given_up(servers: dict[str, RunningServer]) -> None:
    server = servers["edged"]
    client = SnapshotClient(server.host, server.port)
    name = new_name("stalled")
    request = json.dumps({"config": {"name": name}}).encode()
    subject = client.api(f"STREAM.RESTORE.{name}", {"config": {"name": name}})["deliver_subject"]
    client.ask(subject, b"", b"the first bytes"[:3])
    # The name is free again once the sender was given up.
    while "error" in client.ask(f"$JS.API.STREAM.RESTORE.{name}", b"", request).document:
        pass
    client.send(message_bytes(subject.encode(), b"", b"too late", b"R.late"))
    assert client.until_fence(b"$JS.API.INFO") == []
    assert client.api("INFO")["streams"] == len(client.api("STREAM.NAMES")["streams"] or ())
    client.close()
