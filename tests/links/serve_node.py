"""One node as a process: `python -m tests.links.serve_node NUMBER [ROUTE…]`; prints its ports and serves.

It ends when its standard input does, so that no node outlives its test.
"""

from __future__ import annotations

import json
import sys

import trio

from edged.config.options import Options
from tests.links.nodes import node


async def serve(number: int, routes: list[str]) -> None:
    """Serve until standard input ends."""
    options = Options(max_pending=8 * 1024 * 1024)
    async with node(number, *routes, options=options) as found:
        print(json.dumps({"port": found.listener.port, "cluster": found.address}), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]), sys.argv[2:])
