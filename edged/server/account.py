"""An account at run time: its own space of subjects, who is in it, and the routes of its publishers.

Rules:
* A subject means something only inside an account. What passes between accounts passes through exchange.py.
* Every change of interest goes through subscribe() and unsubscribe(), which drop the routes it touches.
* Rights are checked when a route is computed, with the one check of core.permissions; a cached route is the
  cached answer of that check.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from edged.core.limits import ROUTES_CACHED_MAX
from edged.core.mapping import Destination, Mapping, SubjectMappings
from edged.core.permissions import ALL, Permissions
from edged.core.subjects import is_literal
from edged.core.sublist import SubscriptionList
from edged.core.twins import Fanout, Outbox, Route, Subscription
from edged.server.peers import PeerContext, Towards, delivery_rights, near_members, once_per_node

if TYPE_CHECKING:
    from edged.config.options import AccountOptions
    from edged.core.fanout import Recipient
    from edged.core.wire import Publish
    from edged.ports import Router
    from edged.server.exchange import Exchange, Shadow

# Reply subjects of one client differ in the last token only, as do the keys of a bucket or the devices of a
# site.
_INBOXES = b"_INBOX."
# There is one acknowledgement for each message of a consumer, and its subject is used once.
_ACKS = b"$JS.ACK."
_USED_ONCE = (_INBOXES, _ACKS)
# Subjects that belong to servers: gateway replies, and Raft outside of the system account.
_SERVER_SUBJECTS = (b"_GR_.", b"$GR.")
_RAFT_SUBJECTS = b"$NRG."

Draw = Callable[[int], int]


class Publisher(Protocol):
    """What a connection must offer so that its publishes can be refused or let through one by one."""

    def publish_denied(self, subject: bytes) -> None:
        """A publish was refused for lack of rights."""

    def may_respond(self, subject: bytes) -> bool:
        """Whether a subject that is not allowed otherwise is an answer that was asked for."""


class PublishContext:
    """The routes of all publishers that share an account and a set of rights."""

    __slots__ = ("__weakref__", "_are_names_alike", "_unlike", "account", "below", "permissions", "routes")

    def __init__(self, account: Account, permissions: Permissions) -> None:
        self.account = account
        self.permissions = permissions
        self.routes: dict[bytes, Route] = {}
        # Routes by all but the last token, for subjects that nobody subscribed to by their full name, and
        # where the last token makes a difference.
        self.below: dict[bytes, Route] = {}
        self._unlike: set[bytes] = set()
        # Whether nothing but who listens decides about a route.
        self._are_names_alike = False

    def resolve(self, subject: bytes) -> Route:
        """Compute and cache the route of a subject."""
        if subject.startswith(_ACKS):
            # There are as many of these as messages: no more is done than must be.
            route = self.below.get(_ACKS)
            if route is not None and subject != _ACKS and subject not in self.account.subscriptions.literals:
                return route
        route = self._below(subject) if self._are_names_alike else None
        if route is None:
            route = self.account.route(subject, self)
        # What nobody subscribed to by its full name, and is used once, is not worth remembering.
        if not subject.startswith(_USED_ONCE) or subject in self.account.subscriptions.literals:
            if len(self.routes) >= ROUTES_CACHED_MAX:
                self.routes.clear()
            self.routes[subject] = route
        return route

    def _below(self, subject: bytes) -> Route | None:
        """The route of all subjects that differ from this one in the last token; None if not alike.

        Acknowledgements differ in most of their tokens, and have one route all the same.
        """
        is_ack = subject.startswith(_ACKS)
        prefix = _ACKS if is_ack else subject[: subject.rfind(b".") + 1]
        if prefix == subject or prefix in self._unlike or subject in self.account.subscriptions.literals:
            return None
        route = self.below.get(prefix)
        if route is None:
            if len(self.below) + len(self._unlike) >= ROUTES_CACHED_MAX:
                self.below.clear()
                self._unlike.clear()
            route = self.account.route_below(prefix, is_deep=is_ack)
            if route is None:
                self._unlike.add(prefix)
            else:
                self.below[prefix] = route
        return route

    @property
    def literals(self) -> Container[bytes]:
        """The subjects that somebody subscribed to by their full name."""
        return self.account.subscriptions.literals

    def forget(self) -> None:
        """Compute every route anew when it is next used."""
        self.routes.clear()
        self.below.clear()
        self._unlike.clear()
        allowed = self.permissions
        self._are_names_alike = (
            self.account.mappings is None
            and self.account.exchange is None
            and allowed.publish_allow is None
            and not allowed.publish_deny
        )

    def route(self, subject: bytes) -> Route:
        """The route of a subject, cached or not."""
        return self.routes.get(subject) or self.resolve(subject)

    def refuses(self, subject: bytes) -> bool:
        """Whether a publish to the subject is refused outright."""
        return self.route(subject).special is _refuse


class Account:
    """One account. `exchange` is set when it imports or exports anything."""

    def __init__(
        self, options: AccountOptions, fanout: Fanout, router: Router, draw: Draw, is_system: bool = False
    ) -> None:
        self.name = options.name
        self.fanout = fanout
        self.router = router
        self.draw = draw
        self.is_system = is_system
        self.subscriptions: SubscriptionList[Subscription | Shadow] = SubscriptionList()
        # Handlers of this node that other nodes do not know of.
        self.unannounced: set[Subscription] = set()
        self._peer_contexts: WeakValueDictionary[tuple[Towards, bytes | None], PeerContext] = (
            WeakValueDictionary()
        )
        self.exchange: Exchange | None = None
        # What reply subjects of requests to services of this account begin with: answers come back here.
        self.answers_prefix = b"_R_.%s." % secrets.token_hex(4).encode()
        self._has_announced_answers = False
        self.connections: set[object] = set()
        self.connections_total = 0
        # Told of every pattern whose interest has changed.
        self.interest_listeners: list[Callable[[bytes], None]] = []
        # What connections that are gone have sent and received, so that totals never fall.
        self.closed_in_messages = self.closed_in_bytes = 0
        self.closed_out_messages = self.closed_out_bytes = 0
        self.slow_consumers = 0
        # Known from a JWT rather than from the configuration file.
        self.is_claimed = False
        # Gone from the configuration: nobody may join, whoever is in it is about to be closed.
        self.is_removed = False
        self._contexts: WeakValueDictionary[Permissions, PublishContext] = WeakValueDictionary()
        # The server's own publishes pass no check; clients have a context even when they may do everything,
        # because some subjects are not theirs.
        self.internal = PublishContext(self, ALL)
        self.configure(options)

    def configure(self, options: AccountOptions) -> None:
        """Take over new options; connections and subscriptions stay."""
        self.options = options
        self.limits = options.limits
        # What people call it: an account from a JWT is named by its key otherwise.
        self.name_tag = options.name_tag or options.name
        self.mappings = _mappings(options) if options.mappings else None
        self.forget_routes()

    def announce_answers(self) -> None:
        """Let other nodes send the answers of services of this account here."""
        if not self._has_announced_answers:
            self._has_announced_answers = True
            self.router.interest_added(self.name, self.answers_prefix + b">", None)

    def context(self, permissions: Permissions) -> PublishContext:
        """The shared routes of clients with these rights. Contexts of rights that nobody has any more go."""
        context = self._contexts.get(permissions)
        if context is None:
            context = self._contexts[permissions] = PublishContext(self, permissions)
            context.forget()
        return context

    def peer_context(self, towards: Towards, queue: bytes | None = None) -> PeerContext:
        """The routes of what other nodes send to this account; they last as long as somebody holds them."""
        context = self._peer_contexts.get((towards, queue))
        if context is None:
            context = self._peer_contexts[towards, queue] = PeerContext(self, towards, queue)
        return context

    def subscribe(self, subscription: Subscription, is_announced: bool = True) -> None:
        """Add interest. ValueError when the subject is not a valid one.

        A handler that is not announced gets what is published here, and what other nodes send to it on
        purpose; nobody elsewhere knows of it.
        """
        self.subscriptions.insert(subscription.subject, subscription.queue, subscription)
        if not is_announced and subscription.outbox is None:
            self.unannounced.add(subscription)
        self.interest_changed(subscription.subject)
        if self.exchange is not None:
            self.exchange.subscribed(subscription)
        if is_announced:
            self.router.interest_added(self.name, subscription.subject, subscription.queue)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take interest away; once is enough, more does no harm."""
        subscription.closed = True
        if not self.subscriptions.remove(subscription.subject, subscription.queue, subscription):
            return
        self.interest_changed(subscription.subject)
        if self.exchange is not None:
            self.exchange.unsubscribed(subscription)
        if subscription in self.unannounced:
            self.unannounced.discard(subscription)
        elif subscription.outbox is None or not subscription.outbox.is_route:
            self.router.interest_removed(self.name, subscription.subject, subscription.queue)

    def absorb(self, outbox: Outbox) -> None:
        """Keep the totals of a connection that leaves."""
        self.closed_in_messages += outbox.in_messages
        self.closed_in_bytes += outbox.in_bytes
        self.closed_out_messages += outbox.out_messages
        self.closed_out_bytes += outbox.out_bytes

    def interest_changed(self, pattern: bytes) -> None:
        """Drop the cached routes that a change of interest in a pattern may have made wrong."""
        if self.mappings is None and is_literal(pattern):
            self.internal.routes.pop(pattern, None)
            for context in self._contexts.values():
                context.routes.pop(pattern, None)
            for peer_context in self._peer_contexts.values():
                peer_context.forget_subject(pattern)
        else:
            self.forget_routes()
        for listener in self.interest_listeners:
            listener(pattern)

    def forget_routes(self) -> None:
        """Compute every route anew when it is next used."""
        self.internal.forget()
        for context in self._contexts.values():
            context.forget()
        for peer_context in self._peer_contexts.values():
            peer_context.forget()

    def publish(
        self,
        subject: bytes,
        reply: bytes | None,
        message: bytes,
        header_bytes: int = -1,
        origin: Outbox | None = None,
    ) -> bool:
        """Publish a message of the server's own. True when somebody got it; handlers have been called."""
        message_published = (subject, reply, header_bytes, message)
        delivered = self.send_along(self.internal.route(subject), origin, message_published)
        self.fanout.publish((), self.internal.routes, self.internal.resolve, None)
        return delivered

    def send_along(self, route: Route, origin: Outbox | None, message: Publish) -> bool:
        """Deliver along a route, special or not. Handlers run when the batch this is part of is through."""
        if route.special is not None:
            return route.special(origin, message)
        return self.fanout.deliver(route, origin, message, False)

    def has_interest(self, subject: bytes) -> bool:
        """Whether a message on this subject would reach anyone; costs nothing once the route is cached."""
        return not self.internal.route(subject).is_empty

    def route(self, subject: bytes, context: PublishContext) -> Route:
        """Who gets what a publisher with these rights sends to a subject."""
        target = subject
        if self.mappings is not None:
            if not self.mappings.is_constant(subject):
                return Route(special=partial(self._publish_mapped, context))
            target = self.mappings.route(subject, self.draw)
        return self._route_mapped(subject, target, context)

    def _route_mapped(self, subject: bytes, target: bytes, context: PublishContext) -> Route:
        is_internal = context is self.internal
        if not is_internal and self._is_server_subject(target):
            return Route(special=_refuse)
        if not context.permissions.may_publish(target):
            if context.permissions.allow_responses is not None:
                return Route(special=partial(self._publish_response, target))
            return Route(special=_refuse)
        return self._open_route(subject, target)

    def _open_route(self, subject: bytes, target: bytes) -> Route:
        """Everyone who listens to the target of a subject, here and in other accounts; rights aside."""
        seen = target if target != subject else None
        matched = self.subscriptions.match(target)
        plain = self._recipients(matched.plain, target, seen)
        queues = [
            members for _, items in matched.queues if (members := self._recipients(items, target, seen))
        ]
        if not self.router.is_alone:
            plain, queues = once_per_node(plain), list(map(near_members, queues))
        route = Route(plain, queues)
        if self.exchange is not None:
            route = self.exchange.extend(route, target)
        # A requester hears that nobody listens to the subject its message was mapped to.
        return Route(special=partial(_nobody, target)) if seen is not None and route.is_empty else route

    def route_below(self, prefix: bytes, is_deep: bool = False) -> Route | None:
        """The route of every subject that is a prefix and one more token, or more; None when they differ."""
        if self._is_server_subject(prefix):
            return None
        matched = self.subscriptions.match_all_below(prefix, is_deep)
        if matched is None:
            return None
        groups: list[list[Recipient]] = []
        for items in (matched.plain, *(members for _, members in matched.queues)):
            group: list[Recipient] = []
            for item in items:
                if not isinstance(item, Subscription) or delivery_rights(item) is not None:
                    return None
                group.append((item, None))
            groups.append(group)
        if not self.router.is_alone:
            groups = [once_per_node(groups[0]), *map(near_members, groups[1:])]
        return Route(groups[0], groups[1:])

    def _recipients(
        self, items: Iterable[Subscription | Shadow], target: bytes, seen: bytes | None
    ) -> list[Recipient]:
        """Who of these may be sent the subject, and under which name."""
        found: list[Recipient] = []
        for item in items:
            if isinstance(item, Subscription):
                subscription, name = item, seen
            else:
                translated = item.translate(target)
                if translated is None:
                    continue
                subscription, name = item.subscription, translated
            rights = delivery_rights(subscription)
            if rights is not None and not rights.may_deliver(name or target, subscription.queue):
                continue
            found.append((subscription, name))
        return found

    def _is_server_subject(self, subject: bytes) -> bool:
        return subject.startswith(_SERVER_SUBJECTS) or (
            subject.startswith(_RAFT_SUBJECTS) and not self.is_system
        )

    def _publish_mapped(self, context: PublishContext, origin: Outbox | None, message: Publish) -> bool:
        """One message of a subject whose mapping involves chance."""
        assert self.mappings is not None
        target = self.mappings.route(message[0], self.draw)
        return self.send_along(self._route_mapped(message[0], target, context), origin, message)

    def _publish_response(self, target: bytes, origin: Outbox | None, message: Publish) -> bool:
        """One message to a subject that is allowed only as the answer to a request."""
        publisher: Publisher | None = None if origin is None else origin.owner  # type: ignore[assignment]
        if publisher is None or not publisher.may_respond(target):
            return _refuse(origin, message)
        return self.send_along(self._open_route(message[0], target), origin, message)


def _mappings(options: AccountOptions) -> SubjectMappings:
    return SubjectMappings(
        Mapping(
            mapping.source.encode(),
            tuple(
                Destination(
                    destination.subject.encode(), destination.weight_percent, destination.cluster or ""
                )
                for destination in mapping.destinations
            ),
        )
        for mapping in options.mappings
    )


def unanswered(origin: Outbox | None, subject: bytes, reply: bytes | None) -> None:
    """Tell a requester that asked to know that its request reached nobody."""
    if origin is not None and reply is not None and origin.wants_no_responders:
        origin.owner.no_responders(subject, reply)


def _nobody(target: bytes, origin: Outbox | None, message: Publish) -> bool:
    """What the route of a mapped subject without listeners does."""
    unanswered(origin, target, message[1])
    return False


def _refuse(origin: Outbox | None, message: Publish) -> bool:
    """What the route of a forbidden subject does."""
    if origin is not None:
        publisher: Publisher = origin.owner  # type: ignore[assignment]
        publisher.publish_denied(message[0])
    return True
