"""SUB and UNSUB of a client: what is checked, in nats-server's order, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edged.core import wire
from edged.core.gotext import quote
from edged.core.subjects import valid_subscription
from edged.core.twins import Subscription

if TYPE_CHECKING:
    from edged.server.client import ClientConnection

# The queue group in which servers answer direct gets; a client in it would take such requests away.
_SYSTEM_QUEUE = b"_sys_"


def subscribe(connection: ClientConnection, event: wire.Subscribe) -> None:
    """Add interest, or say why not. A sid that is in use keeps its subscription."""
    server = connection.server
    if event.queue == _SYSTEM_QUEUE or not connection.permissions.may_subscribe(event.subject, event.queue):
        using = "" if event.queue is None else f" using queue {quote(event.queue)}"
        connection.send_error(f"Permissions Violation for Subscription to {quote(event.subject)}{using}")
        server.log.warn("subscription refused", cid=connection.cid, subject=quote(event.subject))
        return
    tokens_max = server.options.max_subscription_tokens
    if tokens_max and event.subject.count(b".") >= tokens_max:
        about = f"{quote(event.subject)}, too many tokens"
        connection.send_error(f"Permissions Violation for Subscription to {about}")
        return
    if 0 < connection.subscriptions_max <= len(connection.subscriptions):
        connection.send_error("maximum subscriptions exceeded")
        return
    if event.sid not in connection.subscriptions:
        if not valid_subscription(event.subject):
            connection.send_error("Invalid Subject")
            return
        subscription = Subscription(event.subject, event.queue, event.sid, connection.outbox)
        connection.subscriptions[event.sid] = subscription
        connection.account.subscribe(subscription)
    if connection.fields.verbose:
        connection.send(b"+OK\r\n")


def unsubscribe(connection: ClientConnection, event: wire.Unsubscribe) -> None:
    """Take interest away, now or after so many deliveries."""
    subscription = connection.subscriptions.get(event.sid)
    if subscription is not None:
        if event.deliveries_max > subscription.delivered:
            subscription.deliveries_max = event.deliveries_max
        else:
            connection.subscription_exhausted(subscription)
    if connection.fields.verbose:
        connection.send(b"+OK\r\n")
