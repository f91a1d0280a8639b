"""Several nodes inside the test, linked over loopback, and clients that speak raw protocol to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import trio

from edged.config.options import ClusterOptions, LoggingOptions, Options
from edged.server.listener import Listener, bind
from edged.server.log import Log
from edged.server.monitoring import Monitor
from edged.server.server import Server
from edged.server.system import SystemServices
from hub.links.links import Links
from hub.router import ClusterRouter
from tests.server.live import LiveServer, LogLines

PATIENCE_S = 20.0
CLUSTER = ClusterOptions(name="TEST", host="127.0.0.1", port=-1)


class Node(LiveServer):
    """A running node."""

    def __init__(
        self,
        server: Server,
        listener: Listener,
        lines: LogLines,
        links: Links,
        router: ClusterRouter,
        monitor: Monitor,
    ) -> None:
        super().__init__(server, listener, lines)
        self.monitor = monitor
        self.links = links
        self.router = router
        self.scope = trio.CancelScope()

    @property
    def number(self) -> int:
        return self.links.node

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.links.port}"

    async def linked(self, *others: Node) -> None:
        """Wait until there are links and routes to these nodes."""

        def is_linked() -> bool:
            peers = self.links.peers
            return all(
                other.number in peers and peers[other.number].is_up and peers[other.number].route is not None
                for other in others
            )

        await until(is_linked, f"{self.number} is linked with {[other.number for other in others]}")

    async def hears(self, subject: bytes, account: str = "$G", count: int = 1) -> None:
        """Wait until so many subscriptions here, of any node, would get a message."""

        def has_interest() -> bool:
            matched = self.server.accounts[account].subscriptions.match(subject)
            return len(matched.plain) + sum(len(members) for _, members in matched.queues) >= count

        await until(has_interest, f"{self.number} hears of {count} on {subject!r}")


async def until(condition: Callable[[], bool], what: str = "", patience_s: float = PATIENCE_S) -> None:
    """Let the loop run until something is so."""
    with trio.move_on_after(patience_s):
        while not condition():
            # Sockets are given their turn, and the reactor its end of a turn.
            await trio.lowlevel.checkpoint()
            await trio.sleep(0.0005)
        return
    raise AssertionError(f"it never came to be that {what}")


@asynccontextmanager
async def node(
    number: int,
    *routes: str,
    options: Options | None = None,
    cluster: ClusterOptions = CLUSTER,
    name: str = "",
) -> AsyncIterator[Node]:
    """Serve on free loopback ports until the block ends, and dial these routes."""
    cluster = replace(cluster, routes=routes)
    options = replace(
        options or Options(),
        host="127.0.0.1",
        port=-1,
        server_name=name or f"n{number}",
        logging=LoggingOptions(debug=True),
        cluster=cluster,
    )
    lines = LogLines()
    router = ClusterRouter()
    async with trio.open_nursery() as nursery:
        server = Server(options, Log(options.logging, lines), router, nursery)  # type: ignore[arg-type]
        monitor = Monitor(server)
        system = SystemServices(server, monitor)
        listener = Listener(server, bind(options.host, options.port))
        server.info.port = listener.port
        links = Links(server, cluster, number, router)
        found = Node(server, listener, lines, links, router, monitor)
        nursery.start_soon(listener.run)
        nursery.start_soon(server.deadlines.run)
        nursery.start_soon(server.reactor.run)
        nursery.start_soon(system.run)
        await nursery.start(partial(_run_links, found))
        try:
            yield found
        finally:
            for client in found.clients:
                await trio.aclose_forcefully(client.stream)
            listener.close()
            nursery.cancel_scope.cancel()


async def _run_links(found: Node, task_status: trio.TaskStatus[None]) -> None:
    with found.scope:
        await found.links.run(task_status)


@asynccontextmanager
async def three_nodes(
    options: Options | None = None, cluster: ClusterOptions = CLUSTER
) -> AsyncIterator[tuple[Node, Node, Node]]:
    """Three nodes that all know each other; the second and third have a route to the first only."""
    async with (
        node(1, options=options, cluster=cluster) as first,
        node(2, first.address, options=options, cluster=cluster) as second,
        node(3, first.address, options=options, cluster=cluster) as third,
    ):
        await first.linked(second, third)
        await second.linked(first, third)
        await third.linked(first, second)
        yield first, second, third
