"""The monitoring port: accepts HTTP connections, in clear or with TLS, from anybody who can reach it.

Rule: there are at most CONNECTIONS_MAX connections. When one more comes, the one that has been waiting
longest for a request goes, so that idle or hostile peers cannot lock out a health check.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

import trio

from edged.server.log import Log
from edged.server.monitoring.conversation import Conversation, Handler
from edged.server.tls import TlsHandshakeFailed, accept_tls
from edged.server.transport import ConnectionLost, PlainTransport, Transport

CONNECTIONS_MAX: Final = 128
# With no descriptors left accept() fails at once and for a while: a pause instead of a busy loop.
_ACCEPT_PAUSE_S: Final = 0.1


class HttpPort:
    """A listening socket and the conversations that came through it."""

    def __init__(
        self, listening: socket.socket, handler: Handler, log: Log, tls_context: ssl.SSLContext | None = None
    ) -> None:
        self.tls_context = tls_context
        self.is_secure = tls_context is not None
        self.host, self.port = listening.getsockname()[:2]
        self._listening = listening
        self._handler = handler
        self._log = log
        self._count = 0
        # Who waits for a request, the longest waiting first.
        self._waiting: dict[int, trio.CancelScope] = {}

    def close(self) -> None:
        """Accept nothing more."""
        if self._listening.fileno() < 0:
            return
        trio.lowlevel.notify_closing(self._listening)
        self._listening.close()

    async def run(self) -> None:
        """Accept until closed or cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while await self._accept(nursery):
                    pass
        finally:
            self._listening.close()

    async def _accept(self, nursery: trio.Nursery) -> bool:
        """Take one connection in; False when the port is closed."""
        if self._listening.fileno() < 0:
            return False
        try:
            await trio.lowlevel.wait_readable(self._listening)
            accepted, _ = self._listening.accept()
        except (trio.ClosedResourceError, BlockingIOError, ConnectionError):
            return True
        except OSError as error:
            if self._listening.fileno() < 0:
                return False
            self._log.error("cannot accept monitoring connections", error=error)
            await trio.sleep(_ACCEPT_PAUSE_S)
            return True
        if self._count >= CONNECTIONS_MAX:
            if not self._waiting:
                accepted.close()
                return True
            self._waiting.pop(next(iter(self._waiting))).cancel()
        self._count += 1
        nursery.start_soon(self._serve, PlainTransport(accepted))
        return True

    async def _serve(self, wire: PlainTransport) -> None:
        transport: Transport = wire
        try:
            if self.tls_context is not None:
                transport = await accept_tls(wire, self.tls_context)
            await Conversation(transport, self._handler, self._log, self._waiting).run()
            await transport.shutdown()
        except (ConnectionLost, TlsHandshakeFailed) as error:
            self._log.debug("monitoring connection ended", ip=wire.remote_ip, error=error)
        finally:
            wire.close()
            self._count -= 1
