"""Reload: takes over a changed configuration without dropping anyone who is still allowed in.

Rules: a reload happens as a whole or not at all. Options that cannot change while the daemon runs refuse it
by name. Every connection is authenticated again with the credentials it came with; rights that it lost end
its subscriptions, with an -ERR for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from edged.config.options import Options
from edged.core.gotext import quote
from edged.core.twins import Subscription
from edged.server import reasons
from edged.server.client import ClientConnection
from edged.server.identity import AuthFailed
from edged.server.listener import Listener
from edged.server.server import Server
from edged.server.tls_context import TlsConfigError

if TYPE_CHECKING:
    from edged.server.monitoring import Monitor

# What would need new sockets, another identity or another store. A restart is the honest answer.
FIXED_OPTIONS = (
    "server_name",
    "host",
    "port",
    "http_host",
    "http_port",
    "https_port",
    "http_base_path",
    "ports_file_dir",
    "pid_file",
    "system_account",
    "no_system_account",
    "feature_flags",
    "max_closed_clients",
    "proxy_protocol",
)
FIXED_WEBSOCKET_OPTIONS = ("host", "port")
FIXED_JETSTREAM_OPTIONS = ("store_dir", "domain", "key", "cipher")


class ReloadRefused(Exception):  # noqa: N818 - it is an answer
    """The new configuration cannot be taken over; the text says which part and why."""


class Reloader:
    """Applies a new configuration to a running server."""

    def __init__(
        self, server: Server, monitor: Monitor, listeners: list[Listener], load_again: Callable[[], Options]
    ) -> None:
        self.server = server
        self.monitor = monitor
        self.listeners = listeners
        self.load_again = load_again
        self._turn = trio.Lock()

    async def reload(self) -> None:
        """Read the configuration again and take it over, or raise ReloadRefused. One at a time."""
        async with self._turn:
            await self._reload()

    async def _reload(self) -> None:
        try:
            options = self.load_again()
        except (OSError, ValueError) as error:
            raise ReloadRefused(str(error)) from error
        refuse_fixed(self.server.options, options)
        before = self.server.options
        try:
            self._take_over(options)
        except (TlsConfigError, ValueError, OSError) as error:
            self._take_over(before)
            raise ReloadRefused(str(error)) from error
        self.server.log.configure(options.logging)
        self.server.configured_at_ns = self.server.now_ns()
        for connection in list(self.server.connections.values()):
            await judge(self.server, connection)
        self.server.flush()
        self.server.log.info("reloaded the configuration")

    def _take_over(self, options: Options) -> None:
        for listener in self.listeners:
            listener.configure(options)
        self.monitor.configure(options)
        self.server.configure(options)


async def judge(server: Server, connection: ClientConnection) -> None:
    """Let a connection stay with the rights it has now, or close it."""
    if connection.identity is None or connection.reason is not None:
        return
    try:
        identity = await server.authenticate(connection, again=True)
    except AuthFailed as failure:
        connection.close(reasons.of_auth_failure(failure.text), failure.text)
        return
    if connection.reason is not None:
        return  # It was closed while we asked.
    account = server.accounts.get(identity.account_name)
    if account is not connection.account or account.is_removed:
        # It would be somebody else now; let it come again as that.
        connection.close(reasons.AUTHENTICATION_VIOLATION)
        return
    connection.identity = identity
    connection.apply_rights(identity)
    for subscription in list(connection.subscriptions.values()):
        if not identity.permissions.may_subscribe(subscription.subject, subscription.queue):
            connection.drop_subscription(subscription)
            connection.send_error(_lost_subscription(subscription))


def refuse_fixed(before: Options, after: Options) -> None:
    """Raise ReloadRefused for a change that needs a restart."""
    for name in FIXED_OPTIONS:
        if getattr(before, name) != getattr(after, name):
            raise ReloadRefused(f"{name} cannot be changed by a reload; restart the daemon")
    for block, names in (("websocket", FIXED_WEBSOCKET_OPTIONS), ("jetstream", FIXED_JETSTREAM_OPTIONS)):
        old, new = getattr(before, block), getattr(after, block)
        if (old is None) != (new is None):
            raise ReloadRefused(f"{block} cannot be switched by a reload; restart the daemon")
        for name in names if old is not None else ():
            if getattr(old, name) != getattr(new, name):
                raise ReloadRefused(f"{block}.{name} cannot be changed by a reload; restart the daemon")
    if before.jetstream is not None and after.jetstream is not None:
        for name in ("max_memory", "max_store"):
            if 0 <= getattr(after.jetstream, name) < getattr(before.jetstream, name):
                raise ReloadRefused(f"jetstream.{name} cannot be lowered by a reload; restart the daemon")
    if (before.tls is None) != (after.tls is None):
        raise ReloadRefused("tls cannot be switched by a reload; restart the daemon")


def _lost_subscription(subscription: Subscription) -> str:
    using = "" if subscription.queue is None else f" using queue {quote(subscription.queue)}"
    about = f"{quote(subscription.subject)}{using} (sid {quote(subscription.sid)})"
    return f"Permissions Violation for Subscription to {about}"
