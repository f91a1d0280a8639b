"""Lame duck: tell clients to move away, then close them one by one."""

from __future__ import annotations

import random

import trio

from edged.server import reasons
from edged.server.server import Server

# However few clients there are, nobody waits longer than this between two of them.
CLOSE_INTERVAL_MAX_S = 1.0


async def leave_slowly(server: Server) -> None:
    """Announce, wait for the grace period, and close the remaining clients over the configured duration."""
    options = server.options
    server.is_lame_duck = True
    server.router.leaving()
    server.log.info("entering lame duck mode")
    for connection in list(server.connections.values()):
        if connection.fields.protocol >= 1 and connection.identity is not None:
            connection.send(server.info_line(connection))
    server.flush()
    await trio.sleep(options.lame_duck_grace_period_s)
    remaining = list(server.connections.values())
    random.shuffle(remaining)
    if remaining:
        duration_s = max(0.0, options.lame_duck_duration_s - options.lame_duck_grace_period_s)
        interval_s = min(CLOSE_INTERVAL_MAX_S, duration_s / len(remaining))
        for connection in remaining:
            connection.close(reasons.SERVER_SHUTDOWN)
            await trio.sleep(interval_s)
    server.log.info("all clients have left")
