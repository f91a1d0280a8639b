"""The services of the system account, put together.

In the system account operators may ask for everything and change a little; in every other account users may
ask about themselves and their account. Accounts that appear later, by a reload or by a JWT, get theirs when
they appear. Without a system account there is nothing of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from edged.server.system.connection_services import ConnectionServices, Reload
from edged.server.system.desk import Desk
from edged.server.system.envelope import Envelope
from edged.server.system.events import Events
from edged.server.system.monitoring_services import MonitoringServices
from edged.server.system.subscribers import Subscribers
from edged.server.system.user_info import UserInfo

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.monitoring import Monitor
    from edged.server.server import Server
    from edged.server.system.claims import ClaimsServices


class SystemServices:
    """Answers requests about the server and tells of events, as long as run() runs."""

    def __init__(self, server: Server, monitor: Monitor) -> None:
        self._server = server
        envelope = Envelope(server)
        self._desk = Desk(server, envelope)
        self._events = Events(server, monitor, envelope)
        self._monitoring = MonitoringServices(server, monitor, envelope, self._events)
        self._connections = ConnectionServices(server, envelope)
        self._subscribers = Subscribers(server, envelope)
        self._claims: ClaimsServices | None = None
        if server.authenticator.operator is not None:
            # Much code that only daemons with operators need.
            from edged.server.system.claims import ClaimsServices

            self._claims = ClaimsServices(server, envelope)
        self._user_info = UserInfo(server, envelope)
        if server.system_account is None:
            return
        for account in server.accounts.values():
            self._serve(account)
        server.account_listeners.append(self._serve)
        self._events.listen()

    @property
    def reload(self) -> Reload | None:
        """What reads the configuration again when an operator asks for it; None refuses such requests."""
        return self._connections.reload

    @reload.setter
    def reload(self, reload: Reload | None) -> None:
        self._connections.reload = reload

    async def run(self) -> None:
        """Answer and tell, forever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._desk.run)
            nursery.start_soon(self._events.send_statsz_forever)
            nursery.start_soon(self._events.send_connections_forever)
            if self._claims is not None:
                nursery.start_soon(self._claims.run)

    def announce_lame_duck(self) -> None:
        """Tell that the server takes no new clients and closes those it has, bit by bit."""
        self._events.announce("LAMEDUCK")

    def announce_shutdown(self) -> None:
        """Tell that the server stops now."""
        self._events.announce("SHUTDOWN")

    def _serve(self, account: Account) -> None:
        """Offer an account what is for it."""
        self._desk.offer(account, "$SYS.REQ.USER.INFO", self._user_info.answer, is_announced=False)
        if not account.is_system:
            self._monitoring.offer_to_users(self._desk, account)
            return
        # The subject under which other accounts import the same.
        self._desk.offer(account, "$SYS.REQ.USER.*.INFO", self._user_info.answer, is_announced=False)
        self._monitoring.offer_to_operators(self._desk, account)
        self._connections.offer_to_operators(self._desk, account)
        self._subscribers.offer_to_operators(self._desk, account)
        if self._claims is not None:
            self._claims.offer_to_operators(self._desk, account)
