"""A cluster of real servers on loopback: nats-server or edged-hub, the same configuration for both."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import POLL_INTERVAL_S, START_DEADLINE_S, RunningServer, start_server

# What makes a node of a server.
MEMBERSHIP = """
server_name: {name}
cluster {{ name: HUB, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""
# What a cluster is for. `${directory}` is that of the node.
JETSTREAM = """
jetstream { store_dir: "${directory}/store", max_file_store: 256MB, max_memory_store: 64MB }
accounts { $SYS { users: [{ user: system, password: "s" }] } }
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

    def meta_cluster(self) -> dict[str, Any]:
        """The group of all nodes, as this one shows it over HTTP."""
        assert self.server is not None and self.server.http_port is not None
        connection = http.client.HTTPConnection(
            self.server.host, self.server.http_port, timeout=START_DEADLINE_S
        )
        try:
            connection.request("GET", "/jsz")
            return dict(json.loads(connection.getresponse().read()).get("meta_cluster") or {})
        finally:
            connection.close()

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

    def wait_leader(self) -> ClusterNode:
        """Who leads the catalog, once all nodes say the same of that and everybody is there."""
        until = time.monotonic() + START_DEADLINE_S
        while True:
            seen = {node.name: node.meta_cluster() for node in self.nodes}
            leader, *others = {meta.get("leader") for meta in seen.values()}
            if leader and not others:
                replicas = seen[leader].get("replicas") or ()
                if len(replicas) == len(seen) - 1 and all(one["current"] for one in replicas):
                    return self.named(leader)
            if time.monotonic() > until:
                raise AssertionError(f"the nodes do not agree on who leads: {seen}")
            time.sleep(POLL_INTERVAL_S)


@contextmanager
def real_cluster(
    program: str, directory: Path, count: int = 3, text: str = JETSTREAM, prefix: str = "n"
) -> Iterator[RealCluster]:
    """Nodes that are started together, and stopped at the end; `text` is the configuration of each."""
    ports = free_ports(count)
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
    nodes = []
    for number, port in enumerate(ports, 1):
        name = f"{prefix}{number}"
        membership = MEMBERSHIP.format(name=name, port=port, routes=routes)
        nodes.append(ClusterNode(program, name, directory / name, membership + text))
    cluster = RealCluster(nodes)
    try:
        for node in nodes:
            node.start()
        yield cluster
    finally:
        for node in nodes:
            node.stop()
