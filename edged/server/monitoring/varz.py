"""/varz: the server in one page. STATSZ and IDZ, which the system account asks for, are excerpts of it.

Rules: keys and their order are nats-server's. Durations are nanoseconds. Secrets of the configuration are not
in it: URLs of other servers are shown as host and port only.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edged.config.options import ClusterOptions, LeafnodesOptions, LeafRemote, TlsOptions, WebsocketOptions
from edged.core.gotime import format_rfc3339
from edged.server.monitoring.answers import Document, shown
from edged.server.monitoring.gojson import nanoseconds, number, uptime
from edged.server.monitoring.jsz import jetstream_figures
from edged.server.monitoring.process import Usage
from edged.server.monitoring.totals import (
    Traffic,
    accounts_of,
    by_kind,
    routed,
    slow_consumers_total,
    stalls_total,
    subscriptions_total,
    traffic,
)
from edged.version import EDGED_VERSION, NATS_VERSION, PROTOCOL

if TYPE_CHECKING:
    from edged.ports import RouteStatus
    from edged.server.server import Server

_TLS_TIMEOUT_S = TlsOptions().timeout_s


@dataclass(frozen=True, slots=True)
class VarzOptions:
    """There is nothing to ask for."""


def varz(server: Server, usage: Usage) -> Document:
    """The document."""
    return _about(server) | _settings(server) | _links(server) | _running(server, usage) | _rest(server)


def statsz(server: Server, usage: Usage) -> Document:
    """The figures that STATSZ carries."""
    counts = traffic(server)
    total = counts + routed(server)
    routes = server.router.routes()
    slow, stale = slow_consumers_total(server), server.stale_connections
    return {
        "start": format_rfc3339(server.started_at_ns),
        "mem": usage.resident_bytes,
        "cores": usage.cores,
        "cpu": number(usage.cpu_percent),
        "connections": len(server.connections),
        "total_connections": server.total_connections,
        "active_accounts": sum(1 for account in accounts_of(server) if account.connections),
        "subscriptions": subscriptions_total(server),
        "sent": {"msgs": total.out_messages, "bytes": total.out_bytes},
        "sent_to_clients": {"msgs": counts.out_messages, "bytes": counts.out_bytes},
        "received": {"msgs": total.in_messages, "bytes": total.in_bytes},
        "received_from_clients": {"msgs": counts.in_messages, "bytes": counts.in_bytes},
        "slow_consumers": slow,
        **shown(
            {
                "slow_consumer_stats": by_kind(slow) if slow else None,
                "stale_connections": stale,
                "stale_connection_stats": by_kind(stale) if stale else None,
                "stalled_clients": stalls_total(server),
                "routes": [_route_figures(route) for route in routes],
                "active_servers": 1 + len({route.remote_id for route in routes}),
                "jetstream": jetstream_figures(server, with_directory=False),
                "gomaxprocs": usage.cores,
            }
        ),
    }


def idz(server: Server) -> Document:
    """Who this is."""
    return {"name": server.name, "host": server.options.host, "id": server.id}


def _about(server: Server) -> Document:
    options = server.options
    tls = options.tls
    return {
        "server_id": server.id,
        "server_name": server.name,
        "version": NATS_VERSION,
        "proto": PROTOCOL,
        "git_commit": "edged",
        "go": "",
        "edged": EDGED_VERSION,
        "host": options.host,
        "port": server.info.port,
        **shown(
            {
                "auth_required": server.authenticator.auth_required,
                "tls_required": tls is not None and not options.allow_non_tls,
                "tls_verify": tls is not None and (tls.verify or tls.verify_and_map),
                "connect_urls": list(server.info.connect_urls),
                "ws_connect_urls": list(server.info.websocket_connect_urls),
            }
        ),
    }


def _route_figures(route: RouteStatus) -> Document:
    return {
        "rid": route.number,
        "name": route.remote_name,
        "sent": {"msgs": route.out_messages, "bytes": route.out_bytes},
        "received": {"msgs": route.in_messages, "bytes": route.in_bytes},
        "pending": route.pending_bytes,
    }


def _settings(server: Server) -> Document:
    options = server.options
    return {
        "max_connections": options.max_connections,
        **shown({"max_subscriptions": options.max_subscriptions}),
        "ping_interval": nanoseconds(options.ping_interval_s),
        "ping_max": options.ping_max,
        "http_host": options.http_host or options.host,
        "http_port": options.http_port,
        "http_base_path": options.http_base_path.rstrip("/"),
        "https_port": options.https_port,
        "auth_timeout": number(options.auth_timeout_s),
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.max_pending,
    }


def _links(server: Server) -> Document:
    options = server.options
    loaded_at_ns = server.configured_at_ns
    return {
        "cluster": {} if options.cluster is None else _cluster(server, options.cluster, loaded_at_ns),
        "gateway": {},
        "leaf": {} if options.leafnodes is None else _leafnodes(options.leafnodes, loaded_at_ns),
        "mqtt": {},
        "websocket": {} if options.websocket is None else _websocket(server, options.websocket, loaded_at_ns),
        "jetstream": jetstream_figures(server),
        "tls_timeout": number(options.tls.timeout_s if options.tls is not None else _TLS_TIMEOUT_S),
        "write_deadline": nanoseconds(options.write_deadline_s),
        **shown({"write_timeout": _write_timeout(options.write_timeout)}),
    }


def _running(server: Server, usage: Usage) -> Document:
    now_ns = server.now_ns()
    counts: Traffic = traffic(server)
    total = counts + routed(server)
    routes = server.router.routes()
    return {
        "start": format_rfc3339(server.started_at_ns),
        "now": format_rfc3339(now_ns),
        "uptime": uptime(now_ns - server.started_at_ns),
        "mem": usage.resident_bytes,
        "cores": usage.cores,
        "gomaxprocs": usage.cores,
        "cpu": number(usage.cpu_percent),
        "connections": len(server.connections),
        "total_connections": server.total_connections,
        "routes": len(routes),
        "remotes": len({route.remote_id for route in routes}),
        "leafnodes": 0,
        "in_msgs": total.in_messages,
        "in_bytes": total.in_bytes,
        "in_client_msgs": counts.in_messages,
        "in_client_bytes": counts.in_bytes,
        "out_msgs": total.out_messages,
        "out_bytes": total.out_bytes,
        "out_client_msgs": counts.out_messages,
        "out_client_bytes": counts.out_bytes,
        "slow_consumers": slow_consumers_total(server),
        "stale_connections": server.stale_connections,
        "stalled_clients": stalls_total(server),
        "subscriptions": subscriptions_total(server),
        "http_req_stats": dict(sorted(server.http_requests.items())),
    }


def _rest(server: Server) -> Document:
    options = server.options
    tls = options.tls
    return {
        "config_load_time": format_rfc3339(server.configured_at_ns),
        "config_digest": options.config_digest,
        **shown(
            {
                "tags": list(options.server_tags),
                "metadata": dict(sorted(options.server_metadata)),
                "feature_flags": dict(sorted(options.feature_flags)),
                "trusted_operators_jwt": list(options.operators),
                "trusted_operators_claim": [_claims(token) for token in options.operators],
                "system_account": server.system_account_name,
            }
        ),
        "slow_consumer_stats": by_kind(slow_consumers_total(server)),
        "stale_connection_stats": by_kind(server.stale_connections),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
        **shown({"tls_cert_not_after": _certificate_end(tls, server.configured_at_ns)}),
    }


def _cluster(server: Server, cluster: ClusterOptions, loaded_at_ns: int) -> Document:
    tls = cluster.tls
    return shown(
        {
            "name": cluster.name,
            "addr": cluster.host,
            "cluster_port": server.info.cluster_port or cluster.port,
            "auth_timeout": number(cluster.auth_timeout_s or 0.0),
            "urls": [_host_and_port(url) for url in cluster.routes],
            "tls_timeout": 0 if tls is None else number(tls.timeout_s),
            "tls_required": tls is not None,
            "tls_verify": tls is not None,
            "pool_size": cluster.pool_size,
            "write_deadline": nanoseconds(cluster.write_deadline_s or 0.0),
            "write_timeout": _write_timeout(cluster.write_timeout),
            "tls_cert_not_after": _certificate_end(tls, loaded_at_ns),
        }
    )


def _leafnodes(leafnodes: LeafnodesOptions, loaded_at_ns: int) -> Document:
    tls = leafnodes.tls
    accepts = leafnodes.port != 0
    authorization = leafnodes.authorization
    return shown(
        {
            "host": leafnodes.host if accepts else "",
            "port": leafnodes.port,
            "auth_timeout": number((authorization.timeout_s or 0.0) if authorization is not None else 0.0),
            "tls_timeout": 0 if tls is None else number(tls.timeout_s),
            "tls_required": tls is not None,
            "tls_verify": tls is not None and tls.verify,
            "remotes": [_leaf_remote(remote) for remote in leafnodes.remotes],
            "write_deadline": nanoseconds(leafnodes.write_deadline_s or 0.0),
            "write_timeout": _write_timeout(leafnodes.write_timeout),
            "tls_cert_not_after": _certificate_end(tls, loaded_at_ns),
        }
    )


def _leaf_remote(remote: LeafRemote) -> Document:
    return shown(
        {
            "local_account": remote.account,
            "tls_timeout": 0 if remote.tls is None else number(remote.tls.timeout_s),
            "urls": [_host_and_port(url) for url in remote.urls],
            "deny": shown({"exports": list(remote.deny_exports), "imports": list(remote.deny_imports)}),
        }
    )


def _websocket(server: Server, websocket: WebsocketOptions, loaded_at_ns: int) -> Document:
    if websocket.port == 0:
        return {}
    tls, authorization = websocket.tls, websocket.authorization
    return shown(
        {
            "host": websocket.host,
            "port": server.info.websocket_port or websocket.port,
            "advertise": websocket.advertise,
            "no_auth_user": websocket.no_auth_user,
            "jwt_cookie": websocket.jwt_cookie,
            "handshake_timeout": _unless_default(
                websocket.handshake_timeout_s, WebsocketOptions().handshake_timeout_s
            ),
            "auth_timeout": number((authorization.timeout_s or 0.0) if authorization is not None else 0.0),
            "no_tls": websocket.no_tls,
            "tls_map": tls is not None and tls.verify_and_map,
            "tls_pinned_certs": [] if tls is None else sorted(tls.pinned_certs),
            "same_origin": websocket.same_origin,
            "allowed_origins": list(websocket.allowed_origins),
            "compression": websocket.compression,
            "tls_cert_not_after": _certificate_end(tls, loaded_at_ns),
        }
    )


def _unless_default(duration_s: float, default_s: float) -> int:
    return nanoseconds(duration_s) if duration_s != default_s else 0


def _write_timeout(policy: str) -> str:
    return "" if policy == "default" else policy


def _host_and_port(url: str) -> str:
    """A URL without its credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _claims(token: str) -> Any:
    """What an operator's token says; its signature was checked when the configuration was read."""
    payload = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


def _certificate_end(tls: TlsOptions | None, loaded_at_ns: int) -> str:
    """When the certificate in use ends; empty without one."""
    if tls is None:
        return ""
    cert_file = tls.cert_file or (tls.certs[0][0] if tls.certs else None)
    return "" if cert_file is None else _end_of(cert_file, loaded_at_ns)


@lru_cache(maxsize=8)
def _end_of(cert_file: str, loaded_at_ns: int) -> str:
    """Read once per load of the configuration, because a renewed file is not in use before the next one."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
    except (OSError, ValueError):
        return ""  # Unreadable since it was loaded; what is in use still works.
    # Older versions of the library have only the property without a time zone; it means UTC as well.
    end = getattr(certificate, "not_valid_after_utc", None) or certificate.not_valid_after
    return str(end.strftime("%Y-%m-%dT%H:%M:%SZ"))
