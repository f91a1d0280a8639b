"""HTTP/1.1 with one peer of the monitoring port: requests in, answers out, until either side has had enough.

Rules:
* Only GET and HEAD. A body is read only as far as it came along with the request; if there is more of it, the
  connection ends after the answer.
* Every wait has a limit and so has every size: a peer that sends slowly, or reads slowly, is cut off.
* A fault in a document is logged and answered with 500. It never ends the daemon.
* Long documents are written piece by piece, with a turn for the other tasks in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

import h11
import trio

from edged.server.log import Log
from edged.server.transport import ConnectionLost, Transport

HEADER_BYTES_MAX: Final = 16 * 1024
"""The most bytes of a request before it is refused with 431."""

REQUEST_TIMEOUT_S: Final = 5.0
"""How long a request may take to arrive, from its first byte or, for the first one, from the connection."""

IDLE_TIMEOUT_S: Final = 90.0
"""How long a connection may wait for its next request: longer than scrapers usually pause."""

WRITE_TIMEOUT_S: Final = 30.0
"""How long a peer may take to make room for the next bytes of an answer."""

PIECE_BYTES: Final = 16 * 1024
"""A document is written in pieces of about this size, and with its length when it is smaller."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was understood."""

    path: str
    query: str
    accept: str


@dataclass(frozen=True, slots=True)
class Response:
    """What to send. The body comes in pieces, made while it is sent."""

    status: int
    content_type: str
    body: Iterable[str | bytes]
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]


def plain_text(status: int, text: str, *headers: tuple[str, str]) -> Response:
    """A short answer for people."""
    return Response(status, "text/plain; charset=utf-8", [text], headers)


class Conversation:
    """One connection. `waiting` lists those that wait for a request, so that their port can end them."""

    def __init__(
        self, transport: Transport, handler: Handler, log: Log, waiting: dict[int, trio.CancelScope]
    ) -> None:
        self._transport = transport
        self._handler = handler
        self._log = log
        self._waiting = waiting
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)

    async def run(self) -> None:
        """Answer requests until the end. Raises ConnectionLost; closing the transport is the caller's."""
        is_first = True
        while await self._exchange(is_first):
            self._connection.start_next_cycle()
            is_first = False

    async def _exchange(self, is_first: bool) -> bool:
        """One request and its answer; True when another may follow."""
        connection = self._connection
        try:
            event = await self._receive(is_first)
            if event is None:
                return False
            is_whole = self._body_is_over()
        except h11.RemoteProtocolError as error:
            if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return False
            await self._send(plain_text(error.error_status_hint, f"{error}\n"), is_head=False, is_last=True)
            return False
        try:
            await self._send(self._answer(event), event.method == b"HEAD", is_last=not is_whole)
        except ConnectionLost:
            raise
        except Exception as error:  # A document that cannot be finished must not take the daemon with it.
            self._log.error("monitoring answer broken off", target=event.target, error=repr(error))
            return False
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _receive(self, is_first: bool) -> h11.Request | None:
        """The next request; None when the peer is done, too slow, or has to make room for another."""
        connection = self._connection
        has_begun = is_first or bool(connection.trailing_data[0])
        with trio.move_on_after(REQUEST_TIMEOUT_S if has_begun else IDLE_TIMEOUT_S) as scope:
            self._waiting[id(self)] = scope
            try:
                while (event := connection.next_event()) is h11.NEED_DATA:
                    chunk = bytes(await self._transport.receive())
                    if not has_begun:
                        has_begun = True
                        scope.deadline = trio.current_time() + REQUEST_TIMEOUT_S
                    connection.receive_data(chunk)
            finally:
                self._waiting.pop(id(self), None)
            return event if isinstance(event, h11.Request) else None
        return None

    def _body_is_over(self) -> bool:
        """Pass over what came of a body; False when more of it would have to be waited for."""
        while isinstance(event := self._connection.next_event(), h11.Data):
            pass
        return isinstance(event, h11.EndOfMessage)

    def _answer(self, event: h11.Request) -> Response:
        if event.method not in (b"GET", b"HEAD"):
            return plain_text(405, "Method Not Allowed\n", ("Allow", "GET, HEAD"))
        request = _request(event)
        try:
            return self._handler(request)
        except Exception as error:  # The same: a fault of ours in what only describes the server.
            self._log.error("monitoring request failed", path=request.path, error=repr(error))
            return plain_text(500, "Internal Server Error\n")

    async def _send(self, response: Response, is_head: bool, is_last: bool) -> None:
        """Send an answer, with its length when it is short."""
        if is_last:
            response = replace(response, headers=(*response.headers, ("Connection", "close")))
        waiting = bytearray()
        is_started = False
        for piece in response.body:
            waiting += piece if isinstance(piece, bytes) else piece.encode("utf-8", "replace")
            if len(waiting) >= PIECE_BYTES:
                if not is_started:
                    is_started = True
                    await self._write(self._head(response, None))
                if is_head:
                    break
                await self._write(h11.Data(data=bytes(waiting)))
                waiting.clear()
                await trio.lowlevel.checkpoint()
        if not is_started:
            await self._write(self._head(response, len(waiting)))
        if waiting and not is_head:
            await self._write(h11.Data(data=bytes(waiting)))
        await self._write(h11.EndOfMessage())

    def _head(self, response: Response, length: int | None) -> h11.Response:
        headers = [
            ("Content-Type", response.content_type),
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            *response.headers,
        ]
        if length is not None:
            headers.append(("Content-Length", str(length)))
        return h11.Response(status_code=response.status, headers=headers)

    async def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        data = self._connection.send(event)
        if not data:
            return
        sent = self._transport.send_nowait(data)
        while sent < len(data):
            with trio.move_on_after(WRITE_TIMEOUT_S) as patience:
                await self._transport.wait_sendable()
            if patience.cancelled_caught:
                raise ConnectionLost("the peer does not read its answer")
            sent += self._transport.send_nowait(memoryview(data)[sent:])


def _request(event: h11.Request) -> Request:
    """The parts of a request that matter. A target may be a whole URL, as proxies send it."""
    target = event.target.decode("latin-1")
    if "://" in target.partition("?")[0]:
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("#")[0].partition("?")
    accept = next((value for name, value in event.headers if name == b"accept"), b"")
    return Request(unquote(path, errors="replace"), query, accept.decode("latin-1"))
