"""/routez, /leafz, /gatewayz: links to other servers.

A server without links answers with empty lists in the shapes of nats-server, so that tools which ask every
server need no special case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edged.core.gotime import format_rfc3339
from edged.server.monitoring.answers import Document
from edged.server.monitoring.parameters import SUBS_DETAIL, Kind, option

if TYPE_CHECKING:
    from edged.server.server import Server


@dataclass(frozen=True, slots=True)
class RoutezOptions:
    """What /routez can be asked."""

    subscriptions: bool = option(Kind.FLAG, "subs", json_name="subscriptions")
    subscriptions_detail: bool = option(Kind.FLAG, SUBS_DETAIL, json_name="subscriptions_detail")


@dataclass(frozen=True, slots=True)
class LeafzOptions:
    """What /leafz can be asked."""

    subscriptions: bool = option(Kind.FLAG, "subs", json_name="subscriptions")
    account: str = option(Kind.TEXT, "acc", json_name="account")


@dataclass(frozen=True, slots=True)
class GatewayzOptions:
    """What /gatewayz can be asked."""

    name: str = option(Kind.TEXT, "gw_name", json_name="name")
    accounts: bool = option(Kind.FLAG, "accs", json_name="accounts")
    account_name: str = option(Kind.TEXT, "acc_name", json_name="account_name")
    subscriptions: bool = option(Kind.FLAG, "subs", json_name="subscriptions")
    subscriptions_detail: bool = option(Kind.FLAG, SUBS_DETAIL, json_name="subscriptions_detail")


def routez(server: Server, options: RoutezOptions) -> Document:
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": format_rfc3339(server.now_ns()),
        "num_routes": 0,
        "routes": [],
    }


def leafz(server: Server, options: LeafzOptions) -> Document:
    return {"server_id": server.id, "now": format_rfc3339(server.now_ns()), "leafnodes": 0, "leafs": []}


def gatewayz(server: Server, options: GatewayzOptions) -> Document:
    return {
        "server_id": server.id,
        "now": format_rfc3339(server.now_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }
