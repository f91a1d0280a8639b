"""One client connection to one node: everything may fail, and says so within a deadline.

Rules: an OSError is the node's or the network's; NoAnswerError is an answer that did not come or refuses.
Both are ordinary here: what they mean is for the caller to say.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from tests.jetstream.raw_client import message_bytes

CONNECT_S_MAX: Final = 1.0
ANSWER_S_MAX: Final = 2.0
_RECEIVE_BYTES: Final = 1 << 18
_SERIALS: Final = itertools.count(1)
_HELLO: Final = {"verbose": False, "headers": True, "no_responders": True}


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message, and the subscription it came by: messages of a stream keep their own subject."""

    subject: bytes
    sid: int
    block: bytes
    payload: bytes
    reply: bytes

    @property
    def document(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)


class NoAnswerError(Exception):
    """A request was refused, or not answered in time."""


class Connection:
    """Subscribed to `<inbox>.*`; what arrives is taken with receive().

    In a cluster an inbox is known everywhere. So every connection has subjects that no other one had: what
    was asked for earlier and comes late is not taken for what is asked for now.
    """

    def __init__(self, address: tuple[str, int], inbox: str = "I", **login: str) -> None:
        self.inbox = inbox
        self._serial = next(_SERIALS)
        self._count = 0
        self._sids = 1
        self._data = b""
        self._kept: list[Arrived] = []
        self._socket = socket.create_connection(address, timeout=CONNECT_S_MAX)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = json.dumps({**_HELLO, **login})
            self.send(f"CONNECT {hello}\r\nSUB {inbox}.* 1\r\nPING\r\n".encode())
            self._wait_pong(time.monotonic() + CONNECT_S_MAX)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are. Raises OSError, also when the other side does not take them."""
        self._socket.settimeout(ANSWER_S_MAX)
        self._socket.sendall(data)

    def publish(self, subject: str, payload: bytes, reply: str = "", block: bytes = b"") -> None:
        """Publish, without waiting for anything."""
        self.send(message_bytes(subject.encode(), block, payload, reply.encode()))

    def subscribe(self, wildcard: str = "") -> tuple[int, str]:
        """A subscription of its own for what some requests bring: its number, and where it listens."""
        self._sids += 1
        inbox = f"{self.inbox}.{self._serial}.{self._sids}" + (f".{wildcard}" if wildcard else "")
        self.send(f"SUB {inbox} {self._sids}\r\n".encode())
        return self._sids, inbox

    def unsubscribe(self, sid: int) -> None:
        """It is over."""
        self.send(f"UNSUB {sid}\r\n".encode())

    def receive(self, wait_s: float) -> list[Arrived]:
        """What has arrived, waiting for so long if there is nothing. Raises OSError when the node is gone."""
        if self._kept:
            kept, self._kept = self._kept, []
            return kept
        deadline_s = time.monotonic() + wait_s
        # Half a message is none yet, and not the end either.
        while not (arrived := self._parse()) and self._read(deadline_s - time.monotonic()):
            pass
        return arrived

    def ask(self, subject: str, body: dict[str, Any] | bytes = b"", wait_s: float = ANSWER_S_MAX) -> Arrived:
        """Publish and return the one answer; what else comes meanwhile is kept."""
        self._count += 1
        reply = f"{self.inbox}.ask{self._serial}-{self._count}"
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.publish(subject, payload, reply)
        deadline_s = time.monotonic() + wait_s
        kept: list[Arrived] = []
        while (left_s := deadline_s - time.monotonic()) > 0:
            arrived = self.receive(left_s)
            for place, message in enumerate(arrived):
                if message.subject == reply.encode():
                    self._kept = kept + arrived[place + 1 :]
                    return message
                kept.append(message)
        self._kept = kept
        raise NoAnswerError(f"{subject}: nothing for {wait_s} s")

    def api(self, endpoint: str, body: dict[str, Any] | bytes = b"", wait_s: float = ANSWER_S_MAX) -> Any:
        """A request to the JetStream API. Raises NoAnswerError for an error."""
        answer = self.ask(f"$JS.API.{endpoint}", body, wait_s)
        if not answer.payload:
            raise NoAnswerError(f"{endpoint}: {answer.block[:40]!r}")
        document = answer.document
        if "error" in document:
            raise NoAnswerError(f"{endpoint}: {document['error']}")
        return document

    def _read(self, wait_s: float) -> bool:
        """Take bytes from the socket; false if none came in time."""
        if not select.select([self._socket], [], [], max(0.0, wait_s))[0]:
            return False
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the node closed the connection")
        self._data += data
        return True

    def _parse(self) -> list[Arrived]:
        """The whole messages among the bytes at hand."""
        found: list[Arrived] = []
        data, place = self._data, 0
        while (end := data.find(b"\r\n", place)) >= 0:
            words = data[place:end].split()
            start = end + 2
            if words and words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                if len(data) < start + size + 2:
                    break
                header_bytes = int(words[-2]) if words[0] == b"HMSG" else 0
                reply = words[3] if len(words) == (6 if header_bytes else 5) else b""
                block = data[start : start + header_bytes]
                payload = data[start + header_bytes : start + size]
                found.append(Arrived(words[1], int(words[2]), block, payload, reply))
                start += size + 2
            elif words and words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words and words[0] == b"-ERR":
                raise ConnectionResetError(f"the node said {data[place:end]!r}")
            place = start
        self._data = data[place:]
        return found

    def _wait_pong(self, deadline_s: float) -> None:
        while b"PONG\r\n" not in self._data:
            if not self._read(deadline_s - time.monotonic()):
                raise TimeoutError("no PONG")
        self._data = self._data.partition(b"PONG\r\n")[2]
