"""Clients that publish, and clients that fetch and acknowledge, through whichever node answers.

Rules: threads keep what they see to themselves; it is looked at after they have ended. A publisher keeps a
window of messages on their way and gives up a node that answers nothing for a while. Half of the publishers
give their messages ids and send again what was not acknowledged; the others never do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from edged.core import headers
from tests.jepsen.cluster import CONSUMER, STREAM, SUBJECTS, Cluster
from tests.jepsen.connection import Arrived, Connection, NoAnswerError
from tests.jepsen.history import Consumption, Delivery, History, Publish, payload_of
from tests.jepsen.nodes import Node
from tests.jetstream.raw_client import message_bytes

PUBLISHERS: Final = 6
WORKERS: Final = 2
RATE_PER_S: Final = 1200.0
WINDOWS: Final = (1, 4, 16, 64)
PATIENCE_S: Final = 1.5
_PAUSE_S: Final = 0.05
_WAIT_S: Final = 0.05
_BATCH: Final = 100
_PULL_NS: Final = 500_000_000
_PULL_S: Final = 0.5
_CONFIRM_S: Final = 1.0
_ACKED_SHARE: Final = 0.9


class Client(threading.Thread):
    """Connects to one node after another until it is told to end."""

    def __init__(self, cluster: Cluster, stop: threading.Event, random: Random) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.stop = stop
        self.random = random
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                node = self.random.choice(self.cluster.nodes)
                try:
                    self.session(node)
                except (OSError, NoAnswerError):
                    self.stop.wait(_PAUSE_S)
        except BaseException as error:
            self.failure = error
            raise

    def session(self, node: Node) -> None:
        """What to do with one node. Raises OSError when it is gone."""
        raise NotImplementedError


class Publisher(Client):
    """Publishes messages that nobody published before."""

    def __init__(
        self, cluster: Cluster, stop: threading.Event, random: Random, number: int, rate: float
    ) -> None:
        super().__init__(cluster, stop, random)
        self.number = number
        self.has_ids = number % 2 == 0
        self.window = random.choice(WINDOWS)
        self.rate = rate
        self.publishes: list[Publish] = []
        self.acknowledged = 0
        self._began_s = time.monotonic()
        self._waiting: dict[int, tuple[Publish, float]] = {}
        self._unknown: list[Publish] = []
        self.is_held = False

    def session(self, node: Node) -> None:
        try:
            with node.connect(f"P{self.number}") as connection:
                again, self._unknown = self._unknown, []
                for publish in again:
                    self._waiting[publish.number] = (publish, time.monotonic())
                if again:
                    connection.send(b"".join(self._wire(publish) for publish in again))
                while not self.stop.is_set() and self._is_patient():
                    self._send(connection)
                    for arrived in connection.receive(_WAIT_S):
                        self._answered(arrived)
        finally:
            if self.has_ids:
                self._unknown += [publish for publish, _ in self._waiting.values()]
            self._waiting.clear()

    def _is_patient(self) -> bool:
        """Whether the oldest message on its way is not too old. They are in the order of being sent."""
        oldest = next(iter(self._waiting.values()), None)
        return oldest is None or time.monotonic() - oldest[1] < PATIENCE_S

    def _send(self, connection: Connection) -> None:
        if self.is_held:
            return
        allowed = int((time.monotonic() - self._began_s) * self.rate) - len(self.publishes)
        data = []
        for _ in range(min(allowed, self.window - len(self._waiting))):
            number = len(self.publishes)
            now_s = time.monotonic()
            publish = Publish(
                f"{'d' if self.has_ids else 'p'}{self.number}.{number}", self.number, number, now_s
            )
            self.publishes.append(publish)
            self._waiting[number] = (publish, now_s)
            data.append(self._wire(publish))
        if data:
            connection.send(b"".join(data))

    def _wire(self, publish: Publish) -> bytes:
        message_id = publish.message_id
        block = headers.encode([(b"Nats-Msg-Id", message_id.encode())]) if self.has_ids else b""
        subject = f"{STREAM}.{publish.number % SUBJECTS}".encode()
        reply = f"P{self.number}.{publish.number}".encode()
        return message_bytes(subject, block, payload_of(message_id), reply)

    def _answered(self, arrived: Arrived) -> None:
        now_s = time.monotonic()
        number = int(arrived.subject.rpartition(b".")[2])
        publish, _ = self._waiting.pop(number, (None, 0.0))
        if publish is None:
            return  # An earlier answer to a message that was sent again.
        document = arrived.document if arrived.payload else {}
        if "seq" in document and "error" not in document:
            publish.seq, publish.completed_s = document["seq"], now_s
            self.acknowledged += 1
        elif self.has_ids:
            self._unknown.append(publish)


class Worker(Client):
    """Fetches from the durable consumer, and acknowledges most of it with confirmation."""

    def __init__(
        self, cluster: Cluster, stop: threading.Event, random: Random, number: int, acked_share: float
    ) -> None:
        super().__init__(cluster, stop, random)
        self.number = number
        self.acked_share = acked_share
        self.seen = Consumption()

    def session(self, node: Node) -> None:
        with node.connect(f"W{self.number}") as connection:
            while not self.stop.is_set():
                replies = self._pull(connection)
                self._acknowledge(connection, replies)

    def _pull(self, connection: Connection) -> list[tuple[int, str]]:
        """Ask for a batch: seqs, and where to acknowledge."""
        sid, inbox = connection.subscribe()
        try:
            return self._take(connection, sid, inbox)
        finally:
            connection.unsubscribe(sid)

    def _take(self, connection: Connection, sid: int, inbox: str) -> list[tuple[int, str]]:
        body = b'{"batch":%d,"expires":%d}' % (_BATCH, _PULL_NS)
        asked_s = time.monotonic()
        connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}", body, inbox)
        deadline_s = asked_s + _PULL_S + PATIENCE_S
        taken: list[tuple[int, str]] = []
        while len(taken) < _BATCH and time.monotonic() < deadline_s:
            for arrived in connection.receive(_WAIT_S):
                if arrived.sid != sid:
                    continue
                if not arrived.reply:  # A status: the pull has ended.
                    return taken
                seq = int(arrived.reply.split(b".")[-4])
                self.seen.deliveries.append(Delivery(seq, asked_s))
                taken.append((seq, arrived.reply.decode()))
            if taken and time.monotonic() > asked_s + _PULL_S:
                return taken
        if not taken:
            raise NoAnswerError("a pull was not answered")
        return taken

    def _acknowledge(self, connection: Connection, replies: list[tuple[int, str]]) -> None:
        waiting = {seq: reply for seq, reply in replies if self.random.random() < self.acked_share}
        self.seen.said |= waiting.keys() - self.seen.confirmed.keys()
        connection.send(
            b"".join(
                message_bytes(reply.encode(), b"", b"+ACK", f"W{self.number}.a{seq}".encode())
                for seq, reply in waiting.items()
            )
        )
        deadline_s = time.monotonic() + _CONFIRM_S
        while waiting and time.monotonic() < deadline_s:
            for arrived in connection.receive(_WAIT_S):
                token = arrived.subject.rpartition(b".")[2]
                # Without a block it is the server's word; 503 says that nobody heard.
                if token.startswith(b"a") and not arrived.block and waiting.pop(int(token[1:]), ""):
                    self.seen.confirmed.setdefault(int(token[1:]), time.monotonic())
                    self.seen.said.discard(int(token[1:]))


class Load:
    """All clients of a round. What they saw is in the history when they have ended."""

    def __init__(self, cluster: Cluster, random: Random, rate: float = RATE_PER_S) -> None:
        self._stop = threading.Event()

        def chance() -> Random:
            return Random(random.getrandbits(64))

        self.publishers = [
            Publisher(cluster, self._stop, chance(), number, rate / PUBLISHERS)
            for number in range(PUBLISHERS)
        ]
        self.workers = [
            Worker(cluster, self._stop, chance(), number, _ACKED_SHARE) for number in range(WORKERS)
        ]

    @property
    def acknowledged(self) -> int:
        """So far."""
        return sum(publisher.acknowledged for publisher in self.publishers)

    def hold(self, is_held: bool) -> None:
        """Publish nothing new until told otherwise: servers then write down what they keep for later."""
        for publisher in self.publishers:
            publisher.is_held = is_held

    @contextmanager
    def running(self, history: History) -> Iterator[None]:
        """Let them work until the end of the block."""
        clients: list[Client] = [*self.publishers, *self.workers]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            self._stop.set()
            for client in clients:
                client.join()
            for publisher in self.publishers:
                history.publishes += publisher.publishes
            merge(history.consumption, self.workers)
        failures = [client.failure for client in clients if client.failure is not None]
        if failures:
            raise failures[0]


def merge(consumption: Consumption, workers: list[Worker]) -> None:
    """What workers saw, together: what one of them heard confirmed, nobody doubts."""
    for worker in workers:
        consumption.deliveries += worker.seen.deliveries
        for seq, confirmed_s in worker.seen.confirmed.items():
            known_s = consumption.confirmed.get(seq, confirmed_s)
            consumption.confirmed[seq] = min(known_s, confirmed_s)
        consumption.said |= worker.seen.said
    consumption.said -= consumption.confirmed.keys()
