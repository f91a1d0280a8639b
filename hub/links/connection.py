"""One connection to another node, whatever it carries: read by the reactor, closed for a reason.

Rules: a task owns the connection and does whatever may wait; while nothing has to, the reactor reads. What
arrives is handed to `received()`, whole, without awaiting. Whoever finds a reason to end it calls close();
the task then ends and whoever runs it cleans up.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import trio

from edged.server.transport import ConnectionLost, Transport

if TYPE_CHECKING:
    from edged.server.server import Server


class Connection:
    """What control links and routes have in common."""

    def __init__(self, server: Server, transport: Transport, name: str) -> None:
        self.server = server
        self.transport = transport
        self.name = name
        # Why it is closed; None while it is open.
        self.why: str | None = None
        self.received_at = trio.current_time()
        self._scope = trio.CancelScope()
        self._handed_back = trio.Event()

    def received(self, chunk: memoryview | bytes) -> None:
        """Deal with what arrived, without waiting."""
        raise NotImplementedError

    async def room(self) -> None:
        """Wait until more may be read."""

    @property
    def is_crowded(self) -> bool:
        """Whether nothing more is to be read for now."""
        return False

    async def run(self, first: bytes = b"") -> None:
        """Read until closed, by either end. Never raises for what the other end does.

        `first` came with the handshake, and is dealt with before anything else.
        """
        try:
            with self._scope:
                if first and self.why is None:
                    self._take(first)
                    self.server.flush()
                while self.why is None:
                    if self.is_crowded:
                        await self.room()
                    elif self.transport.has_work:
                        await self._read_once()
                    else:
                        self._handed_back = trio.Event()
                        await self.server.reactor.attend(self, self.transport.socket, self._handed_back)
        except ConnectionLost as lost:
            self.close(str(lost))
        except Exception as error:  # a fault of ours ends this link, not the daemon
            self.failed(error)
        finally:
            self.close("the node stops")
            self.transport.close()

    def readable(self) -> None:
        """What the reactor calls: receive and deal with it."""
        try:
            chunk = self.transport.receive_nowait()
        except ConnectionLost as lost:
            self.close(str(lost))
            return
        if self.transport.has_work:
            self._hand_back()
        if chunk is None or self.why is not None:
            return
        self._take(chunk)
        if self.is_crowded:
            self._hand_back()

    async def _read_once(self) -> None:
        chunk = await self.transport.receive()
        self._take(chunk)
        self.server.flush()

    def _take(self, chunk: memoryview | bytes) -> None:
        if not chunk:
            self.close("the other end closed the connection")
            return
        self.received_at = trio.current_time()
        self.received(chunk)

    def _hand_back(self) -> None:
        self.server.reactor.release(self.transport.socket)
        self.server.tasks_waiting = True
        self._handed_back.set()

    def failed(self, error: Exception) -> None:
        """A fault of ours came up while this link was served: report it, and end the link."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{where.filename}:{where.lineno}"
        self.server.log.error("a fault ended a link", link=self.name, error=repr(error), at=at)
        self.close("a fault of this node")

    def close(self, why: str) -> None:
        """End the link; the first reason stays."""
        if self.why is not None:
            return
        self.why = why
        self.closed()
        self._scope.cancel()
        self._hand_back()

    def closed(self) -> None:
        """The link has just got a reason to end."""
