"""Real nodes, one of which loses its segments while it is down: its own copy is whole again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.hub.real_cluster import ClusterNode, real_cluster
from tests.hub.test_real_cluster import connect, contents, make_stream, run, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

SMALL_FILES = 'jetstream { store_dir: "${directory}/store", max_file_store: 256MB, journal_file_size: 1MiB }'
MESSAGES = 48
# Incompressible, so that a few messages complete the smallest journal file.
PAYLOADS = [b"%d " % number + os.urandom(64 * 1024) for number in range(MESSAGES)]


def segments_of(node: ClusterNode) -> list[Path]:
    return sorted((node.directory / "store").rglob("*.seg"))


def test_a_node_that_lost_its_segments_gets_them_back_and_serves_them_as_leader(tmp_path: Path) -> None:
    with real_cluster("edged-hub", tmp_path, text=SMALL_FILES) as cluster:

        async def scenario() -> None:
            client = await nats.connect(cluster.urls, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
            await make_stream(client)
            js = client.jetstream()
            for payload in PAYLOADS:
                await until(lambda payload=payload: js.publish("ORDERS.new", payload))
            info = await until(lambda: js.stream_info("ORDERS"))
            victim = next(node for node in cluster.nodes if node.name != info.cluster.leader)
            await until(lambda: _sealed(victim))
            victim.kill()
            damaged = segments_of(victim)
            for path in damaged:
                path.write_bytes(b"\xaa" * path.stat().st_size)
            running = victim.start()
            await until(lambda: _told(running.log_path, "a stream has what there is of it again"))
            # Only the leader answers, from its own copy; a node that lacks messages could not lead.
            await until(lambda: _lead(client, victim.name))
            reader = await connect(victim.url)
            assert await contents(reader, "ORDERS") == list(enumerate(PAYLOADS, 1))
            await reader.close()
            await client.close()
            assert damaged and "messages are lost here" in running.log_path.read_text()

        run(scenario)


async def _sealed(node: ClusterNode) -> None:
    if not segments_of(node):
        raise TimeoutError


async def _told(log_path: Path, text: str) -> None:
    if text not in await asyncio.to_thread(log_path.read_text):
        raise TimeoutError


async def _lead(client: Any, name: str) -> None:
    info = await client.jetstream().stream_info("ORDERS")
    if info.cluster.leader != name:
        body = b'{"placement": {"preferred": "%s"}}' % name.encode()
        await client.request("$JS.API.STREAM.LEADER.STEPDOWN.ORDERS", body, timeout=5)
        raise TimeoutError
