"""/subsz: how many subscriptions there are, and which.

Rules: figures are over all accounts, or the one asked for. Subscriptions of the server's own (services,
events) are listed with cid 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from edged.core.gotime import format_rfc3339
from edged.core.subjects import valid_literal
from edged.core.twins import Subscription
from edged.server.monitoring.answers import BadRequest, Document, Rows, shown
from edged.server.monitoring.gojson import text
from edged.server.monitoring.parameters import Kind, option
from edged.server.monitoring.totals import accounts_of, subscription_figures

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.exchange import Shadow
    from edged.server.server import Server

LIMIT_DEFAULT = 1024


@dataclass(frozen=True, slots=True)
class SubszOptions:
    """What /subsz can be asked."""

    subscriptions: bool = option(Kind.FLAG, "subs", json_name="subscriptions")
    offset: int = option(Kind.INTEGER, "offset")
    limit: int = option(Kind.INTEGER, "limit")
    account: str = option(Kind.TEXT, "acc", json_name="account")
    test: str = option(Kind.TEXT, "test")


def subsz(server: Server, options: SubszOptions) -> Document:
    """The document; entries are Rows."""
    subject = options.test.encode("utf-8", "surrogateescape")
    if subject and not valid_literal(subject):
        raise BadRequest(f"invalid test subject, must be valid publish subject: {options.test}")
    accounts = [account for account in accounts_of(server) if options.account in ("", account.name)]
    offset = max(0, options.offset)
    limit = options.limit if options.limit > 0 else LIMIT_DEFAULT
    found: list[tuple[Account, Subscription | Shadow]] = []
    if options.subscriptions:
        found = [(account, item) for account in accounts for item in _matching(account, subject)]
    page = found[offset : offset + limit]
    document: Document = {
        "server_id": server.id,
        "now": format_rfc3339(server.now_ns()),
        **subscription_figures(accounts),
        "total": len(found),
        "offset": offset,
        "limit": limit,
    }
    if page:
        document["subscriptions_list"] = Rows(page, partial(_describe))
    return document


def describe_subscription(subscription: Subscription, cid: int) -> Document:
    """One subscription, as it is shown under its connection."""
    return {
        "subject": text(subscription.subject),
        **shown({"qgroup": text(subscription.queue)}),
        "sid": text(subscription.sid),
        "msgs": subscription.delivered,
        **shown({"max": subscription.deliveries_max}),
        "cid": cid,
    }


def _matching(account: Account, subject: bytes) -> list[Subscription | Shadow]:
    """All subscriptions of an account, or those that a message on the subject would reach."""
    if not subject:
        return list(account.subscriptions)
    matched = account.subscriptions.match(subject)
    return list(chain(matched.plain, *(members for _, members in matched.queues)))


def _describe(listed: tuple[Account, Subscription | Shadow]) -> Document:
    account, item = listed
    # An import of another account is listed where it takes messages from, under the name of its owner.
    subscription = item if isinstance(item, Subscription) else item.subscription
    owner = None if subscription.outbox is None else subscription.outbox.owner
    name = getattr(owner, "account", account).name
    document = {
        "account": name,
        "account_tag": name,
        **describe_subscription(subscription, getattr(owner, "cid", 0)),
    }
    if not isinstance(item, Subscription):
        document["subject"] = text(item.pattern)
    return document
