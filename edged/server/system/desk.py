"""Where requests to the server arrive, and the task that answers them one at a time.

A request is only noted while the batch that brought it is routed. The documents that answer it can be long,
so each is made in a turn of its own, and connections are served in between: nobody stalls the server by
asking.

Rules: what operators ask in the system account comes before what users ask in their own accounts. Both queues
are bounded; a request too many is dropped, and its sender sees a timeout. A request counts only if it was
sent in the account it arrived in or came through a service import: a message that merely reached the account
through a stream import is no request, whatever its subject.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from edged.core.limits import INTERNAL_EVENTS_MAX
from edged.core.twins import Outbox, Subscription
from edged.server.client import ClientConnection
from edged.server.monitoring import BadRequest
from edged.server.system.envelope import FAILED, Envelope
from edged.server.system.request import Request

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.account import Account
    from edged.server.server import Server

# What answers a kind of request; it waits only for files. It may raise BadRequest.
Service = Callable[[Request], Awaitable[None] | None]

_IMPORTED_REPLY = b"_R_."


class Desk:
    """Takes requests for the services that were offered."""

    def __init__(self, server: Server, envelope: Envelope) -> None:
        self._server = server
        self._envelope = envelope
        self._operators: deque[tuple[Service, Request]] = deque()
        self._users: deque[tuple[Service, Request]] = deque()
        self._arrival = trio.Event()
        self._offered = 0
        self.dropped = 0

    def offer(
        self,
        account: Account,
        subject: str,
        service: Service,
        queue: bytes | None = None,
        is_announced: bool = True,
    ) -> None:
        """Answer requests on a subject, which may hold wildcards, of an account.

        What is not announced is for the clients of this node: requests of other nodes do not get here.
        """
        self._offered += 1
        handler = partial(self._arrived, account, service)
        subscription = Subscription(subject.encode(), queue, b"%d" % self._offered, None, handler)
        account.subscribe(subscription, is_announced)

    def _arrived(
        self,
        account: Account,
        service: Service,
        subscription: Subscription,
        messages: list[Publish],
        origin: Outbox | None,
    ) -> None:
        requester = origin.owner if origin is not None else None
        if not isinstance(requester, ClientConnection):
            requester = None
        waiting = self._operators if account.is_system else self._users
        for subject, reply, header_bytes, message in messages:
            is_imported = reply is not None and reply.startswith(_IMPORTED_REPLY)
            if requester is not None and requester.account is not account and not is_imported:
                continue
            if len(waiting) >= INTERNAL_EVENTS_MAX:
                self.dropped += 1
                continue
            split = max(header_bytes, 0)
            request = Request(account, subject, reply, message[:split], message[split:], requester)
            waiting.append((service, request))
        self._arrival.set()
        self._server.tasks_waiting = True

    async def run(self) -> None:
        """Answer requests as they come, forever."""
        while True:
            waiting = self._operators or self._users
            if not waiting:
                self._arrival = trio.Event()
                await self._arrival.wait()
                continue
            service, request = waiting.popleft()
            await self._serve(service, request)
            self._server.flush()
            await trio.lowlevel.checkpoint()

    async def _serve(self, service: Service, request: Request) -> None:
        try:
            waiting = service(request)
            if waiting is not None:
                await waiting
        except BadRequest as refusal:
            self._envelope.refuse(request, refusal.status, refusal.text)
        except Exception as error:  # A fault in what describes the server must not end what it describes.
            subject = request.subject.decode("utf-8", "replace")
            self._server.log.error("request could not be answered", subject=subject, error=repr(error))
            self._envelope.refuse(request, FAILED, "internal error")
