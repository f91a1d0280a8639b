"""Writes the outbox of a connection to its transport.

Rules: bytes go straight to the socket while it takes them. Only when it is full does a task exist, which
writes the rest and ends; a socket that takes nothing for the write deadline belongs to a slow consumer.
Publishers that run ahead of a subscriber wait on `relieved()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from edged.core import trace
from edged.core.limits import STALL_BYTES
from edged.server import reasons
from edged.server.reasons import Reason
from edged.server.transport import ConnectionLost, Transport

if TYPE_CHECKING:
    from edged.core.twins import Outbox
    from edged.server.server import Server


class Writer:
    """The output side of one connection. `give_up` is called with the reason when writing has failed."""

    __slots__ = ("_relieved", "_scope", "_server", "give_up", "name", "outbox", "transport")

    def __init__(
        self,
        server: Server,
        transport: Transport,
        outbox: Outbox,
        name: str,
        give_up: Callable[[Reason], None],
    ) -> None:
        self._server = server
        self.transport = transport
        self.outbox = outbox
        self.name = name
        self.give_up = give_up
        self._scope: trio.CancelScope | None = None
        self._relieved: trio.Event | None = None

    def send(self, data: bytes) -> None:
        """Queue protocol bytes; they leave with the next flush."""
        outbox = self.outbox
        outbox.append(data)
        if not outbox.listed:
            outbox.listed = True
            self._server.fanout.dirty.append(outbox)

    def flush(self) -> bool:
        """Write what waits. True when so much is left that publishers should slow down."""
        if self.outbox.overflowed:
            self.give_up(reasons.SLOW_CONSUMER_PENDING)
            return False
        if self._scope is None:
            try:
                self.write()
            except ConnectionLost:
                self.give_up(reasons.WRITE_ERROR)
                return False
            if self.outbox.pending_bytes:
                self._scope = trio.CancelScope()
                self._server.nursery.start_soon(self._drain, self._scope)
                self._server.tasks_waiting = True
        return self.outbox.pending_bytes > STALL_BYTES

    def write(self) -> None:
        """Give the socket what it takes. Raises ConnectionLost."""
        outbox = self.outbox
        if outbox.pending_bytes:
            if self._server.log.is_trace:
                for line in trace.outgoing(bytes(outbox.peek())):
                    self._server.log.trace(f"{self.name} - {line}")
            outbox.consume(self.transport.send_nowait(outbox.peek()))

    def stop(self) -> None:
        """Write nothing more; what waits is forgotten."""
        if self._scope is not None:
            self._scope.cancel()
        self.outbox.discard()

    async def drained(self) -> None:
        """Wait until nothing waits to be written, or writing has stopped."""
        while self._scope is not None:
            await self.relieved().wait()

    def relieved(self) -> trio.Event:
        """Set once most of what waits has been written."""
        if self._relieved is None:
            self._relieved = trio.Event()
            if self._scope is None:
                self._relieved.set()
        return self._relieved

    async def _drain(self, scope: trio.CancelScope) -> None:
        """Write what the socket did not take at once, until nothing is left."""
        deadline_s = self._server.options.write_deadline_s
        try:
            with scope:
                while self.outbox.pending_bytes:
                    with trio.move_on_after(deadline_s) as patience:
                        await self.transport.wait_sendable()
                    if patience.cancelled_caught:
                        self.give_up(reasons.SLOW_CONSUMER_DEADLINE)
                        return
                    self.write()
                    if self.outbox.pending_bytes < STALL_BYTES // 2:
                        self._relieve()
        except ConnectionLost:
            self.give_up(reasons.WRITE_ERROR)
        finally:
            self._scope = None
            self._relieve()

    def _relieve(self) -> None:
        if self._relieved is not None:
            self._relieved.set()
            self._relieved = None
