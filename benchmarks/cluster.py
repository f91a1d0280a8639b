"""A cluster under test: several servers on loopback ports that are one, with streams in several copies.

Clients connect to the node that leads the stream which is measured, so that all servers are measured on the
shortest way; leaders stay where they are unless a workload does something to them.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.procfs import ProcessUse
from benchmarks.servers import HOST, RunningServer, ServerError, ServerKind, free_port
from benchmarks.wire import Endpoint, GeneratorError
from benchmarks.workloads.jetstream_api import ask, asking_at

READY_S_MAX = 60.0
_RETRY_S = 0.05
_ANSWER_S = 2.0
_PROBE = "probe"


class ClusterNode:
    """One of the servers; it keeps its name, its ports and its folder when it is started again."""

    def __init__(self, kind: ServerKind, name: str, folder: Path, cluster_port: int, routes: str) -> None:
        self.kind = kind
        self.name = name
        self._folder = folder
        self._port = free_port()
        self._more = (
            f"server_name: {name}\n"
            f'cluster: {{name: bench, listen: "{HOST}:{cluster_port}", routes: [{routes}]}}\n'
        )
        folder.mkdir()
        self.server = self._start()

    @property
    def endpoint(self) -> Endpoint:
        return self.server.endpoint

    def restart(self) -> None:
        """Start it again after it was killed, and wait until it answers."""
        self.server = self._start()
        self.wait_answering()

    def wait_answering(self) -> None:
        self.server.__enter__()

    def end(self) -> None:
        self.server.__exit__(None, None, None)

    def _start(self) -> RunningServer:
        flags = self.kind.jetstream_flags(self._folder, self._more)
        return RunningServer(self.kind, self._folder, flags, self._port)


class RunningCluster:
    """Nodes that can hold streams in as many copies as there are nodes; leaving the context ends them."""

    def __init__(self, kind: ServerKind, folder: Path, count: int) -> None:
        self.kind = kind
        self.folder = folder
        self._stack = ExitStack()
        ports = [free_port() for _ in range(count)]
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in ports)
        self.nodes: list[ClusterNode] = []
        for number, port in enumerate(ports, 1):
            node = ClusterNode(kind, f"n{number}", folder / f"n{number}", port, routes)
            self._stack.callback(node.end)
            self.nodes.append(node)
        self.endpoint = self.nodes[0].endpoint

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.wait_answering()
            self._wait_placing()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        return next(node.server.pid for node in self.nodes if node.endpoint == self.endpoint)

    def use(self) -> ProcessUse:
        uses = [node.server.use() for node in self.nodes]
        return ProcessUse(
            sum(use.cpu_s for use in uses),
            sum(use.rss_bytes for use in uses),
            sum(use.rss_peak_bytes for use in uses),
        )

    def check_running(self) -> None:
        for node in self.nodes:
            node.server.check_running()

    def settle(self, stream: str) -> None:
        """Wait until every copy of the stream is current, and connect to its leader from now on."""
        self.endpoint = self.wait_current(stream).endpoint

    def wait_current(self, stream: str, wait_s: float = READY_S_MAX) -> ClusterNode:
        """The leader of a stream, as soon as there is one that all its followers follow."""
        deadline_s = time.monotonic() + wait_s
        while True:
            info = self._ask_once(f"STREAM.INFO.{stream}")
            cluster = info.get("cluster", {})
            leader = next((node for node in self.nodes if node.name == cluster.get("leader")), None)
            current = [
                one for one in cluster.get("replicas") or () if one["current"] and not one.get("offline")
            ]
            if leader is not None and len(current) == info["config"]["num_replicas"] - 1:
                return leader
            if time.monotonic() > deadline_s:
                raise ServerError(
                    f"{self.kind.name}: {stream} is not current after {wait_s:.0f} s: {cluster}"
                )
            time.sleep(_RETRY_S)

    def _wait_placing(self) -> None:
        """Until a stream with a copy on each node can be made: then everybody knows everybody."""
        config = {"name": _PROBE, "subjects": [_PROBE], "num_replicas": len(self.nodes)}
        deadline_s = time.monotonic() + READY_S_MAX
        while not self._ask_once(f"STREAM.CREATE.{_PROBE}", config):
            self.check_running()
            if time.monotonic() > deadline_s:
                raise ServerError(f"{self.kind.name}: no stream can be made after {READY_S_MAX:.0f} s")
            time.sleep(_RETRY_S)
        self.wait_current(_PROBE)
        self._ask_once(f"STREAM.DELETE.{_PROBE}")

    def _ask_once(self, endpoint: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the first node says that has an answer; nothing if none has."""
        for node in self.nodes:
            try:
                with asking_at(node.endpoint, _ANSWER_S) as connection:
                    return ask(connection, endpoint, body)
            except (GeneratorError, OSError):
                continue  # It is down, or there is no leader to ask: the next one may know more.
        return {}
