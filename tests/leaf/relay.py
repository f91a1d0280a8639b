"""Stands between two servers, passes on what they say, and writes it down."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

# A server that goes away closes its connections, so a thread that is still there after so long is a fault.
JOIN_DEADLINE_S = 10.0


@dataclass(slots=True)
class Recording:
    """What was said on one connection, by whoever opened it and by the server behind the relay."""

    of_opener: bytearray = field(default_factory=bytearray)
    of_server: bytearray = field(default_factory=bytearray)


class Relay:
    """Listens on a port of its own, with threads that copy. Recordings are complete when it is closed."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.recordings: list[Recording] = []
        self._sockets = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, function: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                opener, _ = self._listener.accept()
            except OSError:  # The relay is being closed.
                return
            server = socket.create_connection(self._target)
            recording = Recording()
            self.recordings.append(recording)
            self._sockets += (opener, server)
            self._start(_copy, opener, server, recording.of_opener)
            self._start(_copy, server, opener, recording.of_server)

    def close(self) -> None:
        """Take no more connections, and wait for the end of those that there are."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(JOIN_DEADLINE_S)
            assert not thread.is_alive(), "a connection is still open"
        for each in self._sockets:
            each.close()


def _copy(source: socket.socket, sink: socket.socket, record: bytearray) -> None:
    """Until the source has nothing more to say. It counts even when the sink is not there any more."""
    with suppress(ConnectionResetError):
        while data := source.recv(65536):
            record += data
            with suppress(OSError):
                sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def relay_to(target: tuple[str, int]) -> Iterator[Relay]:
    """A relay; whoever uses it sees to it that its connections end before this does."""
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
