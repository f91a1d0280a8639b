"""Where requests to the JetStream API arrive, and the task that answers them one after the other.

A request is only noted while the batch that brought it is routed. One task answers: so whatever it decides
about streams and consumers is decided in an order, and nothing changes while it waits for the committer.

Rules: a subject that names no endpoint is not answered, as with nats-server. The queue is bounded, with one
bound for requests that read and one for those that change something; when there are too many of a kind, all
of that kind are dropped, and an advisory says so. Direct gets do not wait in it: they change nothing. Every
answer is counted, and told to whoever audits the API.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from edged.core import api_errors, headers
from edged.core.twins import Outbox, Subscription
from edged.server.account import unanswered
from edged.server.client import ClientConnection
from edged.server.jetstream.api_request import ApiRequest, Document, Endpoint
from edged.server.jetstream.api_service import Reply, serve
from edged.server.jetstream.direct_get import DirectGet
from edged.server.jetstream.endpoints import endpoints_of, find_endpoint
from edged.server.monitoring.gojson import compact

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.account import Account
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.relay import Relay

Handler = Callable[[Subscription, "list[Publish]", "Outbox | None"], None]

TYPES = "io.nats.jetstream.api.v1."
PREFIX = "$JS.API."
DIRECT_GET = b"DIRECT.GET"
NEXT_MESSAGE = b"CONSUMER.MSG.NEXT."
# What a domain's own prefix leads to: parts of the API, and what key-value and object stores publish.
_IN_DOMAINS = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.")
_BUCKETS = (b"$KV.", b"$OBJ.")
# What a server that stands alone does not answer in the system account.
_CLUSTERED = (b"META.LEADER.STEPDOWN", b"SERVER.REMOVE", b"SERVER.EVACUATE", b"META.RESCUE", b"ACCOUNT.")
_IMPORTED_REPLY = b"_R_."


class ApiDoor:
    """The API of all accounts. `run()` is its task. `inflight` counts what is not answered yet."""

    def __init__(self, jetstream: JetStream) -> None:
        self._jetstream = jetstream
        self._server = jetstream.server
        self._waiting: deque[ApiRequest] = deque()
        # How many wait that read, and how many that change something.
        self._waiting_kinds = [0, 0]
        self._arrival = trio.Event()
        self._direct_get = DirectGet(jetstream)
        self._endpoints = endpoints_of(jetstream.cluster is not None)
        self.inflight = 0

    def open(self, account: AccountStreams) -> None:
        """Take the requests of an account."""
        self._listen(account.account, PREFIX, b"api", partial(self._arrived, account, len(PREFIX)))
        domain = self._jetstream.options.domain
        if domain:
            prefix = f"$JS.{domain}.API."
            handler = partial(self._arrived_in_domain, account, len(prefix))
            self._listen(account.account, prefix, b"api-domain", handler)

    def open_system(self, account: AccountStreams) -> None:
        """Refuse the requests of the system account, which has no streams, but for those only it may make."""
        self._listen(account.account, PREFIX, b"api", partial(self._arrived_in_system, account))

    def _listen(self, account: Account, prefix: str, sid: bytes, handler: Handler) -> None:
        account.subscribe(Subscription(f"{prefix}>".encode(), None, sid, None, handler), is_announced=False)

    # --- arrivals ---

    def _arrived(
        self,
        account: AccountStreams,
        prefix_bytes: int,
        subscription: Subscription,
        messages: list[Publish],
        origin: Outbox | None,
    ) -> None:
        # An account without JetStream may use that of another one.
        exchange = None if account.is_enabled else account.account.exchange
        for message in messages:
            if exchange is not None and exchange.services.match(message[0]).plain:
                continue
            name = message[0][prefix_bytes:]
            if name.startswith(DIRECT_GET):
                wanted = name[len(DIRECT_GET) + 1 :]
                if not (
                    self._direct_get.answer(account, wanted, message)
                    or account.pass_on_direct(wanted, message)
                ):
                    account.unanswered(origin, message)
            elif name.startswith(NEXT_MESSAGE):
                wanted = name[len(NEXT_MESSAGE) :]
                if not (account.consumer_door.pull(wanted, message) or account.pass_on(wanted, message)):
                    account.unanswered(origin, message)
            else:
                self._note(account, name, message, origin)

    def _arrived_in_domain(
        self,
        account: AccountStreams,
        prefix_bytes: int,
        subscription: Subscription,
        messages: list[Publish],
        origin: Outbox | None,
    ) -> None:
        """The name of the domain stands for the API, and for what buckets publish."""
        for message in messages:
            subject, reply, header_bytes, data = message
            name = subject[prefix_bytes:]
            if name == b"INFO" or name.startswith(_IN_DOMAINS):
                self._arrived(account, prefix_bytes, subscription, [message], origin)
            elif not (
                name.startswith(_BUCKETS) and account.account.publish(name, reply, data, header_bytes, origin)
            ):
                unanswered(origin, subject, reply)

    def _arrived_in_system(
        self,
        account: AccountStreams,
        subscription: Subscription,
        messages: list[Publish],
        origin: Outbox | None,
    ) -> None:
        own = account.account
        for message in messages:
            subject, reply, header_bytes, data = message
            name = subject[len(PREFIX) :]
            found = find_endpoint(name.decode("utf-8", "replace"), self._endpoints.system)
            if found is not None:
                self._wait(account, found, name, message, None)
            elif not name.startswith(_CLUSTERED):
                kind = "account_info_response" if name == b"INFO" else "system_response"
                answer = {"type": TYPES + kind, "error": api_errors.NOT_ENABLED_FOR_ACCOUNT.document()}
                body = compact(answer)
                if reply is not None:
                    own.publish(reply, None, body.encode())
                who = _nobody if name == b"INFO" else None
                self._jetstream.advisories.answered(own, who, subject, data[max(header_bytes, 0) :], body)

    def _note(self, account: AccountStreams, name: bytes, message: Publish, origin: Outbox | None) -> None:
        """Let a request wait for its turn, if it is one."""
        found = find_endpoint(name.decode("utf-8", "replace"), self._endpoints.usual)
        if found is None or (found[0].is_private and not _is_consumer(account, found[1])):
            return
        requester = origin.owner if origin is not None else None
        if not isinstance(requester, ClientConnection):
            requester = None
        reply = message[1]
        is_imported = reply is not None and reply.startswith(_IMPORTED_REPLY)
        if requester is None or requester.account is account.account or is_imported:
            self._wait(account, found, name, message, requester)

    def _wait(
        self,
        account: AccountStreams,
        found: tuple[Endpoint, tuple[str, ...]],
        name: bytes,
        message: Publish,
        requester: ClientConnection | None,
    ) -> None:
        endpoint, arguments = found
        _, reply, header_bytes, data = message
        split = max(header_bytes, 0)
        subject = PREFIX.encode() + name
        self._waiting.append(
            ApiRequest(account, endpoint, arguments, subject, reply, data[:split], data[split:], requester)
        )
        self.inflight += 1
        self._keep_bounds(endpoint.is_reading)
        self._arrival.set()
        self._server.tasks_waiting = True

    def _keep_bounds(self, is_reading: bool) -> None:
        """One more of a kind waits: drop them all if that is too many."""
        options = self._jetstream.options
        self._waiting_kinds[is_reading] += 1
        dropped = self._waiting_kinds[is_reading]
        if dropped < (options.info_queue_limit if is_reading else options.request_queue_limit):
            return
        kept = [request for request in self._waiting if request.endpoint.is_reading != is_reading]
        self._waiting = deque(kept)
        self._waiting_kinds[is_reading] = 0
        self.inflight -= dropped
        self._server.log.warn("too many JetStream API requests wait, all are dropped", dropped=dropped)
        self._jetstream.advisories.requests_dropped(dropped)

    # --- answers ---

    async def run(self) -> None:
        """Answer requests as they come, forever."""
        async with trio.open_nursery() as nursery:
            while True:
                if not self._waiting:
                    self._arrival = trio.Event()
                    await self._arrival.wait()
                    continue
                relay = self._jetstream.relay
                if relay is not None:
                    # Others are asked, and some of them are slow: nobody else waits for them.
                    await relay.room()
                request = self._waiting.popleft()
                self._waiting_kinds[request.endpoint.is_reading] -= 1
                if relay is None:
                    await self._serve(request)
                else:
                    relay.begun += 1
                    nursery.start_soon(self._pass, relay, request)
                await trio.lowlevel.checkpoint()

    async def _pass(self, relay: Relay, request: ApiRequest) -> None:
        """Let whoever leads answer a request."""
        try:
            self._finish(request, await relay.answer(request))
            if request.endpoint.is_everywhere:
                await relay.answers_of_others(request, partial(self._tell, request))
        finally:
            relay.ended()

    async def _serve(self, request: ApiRequest) -> None:
        self._finish(request, await serve(request, self._jetstream.catalog_lock))

    def _finish(self, request: ApiRequest, reply: Reply) -> None:
        self.inflight -= 1
        self._tell(request, reply)

    def _tell(self, request: ApiRequest, reply: Reply) -> None:
        if reply.document is not None:
            self._answer(request, reply.document, reply.is_failed)
        self._server.flush()

    def _answer(self, request: ApiRequest, document: Document, is_failed: bool) -> None:
        account, endpoint = request.account, request.endpoint
        is_noted = not endpoint.is_private and (is_failed or not endpoint.is_unnoted)
        if is_noted and account.is_enabled:
            account.requests += 1
            account.errors += is_failed
        body = compact({"type": TYPES + endpoint.type, **document})
        if request.reply is not None:
            block = headers.encode(request.answer_headers) if request.answer_headers else b""
            account.account.publish(request.reply, None, block + body.encode(), len(block) or -1)
        if is_noted:
            self._jetstream.advisories.answered(
                account.account, request.client, request.subject, request.body, body
            )
        for call in request.afterwards:
            call()


def _is_consumer(account: AccountStreams, arguments: tuple[str, ...]) -> bool:
    """Whether there is the consumer that these name, or another node knows."""
    stream_name, name = arguments
    stream = account.streams.get(stream_name)
    if stream is None or not stream.is_leading:
        return account.jetstream.cluster is not None and bool(account.group_of(stream_name))
    return stream.consumers.find(name) is not None


def _nobody() -> Document:
    return {}
