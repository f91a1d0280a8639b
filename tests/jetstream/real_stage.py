"""Transcripts on a real server, with all times shortened: what comes is the same, when it comes is not.

Rules: each client has a connection and a thread that reads it. Where a step has so many lines in the file, so
many arrivals are waited for. Where time passes it really does, so a busy machine can be too late: who
compares does it for each client alone, and tries again with longer times.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Final

from tests.jetstream.consumption_clients import Connection
from tests.jetstream.raw_client import RawClient
from tests.jetstream.transcript import Arrival
from tests.servers import RunningServer

PATIENCE_S: Final = 5.0


class RealStage:
    """A server while a transcript is played; all times are multiplied by `scale`."""

    def __init__(self, server: RunningServer, scale: float) -> None:
        self._server = server
        self._scale = scale
        self._control = RawClient(server.host, server.port)
        self._connections: dict[str, Connection] = {}
        self._threads: list[threading.Thread] = []
        self._found: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._fences = 0

    def close(self) -> None:
        """End all connections."""
        for client in list(self._connections):
            self.leave(client)
        for thread in self._threads:
            thread.join()
        self._control.close()

    def listen(self, client: str, subject: str, group: str) -> None:
        connection = self._connections[client] = Connection(self._server)
        self._fences += 1
        fence = b"R.fence.%d" % self._fences
        connection.greet(b"unused.%s" % client.encode())
        subscription = " ".join(("SUB", subject, group, "9")).encode()
        connection.send(b"%s\r\nPUB %s 0\r\n\r\n" % (subscription, fence))
        while self._control.receive().subject != fence:
            pass
        thread = threading.Thread(target=self._read, args=(client, connection), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _read(self, client: str, connection: Connection) -> None:
        try:
            for messages in connection.messages():
                at_ns = time.monotonic_ns()
                for one in messages:
                    self._found.put(
                        Arrival(
                            *(client, at_ns, one.subject.decode(), one.reply.decode()),
                            one.block,
                            len(one.payload),
                        )
                    )
        except OSError:
            pass  # The client left.
        finally:
            connection.close()

    def leave(self, client: str) -> None:
        self._connections.pop(client).end()

    def publish(self, subject: str, data: bytes, reply: str) -> None:
        self._control.publish(subject.encode(), b"", data, reply.encode())

    def confirm(self, subject: str, data: bytes) -> None:
        self._control.ask(subject, b"", data)

    def api(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        return self._control.api(name, request)

    def duration_ns(self, written_ns: int) -> int:
        """Shorter than it is written."""
        return round(written_ns * self._scale)

    def after(self, passed_ns: int) -> None:
        threading.Event().wait(passed_ns * self._scale / 1e9)

    def restart(self) -> None:
        raise AssertionError("transcripts with restarts are for the virtual clock")

    def arrivals(self, expected: int) -> list[Arrival]:
        found: list[Arrival] = []
        while True:
            try:
                is_missing = len(found) < expected
                found.append(self._found.get(is_missing, PATIENCE_S if is_missing else None))
            except queue.Empty:
                return found
