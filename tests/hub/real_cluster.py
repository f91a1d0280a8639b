"""A cluster of real servers on loopback: nats-server or edged-hub, the same configuration for both."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import RunningServer, start_server

CONFIGURATION = """
server_name: {name}
jetstream {{ store_dir: "{directory}", max_file_store: 256MB, max_memory_store: 64MB {settings} }}
cluster {{ name: HUB, listen: "127.0.0.1:{port}", routes: [{routes}] }}
accounts {{ $SYS {{ users: [{{ user: system, password: "s" }}] }} }}
{more}
"""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@dataclass(slots=True)
class ClusterNode:
    """A member, running or not."""

    program: str
    name: str
    directory: Path
    configuration: str
    server: RunningServer | None = None

    def start(self) -> RunningServer:
        """Start it, with what is on its disk."""
        assert self.server is None
        self.server = start_server(self.program, self.configuration, self.directory, name=self.name)
        return self.server

    def kill(self) -> None:
        """End it from one moment to the next."""
        assert self.server is not None
        self.server.signal(signal.SIGKILL)
        self.server.wait_exit()
        self.server = None

    def stop(self) -> None:
        """End it in order."""
        if self.server is not None:
            self.server.stop()
            self.server = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        assert self.server is not None
        return f"nats://{self.server.host}:{self.server.port}"


@dataclass(slots=True)
class RealCluster:
    """Some nodes that know each other."""

    nodes: list[ClusterNode]

    def named(self, name: str) -> ClusterNode:
        """The node with this name."""
        return next(node for node in self.nodes if node.name == name)

    @property
    def urls(self) -> list[str]:
        """Where the nodes that run take clients."""
        return [node.url for node in self.nodes if node.server is not None]


@contextmanager
def real_cluster(
    program: str, directory: Path, count: int = 3, settings: str = "", more: str = ""
) -> Iterator[RealCluster]:
    """Nodes that are started together, and stopped at the end."""
    ports = free_ports(count)
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
    nodes = []
    for number, port in enumerate(ports, 1):
        home = directory / f"n{number}"
        text = CONFIGURATION.format(
            name=f"n{number}",
            directory=home / "store",
            port=port,
            routes=routes,
            settings=settings,
            more=more,
        )
        nodes.append(ClusterNode(program, f"n{number}", home, text))
    cluster = RealCluster(nodes)
    try:
        for node in nodes:
            node.start()
        yield cluster
    finally:
        for node in nodes:
            node.stop()
