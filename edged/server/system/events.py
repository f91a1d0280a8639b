"""Events that the server tells in the system account: who comes and goes, and how it is doing.

Rules: an event is built only when somebody listens. Connects and disconnects are told when they happen, the
number of connections of an account whenever it changes and every CONNECTIONS_INTERVAL_S, the figures of the
server soon after the start and then less and less often, down to every STATSZ_INTERVAL_S. A failed login is
told in the system account and in the account that the connection was in, which is the default one. No event
holds what its readers could log in with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from edged.config.options import GLOBAL_ACCOUNT
from edged.core.gotime import format_rfc3339
from edged.server import reasons
from edged.server.identity import AuthFailed, Identity, credentials_of
from edged.server.monitoring.accountz import account_figures
from edged.server.system.envelope import Document, Envelope, wanted

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.client import ClientConnection
    from edged.server.monitoring import Monitor
    from edged.server.server import Server

STATSZ_FIRST_S = 1.0
STATSZ_INTERVAL_S = 10.0
CONNECTIONS_INTERVAL_S = 30.0


class Events:
    """Tells the listeners of the system account."""

    def __init__(self, server: Server, monitor: Monitor, envelope: Envelope) -> None:
        self._server = server
        self._monitor = monitor
        self._envelope = envelope
        # After the server has said that it stops, nobody is told how each client goes.
        self._has_stopped = False

    def listen(self) -> None:
        """Learn of connections from the server."""
        self._server.connection_listeners.append(self._connection_changed)
        self._server.auth_failure_listeners.append(self._login_failed)

    # --- figures ---

    def statsz(self) -> Document:
        """The figures of the server."""
        figures = self._monitor.document_from_options("statsz", {}).body
        return {"server": self._envelope.server_info(), "statsz": figures}

    def send_statsz(self) -> None:
        """Tell everybody who listens the figures of the server."""
        subject = f"$SYS.SERVER.{self._server.id}.STATSZ"
        account = self._server.system_account
        if account is not None and wanted(account, subject):
            self._envelope.publish(account, subject, self.statsz())

    async def send_statsz_forever(self) -> None:
        """Tell the figures from time to time."""
        interval_s = STATSZ_FIRST_S
        while True:
            await trio.sleep(interval_s)
            self.send_statsz()
            self._server.flush()
            interval_s = min(interval_s * 2, STATSZ_INTERVAL_S)

    def connections(self, account: Account) -> Document:
        """How many connections an account has, and what they did."""
        return self._envelope.event_head("account_connections", self._server.now_ns()) | account_figures(
            account
        )

    def _send_connections(self, account: Account) -> None:
        """Everything is in the default account when there are no others; that is no news."""
        system = self._server.system_account
        if system is None or account.name == GLOBAL_ACCOUNT:
            return
        subjects = (f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS")
        heard = [subject for subject in subjects if wanted(system, subject)]
        if heard:
            event = self.connections(account)
            for place, subject in enumerate(heard):
                if place:
                    event["server"] = self._envelope.server_info()
                self._envelope.publish(system, subject, event)

    async def send_connections_forever(self) -> None:
        """Repeat the numbers of connections, for listeners that came later."""
        while True:
            await trio.sleep(CONNECTIONS_INTERVAL_S)
            for account in list(self._server.accounts.values()):
                if account.connections:
                    self._send_connections(account)
            self._server.flush()

    # --- connections ---

    def _connection_changed(self, event: str, connection: ClientConnection) -> None:
        system = self._server.system_account
        if system is None or self._has_stopped:
            return
        if connection.identity is not None:
            self._send_connections(connection.account)
        subject = f"$SYS.ACCOUNT.{connection.account.name}.{event.upper()}"
        if wanted(system, subject):
            document = self._connected(connection) if event == "connect" else self._disconnected(connection)
            self._envelope.publish(system, subject, document)
        self._server.flush()

    def _connected(self, connection: ClientConnection) -> Document:
        head = self._envelope.event_head("client_connect", self._server.now_ns())
        return head | {"client": client_info(connection)}

    def _disconnected(self, connection: ClientConnection) -> Document:
        stopped_at_ns = connection.stopped_at_ns or self._server.now_ns()
        outbox = connection.outbox
        return self._envelope.event_head("client_disconnect", stopped_at_ns) | {
            "client": client_info(connection, stopped_at_ns),
            # From the client's side: it sent what came in here.
            "sent": {"msgs": outbox.in_messages, "bytes": outbox.in_bytes},
            "received": {"msgs": outbox.out_messages, "bytes": outbox.out_bytes},
            "reason": connection.reason or "",
        }

    def _login_failed(self, connection: ClientConnection, text: str) -> None:
        """Tell operators, and the owners of the account."""
        system, account = self._server.system_account, connection.account
        if system is None:
            return
        places = (
            (system, f"$SYS.SERVER.{self._server.id}.CLIENT.AUTH.ERR"),
            (account, "$SYS.ACCOUNT.CLIENT.AUTH.ERR"),
        )
        for place, subject in places:
            if wanted(place, subject):
                event = self._disconnected(connection) | {"reason": reasons.of_auth_failure(text)}
                self._envelope.publish(place, subject, event)

    # --- the server itself ---

    def announce(self, event: str) -> None:
        """Tell that the server is leaving: `LAMEDUCK` or `SHUTDOWN`."""
        account = self._server.system_account
        subject = f"$SYS.SERVER.{self._server.id}.{event}"
        if account is not None and wanted(account, subject):
            self._envelope.publish(account, subject, self._envelope.server_info())
        self._has_stopped = event == "SHUTDOWN"
        self._server.flush()


def client_info(connection: ClientConnection, stopped_at_ns: int = 0) -> Document:
    """A client as events describe it; its round trip and its end only once it has ended."""
    identity = connection.identity
    document: Document = {
        "start": format_rfc3339(connection.started_at_ns),
        "host": connection.transport.remote_ip,
        "id": connection.cid,
        "acc": connection.account.name,
        "user": identity.user if identity is not None else _claimed_user(connection),
        "name": connection.fields.name,
        "lang": connection.fields.lang,
        "ver": connection.fields.version,
        "rtt": connection.rtt_ns if stopped_at_ns else 0,
        "stop": format_rfc3339(stopped_at_ns) if stopped_at_ns else "",
        "jwt": _harmless_token(identity),
        "issuer_key": issuer_key(connection),
        "name_tag": connection.account.name_tag,
        "tags": list(identity.tags) if identity is not None else [],
        "kind": connection.kind,
        "client_type": "websocket" if connection.connection_type == "WEBSOCKET" else "nats",
    }
    return {key: value for key, value in document.items() if value}


def issuer_key(connection: ClientConnection) -> str:
    """Who vouches for a user with a key: the signer of its token, or the account that lists its key."""
    return connection.identity.issuer_key if connection.identity is not None else ""


def _harmless_token(identity: Identity | None) -> str:
    """The token of a user, unless whoever reads it here could log in with it."""
    if identity is None or identity.jwt is None:
        return ""
    # Loaded already where there are tokens, and much code where there are none.
    from edged.core.claims import decode_user
    from edged.core.jwt import ClaimsError

    try:
        return "" if decode_user(identity.jwt).limits.bearer_token else identity.jwt
    except ClaimsError:
        return ""


def _claimed_user(connection: ClientConnection) -> str:
    """Who a client that was not let in said it was."""
    try:
        return credentials_of(connection.fields.credentials).display_name
    except AuthFailed:
        return ""
