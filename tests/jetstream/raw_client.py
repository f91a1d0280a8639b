"""A client that speaks the wire protocol and nothing more, for asking a real server about JetStream.

Rules: every wait is for a message that must come, with a deadline. That nothing else came is known by a
fence: a stream answers in the order of its input, so what was not there before the answer to a last publish
does not come any more.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from edged.core import headers

DEADLINE_S = 10.0
# nats-server removes the directory of an account without streams after it has answered, and a stream that is
# made at this moment finds none.
NO_DIRECTORY = 10049
ASK_TIMES_MAX = 50


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message from the server."""

    subject: bytes
    block: bytes
    payload: bytes
    reply: bytes = b""

    @property
    def document(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The header lines in their order."""
        lines = self.block.split(b"\r\n")[1:-2]
        return [(line.partition(b":")[0], line.partition(b":")[2].strip()) for line in lines]


class RawClient:
    """One connection, subscribed to `R.>`, where it has everything answered."""

    def __init__(self, host: str, port: int, **login: str | bool) -> None:
        self._socket = socket.create_connection((host, port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = self._socket.makefile("rb")
        self._count = 0
        self._backlog: deque[Arrived] = deque()
        connect = json.dumps({"verbose": False, "headers": True, **login})
        self.send(f"CONNECT {connect}\r\nSUB R.> 1\r\nPING\r\n".encode())
        while (line := self._input.readline()) != b"PONG\r\n":
            assert line and not line.startswith(b"-ERR"), line

    def close(self) -> None:
        """End the connection."""
        self._input.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def subscribe(self, subject: str) -> None:
        """Receive what is published there, too, from now on."""
        self._count += 1
        self.send(f"SUB {subject} {self._count + 1}\r\n".encode())

    def publish(self, subject: bytes, block: bytes = b"", payload: bytes = b"", reply: bytes = b"") -> None:
        """Publish, without waiting for anything."""
        self.send(message_bytes(subject, block, payload, reply))

    def receive(self, deadline_s: float = DEADLINE_S) -> Arrived:
        """The next message."""
        if self._backlog:
            return self._backlog.popleft()
        return self._next(deadline_s)

    def _next(self, deadline_s: float) -> Arrived:
        until = time.monotonic() + deadline_s
        while True:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            line = self._input.readline()
            words = line.split()
            if words and words[0] in (b"MSG", b"HMSG"):
                data = self._input.read(int(words[-1]) + 2)[:-2]
                is_with_headers = words[0] == b"HMSG"
                header_bytes = int(words[-2]) if is_with_headers else 0
                reply = words[3] if len(words) == (6 if is_with_headers else 5) else b""
                return Arrived(words[1], data[:header_bytes], data[header_bytes:], reply)
            if line == b"PING\r\n":
                self.send(b"PONG\r\n")
            elif not words or words[0] == b"-ERR":
                raise AssertionError(f"the server said {line!r}")

    def ask(self, subject: str | bytes, block: bytes = b"", payload: bytes = b"") -> Arrived:
        """Publish and return the one answer; what else comes meanwhile is kept for receive()."""
        self._count += 1
        reply = b"R.ask.%d" % self._count
        self.publish(subject.encode() if isinstance(subject, str) else subject, block, payload, reply)
        while True:
            arrived = self._next(DEADLINE_S)
            if arrived.subject == reply:
                return arrived
            self._backlog.append(arrived)

    def api(self, name: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request to the JetStream API; an error fails the test."""
        body = json.dumps(request).encode() if request is not None else b""
        for _ in range(ASK_TIMES_MAX):
            answer: dict[str, Any] = self.ask(f"$JS.API.{name}", b"", body).document
            if answer.get("error", {}).get("err_code") != NO_DIRECTORY:
                break
        assert "error" not in answer, answer
        return answer

    def until_fence(self, subject: bytes) -> list[Arrived]:
        """Everything that arrives before the answer to a publish on `subject`."""
        self._count += 1
        fence = b"R.fence.%d" % self._count
        self.publish(subject, b"", b"", fence)
        found: list[Arrived] = []
        while True:
            arrived = self.receive()
            if arrived.subject == fence:
                return found
            found.append(arrived)


def message_bytes(subject: bytes, block: bytes, payload: bytes, reply: bytes) -> bytes:
    """A PUB or HPUB operation."""
    target = subject + (b" " + reply if reply else b"")
    if not block:
        return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(block), len(block) + len(payload), block, payload)


def block_of(**fields: str) -> bytes:
    """A header block; `Nats_Schedule="@hourly"` is the line `Nats-Schedule: @hourly`."""
    return headers.encode((key.replace("_", "-").encode(), value.encode()) for key, value in fields.items())
