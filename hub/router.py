"""The router of a hub: tells other nodes who listens here, and keeps the routes to them.

Rules: interest is counted by account, subject and queue. A node hears of the first subscription and of the
end of the last; of a queue group it hears every change, because members are chosen by their number. What
passes at all is what the `permissions` of the cluster block let through, in both directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edged.core.permissions import ALL, Permissions
from edged.ports import RouteStatus, RouteTraffic
from edged.server.identity import AuthFailed
from edged.server.peers import PeerContext, Towards
from hub.limits import ACCOUNTS_LOOKED_UP_MAX
from hub.links.route import RouteLink

if TYPE_CHECKING:
    from edged.config.options import Options, PermissionsOptions
    from edged.core.twins import Outbox
    from edged.core.wire import Publish
    from edged.server.account import Account
    from edged.server.server import Server
    from hub.links.links import Links
    from hub.links.opening import Opened
    from hub.links.peer import Peer


class ClusterRouter:
    """Implements ports.Router. It exists before the server; Links attaches it."""

    is_alone = False

    def __init__(self) -> None:
        self._server: Server | None = None
        self._links: Links | None = None
        self._interest: dict[str, dict[tuple[bytes, bytes | None], int]] = {}
        self._routes: dict[int, RouteLink] = {}
        self._routes_opened = 0
        self._closed_traffic = RouteTraffic()
        # The numbers by which this node calls its accounts; they begin with 1.
        self._numbers: dict[str, int] = {}
        self._names: list[str] = [""]
        self._imports = self._exports = ALL
        self._wanted: set[str] = set()
        # Kept alive here, one for each account.
        self._handlers: dict[str, PeerContext] = {}

    def attach(self, server: Server, links: Links) -> None:
        """Begin to work for a server."""
        self._server, self._links = server, links
        permissions = links.options.permissions
        if permissions is not None:
            self._imports, self._exports = _imports(permissions), _exports(permissions)
        for name in server.accounts:
            self._number(name)
        server.account_listeners.append(self._account_appeared)

    # --- local interest ---

    def interest_added(self, account: str, subject: bytes, queue: bytes | None) -> None:
        interest = self._interest.setdefault(account, {})
        count = interest[subject, queue] = interest.get((subject, queue), 0) + 1
        if count == 1 or queue is not None:
            self._announce(account, subject, queue, count)

    def interest_removed(self, account: str, subject: bytes, queue: bytes | None) -> None:
        interest = self._interest[account]
        count = interest[subject, queue] - 1
        assert count >= 0, (account, subject, queue)
        if count == 0:
            del interest[subject, queue]
        else:
            interest[subject, queue] = count
        if count == 0 or queue is not None:
            self._announce(account, subject, queue, count)

    def _announce(self, account: str, subject: bytes, queue: bytes | None, count: int) -> None:
        if self._routes and self.may_import(subject, queue):
            number = self._number(account)
            for route in self._routes.values():
                route.announce(number, subject, queue, count)

    def may_import(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether messages of other nodes on these subjects are let in."""
        return self._imports is ALL or self._imports.may_subscribe(subject, queue)

    def may_export(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether messages on these subjects are given to other nodes."""
        return self._exports is ALL or self._exports.may_subscribe(subject, queue)

    # --- accounts ---

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
            for route in self._routes.values():
                route.announce_account(name, number)
        return number

    def account_of(self, number: int) -> Account | None:
        """The account that this node calls by a number."""
        if not 0 < number < len(self._names) or self._server is None:
            return None
        return self._server.accounts.get(self._names[number])

    def _account_appeared(self, account: Account) -> None:
        self._number(account.name)
        for route in self._routes.values():
            route.account_appeared(account)

    def wants_account(self, name: str) -> None:
        """Another node has listeners in an account that is not known here: an operator may know it."""
        server = self._server
        if server is None or server.authenticator.operator is None or name in self._wanted:
            return
        if len(self._wanted) < ACCOUNTS_LOOKED_UP_MAX:
            self._wanted.add(name)
            server.nursery.start_soon(self._look_up, server, name)

    async def _look_up(self, server: Server, name: str) -> None:
        try:
            await server.discover_account(name)
        except AuthFailed as failure:
            server.log.debug("an account of another node is not known here", account=name, reason=failure)
        finally:
            self._wanted.discard(name)

    # --- routes ---

    def open_route(self, peer: Peer, opened: Opened, did_solicit: bool) -> RouteLink:
        """A new route: the other node hears at once who listens here."""
        assert self._server is not None
        self._routes_opened += 1
        route = RouteLink(self._server, self, peer, opened, self._routes_opened, did_solicit)
        self._routes[route.cid] = route
        for number, name in enumerate(self._names):
            if name:
                route.announce_account(name, number)
        for name, interest in self._interest.items():
            number = self._number(name)
            for (subject, queue), count in interest.items():
                if self.may_import(subject, queue):
                    route.announce(number, subject, queue, count)
        self._server.log.info("route opened", rid=route.cid, peer=peer.name, did_solicit=did_solicit)
        self._server.flush()
        return route

    def route_closed(self, route: RouteLink) -> None:
        """A route has ended; what it carried still counts."""
        if self._routes.pop(route.cid, None) is not None and self._server is not None:
            self._closed_traffic = _sum(self._closed_traffic, route.outbox)
            self._server.log.info("route closed", rid=route.cid, peer=route.peer.name, reason=route.why)

    def deliver_here(self, account: str, message: Publish) -> bool:
        """Give a message to the handlers of this node that are not announced."""
        found = None if self._server is None else self._server.accounts.get(account)
        if found is None:
            return False
        context = self._handlers[account] = found.peer_context(Towards.HANDLERS)
        found.fanout.publish([message], context.routes, context.resolve, None)
        return True

    def flush(self) -> None:
        if self._links is not None:
            self._links.flush()

    def leaving(self) -> None:
        if self._links is not None:
            self._links.announce(is_told=False)

    def configured(self, options: Options) -> None:
        if self._links is not None:
            self._links.configure(options.cluster)

    def routes(self) -> list[RouteStatus]:
        return [route.status() for route in self._routes.values()]

    def traffic(self) -> RouteTraffic:
        found = self._closed_traffic
        for route in self._routes.values():
            found = _sum(found, route.outbox)
        return found


def _sum(traffic: RouteTraffic, outbox: Outbox) -> RouteTraffic:
    return RouteTraffic(
        traffic.in_messages + outbox.in_messages,
        traffic.in_bytes + outbox.in_bytes,
        traffic.out_messages + outbox.out_messages,
        traffic.out_bytes + outbox.out_bytes,
    )


def _imports(options: PermissionsOptions) -> Permissions:
    rules = options.publish
    return Permissions.from_lists(subscribe_allow=rules.allow, subscribe_deny=rules.deny)


def _exports(options: PermissionsOptions) -> Permissions:
    rules = options.subscribe
    return Permissions.from_lists(subscribe_allow=rules.allow, subscribe_deny=rules.deny)
