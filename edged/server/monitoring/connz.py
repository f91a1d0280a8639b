"""/connz: who is connected, and who was.

Rules: filters and order are worked out on the connections themselves; only those on the page are described,
so asking for one page of very many costs one pass and one sort. A user's JWT is shown unless whoever reads it
could use it (a bearer token). A request for one account never shows a connection of another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from edged.config.options import GLOBAL_ACCOUNT
from edged.core.gotime import format_rfc3339
from edged.core.subjects import overlaps, valid_subscription
from edged.server.identity import AuthFailed, credentials_of
from edged.server.monitoring.answers import BadRequest, Document, Rows, shown
from edged.server.monitoring.gojson import round_trip, text, uptime
from edged.server.monitoring.parameters import SUBS_DETAIL, ConnectionState, Kind, option
from edged.server.monitoring.subsz import describe_subscription

if TYPE_CHECKING:
    from edged.core.twins import Subscription
    from edged.server.client import ClientConnection
    from edged.server.server import Server

LIMIT_DEFAULT = 1024
_CLOSED_ONLY = ("stop", "reason")


@dataclass(frozen=True, slots=True)
class ConnzOptions:
    """What /connz can be asked."""

    sort: str = option(Kind.TEXT, "sort")
    auth: bool = option(Kind.FLAG, "auth")
    subscriptions: bool = option(Kind.FLAG, "subs", json_name="subscriptions")
    subscriptions_detail: bool = option(Kind.FLAG, SUBS_DETAIL, json_name="subscriptions_detail")
    offset: int = option(Kind.INTEGER, "offset")
    limit: int = option(Kind.INTEGER, "limit")
    cid: int = option(Kind.UNSIGNED, "cid")
    mqtt_client: str = option(Kind.TEXT, "mqtt_client")
    state: ConnectionState = option(Kind.STATE, "state")  # noqa: RUF009 - it makes a field
    user: str = option(Kind.TEXT, "user")
    account: str = option(Kind.TEXT, "acc")
    filter_subject: str = option(Kind.TEXT, "filter_subject")


# For each order the key of a connection at a time, and whether the largest comes first.
_Key = Callable[["ClientConnection", int], Any]
_ORDERS: dict[str, tuple[_Key, bool]] = {
    "cid": (lambda connection, now_ns: connection.cid, False),
    "start": (lambda connection, now_ns: connection.cid, False),
    "subs": (lambda connection, now_ns: _subscription_count(connection), True),
    "pending": (lambda connection, now_ns: connection.outbox.pending_bytes, True),
    "msgs_to": (lambda connection, now_ns: connection.outbox.out_messages, True),
    "msgs_from": (lambda connection, now_ns: connection.outbox.in_messages, True),
    "bytes_to": (lambda connection, now_ns: connection.outbox.out_bytes, True),
    "bytes_from": (lambda connection, now_ns: connection.outbox.in_bytes, True),
    "last": (lambda connection, now_ns: connection.active_at_ns, True),
    "idle": (lambda connection, now_ns: connection.active_at_ns, False),
    "uptime": (lambda connection, now_ns: _uptime_ns(connection, now_ns), False),
    "stop": (lambda connection, now_ns: connection.stopped_at_ns, True),
    "reason": (lambda connection, now_ns: connection.reason or "", False),
    "rtt": (lambda connection, now_ns: connection.rtt_ns, True),
}


def connz(server: Server, options: ConnzOptions) -> Document:
    """The document; entries are Rows."""
    order = options.sort or "cid"
    if order not in _ORDERS:
        raise BadRequest(f"invalid sorting option: {options.sort}")
    if order in _CLOSED_ONLY and options.state is not ConnectionState.CLOSED:
        raise BadRequest(f"sort by {order} only valid on closed connections")
    subject = options.filter_subject if options.filter_subject != ">" else ""
    if subject and not options.account:
        raise BadRequest("filter by subject only valid with account filtering")
    now_ns = server.now_ns()
    offset = max(0, options.offset)
    limit = 1 if options.cid else options.limit if options.limit > 0 else LIMIT_DEFAULT
    candidates = _candidates(server, options)
    found = [connection for connection in candidates if _is_wanted(connection, options, subject.encode())]
    key, is_descending = _ORDERS[order]
    found.sort(key=lambda connection: connection.cid)
    if key is not _ORDERS["cid"][0]:
        found.sort(key=lambda connection: key(connection, now_ns), reverse=is_descending)
    page = found[offset : offset + limit]
    return {
        "server_id": server.id,
        "now": format_rfc3339(now_ns),
        "num_connections": len(page),
        "total": len(candidates),
        "offset": offset,
        "limit": limit,
        "connections": Rows(page, partial(_describe, options=options, now_ns=now_ns)),
    }


def without_lone_filter(query: Mapping[str, str]) -> Mapping[str, str]:
    """A query without a filter by subject if it names no account: over HTTP nats-server ignores that one."""
    if query.get("acc"):
        return query
    return {name: value for name, value in query.items() if name != "filter_subject"}


def subscriptions_of(connection: ClientConnection) -> list[Subscription]:
    """The subscriptions of a connection, or those it left behind when it closed."""
    if connection.reason is None:
        return list(connection.subscriptions.values())
    return list(connection.subscriptions_left)


def _subscription_count(connection: ClientConnection) -> int:
    return len(connection.subscriptions if connection.reason is None else connection.subscriptions_left)


def _uptime_ns(connection: ClientConnection, now_ns: int) -> int:
    return (connection.stopped_at_ns or now_ns) - connection.started_at_ns


def _candidates(server: Server, options: ConnzOptions) -> list[ClientConnection]:
    """The connections in the state and the account asked for. The other filters do not lower the total."""
    account = server.accounts.get(options.account)
    if options.account and account is None:
        return []
    wants_open = options.state is not ConnectionState.CLOSED
    wants_closed = options.state is not ConnectionState.OPEN
    return [
        connection
        for connection in chain(server.connections.values(), server.closed)
        if (wants_open if connection.reason is None else wants_closed)
        and (account is None or connection.account is account)
    ]


def _is_wanted(connection: ClientConnection, options: ConnzOptions, subject: bytes) -> bool:
    if options.cid:
        return connection.cid == options.cid
    # There are no MQTT clients, so nobody has the client id that is asked for.
    if options.mqtt_client or (options.user and _user(connection) != options.user):
        return False
    if not subject:
        return True
    if not valid_subscription(subject):
        return False
    return any(overlaps(subject, subscription.subject) for subscription in subscriptions_of(connection))


def _describe(connection: ClientConnection, options: ConnzOptions, now_ns: int) -> Document:
    outbox, transport, fields = connection.outbox, connection.transport, connection.fields
    seen_at_ns = connection.stopped_at_ns or now_ns
    subscriptions = subscriptions_of(connection)
    is_closed = connection.reason is not None
    document: Document = {
        "cid": connection.cid,
        "kind": connection.kind,
        "type": "websocket" if connection.connection_type == "WEBSOCKET" else "nats",
        "ip": transport.remote_ip,
        "port": transport.remote_port,
        "start": format_rfc3339(connection.started_at_ns),
        "last_activity": format_rfc3339(connection.active_at_ns),
        **shown({"stop": format_rfc3339(seen_at_ns) if is_closed else "", "reason": connection.reason}),
        "rtt": round_trip(connection.rtt_ns),
        "uptime": uptime(seen_at_ns - connection.started_at_ns),
        "idle": uptime(seen_at_ns - connection.active_at_ns),
        "pending_bytes": outbox.pending_bytes,
        "in_msgs": outbox.in_messages,
        "out_msgs": outbox.out_messages,
        "in_bytes": outbox.in_bytes,
        "out_bytes": outbox.out_bytes,
        **shown({"stalls": connection.stalls}),
        "subscriptions": len(subscriptions),
    }
    rest: Document = {
        "name": fields.name,
        "lang": fields.lang,
        "version": fields.version,
        "tls_version": transport.tls_version,
        "tls_cipher_suite": transport.tls_cipher,
    }
    if options.auth:
        rest["tls_peer_certs"] = _peer_certificates(connection)
        rest["authorized_user"] = _user(connection)
        rest["account"] = connection.account.name if connection.account.name != GLOBAL_ACCOUNT else ""
    if options.subscriptions_detail:
        rest["subscriptions_list_detail"] = [
            describe_subscription(item, connection.cid) for item in subscriptions
        ]
    elif options.subscriptions:
        rest["subscriptions_list"] = [text(item.subject) for item in subscriptions]
    if options.auth:
        rest |= _credentials(connection)
    return document | shown(rest)


def _user(connection: ClientConnection) -> str:
    """Who a client is or, when it was refused, who it said it was."""
    if connection.identity is not None:
        return connection.identity.user
    try:
        return credentials_of(connection.fields.credentials).display_name
    except AuthFailed:
        return ""  # It sent something else than credentials.


def _credentials(connection: ClientConnection) -> Document:
    """What a login was made of, as far as it gives nobody the means to repeat it."""
    identity = connection.identity
    if identity is None:
        return {}
    return {
        "jwt": identity.jwt if identity.jwt and not _is_bearer(identity.jwt) else "",
        # A key that is in the configuration, and not in a JWT, was given to its user by the account.
        "issuer_key": identity.issuer or (connection.account.name if identity.nkey else ""),
        "name_tag": connection.account.name_tag,
        "tags": list(identity.tags),
    }


def _is_bearer(jwt: str) -> bool:
    """Whether whoever holds the token may log in with it; one that cannot be read is treated as if so."""
    # Loaded already where there are tokens, and much code where there are none.
    from edged.core.claims import decode_user
    from edged.core.jwt import ClaimsError

    try:
        return decode_user(jwt).limits.bearer_token
    except ClaimsError:
        return True


def _peer_certificates(connection: ClientConnection) -> list[Document]:
    """The client certificate. OpenSSL keeps only the peer's own, not the chain."""
    certificate_der = connection.transport.peer_certificate_der
    if certificate_der is None:
        return []
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    certificate = x509.load_der_x509_certificate(certificate_der)
    public_key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return [
        {
            "subject": certificate.subject.rfc4514_string(),
            "spki_sha256": hashlib.sha256(public_key).hexdigest(),
            "cert_sha256": hashlib.sha256(certificate_der).hexdigest(),
        }
    ]
