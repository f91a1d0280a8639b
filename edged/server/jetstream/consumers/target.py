"""Who gets what is delivered to a subject: the last part of a delivery, where clients see another subject.

A delivered message is routed by the deliver subject, or by the reply subject of a request, but shows the
subject under which it is stored. Where the request came from another account, the way leads back into it.

Rules: a target is good for the turn in which it was found; whoever keeps it longer finds it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from edged.core.limits import SERVICE_IMPORT_DEPTH_MAX, STALL_BYTES
from edged.core.twins import Route, Subscription
from edged.server.exchange import REPLY_PREFIX
from edged.server.peers import delivery_address, is_remote

if TYPE_CHECKING:
    from edged.core.fanout import Recipient
    from edged.core.message import Message
    from edged.core.wire import Publish
    from edged.server.account import Account

_EMPTY: Final = Route()


class Target:
    """Everyone who listens to a subject in an account."""

    __slots__ = ("_account", "_fanout", "_route", "_single", "_subject")

    def __init__(self, account: Account, subject: bytes) -> None:
        self._fanout = account.fanout
        self._single: tuple[Account, bytes] | None = None
        self._account, self._subject = self._tracked(account, subject)
        self._route = _EMPTY
        if self._subject:
            self._route = _showing(self._account.internal.route(self._subject))
            if not account.router.is_alone:
                self._route = _addressed(self._route, self._subject)

    def _tracked(self, account: Account, subject: bytes) -> tuple[Account, bytes]:
        """Where a subject leads that was made up for a request from another account; empty for nowhere."""
        for _ in range(SERVICE_IMPORT_DEPTH_MAX):
            if account.exchange is None or not subject.startswith(REPLY_PREFIX):
                break
            if not subject.startswith(account.answers_prefix):
                # Another node has made it up, and answers find their way there.
                break
            request = account.exchange.requests.get(subject)
            now = trio.current_time()
            if request is None or request.expires_at <= now:
                return account, b""
            request.expires_at = now + request.threshold_s
            if request.is_single:
                self._single = (account, subject)
            account, subject = request.importer, request.reply
        return account, subject

    @property
    def is_empty(self) -> bool:
        """Whether nobody listens."""
        return self._route.is_empty

    @property
    def is_crowded(self) -> bool:
        """Whether somebody has so much to read already that more should wait."""
        route = self._route
        for members in (route.plain, *route.queues):
            for subscription, _ in members:
                outbox = subscription.outbox
                if outbox is not None and outbox.pending_bytes > min(STALL_BYTES, outbox.limit_bytes // 2):
                    return True
        return False

    @property
    def is_plain(self) -> bool:
        """Whether nothing but delivery is between a message and who gets it."""
        return self._route.special is None

    def hand_out(self, messages: Sequence[Message], prefix: bytes, first_seq: int, left: int) -> None:
        """Deliver stored messages as they are, for the first time; only if it is plain. See Fanout."""
        self._fanout.hand_out(self._route, messages, prefix, first_seq, left)

    def send(self, message: Publish) -> bool:
        """Deliver a message that shows a subject of its own. True when somebody got it."""
        route = self._route
        if route.special is None:
            return self._fanout.deliver(route, None, message, False)
        # Mapped by chance, or passed on to a service: then it shows the subject that it is routed by.
        return route.special(None, (self._subject, *message[1:]))

    def close(self) -> None:
        """Everything for this turn was sent: call handlers, and forget a request for one answer."""
        self._fanout.publish((), {}, self._account.internal.resolve, None)
        if self._single is not None:
            account, subject = self._single
            if account.exchange is not None:
                account.exchange.forget_request(subject)


def has_interest(account: Account, subject: bytes) -> bool:
    """Whether somebody would get what is delivered to a subject."""
    if account.exchange is not None and subject.startswith(REPLY_PREFIX):
        return not Target(account, subject).is_empty
    return account.has_interest(subject)


def _showing(route: Route) -> Route:
    """The same recipients, who all see the subject of the message."""
    if route.special is not None or not _is_renaming(route):
        return route
    queues = [_unnamed(members) for members in route.queues]
    return Route(_unnamed(route.plain), queues)


def _addressed(route: Route, subject: bytes) -> Route:
    """The same recipients; other nodes are told to whom messages go that show subjects of their own."""
    if route.special is not None:
        return route
    known: dict[Subscription, Subscription] = {}

    def addressed(members: tuple[Recipient, ...]) -> list[Recipient]:
        found: list[Recipient] = []
        for subscription, name in members:
            if is_remote(subscription):
                if subscription not in known:
                    sid = delivery_address(subscription.sid, subject)
                    known[subscription] = Subscription(subject, subscription.queue, sid, subscription.outbox)
                subscription = known[subscription]
            found.append((subscription, name))
        return found

    plain, queues = addressed(route.plain), [addressed(members) for members in route.queues]
    return Route(plain, queues) if known else route


def _is_renaming(route: Route) -> bool:
    return any(name is not None for members in (route.plain, *route.queues) for _, name in members)


def _unnamed(members: tuple[Recipient, ...]) -> list[Recipient]:
    return [(subscription, None) for subscription, _ in members]
