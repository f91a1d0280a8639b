"""Accounts that share with each other, and logging in to them: what monitoring tests look at."""

from __future__ import annotations

import trio.testing

from edged.config.options import (
    AccountOptions,
    MappingDestination,
    MappingOptions,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
    UserOptions,
)
from tests.server.live import LiveClient
from tests.server.monitored import MonitoredServer


def user(name: str, account: str) -> UserOptions:
    return UserOptions(user=name, password=name, account=account)


APP = AccountOptions(
    "APP",
    users=(user("a", "APP"), user("z", "APP")),
    mappings=(MappingOptions("old", (MappingDestination("new"),)),),
    stream_exports=(StreamExport("pub.>"),),
    service_exports=(
        ServiceExport("help", accounts=("B",)),
        ServiceExport("many.*", response="stream", latency=ServiceLatency("lat", 50)),
    ),
)
OTHER = AccountOptions(
    "B",
    users=(user("b", "B"),),
    stream_imports=(StreamImport("APP", "pub.x", prefix="imp"), StreamImport("APP", "pub.y.*", to="loc.*")),
    service_imports=(ServiceImport("APP", "help", "halp", share=True),),
)
SYSTEM = AccountOptions("SYS", users=(user("s", "SYS"),))
ACCOUNTS: dict[str, object] = {"accounts": (APP, OTHER, SYSTEM), "system_account": "SYS"}


async def login(monitored: MonitoredServer, name: str, extra: str = "") -> LiveClient:
    return await monitored.live.client(f',"user":"{name}","pass":"{name}"{extra}'.encode())


async def closed_by_us(monitored: MonitoredServer, client: LiveClient) -> None:
    """End a client and wait until the server has forgotten it."""
    count = len(monitored.server.closed)
    await client.stream.aclose()
    while len(monitored.server.closed) == count:
        await trio.testing.wait_all_tasks_blocked()
