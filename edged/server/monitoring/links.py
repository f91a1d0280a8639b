"""/routez, /leafz, /gatewayz: links to other servers.

A server without links answers with empty lists in the shapes of nats-server, so that tools which ask every
server need no special case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edged.core.gotime import format_rfc3339
from edged.server.monitoring.answers import Document, shown
from edged.server.monitoring.gojson import round_trip, text, uptime
from edged.server.monitoring.parameters import SUBS_DETAIL, Kind, option

if TYPE_CHECKING:
    from edged.ports import RouteStatus
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
    now_ns = server.now_ns()
    routes = [_route(route, now_ns, options) for route in server.router.routes()]
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": format_rfc3339(now_ns),
        "num_routes": len(routes),
        "routes": routes,
    }


def _route(route: RouteStatus, now_ns: int, options: RoutezOptions) -> Document:
    document: Document = {
        "rid": route.number,
        "remote_id": route.remote_id,
        "remote_name": route.remote_name,
        "did_solicit": route.did_solicit,
        "is_configured": route.is_configured,
        "ip": route.ip,
        "port": route.port,
        "start": format_rfc3339(route.started_at_ns),
        "last_activity": format_rfc3339(route.active_at_ns),
        "rtt": round_trip(route.rtt_ns),
        "uptime": uptime(now_ns - route.started_at_ns),
        "idle": uptime(now_ns - route.active_at_ns),
        "pending_size": route.pending_bytes,
        "in_msgs": route.in_messages,
        "out_msgs": route.out_messages,
        "in_bytes": route.in_bytes,
        "out_bytes": route.out_bytes,
        "subscriptions": len(route.interest),
    }
    if options.subscriptions_detail:
        document["subscriptions_list_detail"] = [
            {"account": account, "subject": text(subject), **shown({"qgroup": text(queue)})}
            for account, subject, queue in route.interest
        ]
    elif options.subscriptions:
        document["subscriptions_list"] = [text(subject) for _, subject, _ in route.interest]
    tls = {"tls_version": route.tls_version, "tls_cipher_suite": route.tls_cipher}
    return document | shown(tls) | {"compression": "zstd" if route.is_compressed else "off"}


def leafz(server: Server, options: LeafzOptions) -> Document:
    return {"server_id": server.id, "now": format_rfc3339(server.now_ns()), "leafnodes": 0, "leafs": []}


def gatewayz(server: Server, options: GatewayzOptions) -> Document:
    return {
        "server_id": server.id,
        "now": format_rfc3339(server.now_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }
