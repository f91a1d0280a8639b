"""Clients of several nodes: how they log in, what they read, and when all of it has arrived."""

from __future__ import annotations

from dataclasses import replace

from edged.config.options import AccountOptions, Authorization, Options, UserOptions
from tests.links.nodes import Node, until
from tests.server.live import LiveClient


def accounts(*wanted: AccountOptions) -> Options:
    """Options with these accounts, each with a user of its name."""
    listed = tuple(
        replace(one, users=(UserOptions(one.name.lower(), "x", account=one.name),)) for one in wanted
    )
    return Options(accounts=listed, authorization=Authorization())


async def login(at: Node, user: str) -> LiveClient:
    return await at.client(b',"user":"%s","pass":"x"' % user.encode())


async def message(client: LiveClient) -> tuple[bytes, bytes]:
    """The next message: its line without the verb, and its data. News of the cluster are passed over."""
    while (line := await client.line()).startswith(b"INFO "):
        pass
    verb, _, rest = line.partition(b" ")
    assert verb in (b"MSG", b"HMSG"), line
    size = int(rest.rpartition(b" ")[2])
    return rest, (await client.exactly(size + 2))[:-2]


async def nothing_for(client: LiveClient) -> None:
    assert [line for line in await client.barrier() if not line.startswith(b"INFO ")] == []


async def settled(*nodes: Node) -> None:
    """Wait until everything that was sent on routes before this moment has been dealt with.

    A PING passes behind it in each direction, and is answered when it is read.
    """
    for one in nodes:
        for route in list(one.router._routes.values()):
            route.rtt_ns = 0
            route.ping()
        one.server.flush()
    for one in nodes:
        await until(lambda one=one: all(route.rtt_ns for route in one.router._routes.values()), "pongs")  # type: ignore[misc]
