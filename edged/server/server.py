"""The server at run time: who is connected, which accounts exist, and what everyone shares.

Rules: everything here belongs to the one thread of the loop. Connections report to it (connected, closing,
forget); monitoring and the system account read from it. It opens no sockets: listener.py does.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import trio

from edged.config.options import GLOBAL_ACCOUNT, AccountOptions, Options
from edged.core import nkeys
from edged.core.twins import Fanout
from edged.server import passwords, reasons
from edged.server.account import Account
from edged.server.auth import Authenticator
from edged.server.deadlines import Deadlines
from edged.server.identity import AuthFailed, AuthRequest, Identity
from edged.server.imports import bind_imports
from edged.server.info import Info
from edged.server.log import Log
from edged.server.reactor import Reactor
from edged.server.reasons import Reason

if TYPE_CHECKING:
    from edged.ports import Router
    from edged.server.claimed_accounts import ClaimedAccounts
    from edged.server.client import ClientConnection
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.operator_auth import OperatorAuth

TOO_MANY_ACCOUNT_CONNECTIONS = "maximum account active connections exceeded"

# Subscriptions of a closed connection that monitoring can still show. What is beyond is forgotten.
SUBSCRIPTIONS_LEFT_MAX = 32

# What others want to know of connections: (event name, connection). Events are "connect" and "disconnect".
ConnectionListener = Callable[[str, "ClientConnection"], None]


class Server:
    """State shared by all connections of a daemon."""

    def __init__(self, options: Options, log: Log, router: Router, nursery: trio.Nursery) -> None:
        self.options = options
        self.log = log
        self.router = router
        self.nursery = nursery
        self.id = nkeys.encode_public(nkeys.KeyKind.SERVER, secrets.token_bytes(32))
        self.name = options.server_name or self.id
        self.started_at_ns = self.configured_at_ns = self.now_ns()
        self.fanout = Fanout(secrets.randbits(64))
        self.deadlines = Deadlines()
        self.reactor = Reactor(self)
        # The loop's time when the reactor's round began, and whether a task should get its turn now.
        self.turn_at = 0.0
        self.turn_at_ns = 0
        self.tasks_waiting = False
        self.connections: dict[int, ClientConnection] = {}
        self.closed: deque[ClientConnection] = deque(maxlen=max(0, options.max_closed_clients))
        self.connection_listeners: list[ConnectionListener] = []
        self.auth_failure_listeners: list[Callable[[ClientConnection, str], None]] = []
        # Told of every account that is new, when its options are in place.
        self.account_listeners: list[Callable[[Account], None]] = []
        self.total_connections = 0
        self.slow_consumers = {reasons.SLOW_CONSUMER_PENDING: 0, reasons.SLOW_CONSUMER_DEADLINE: 0}
        self.stale_connections = 0
        # How often connections that are gone were made to wait for a slow subscriber.
        self.closed_stalls = 0
        self.http_requests: dict[str, int] = {}
        self.is_lame_duck = False
        self.lame_duck_asked = trio.Event()
        self.info = Info(self)
        self.accounts: dict[str, Account] = {}
        # Set by the daemon when JetStream is on.
        self.jetstream: JetStream | None = None
        self._next_cid = 0
        self._claimed: ClaimedAccounts | None = None
        self._password_limiter = passwords.new_limiter()
        self.configure(options)

    # --- configuration ---

    def configure(self, options: Options) -> None:
        """Build accounts and authentication from options; what exists stays, with its connections."""
        self.options = options
        self.authenticator = Authenticator(options, now_s=self.now_ns() / 1e9, limiter=self._password_limiter)
        self.system_account_name = self.authenticator.system_account
        wanted = {account.name: account for account in options.accounts}
        wanted.setdefault(GLOBAL_ACCOUNT, AccountOptions(GLOBAL_ACCOUNT, mappings=options.mappings))
        if self.system_account_name is not None:
            wanted.setdefault(self.system_account_name, AccountOptions(self.system_account_name))
        for account_options in wanted.values():
            self._configure_account(account_options)
        for name in [
            name for name in self.accounts if name not in wanted and not self.accounts[name].is_claimed
        ]:
            self.accounts[name].is_removed = True
        self.default_account = self.accounts[GLOBAL_ACCOUNT]
        bind_imports(self.accounts, self.describe_requester, self.log)
        self.router.configured(options)
        if self.jetstream is not None:
            self.jetstream.configured()

    def _configure_account(self, options: AccountOptions) -> Account:
        account = self.accounts.get(options.name)
        if account is None:
            account = self.accounts[options.name] = Account(
                options,
                self.fanout,
                self.router,
                random.randrange,
                is_system=options.name == self.system_account_name,
            )
            for listener in self.account_listeners:
                listener(account)
        else:
            account.configure(options)
        account.is_removed = False
        return account

    @property
    def system_account(self) -> Account | None:
        """The account for operators, unless it is switched off."""
        return None if self.system_account_name is None else self.accounts[self.system_account_name]

    # --- time and chance ---

    def now_ns(self) -> int:
        """Wall-clock time, for people and for messages."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """A clock that nobody sets."""
        return time.monotonic_ns()

    def turn_started(self) -> None:
        """Take the time of a turn of the reactor; what it reads is dated with it."""
        self.turn_at = trio.current_time()
        self.turn_at_ns = self.now_ns()

    def jitter(self) -> float:
        """A factor between 1 and 1.2, so that many clients are not pinged in step."""
        return 1.0 + random.random() * 0.2

    # --- connections ---

    def next_cid(self) -> int:
        self._next_cid += 1
        return self._next_cid

    def remember(self, connection: ClientConnection) -> None:
        """A connection has been accepted."""
        self.connections[connection.cid] = connection
        self.total_connections += 1

    def is_full_with(self, connection: ClientConnection) -> bool:
        """Whether this connection, already counted, is one too many."""
        limit = self.options.max_connections
        return 0 < limit < len(self.connections)

    def auth_timeout_s(self, connection: ClientConnection) -> float:
        websocket = self.options.websocket
        if connection.connection_type == "WEBSOCKET" and websocket is not None and websocket.authorization:
            return websocket.authorization.timeout_s or self.options.auth_timeout_s
        return self.options.auth_timeout_s

    def ping_interval_s(self, connection: ClientConnection) -> float:
        websocket = self.options.websocket
        if connection.connection_type == "WEBSOCKET" and websocket is not None and websocket.ping_interval_s:
            return websocket.ping_interval_s
        return self.options.ping_interval_s

    async def authenticate(self, connection: ClientConnection, again: bool = False) -> Identity:
        """Who a connection is, or AuthFailed. With `again` it was let in before, and hears what it lost."""
        request = AuthRequest(
            connect=connection.fields.credentials,
            nonce=connection.nonce,
            connection_type=connection.connection_type,
            remote_ip=connection.transport.remote_ip,
            tls_peer_certificate_der=connection.transport.peer_certificate_der,
            now_s=self.now_ns() / 1e9,
        )
        authenticator = self.authenticator
        identity = await (
            authenticator.reauthenticate(request) if again else authenticator.authenticate(request)
        )
        if authenticator.operator is not None:
            await self._learn_account(authenticator.operator, identity.account_name)
        return identity

    async def learn_account(self, name: str) -> None:
        """Take over what the resolver says by now about an account that is in use. AuthFailed without one."""
        operator = self.authenticator.operator
        if operator is not None and name in self.accounts:
            await self._learn_account(operator, name)

    async def discover_account(self, name: str) -> None:
        """Take over an account that is in use at another node, if there is an operator who vouches for it.

        AuthFailed when there is no such account.
        """
        operator = self.authenticator.operator
        if operator is not None:
            await self._learn_account(operator, name)

    async def _learn_account(self, operator: OperatorAuth, name: str) -> None:
        """Take over the account of a JWT, and whatever changed in those already known."""
        if self._claimed is None:
            from edged.server.claimed_accounts import ClaimedAccounts

            self._claimed = ClaimedAccounts(self.log)
        changed = await self._claimed.learn(operator, name, self.now_ns() / 1e9)
        for options in changed:
            self._configure_account(options).is_claimed = True
        if changed:
            bind_imports(self.accounts, self.describe_requester, self.log)
            if self.jetstream is not None:
                self.jetstream.configured()

    def authentication_failed(self, connection: ClientConnection, failure: AuthFailed) -> None:
        self.log.warn(
            "authentication failed",
            cid=connection.cid,
            ip=connection.transport.remote_ip,
            reason=failure.reason,
        )
        for listener in self.auth_failure_listeners:
            listener(connection, failure.text)

    def bind(self, connection: ClientConnection, identity: Identity) -> Account:
        """The account of an identity, with the connection in it. AuthFailed when it takes no more."""
        account = self.accounts.get(identity.account_name)
        if account is None or account.is_removed:
            raise AuthFailed("the account is not known")
        connection.account.connections.discard(connection)
        limit = account.limits.max_connections
        if 0 <= limit <= len(account.connections):
            raise AuthFailed("the account has all its connections", TOO_MANY_ACCOUNT_CONNECTIONS)
        account.connections.add(connection)
        account.connections_total += 1
        return account

    def payload_max(self, identity: Identity, account: Account) -> int:
        """The largest payload a connection may send: the smallest of all that limit it."""
        limits = [self.options.max_payload, identity.max_payload, account.limits.max_payload]
        return min(limit for limit in limits if limit is not None and limit >= 0)

    def connected(self, connection: ClientConnection) -> None:
        """A client has completed CONNECT."""
        self.log.debug("client connected", cid=connection.cid, account=connection.account.name)
        for listener in self.connection_listeners:
            listener("connect", connection)

    def closing(self, connection: ClientConnection) -> None:
        """A connection has a reason to end: its interest goes now, its socket when its task gets there."""
        subscriptions = connection.subscriptions.values()
        connection.subscriptions_left = tuple(islice(subscriptions, SUBSCRIPTIONS_LEFT_MAX))
        connection.leave()
        account = connection.account
        if connection in account.connections:
            account.connections.discard(connection)
            account.absorb(connection.outbox)

    def forget(self, connection: ClientConnection) -> None:
        """The task of a connection has ended."""
        if self.connections.pop(connection.cid, None) is None:
            return
        self.closed.append(connection)
        self.closed_stalls += connection.stalls
        self.log.debug("client closed", cid=connection.cid, reason=connection.reason)
        for listener in self.connection_listeners:
            listener("disconnect", connection)
        connection.become_history()

    def slow_consumer(
        self, connection: ClientConnection, reason: Reason = reasons.SLOW_CONSUMER_PENDING
    ) -> None:
        self.slow_consumers[reason] += 1
        connection.account.slow_consumers += 1
        self.log.warn("slow consumer", cid=connection.cid, pending_bytes=connection.outbox.pending_bytes)

    def flush(self) -> ClientConnection | None:
        """Write what the last batch produced. Returns a connection that cannot keep up, if there is one."""
        if self.jetstream is not None:
            self.jetstream.flush()
        if not self.router.is_alone:
            self.router.flush()
        dirty = self.fanout.dirty
        if not dirty:
            return None
        self.fanout.dirty = []
        congested: ClientConnection | None = None
        now_ns = self.now_ns()
        for outbox in dirty:
            outbox.listed = False
            owner: Any = outbox.owner
            owner.active_at_ns = now_ns
            if owner.reason is not None:
                outbox.discard()
            elif owner.writer.flush():
                congested = owner
        return congested

    # --- what clients are told ---

    def info_line(self, connection: ClientConnection, is_connected: bool = False) -> bytes:
        """The INFO for a client."""
        return self.info.line(connection, is_connected)

    def advertise(self, urls: tuple[str, ...], websocket_urls: tuple[str, ...], is_told: bool = True) -> None:
        """Tell clients where else they can go, when that has changed; or with the next INFO."""
        if (urls, websocket_urls) == (self.info.connect_urls, self.info.websocket_connect_urls):
            return
        self.info.connect_urls, self.info.websocket_connect_urls = urls, websocket_urls
        if is_told:
            for connection in self.connections.values():
                connection.tell_news()
            self.flush()

    def describe_requester(self, outbox: Any, is_shared: bool) -> bytes:
        """Who sent a request, for the Nats-Request-Info header."""
        return self.info.requester(outbox.owner, is_shared)
