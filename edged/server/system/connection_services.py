"""Requests that change something here: close a client, ask a client to move, read the configuration again.

Rules: they are for this server by its id, in the system account only. A request without a reply subject is
not obeyed: whoever changes something wants to know whether it worked, and an event that merely has the shape
of a request has no reply subject. One that cannot be read is logged and left without an answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from edged.server import reasons
from edged.server.monitoring import BadRequest
from edged.server.system.envelope import FAILED, Envelope
from edged.server.system.request import Request, concerns

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.client import ClientConnection
    from edged.server.server import Server
    from edged.server.system.desk import Desk

_CID_MAX = 2**64 - 1

# Reads the configuration again; returns why it was refused, or None.
Reload = Callable[[], Awaitable[str | None]]


class ConnectionServices:
    """Obeys operators. `reload` is set by whoever can do it."""

    def __init__(self, server: Server, envelope: Envelope) -> None:
        self._server = server
        self._envelope = envelope
        self.reload: Reload | None = None
        self._is_reloading = False

    def offer_to_operators(self, desk: Desk, account: Account) -> None:
        prefix = f"$SYS.REQ.SERVER.{self._server.id}."
        desk.offer(account, f"{prefix}KICK", self._kick)
        desk.offer(account, f"{prefix}LDM", self._lame_duck)
        desk.offer(account, f"{prefix}RELOAD", self._reload)

    def _kick(self, request: Request) -> None:
        cid = self._cid(request)
        if cid is None or not self._is_obeyed(request):
            return
        connection = self._connection(cid, "no such client or leafnode id")
        connection.close(reasons.KICKED)
        self._server.log.info("client kicked", cid=connection.cid)
        self._envelope.confirm(request)

    def _lame_duck(self, request: Request) -> None:
        """Tell one client to find another server, as all are told when this one leaves."""
        cid = self._cid(request)
        if cid is None or not self._is_obeyed(request):
            return
        connection = self._connection(cid, "no such client id")
        if connection.identity is None or connection.fields.protocol < 1:
            raise BadRequest("the client cannot be told, or is not ready to be", FAILED)
        document = {**self._server.info.document(connection, False), "ldm": True}
        line = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        connection.send(b"INFO %s \r\n" % line.encode())
        self._envelope.confirm(request)

    def _reload(self, request: Request) -> None:
        if not self._is_obeyed(request):
            return
        if self.reload is None or self._is_reloading:
            raise BadRequest("the configuration cannot be read again now", FAILED)
        self._is_reloading = True
        # Every client is authenticated anew, which takes long with many; other requests go on meanwhile.
        self._server.nursery.start_soon(self._reload_and_answer, request, self.reload)

    async def _reload_and_answer(self, request: Request, reload: Reload) -> None:
        try:
            refusal = await reload()
        finally:
            self._is_reloading = False
        if refusal is None:
            self._envelope.confirm(request)
        else:
            self._envelope.refuse(request, FAILED, refusal)
        self._server.flush()

    def _is_obeyed(self, request: Request) -> bool:
        return request.reply is not None and concerns(self._server, request.options())

    def _cid(self, request: Request) -> int | None:
        """The connection that a request is about; None when it does not say so in a way that can be read."""
        try:
            cid = request.options().get("cid", 0) if request.body else None
        except BadRequest:
            cid = None
        if isinstance(cid, int) and not isinstance(cid, bool) and 0 <= cid <= _CID_MAX:
            return cid
        self._server.log.warn(
            "request names no connection", subject=request.subject.decode("utf-8", "replace")
        )
        return None

    def _connection(self, cid: int, unknown: str) -> ClientConnection:
        connection = self._server.connections.get(cid)
        if connection is None or connection.reason is not None:
            raise BadRequest(unknown, FAILED)
        return connection
