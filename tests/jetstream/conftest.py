"""What tests share: one edged for a module, without streams for each test, and servers that swap archives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.jetstream_servers import running
from tests.jetstream.origin_pair import OriginServer
from tests.jetstream.snapshot_client import Clients, SnapshotClient


@pytest.fixture(scope="module")
def running_edged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OriginServer]:
    """An edged for all tests of a module."""
    server = OriginServer("edged", tmp_path_factory.mktemp("edged"))
    yield server
    server.stop()


@pytest.fixture
def edged(running_edged: OriginServer) -> Iterator[OriginServer]:
    """An edged without streams."""
    yield running_edged
    running_edged.forget()


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Clients that take and give archives, of two edged and a nats-server."""
    with (
        running("edged", tmp_path_factory.mktemp("edged")) as edged,
        running("nats-server", tmp_path_factory.mktemp("nats-server")) as nats_server,
        running("edged", tmp_path_factory.mktemp("other")) as other,
    ):
        servers = {"edged": edged, "nats-server": nats_server, "other edged": other}
        connected = {name: SnapshotClient(server.host, server.port) for name, server in servers.items()}
        yield connected
        for client in connected.values():
            client.close()
