"""The clients of a server that dies: they publish, fetch and acknowledge in all ways until it is gone.

Rules: a client has one connection per life of the server, and is a thread. It writes what it knows into the
ledger, and ends with its connection.
"""

from __future__ import annotations

import json
import random
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from tests.jetstream.consumption_ledger import (
    SUBJECTS,
    ConsumerLedger,
    Ledger,
    StreamLedger,
    Violation,
)
from tests.jetstream.raw_client import Arrived, message_bytes
from tests.servers import RunningServer

BATCH_MAX: Final = 40
WINDOWS: Final = (1, 8, 64)
# A request ends by itself, so that nobody waits for a batch that does not become full.
_EXPIRES_NS: Final = 100_000_000
_NAK_DELAY: Final = b'-NAK {"delay": 20000000}'
# What a client does with a message of which it decides alone, in per cent: the rest is left to its time.
_ACK, _TERM, _PLAIN, _NAK, _LATER, _PROGRESS = 66, 72, 78, 83, 88, 93
_ALL_ACK, _ALL_NAK = 15, 20


class Connection:
    """Sends bytes, and reads messages until the connection breaks."""

    def __init__(self, server: RunningServer) -> None:
        self._socket = socket.create_connection((server.host, server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def greet(self, inbox: bytes) -> None:
        """Begin, and subscribe to an inbox."""
        self.send(b'CONNECT {"verbose":false,"headers":true}\r\nSUB %b.> 1\r\n' % inbox)

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def end(self) -> None:
        """Let whoever reads it see its end."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def messages(self) -> Iterator[list[Arrived]]:
        """What arrives, as it arrives."""
        buffer = b""
        while data := self._socket.recv(1 << 16):
            buffer += data
            found, position = [], 0
            while (end := buffer.find(b"\r\n", position)) >= 0:
                words = buffer[position:end].split()
                after = end + 2
                if words[0] in (b"MSG", b"HMSG"):
                    after += int(words[-1]) + 2
                    if len(buffer) < after:
                        break
                    found.append(_arrived(words, buffer[end + 2 : after - 2]))
                elif words[0] == b"PING":
                    self.send(b"PONG\r\n")
                position = after
            buffer = buffer[position:]
            yield found


def _arrived(words: list[bytes], data: bytes) -> Arrived:
    has_headers = words[0] == b"HMSG"
    split = int(words[-2]) if has_headers else 0
    reply = words[3] if len(words) == (6 if has_headers else 5) else b""
    return Arrived(words[1], data[:split], data[split:], reply)


class Client(threading.Thread):
    """One of them; `inbox` is where it has things sent to."""

    def __init__(self, server: RunningServer, ledger: Ledger, inbox: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ledger = ledger
        self._inbox = inbox.encode()
        self._chance = chance

    def run(self) -> None:
        """Until the server is gone."""
        try:
            self._connection = Connection(self._server)
        except OSError:
            return  # The server was killed already.
        with closing(self._connection):
            try:
                self._converse()
            except OSError:
                pass  # The server was killed: that is what ends it.
            except Violation as violation:
                self._ledger.fail(violation)

    def _converse(self) -> None:
        self._connection.greet(self._inbox)
        self.begin()
        for messages in self._connection.messages():
            with self._ledger.lock:
                if self._ledger.is_frozen:
                    return
                output = b"".join([self.arrived(message) for message in messages])
            if output:
                self._connection.send(output)

    def begin(self) -> None:
        """Send the first."""
        raise NotImplementedError

    def arrived(self, message: Arrived) -> bytes:
        """Take a message; what is to be sent because of it. The ledger's lock is held."""
        raise NotImplementedError


class Publisher(Client):
    """Publishes so many messages to a stream."""

    def __init__(
        self, server: RunningServer, ledger: Ledger, stream: StreamLedger, count: int, chance: random.Random
    ) -> None:
        super().__init__(server, ledger, f"P.{stream.name}", chance)
        self._stream = stream
        self._left = count

    def begin(self) -> None:
        """Fill the window."""
        window = self._chance.choice(WINDOWS)
        self._connection.send(b"".join(self._next() for _ in range(window)))

    def _next(self) -> bytes:
        if self._left == 0:
            return b""
        self._left -= 1
        self._stream.published += 1
        number = self._stream.published
        subject = b"%s.%d" % (self._stream.name.encode(), number % SUBJECTS)
        payload = b"%d %s" % (number, b"x" * (number % 50))
        return message_bytes(subject, b"", payload, b"%s.%d" % (self._inbox, number))

    def arrived(self, message: Arrived) -> bytes:
        """Whether a message was stored."""
        number = int(message.subject.rpartition(b".")[2])
        answer = json.loads(message.payload)
        if "error" in answer:
            raise Violation(f"{self._stream.name}: {number} was answered {answer}")
        self._stream.stored(answer["seq"], number)
        self._stream.acknowledged_to = max(self._stream.acknowledged_to, answer["seq"])
        self._ledger.note()
        return self._next()


class Worker(Client):
    """Fetches messages of a consumer and acknowledges them; `is_last` does so with all."""

    def __init__(
        self,
        server: RunningServer,
        ledger: Ledger,
        stream: StreamLedger,
        consumer: ConsumerLedger,
        place: int,
        chance: random.Random,
        is_last: bool,
    ) -> None:
        super().__init__(server, ledger, f"W.{stream.name}.{consumer.plan.name}.{place}", chance)
        self._stream = stream
        self._consumer = consumer
        self._is_last = is_last
        self._left = 0
        self._asked = 0
        # By the number of the request for a confirmation: the message, and how much was read before.
        self._waiting: dict[int, tuple[int, int]] = {}
        self._confirmed: set[int] = set()
        self._seen: deque[tuple[int, int, int]] = deque()
        self._seen_count = 0
        plan = consumer.plan
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{plan.stream}.{plan.name}".encode()

    def begin(self) -> None:
        """Ask for messages."""
        self._connection.send(self._fetch())

    def _fetch(self) -> bytes:
        self._left = self._chance.randrange(1, BATCH_MAX)
        body = b'{"batch":%d,"expires":%d}' % (self._left, _EXPIRES_NS)
        return message_bytes(self._next_subject, b"", body, b"%s.pull" % self._inbox)

    def arrived(self, message: Arrived) -> bytes:
        """A message to work on, a confirmation, or the end of a request."""
        if message.reply.startswith(b"$JS.ACK."):
            output = self._delivered(message)
            self._left -= 1
            return output if self._left else output + self._fetch()
        if message.subject.startswith(b"%s.done." % self._inbox):
            self._confirm(int(message.subject.rpartition(b".")[2]))
            return b""
        if message.block.startswith(b"NATS/1.0 100"):
            return b""
        return self._fetch()

    def _delivered(self, message: Arrived) -> bytes:
        words = message.reply.split(b".")
        count, seq, consumer_seq = int(words[4]), int(words[5]), int(words[6])
        self._stream.stored(seq, int(message.payload.partition(b" ")[0]))
        self._consumer.delivered(seq, count, self._ledger.life, self._is_confirmed(seq))
        self._seen.append((seq, count, consumer_seq))
        self._seen_count += 1
        return self._work(seq, message.reply)

    def _is_confirmed(self, seq: int) -> bool:
        """Whether this client was told so, and nobody else."""
        if self._consumer.is_all:
            return seq <= max(self._confirmed, default=0)
        return seq in self._confirmed

    def _work(self, seq: int, reply: bytes) -> bytes:
        chance = 0 if self._is_last else self._chance.randrange(100)
        if self._consumer.is_all:
            if chance < _ALL_ACK:
                return self._said(seq, reply, b"+ACK")
            return message_bytes(reply, b"", b"-NAK", b"") if chance < _ALL_NAK else b""
        if chance < _TERM:
            return self._said(seq, reply, b"+ACK" if chance < _ACK else b"+TERM too old")
        if chance < _PLAIN:
            self._consumer.say(seq, self._ledger.life)
            return message_bytes(reply, b"", b"", b"")
        if chance < _LATER:
            return message_bytes(reply, b"", b"-NAK" if chance < _NAK else _NAK_DELAY, b"")
        if chance < _PROGRESS:
            return message_bytes(reply, b"", b"+WPI", b"") + self._said(seq, reply, b"+ACK")
        return b""

    def _said(self, seq: int, reply: bytes, payload: bytes) -> bytes:
        """Acknowledge, and ask for a confirmation."""
        seen = self._seen_count if self._consumer.is_news(seq) else 0
        self._consumer.say(seq, self._ledger.life)
        self._asked += 1
        self._waiting[self._asked] = seq, seen
        return message_bytes(reply, b"", payload, b"%s.done.%d" % (self._inbox, self._asked))

    def _confirm(self, number: int) -> None:
        seq, seen = self._waiting.pop(number)
        consumer, life = self._consumer, self._ledger.life
        self._confirmed.add(seq)
        consumer.confirm(seq, life)
        while self._seen_count - len(self._seen) < seen:
            known, count, consumer_seq = self._seen.popleft()
            consumer.persist(known, count, consumer_seq, life)
        self._ledger.note()
