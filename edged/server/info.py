"""The INFO document and how a requester is described to services.

Rules: keys come in nats-server's order and are left out under the same conditions, because clients and tools
compare and parse them. `edged` is ours, and the only key that nats-server does not have.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edged.core.gotime import format_rfc3339
from edged.version import API_LEVEL, EDGED_VERSION, NATS_VERSION, PROTOCOL

if TYPE_CHECKING:
    from edged.server.client import ClientConnection
    from edged.server.server import Server


# Made once: json.dumps() would build an encoder for every document.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Info:
    """Builds what the server says about itself."""

    def __init__(self, server: Server) -> None:
        self.server = server
        # Set once the listeners are bound: the port may have been chosen by the system.
        self.port = 0
        self.websocket_port = 0
        self.cluster_port = 0
        self.connect_urls: tuple[str, ...] = ()
        self.websocket_connect_urls: tuple[str, ...] = ()

    def line(self, connection: ClientConnection, is_connected: bool = False) -> bytes:
        """`INFO {…} CRLF` for one client."""
        return b"INFO %s \r\n" % _encode(self.document(connection, is_connected)).encode()

    def document(self, connection: ClientConnection, is_connected: bool) -> dict[str, Any]:
        server = self.server
        options = server.options
        is_websocket = connection.connection_type == "WEBSOCKET"
        tls = options.tls
        if is_websocket:
            tls = None if options.websocket is None else options.websocket.tls
        auth = server.authenticator
        document: dict[str, Any] = {
            "server_id": server.id,
            "server_name": server.name,
            "version": NATS_VERSION,
            "proto": PROTOCOL,
            "git_commit": "edged",
            "go": "",
            "host": options.host,
            "port": self.port,
            "headers": not options.no_header_support,
            "auth_required": auth.auth_required_in_info(connection.connection_type),
            "tls_required": tls is not None and not (options.allow_non_tls and not is_websocket),
            "tls_verify": tls is not None and tls.verify,
            "tls_available": tls is not None and options.allow_non_tls and not is_websocket,
            "max_payload": server.options.max_payload if not is_connected else connection.parser.payload_max,
            "jetstream": options.jetstream is not None,
            "client_id": connection.cid,
            "client_ip": connection.transport.remote_ip,
            "nonce": connection.nonce.decode() if connection.nonce is not None and not is_connected else "",
            "cluster": self._cluster_name(),
            "domain": options.jetstream.domain if options.jetstream is not None else "",
            "connect_urls": [] if is_websocket else list(self.connect_urls),
            "ws_connect_urls": list(self.websocket_connect_urls) if is_websocket else [],
            "ldm": server.is_lame_duck,
            "connect_info": is_connected,
            "remote_account": connection.account.name if is_connected else "",
            "acc_is_sys": is_connected and connection.account.is_system,
            "api_lvl": API_LEVEL,
            "edged": EDGED_VERSION,
        }
        always = ("go", "headers", "max_payload", "port", "proto")
        return {key: value for key, value in document.items() if value or key in always}

    def _cluster_name(self) -> str:
        cluster = self.server.options.cluster
        return (cluster.name or "") if cluster is not None else ""

    def requester(self, connection: ClientConnection, is_shared: bool) -> bytes:
        """The Nats-Request-Info of a client: who it is and where, or only its account."""
        if not is_shared:
            return _encode({"acc": connection.account.name}).encode()
        identity = connection.identity
        document: dict[str, Any] = {
            "start": format_rfc3339(connection.started_at_ns),
            "host": connection.transport.remote_ip,
            "id": connection.cid,
            "acc": connection.account.name,
            "user": identity.user if identity is not None else "",
            "name": connection.fields.name,
            "lang": connection.fields.lang,
            "ver": connection.fields.version,
            "rtt": connection.rtt_ns,
            "server": self.server.name,
            "cluster": self._cluster_name(),
            "issuer_key": identity.issuer_key if identity is not None else "",
            "name_tag": identity.name_tag if identity is not None else "",
            "tags": list(identity.tags) if identity is not None else [],
            "kind": connection.kind,
            "client_type": "websocket" if connection.connection_type == "WEBSOCKET" else "nats",
        }
        return _encode({k: v for k, v in document.items() if v}).encode()
