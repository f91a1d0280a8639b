"""Messages between nodes, as an account sees them: who is chosen here to send to, and who gets what arrives.

The interest of another node is a subscription like any other whose outbox is a route. A message goes to a
node once for everyone who listens there, and once for each queue group of which a member there was chosen.

Rules: what arrives from a node is delivered here and never sent on. Imports of streams and services were
applied where the message was published; only the answer to a service finds its account here, where the
request was opened. A queue group gets a message of another node only when it is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from edged.core.limits import ROUTES_CACHED_MAX
from edged.core.twins import Route, Subscription

if TYPE_CHECKING:
    from edged.core.fanout import Recipient
    from edged.core.permissions import Permissions
    from edged.server.account import Account
    from edged.server.exchange import Shadow

# How often one node may stand in the members of a queue group: its share of the messages.
SHARES_MAX = 64
_ANSWERS = b"_R_."
_USED_ONCE = (b"_INBOX.", b"$JS.ACK.", _ANSWERS)


class Towards(Enum):
    """Whom a message of another node is for."""

    LISTENERS = "everyone who listens"
    QUEUE = "one member of a queue group"
    HANDLERS = "the handlers of this node that other nodes do not know of"


def is_remote(subscription: Subscription) -> bool:
    """Whether it stands for the interest of another node."""
    return subscription.outbox is not None and subscription.outbox.is_route


def delivery_address(address: bytes, subject: bytes) -> bytes:
    """The address for messages that go to whoever listens to a subject, and show subjects of their own."""
    number, blank, queue = address.partition(b" ")
    return b"%s=%s%s%s" % (number, subject, blank, queue)


def delivery_rights(subscription: Subscription) -> Permissions | None:
    """What must be asked before each delivery to a subscription; None when nothing must."""
    if subscription.outbox is None:
        return None
    rights: Permissions | None = getattr(subscription.outbox.owner, "delivery_rights", None)
    return rights


def once_per_node(recipients: Iterable[Recipient]) -> list[Recipient]:
    """These recipients, and each node only once for each account and name of the subject."""
    found: list[Recipient] = []
    seen = set()
    for recipient in recipients:
        subscription, name = recipient
        if is_remote(subscription):
            key = (id(subscription.outbox), subscription.sid, name)
            if key in seen:
                continue
            seen.add(key)
        found.append(recipient)
    return found


def near_members(members: list[Recipient]) -> list[Recipient]:
    """The members of a queue group to choose from: those here, or else nodes, by how many they have."""
    near = [recipient for recipient in members if not is_remote(recipient[0])]
    if near or not members:
        return near
    shares: dict[tuple[int, bytes, bytes | None], list[int]] = {}
    first: dict[tuple[int, bytes, bytes | None], Recipient] = {}
    for subscription, name in members:
        key = (id(subscription.outbox), subscription.sid, name)
        first.setdefault(key, (subscription, name))
        assert subscription.outbox is not None
        weights = getattr(subscription.outbox.owner, "weights", {})
        shares.setdefault(key, [0])[0] += weights.get(subscription, 1)
    most = max(count for (count,) in shares.values())
    chosen: list[Recipient] = []
    for key, (count,) in shares.items():
        share = count if most <= SHARES_MAX else max(1, count * SHARES_MAX // most)
        chosen.extend([first[key]] * share)
    return chosen


class DeliveryContext:
    """The same for messages that are all for one subject, and show others."""

    __slots__ = ("_context", "_subject", "routes")

    def __init__(self, context: PeerContext, subject: bytes) -> None:
        self._context = context
        self._subject = subject
        # The subject of a message says nothing about where it goes, so nothing is known by it.
        self.routes: dict[bytes, Route] = {}

    def resolve(self, subject: bytes) -> Route:
        """The route of the one subject."""
        return self._context.routes.get(self._subject) or self._context.resolve(self._subject)


class PeerContext:
    """The routes of what arrives from other nodes in an account, for one way to address it."""

    __slots__ = ("__weakref__", "_below", "_queue", "_towards", "account", "routes")

    def __init__(self, account: Account, towards: Towards, queue: bytes | None = None) -> None:
        self.account = account
        self.routes: dict[bytes, Route] = {}
        self._below: dict[bytes, Route | None] = {}
        self._towards = towards
        self._queue = queue

    def forget(self) -> None:
        """Compute every route anew when it is next used."""
        self.routes.clear()
        self._below.clear()

    def forget_subject(self, subject: bytes) -> None:
        """Compute the route of one subject anew."""
        self.routes.pop(subject, None)

    def resolve(self, subject: bytes) -> Route:
        """Compute and cache the route of a subject."""
        is_literal = subject in self.account.subscriptions.literals
        is_used_once = subject.startswith(_USED_ONCE)
        if is_used_once and not is_literal:
            route = self._route_below(subject)
            if route is not None:
                return route
        route = self._route(subject)
        if not is_used_once or is_literal:
            if len(self.routes) >= ROUTES_CACHED_MAX:
                self.routes.clear()
            self.routes[subject] = route
        return route

    def _route_below(self, subject: bytes) -> Route | None:
        """The route of all subjects that differ from this one in the last token; None if they differ."""
        prefix = subject[: subject.rfind(b".") + 1]
        if prefix in self._below:
            return self._below[prefix]
        if len(self._below) >= ROUTES_CACHED_MAX:
            self._below.clear()
        route = None
        if not (subject.startswith(_ANSWERS) and self.account.exchange is not None):
            matched = self.account.subscriptions.match_all_below(prefix)
            if matched is not None:
                chosen = self._chosen(matched.plain, matched.queues)
                if not any(delivery_rights(one) is not None for one in chosen):
                    route = self._made_of([(one, None) for one in chosen])
        self._below[prefix] = route
        return route

    def _route(self, subject: bytes) -> Route:
        matched = self.account.subscriptions.match(subject)
        recipients: list[Recipient] = []
        for subscription in self._chosen(matched.plain, matched.queues):
            rights = delivery_rights(subscription)
            if rights is None or rights.may_deliver(subject, subscription.queue):
                recipients.append((subscription, None))
        route = self._made_of(recipients)
        exchange = self.account.exchange
        if exchange is not None and self._towards is Towards.LISTENERS and subject.startswith(_ANSWERS):
            return exchange.extend(route, subject)
        return route

    def _chosen(
        self,
        plain: Sequence[Subscription | Shadow],
        queues: Sequence[tuple[bytes, Sequence[Subscription | Shadow]]],
    ) -> list[Subscription]:
        hidden = self.account.unannounced
        if self._towards is Towards.HANDLERS:
            everyone = [*plain, *(item for _, members in queues for item in members)]
            return [item for item in everyone if isinstance(item, Subscription) and item in hidden]
        items = plain
        if self._towards is Towards.QUEUE:
            items = [item for queue, members in queues if queue == self._queue for item in members]
        return [
            item
            for item in items
            if isinstance(item, Subscription) and not is_remote(item) and item not in hidden
        ]

    def _made_of(self, recipients: list[Recipient]) -> Route:
        if self._towards is Towards.QUEUE:
            return Route((), [recipients] if recipients else ())
        return Route(recipients)
