"""A server inside the test, and clients that speak raw protocol to it over loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from edged.config.options import LoggingOptions, Options
from edged.ports import LocalRouter
from edged.server.listener import Listener, bind
from edged.server.log import Log
from edged.server.server import Server

PATIENCE_S = 5.0
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1,"headers":true,"no_responders":true%s}\r\n'


class LogLines:
    """A log that a test can read."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, line: str) -> None:
        self.text += line

    def flush(self) -> None:
        """Nothing is buffered."""


class LiveServer:
    """A running server, its port, and what it logged."""

    def __init__(self, server: Server, listener: Listener, lines: LogLines) -> None:
        self.server = server
        self.listener = listener
        self.lines = lines
        self.clients: list[LiveClient] = []

    async def client(self, extra: bytes = b"", connect: bool = True) -> LiveClient:
        """A connected client; `extra` goes into its CONNECT document, such as b',"user":"a"'."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.listener.port)
        client = LiveClient(stream)
        self.clients.append(client)
        client.info = await client.line()
        if connect:
            await client.send(CONNECT % extra + b"PING\r\n")
            assert await client.line() == b"PONG"
            assert (await client.line()).startswith(b"INFO ")
        return client


class LiveClient:
    """Sends and receives lines; every wait has an end."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.info = b""
        self.has_ended = False
        self._buffer = bytearray()

    async def send(self, data: bytes) -> None:
        with trio.fail_after(PATIENCE_S):
            await self.stream.send_all(data)

    async def line(self) -> bytes:
        """The next line without its end; b"" when the server has closed the connection."""
        while b"\r\n" not in self._buffer:
            if not await self._more():
                self.has_ended = True
                rest = bytes(self._buffer)
                self._buffer.clear()
                return rest
        line, _, rest = bytes(self._buffer).partition(b"\r\n")
        self._buffer = bytearray(rest)
        return line

    async def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            assert await self._more(), f"closed after {bytes(self._buffer)!r}"
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def barrier(self) -> list[bytes]:
        """Everything that arrives up to the answer to a PING, as lines."""
        await self.send(b"PING\r\n")
        lines = []
        while (line := await self.line()) != b"PONG":
            assert not self.has_ended, f"closed instead of PONG, after {lines}"
            lines.append(line)
        return lines

    async def closed(self) -> list[bytes]:
        """The lines up to the end of the connection."""
        lines = []
        while line := await self.line():
            lines.append(line)
        return lines

    async def _more(self) -> bool:
        with trio.fail_after(PATIENCE_S):
            try:
                chunk = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                return False
        self._buffer += chunk
        return bool(chunk)


@asynccontextmanager
async def live_server(options: Options | None = None, **changes: object) -> AsyncIterator[LiveServer]:
    """Serve on a free loopback port until the block ends."""
    quiet = LoggingOptions(debug=True)
    options = replace(options or Options(), host="127.0.0.1", port=-1, logging=quiet, **changes)  # type: ignore[arg-type]
    lines = LogLines()
    async with trio.open_nursery() as nursery:
        server = Server(options, Log(options.logging, lines), LocalRouter(), nursery)  # type: ignore[arg-type]
        listener = Listener(server, bind(options.host, options.port))
        server.info.port = listener.port
        nursery.start_soon(listener.run)
        nursery.start_soon(server.deadlines.run)
        nursery.start_soon(server.reactor.run)
        live = LiveServer(server, listener, lines)
        try:
            yield live
        finally:
            for client in live.clients:
                await trio.aclose_forcefully(client.stream)
            listener.close()
            nursery.cancel_scope.cancel()
