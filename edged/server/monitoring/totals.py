"""Sums over connections and accounts that several documents show.

Rules: counters never fall, so what closed connections sent and received stays in them. Everything is summed
when asked for; the per-message path keeps no totals of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from edged.core.fanout import Route
from edged.server.monitoring.answers import Document
from edged.server.monitoring.gojson import number

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.client import ClientConnection
    from edged.server.server import Server


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages and payload bytes; `in` is what clients published, `out` what they were sent."""

    in_messages: int = 0
    in_bytes: int = 0
    out_messages: int = 0
    out_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.in_messages + other.in_messages,
            self.in_bytes + other.in_bytes,
            self.out_messages + other.out_messages,
            self.out_bytes + other.out_bytes,
        )


def connections_of(account: Account) -> Collection[ClientConnection]:
    """Who is in an account now."""
    return cast("Collection[ClientConnection]", account.connections)


def traffic_of(account: Account) -> Traffic:
    """All that an account ever sent and received, here."""
    in_messages, in_bytes = account.closed_in_messages, account.closed_in_bytes
    out_messages, out_bytes = account.closed_out_messages, account.closed_out_bytes
    for connection in connections_of(account):
        outbox = connection.outbox
        in_messages += outbox.in_messages
        in_bytes += outbox.in_bytes
        out_messages += outbox.out_messages
        out_bytes += outbox.out_bytes
    return Traffic(in_messages, in_bytes, out_messages, out_bytes)


def traffic(server: Server) -> Traffic:
    """All that the server ever received and sent."""
    return sum(map(traffic_of, server.accounts.values()), Traffic())


def routed(server: Server) -> Traffic:
    """All that was ever exchanged with other nodes."""
    found = server.router.traffic()
    return Traffic(found.in_messages, found.in_bytes, found.out_messages, found.out_bytes)


def accounts_of(server: Server) -> list[Account]:
    """The accounts that exist; those that a reload removed are kept for their counters only."""
    return [account for account in server.accounts.values() if not account.is_removed]


def subscriptions_total(server: Server) -> int:
    return sum(len(account.subscriptions) for account in server.accounts.values())


def slow_consumers_total(server: Server) -> int:
    return sum(server.slow_consumers.values())


def stalls_total(server: Server) -> int:
    """How often publishers were made to wait for a slow subscriber."""
    return server.closed_stalls + sum(connection.stalls for connection in server.connections.values())


def by_kind(clients: int) -> Document:
    """A counter split by who it is about; there are only clients so far."""
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0}


def routes_cached(account: Account) -> list[Route]:
    """The routes that are ready for use. Each set of rights has its own."""
    contexts = {connection.context for connection in connections_of(account)} | {account.internal}
    return [route for context in contexts for route in context.routes.values()]


def subscription_figures(accounts: Iterable[Account]) -> Document:
    """How many subscriptions there are, and how far messages fan out along the routes in use.

    Every message looks its route up once, and only those that find none ready search the list: the hit rate
    follows from the two counts.
    """
    count = inserts = removes = searches = lookups = cached = fanout_sum = fanout_max = 0
    for account in accounts:
        listed = account.subscriptions
        count += len(listed)
        inserts += listed.inserts
        removes += listed.removes
        searches += listed.matches
        lookups += max(listed.matches, traffic_of(account).in_messages)
        for route in routes_cached(account):
            fanout = len(route.plain) + len(route.queues)
            cached += 1
            fanout_sum += fanout
            fanout_max = max(fanout_max, fanout)
    return {
        "num_subscriptions": count,
        "num_cache": cached,
        "num_inserts": inserts,
        "num_removes": removes,
        "num_matches": lookups,
        "cache_hit_rate": number((lookups - searches) / lookups) if lookups else 0,
        "max_fanout": fanout_max,
        "avg_fanout": number(fanout_sum / cached) if cached else 0,
    }
