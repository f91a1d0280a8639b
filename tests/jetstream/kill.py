"""Eight clients publish to a stream while its server is killed, again and again: nothing is lost that counts.

`python -m tests.jetstream.kill --rounds 100 [--seed 1]` plays many rounds on one store; test_kill.py a few.
A round: clients publish messages with ids and keep some of them on their way; after so many acknowledgements
the server gets SIGKILL; it starts again; clients repeat what was not acknowledged, and some of what was.

What must hold: an acknowledged message has its seq and its bytes; no seq is given twice; no id is stored
twice; a repeated id is answered with the seq it has.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edged.core import headers
from tests.jetstream.jetstream_servers import CONFIG
from tests.jetstream.raw_client import RawClient, message_bytes
from tests.servers import RunningServer, start_server

STREAM: Final = "KILLED"
CLIENTS: Final = 8
# How many messages of a client are on their way.
WINDOWS: Final = (1, 2, 8, 32, 128)
ACKS_MAX: Final = 1500
REPEATED_MAX: Final = 50
_ACK: Final = re.compile(rb"MSG A\.\d+\.(\d+) 1 \d+\r\n(\{[^\r]*\})\r\n")


class Violation(AssertionError):  # noqa: N818 - says what happened
    """Something that must hold does not."""


@dataclass(slots=True)
class Publisher:
    """One client: sends messages that nobody sent before, until its connection breaks."""

    number: int
    window: int
    # Shared by all: how many acknowledgements came, and who waits for that.
    progress: Progress
    sent: int = 0
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    waiting: dict[int, bytes] = field(default_factory=dict)

    def run(self, server: RunningServer) -> None:
        """Publish until the server is gone."""
        try:
            with socket.create_connection((server.host, server.port)) as connection:
                self._publish(connection)
        except OSError:
            pass  # The server was killed: that is what ends it.

    def _publish(self, connection: socket.socket) -> None:
        hello = b'CONNECT {"verbose":false,"headers":true}\r\nSUB A.%d.* 1\r\n'
        connection.sendall(hello % self.number)
        tail = b""
        while True:
            batch = []
            while len(self.waiting) < self.window:
                self.sent += 1
                message_id = b"%d.%d" % (self.number, self.sent)
                self.waiting[self.sent] = message_id
                batch.append(published(message_id, b"A.%d.%d" % (self.number, self.sent)))
            connection.sendall(b"".join(batch))
            data = connection.recv(1 << 16)
            if not data:
                return
            tail += data
            position = 0
            for match in _ACK.finditer(tail):
                position = match.end()
                self._acknowledged(int(match[1]), json.loads(match[2]))
            tail = tail[position:]

    def _acknowledged(self, number: int, ack: dict[str, object]) -> None:
        message_id = self.waiting.pop(number)
        if "error" in ack or "duplicate" in ack:
            self.progress.fail(f"{message_id!r} was answered {ack}")
            return
        seq = ack["seq"]
        assert isinstance(seq, int)
        self.acknowledged[message_id] = seq
        self.progress.note()


class Progress:
    """Counts acknowledgements of all clients; wait() waits for so many."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0
        self._failure: str | None = None

    def note(self) -> None:
        with self._condition:
            self._count += 1
            self._condition.notify()

    def fail(self, text: str) -> None:
        with self._condition:
            self._failure = text
            self._condition.notify()

    def wait(self, count: int, deadline_s: float = 30.0) -> None:
        """Raises Violation when nothing came for so long: a disk that is slow is none."""
        with self._condition:
            while self._count < count:
                seen = self._count
                moved = self._condition.wait_for(
                    lambda seen=seen: self._count > seen or self._failure is not None, deadline_s
                )
                if self._failure is not None:
                    raise Violation(self._failure)
                if not moved:
                    raise Violation(f"nothing for {deadline_s} s after {seen} acknowledgements")


def published(message_id: bytes, reply: bytes) -> bytes:
    """The bytes on the wire; subject and payload follow from the id."""
    block = headers.encode([(b"Nats-Msg-Id", message_id)])
    return message_bytes(subject_of(message_id), block, payload_of(message_id), reply)


def subject_of(message_id: bytes) -> bytes:
    return b"%s.%d" % (STREAM.encode(), sum(message_id) % 50)


def payload_of(message_id: bytes) -> bytes:
    return message_id * (1 + sum(message_id) % 40)


class Killing:
    """The rounds of one store; `played` counts them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._chance = random.Random(seed)
        self._server = self._start()
        self._known: dict[bytes, int] = {}
        self._last_seq = 0
        self._publishers = [0] * CLIENTS
        self.played = self.acknowledged = self.repeated = self.found = 0
        client = self._client()
        client.api(f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": [f"{STREAM}.*"]})
        client.close()

    def close(self) -> None:
        """End the server."""
        self._server.stop()

    def round(self) -> None:
        """Publish, kill, start again and look. Raises Violation."""
        progress = Progress()
        window = self._chance.choice(WINDOWS)
        publishers = [
            Publisher(number, window, progress, sent) for number, sent in enumerate(self._publishers)
        ]
        threads = [
            threading.Thread(target=publisher.run, args=(self._server,), daemon=True)
            for publisher in publishers
        ]
        for thread in threads:
            thread.start()
        try:
            progress.wait(self._chance.randrange(1, ACKS_MAX))
        except Violation as violation:
            is_there = "is there" if self._server.is_running() else "has ended"
            raise Violation(f"{violation}; the server {is_there}: {self._server.log_tail()}") from None
        finally:
            self._server.signal(signal.SIGKILL)
            self._server.process.wait()
            for thread in threads:
                thread.join()
        self._server = self._start()
        self._check(publishers)
        self._publishers = [publisher.sent for publisher in publishers]
        self.played += 1

    def check_all(self) -> None:
        """Every message of all rounds is there once, and no other."""
        client = self._client()
        stored = self._stored(client, 1)
        client.close()
        if {message_id: seq for seq, message_id in stored.items()} != self._known:
            raise Violation("what is stored is not what was published")
        if sorted(stored) != list(range(1, len(stored) + 1)):
            raise Violation("there are gaps between the seqs")

    def _start(self) -> RunningServer:
        return start_server("edged", CONFIG, self._directory)

    def _client(self) -> RawClient:
        return RawClient(self._server.host, self._server.port)

    def _check(self, publishers: list[Publisher]) -> None:
        client = self._client()
        stored = self._stored(client, self._last_seq + 1)
        acknowledged = [pair for one in publishers for pair in one.acknowledged.items()]
        seqs = [seq for _, seq in acknowledged]
        if len(set(seqs)) != len(seqs) or min(seqs, default=self._last_seq + 1) <= self._last_seq:
            raise Violation("a seq was given twice")
        for message_id, seq in acknowledged:
            if stored.get(seq) != message_id:
                raise Violation(
                    f"{message_id!r} was acknowledged with seq {seq}: there is {stored.get(seq)!r}"
                )
        places = {message_id: seq for seq, message_id in stored.items()}
        if len(places) != len(stored):
            raise Violation("an id is stored twice")
        unknown = [message_id for one in publishers for message_id in one.waiting.values()]
        if set(places) - set(unknown) - {message_id for message_id, _ in acknowledged}:
            raise Violation("there are messages that nobody sent")
        again = [
            message_id
            for message_id, _ in self._chance.sample(acknowledged, min(REPEATED_MAX, len(acknowledged)))
        ]
        self._repeat(client, unknown + again, places)
        client.close()
        self.acknowledged += len(acknowledged)
        self.found += sum(message_id in places for message_id in unknown)

    def _repeat(self, client: RawClient, message_ids: list[bytes], places: dict[bytes, int]) -> None:
        """Send these once more: what is there already keeps its seq, the others get the next ones."""
        next_seq = max([self._last_seq, *places.values()]) + 1
        client.send(b"".join(published(message_id, b"R.again") for message_id in message_ids))
        for message_id in message_ids:
            ack = client.receive().document
            if message_id in places:
                expected = {"stream": STREAM, "seq": places[message_id], "duplicate": True}
            else:
                expected = {"stream": STREAM, "seq": next_seq}
                places[message_id] = next_seq
                next_seq += 1
            if ack != expected:
                raise Violation(f"{message_id!r} again was answered {ack}, not {expected}")
        self.repeated += len(message_ids)
        self._known.update(places)
        self._last_seq = next_seq - 1

    def _stored(self, client: RawClient, first_seq: int) -> dict[int, bytes]:
        """The ids of all messages from a seq on, whose subject and payload are as they should be."""
        last_seq = client.api(f"STREAM.INFO.{STREAM}")["state"]["last_seq"]
        subject = f"$JS.API.STREAM.MSG.GET.{STREAM}".encode()
        found: dict[int, bytes] = {}
        for start in range(first_seq, last_seq + 1, 500):
            seqs = range(start, min(start + 500, last_seq + 1))
            requests = (message_bytes(subject, b"", b'{"seq":%d}' % seq, b"R.get") for seq in seqs)
            client.send(b"".join(requests))
            for seq in seqs:
                found[seq] = _checked_id(client.receive().document, seq)
        return found


def _checked_id(answer: dict[str, dict[str, str]], seq: int) -> bytes:
    if "message" not in answer:
        raise Violation(f"seq {seq} is gone: {answer}")
    message = answer["message"]
    message_id = headers.value(b64decode(message["hdrs"]), b"Nats-Msg-Id") or b""
    if message["subject"].encode() != subject_of(message_id):
        raise Violation(f"seq {seq} is on another subject: {message}")
    if b64decode(message["data"]) != payload_of(message_id):
        raise Violation(f"seq {seq} has another payload: {message}")
    return message_id


def play(directory: Path, seed: int, rounds: int) -> Killing:
    """So many rounds; what was counted in them. Raises Violation."""
    killing = Killing(directory, seed)
    try:
        for _ in range(rounds):
            killing.round()
        killing.check_all()
    finally:
        killing.close()
    return killing


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.jetstream.kill", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        try:
            played = play(Path(directory), options.seed, options.rounds)
        except Violation as violation:
            sys.exit(f"seed {options.seed}: {violation}")
    print(
        f"rounds={played.played} acknowledged={played.acknowledged} unanswered_but_stored={played.found} "
        f"repeated={played.repeated} violations=0 seconds={time.monotonic() - began_s:.0f}"
    )


if __name__ == "__main__":
    main()
