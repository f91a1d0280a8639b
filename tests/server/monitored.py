"""A server inside the test with its monitoring port, and an HTTP client that asks it."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11
import trio

from edged.config.options import Options
from edged.server.monitoring import Monitor
from tests.server.live import PATIENCE_S, LiveServer, live_server


@dataclass(frozen=True, slots=True)
class Page:
    """An answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """One HTTP connection that is kept alive."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._connection = h11.Connection(h11.CLIENT)

    async def request(
        self, target: str, method: str = "GET", headers: Sequence[tuple[str, str]] = (), body: bytes = b""
    ) -> Page:
        """Send one request and read all of its answer."""
        connection = self._connection
        if connection.our_state is h11.DONE:
            connection.start_next_cycle()
        length = [("Content-Length", str(len(body)))] if body else []
        request = h11.Request(method=method, target=target, headers=[("Host", "test"), *headers, *length])
        await self.stream.send_all(connection.send(request) or b"")
        if body:
            await self.stream.send_all(connection.send(h11.Data(data=body)) or b"")
        await self.stream.send_all(connection.send(h11.EndOfMessage()) or b"")
        return await self.answer()

    async def answer(self) -> Page:
        """Read one answer."""
        status, headers, body = 0, {}, b""
        with trio.fail_after(PATIENCE_S):
            while not isinstance(event := await self._event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                    headers = {name.decode(): value.decode() for name, value in event.headers}
                else:
                    assert isinstance(event, h11.Data), event
                    body += event.data
        return Page(status, headers, body)

    async def _event(self) -> object:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            self._connection.receive_data(await self.stream.receive_some())
        return event


class MonitoredServer:
    """A live server and what its monitoring port says."""

    def __init__(self, live: LiveServer, monitor: Monitor) -> None:
        self.live = live
        self.server = live.server
        self.monitor = monitor

    async def connect(self, tls: ssl.SSLContext | None = None, place: int = 0) -> Browser:
        """A new connection to the monitoring port."""
        url = urlsplit(self.monitor.addresses[place])
        assert url.hostname is not None and url.port is not None
        stream: trio.abc.Stream = await trio.open_tcp_stream(url.hostname, url.port)
        if tls is not None:
            stream = trio.SSLStream(stream, tls, server_hostname="localhost", https_compatible=True)
        return Browser(stream)

    async def get(self, target: str) -> Page:
        """One request over a connection of its own."""
        browser = await self.connect()
        async with browser.stream:
            return await browser.request(target)

    async def json(self, target: str) -> Any:
        """The document at a path that must be there."""
        page = await self.get(target)
        assert page.status == 200, page
        return page.json


@asynccontextmanager
async def monitored_server(
    options: Options | None = None, **changes: object
) -> AsyncIterator[MonitoredServer]:
    """Serve, with a monitoring port, until the block ends."""
    changes.setdefault("http_port", -1)
    async with live_server(options, **changes) as live:
        monitor = Monitor(live.server)
        await monitor.start(live.server.nursery)
        yield MonitoredServer(live, monitor)
