"""Servers under attack: inside the test (`Victim`), or a process whose memory and descriptors count.

Rules: after every attack `still_serves` must pass: a new client connects, and a message goes round. Memory is
what the process has now (not at its peak), measured after it went idle.
"""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from edged.config.load import load_text
from tests.server.live import LiveServer, live_server
from tests.server.monitored import MonitoredServer, monitored_server
from tests.servers import RunningServer, start_server

PATIENCE_S = 20.0
POLL_S = 0.01
STEADY_POLLS = 50
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true%s}\r\n'


# --- inside the test ---


@asynccontextmanager
async def victim(config: str = "") -> AsyncIterator[LiveServer]:
    """A server by a configuration; what attacks it leaves it serving."""
    async with live_server(load_text(config, {}).options) as live:
        yield live


@asynccontextmanager
async def monitored_victim(config: str = "") -> AsyncIterator[MonitoredServer]:
    async with monitored_server(load_text(config, {}).options) as server:
        yield server


async def still_serves(live: LiveServer, extra: bytes = b"") -> None:
    """A new client connects, and a message goes round."""
    client = await live.client(extra)
    await client.send(b"SUB still.here 1\r\nPUB still.here 2\r\nhi\r\n")
    assert await client.line() == b"MSG still.here 1 2"
    assert await client.line() == b"hi"
    await client.stream.aclose()


async def attack(live: LiveServer, data: bytes, extra: bytes = b"") -> list[bytes]:
    """What a connected client hears up to its end, when it sends this."""
    client = await live.client(extra)
    await client.send(data)
    return await client.closed()


async def first_words(live: LiveServer, data: bytes) -> list[bytes]:
    """What a new connection hears up to its end, when it begins with this."""
    client = await live.client(connect=False)
    await client.send(data)
    return await client.closed()


# --- a process ---


class Process:
    """A daemon in a process of its own."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.sockets: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """A new connection, its INFO read."""
        connection = socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE_S)
        self.sockets.append(connection)
        read_line(connection)
        return connection

    def login(self, extra: bytes = b"") -> socket.socket:
        """A connected client."""
        connection = self.connect()
        connection.sendall(CONNECT % extra + b"PING\r\n")
        assert read_line(connection) == b"PONG\r\n"
        return connection

    def release(self) -> None:
        """Close every connection made so far."""
        for connection in self.sockets:
            connection.close()
        self.sockets.clear()

    def memory_kib(self) -> int:
        """What the process has in memory now."""
        for line in Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("the process is gone")

    def settled_memory_kib(self) -> int:
        """The same, once the process has read all that was sent to it: when the figure stays as it is."""
        seen = [self.memory_kib()]

        def is_steady() -> bool:
            seen.append(self.memory_kib())
            return len(seen) > STEADY_POLLS and len(set(seen[-STEADY_POLLS:])) == 1

        self.wait_until(is_steady, "steady memory")
        return seen[-1]

    def descriptors(self) -> int:
        """How many files and sockets the process has open."""
        return len(list(Path(f"/proc/{self.server.pid}/fd").iterdir()))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that the process does in its own time."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.server.is_running(), self.server.log_tail()
            assert time.monotonic() < deadline, f"{what} did not happen\n{self.server.log_tail()}"
            time.sleep(POLL_S)

    def still_serves(self, extra: bytes = b"") -> None:
        """A new client connects, and a message goes round."""
        connection = self.login(extra)
        connection.sendall(b"SUB still.here 1\r\nPUB still.here 2\r\nhi\r\n")
        wanted = b"MSG still.here 1 2\r\nhi\r\n"
        found = b""
        while not found.endswith(wanted):
            chunk = connection.recv(65536)
            assert chunk, found
            found += chunk
        connection.close()
        assert self.server.is_running()


def read_line(connection: socket.socket) -> bytes:
    """One line, byte by byte, so that nothing behind it is taken; b"" at the end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line


def read_to_end(connection: socket.socket) -> bytes:
    """All that still comes; a reset is an end."""
    found = b""
    try:
        while chunk := connection.recv(65536):
            found += chunk
    except ConnectionResetError:
        pass  # What was read before is all there is.
    return found


@contextmanager
def process(config: str, directory: Path, login: bytes = b"") -> Iterator[Process]:
    """Run a daemon; at the end it must still be there, with no more descriptors than at the beginning."""
    running = Process(start_server("edged", config, directory))
    try:
        running.still_serves(login)
        running.release()
        before = running.descriptors()
        yield running
        assert running.server.is_running(), running.server.log_tail()
        running.release()
        running.wait_until(lambda: running.descriptors() <= before, f"return to {before} descriptors")
    finally:
        running.release()
        running.server.stop()
