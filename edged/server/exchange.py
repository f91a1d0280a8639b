"""What passes between accounts: stream imports (messages) and service imports (requests and their answers).

A stream import is a subscription that looks into another account: for each local subscription that overlaps
the import, a `Shadow` is placed in the exporter's list and delivers under the local name.

A service import is a route that leads into another account: the request is published there under the
exported subject, with a reply subject `_R_.…` made up for it; an answer to that subject goes back to where
the request came from.

Rules: an import works only while the exporter exports the subject to that account. A client can never name
`_R_.` itself as a reply. Open requests are bounded and forgotten when their time is over.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from edged.core import headers
from edged.core.limits import SERVICE_IMPORT_DEPTH_MAX, SERVICE_REQUESTS_MAX
from edged.core.subjects import is_literal, is_subset, matches, overlaps
from edged.core.sublist import SubscriptionList
from edged.core.transform import SubjectTransform, no_chance, with_placeholders
from edged.core.twins import Outbox, Route, Subscription
from edged.server.account import Account, unanswered

if TYPE_CHECKING:
    from edged.config.options import ServiceExport, StreamExport
    from edged.core.wire import Publish

REPLY_PREFIX = b"_R_."
REQUEST_INFO = b"Nats-Request-Info"

# How a requester is described to a service: JSON for the Nats-Request-Info header, with all that is known
# when the importing account shares it, else only the name of the account.
DescribeRequester = Callable[[Outbox, bool], bytes]


class Shadow:
    """A subscription of one account in the list of another, with the name its owner sees."""

    __slots__ = ("pattern", "subscription", "transform")

    def __init__(self, subscription: Subscription, pattern: bytes, transform: SubjectTransform) -> None:
        self.subscription = subscription
        # What it listens to in the other account.
        self.pattern = pattern
        self.transform = transform

    def translate(self, subject: bytes) -> bytes | None:
        """The local name of a foreign subject; None when the subscription does not want it."""
        local = self.transform.apply(subject)
        return local if local is not None and matches(local, self.subscription.subject) else None


@dataclass(frozen=True, slots=True)
class StreamBinding:
    """One stream import, ready to use: foreign subjects become local ones by `transform`."""

    exporter: Account
    foreign: bytes
    transform: SubjectTransform
    reverse: SubjectTransform


@dataclass(frozen=True, slots=True)
class ServiceBinding:
    """One service import, ready to use: local subjects become the exporter's by `transform`."""

    exporter: Account
    export: ServiceExport
    transform: SubjectTransform
    share: bool


@dataclass(slots=True)
class OpenRequest:
    """A request that was passed on and may be answered on its made-up reply subject."""

    importer: Account
    reply: bytes
    is_single: bool
    is_shared: bool
    threshold_s: float
    expires_at: float


class Exchange:
    """The imports and exports of one account."""

    def __init__(self, account: Account, describe: DescribeRequester) -> None:
        self.account = account
        self.describe = describe
        self.streams: list[StreamBinding] = []
        self.services: SubscriptionList[ServiceBinding] = SubscriptionList()
        self.requests: OrderedDict[bytes, OpenRequest] = OrderedDict()
        self._shadows: dict[Subscription, list[tuple[Account, Shadow]]] = {}
        # Where this account's own requests are open, and as what, by the reply subject that it gave.
        self._awaited: dict[bytes, set[tuple[Exchange, bytes]]] = {}
        self._depth = 0

    # --- streams ---

    def add_stream(self, exporter: Account, foreign: bytes, local: bytes) -> None:
        """Import the messages of an exported subject under a local one."""
        transform = SubjectTransform.parse(foreign, with_placeholders(local), strict=True)
        self.streams.append(StreamBinding(exporter, foreign, transform, transform.reverse()))

    def subscribed(self, subscription: Subscription) -> None:
        """Reflect a new local subscription in the accounts it imports from."""
        for binding in self.streams:
            local = binding.reverse.source
            if not overlaps(subscription.subject, local):
                continue
            pattern = binding.foreign
            if is_subset(subscription.subject, local):
                pattern = binding.reverse.build(subscription.subject.split(b"."), no_chance)
            shadow = Shadow(subscription, pattern, binding.transform)
            binding.exporter.subscriptions.insert(pattern, subscription.queue, shadow)
            binding.exporter.interest_changed(pattern)
            self._shadows.setdefault(subscription, []).append((binding.exporter, shadow))

    def unsubscribed(self, subscription: Subscription) -> None:
        """Take the reflections of a subscription away."""
        for exporter, shadow in self._shadows.pop(subscription, ()):
            exporter.subscriptions.remove(shadow.pattern, subscription.queue, shadow)
            exporter.interest_changed(shadow.pattern)
        if self._awaited:
            self._stop_awaiting(subscription.subject)

    def _stop_awaiting(self, pattern: bytes) -> None:
        """Forget requests whose answers nobody would hear, now that interest in a pattern went."""
        literal = is_literal(pattern)
        replies = [pattern] if literal else [reply for reply in self._awaited if matches(reply, pattern)]
        for reply in replies:
            if not self.account.subscriptions.has_interest(reply):
                for exchange, foreign_reply in list(self._awaited.get(reply, ())):
                    exchange.forget_request(foreign_reply)

    def close(self) -> None:
        """Withdraw all that reaches into other accounts, before the imports are built anew."""
        for subscription in list(self._shadows):
            self.unsubscribed(subscription)

    # --- services ---

    def add_service(
        self, exporter: Account, export: ServiceExport, foreign: bytes, local: bytes, share: bool
    ) -> None:
        """Import a service under a local subject."""
        transform = SubjectTransform.parse(local, with_placeholders(foreign), strict=True)
        self.services.insert(local, None, ServiceBinding(exporter, export, transform, share))

    def extend(self, route: Route, subject: bytes) -> Route:
        """The route of a local subject with the services it leads to, or the way back of an answer."""
        if subject.startswith(REPLY_PREFIX):
            return Route(special=partial(self._answer, route))
        bindings = self.services.match(subject).plain
        if not bindings:
            return route

        def request(origin: Outbox | None, message: Publish) -> bool:
            delivered = self.account.send_along(route, origin, message)
            for binding in bindings:
                delivered |= self._request(binding, origin, message)
            if not delivered:
                unanswered(origin, message[0], message[1])
            return delivered

        return Route(special=request)

    def _request(self, binding: ServiceBinding, origin: Outbox | None, message: Publish) -> bool:
        """Pass one request on to the exporting account."""
        subject, reply, _, _ = message
        if self._depth >= SERVICE_IMPORT_DEPTH_MAX:
            return False
        # The binding was found by the subject. Its tokens may look like wildcards: the API has filters.
        foreign = binding.transform.build(subject.split(b"."), no_chance)
        exporter = binding.exporter
        foreign_reply = None if reply is None else self._open_request(binding, reply)
        request = (foreign, foreign_reply, *self._with_requester(binding, origin, message))
        self._depth += 1
        try:
            delivered = exporter.send_along(exporter.internal.route(foreign), origin, request)
        finally:
            self._depth -= 1
        if not delivered and foreign_reply is not None and exporter.exchange is not None:
            exporter.exchange.forget_request(foreign_reply)
        return delivered

    def _open_request(self, binding: ServiceBinding, reply: bytes) -> bytes:
        exchange = binding.exporter.exchange
        assert exchange is not None, "an exporter has an exchange"
        now = trio.current_time()
        requests = exchange.requests
        while requests:
            first = next(iter(requests.values()))
            if first.expires_at > now and len(requests) < SERVICE_REQUESTS_MAX:
                break
            exchange.forget_request(next(iter(requests)))
        foreign_reply = exchange.account.answers_prefix + secrets.token_hex(8).encode()
        threshold_s = binding.export.response_threshold_s
        is_single = binding.export.response == "singleton"
        requests[foreign_reply] = OpenRequest(
            self.account, reply, is_single, binding.share, threshold_s, now + threshold_s
        )
        self._awaited.setdefault(reply, set()).add((exchange, foreign_reply))
        return foreign_reply

    def open_requests(self) -> dict[bytes, OpenRequest]:
        """The requests to this account that may still be answered, by their made-up reply subjects."""
        now = trio.current_time()
        for foreign_reply in [reply for reply, request in self.requests.items() if request.expires_at <= now]:
            self.forget_request(foreign_reply)
        return self.requests

    def take_requests(self, previous: Exchange) -> None:
        """Go on with the requests that the exchange before this one has open, in both directions."""
        self.requests, self._awaited = previous.requests, previous._awaited

    def forget_request(self, foreign_reply: bytes) -> None:
        """A request to this account is over."""
        request = self.requests.pop(foreign_reply, None)
        importer = None if request is None else request.importer.exchange
        if request is None or importer is None:
            return
        waiting = importer._awaited.get(request.reply)
        if waiting is not None:
            waiting.discard((self, foreign_reply))
            if not waiting:
                del importer._awaited[request.reply]

    def _with_requester(
        self, binding: ServiceBinding, origin: Outbox | None, message: Publish
    ) -> tuple[int, bytes]:
        """The message with the requester described by us, never as the client claims it."""
        _, _, header_bytes, data = message
        block = headers.without(data[:header_bytes], REQUEST_INFO) if header_bytes > 0 else b""
        payload = data[max(header_bytes, 0) :]
        if origin is not None and not origin.is_route:
            is_shared = binding.share or binding.exporter.is_system
            block = headers.adding(block, REQUEST_INFO, self.describe(origin, is_shared))
        return (len(block) if block else -1), block + payload

    def _answer(self, local: Route, origin: Outbox | None, message: Publish) -> bool:
        """Take an answer back to the account that the request came from; who listens here hears it too."""
        subject, reply, header_bytes, data = message
        delivered = self.account.send_along(local, origin, message)
        request = self.requests.get(subject)
        now = trio.current_time()
        if request is None or request.expires_at <= now:
            return delivered
        # A service that answers several times has its time anew with each, and ends with an empty message.
        if request.is_single or not data:
            self.forget_request(subject)
        else:
            request.expires_at = now + request.threshold_s
        importer = request.importer
        answer = (request.reply, reply, header_bytes, data)
        return importer.send_along(importer.internal.route(request.reply), origin, answer) or delivered


def find_export(
    exports: tuple[StreamExport | ServiceExport, ...], subject: bytes, importer: str
) -> int | None:
    """The place of the export that covers an imported subject for an account, or None."""
    for place, export in enumerate(exports):
        if not is_subset(subject, export.subject.encode()):
            continue
        if export.accounts and importer not in export.accounts:
            continue
        if export.account_token_position:
            tokens = subject.split(b".")
            position = export.account_token_position - 1
            if position >= len(tokens) or tokens[position] != importer.encode():
                continue
        return place
    return None
