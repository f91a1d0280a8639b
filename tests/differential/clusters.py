"""Clusters in the place of servers: three nodes of nats-server, three of edged-hub, and nats-server alone.

A case is played against one node of each cluster that does not lead the catalog, so that requests cross it.
Streams that a case makes can be given more copies than it says. What nats-server answers one way in a cluster
and another way alone, or now this way and now that, a hub may answer either way: a case that shows a
difference is played alone, too.

The servers of a configuration are started when the first case asks for them, and stopped when a case asks for
another one.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.differential import steps
from tests.differential.compare import difference, difference_from_either
from tests.differential.pairs import REFERENCE, Pair, play
from tests.differential.runner import run
from tests.differential.variables import resolve
from tests.hub.real_cluster import RealCluster, real_cluster
from tests.servers import RunningServer, start_server

SUBJECT = "edged-hub"
# Names of nodes are told from other names: which node does what is chance.
NODE_PREFIX = "node-"

CONFIGURING = re.compile(r"STREAM\.(CREATE|UPDATE)\.\S+")


def with_replicas(case: steps.Case, replicas: int) -> steps.Case:
    """The case with streams of so many copies, unless it says itself how many it wants."""
    if replicas == 1:
        return case
    return replace(case, steps=tuple(_with_replicas(step, replicas) for step in case.steps))


def _with_replicas(step: steps.Step, replicas: int) -> steps.Step:
    if isinstance(step, steps.Request):
        return replace(step, publish=_publish_with_replicas(step.publish, replicas))
    return _publish_with_replicas(step, replicas) if isinstance(step, steps.Publish) else step


def _publish_with_replicas(step: steps.Publish, replicas: int) -> steps.Publish:
    body = step.payload
    if not CONFIGURING.search(step.arguments) or not body.startswith('{"') or "num_replicas" in body:
        return step
    return replace(step, payload=f'{{"num_replicas":{replicas},{body[1:]}')


@dataclass(frozen=True, slots=True)
class ClusterPair:
    """Whom a case is played against: a node of nats-server and one of edged-hub, and nats-server alone."""

    pair: Pair
    alone: RunningServer

    def is_running(self) -> bool:
        """All of them are still there."""
        return self.pair.is_running() and self.alone.is_running()

    def difference(self, case: steps.Case, replicas: int) -> str | None:
        """None when edged-hub answers as nats-server does, in a cluster or alone."""
        clustered, subject = play(with_replicas(case, replicas), self.pair)
        if difference(clustered, subject) is None:
            return None
        return difference_from_either(clustered, run(case, self.alone), subject)


class ClusterPairs:
    """The clusters of a test run, those of one configuration at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running = ExitStack()
        self._config = ""
        self._started = 0
        self._shared: ClusterPair | None = None

    def of(self, case: steps.Case) -> ClusterPair:
        """The servers with the configuration of a case."""
        config = case.header.config
        if self._shared is None or config != self._config or not self._shared.is_running():
            self.stop()
            self._shared = self._start(config)
            self._config = config
        return self._shared

    def _start(self, config: str) -> ClusterPair:
        self._started += 1
        directory, text = self._directory / str(self._started), resolve(config)
        nodes = []
        for program in (REFERENCE, SUBJECT):
            starting = real_cluster(program, directory / program, text=text, prefix=NODE_PREFIX)
            nodes.append(_node_beside_the_leader(self._running.enter_context(starting)))
        alone = start_server(REFERENCE, text, directory / "alone")
        self._running.callback(alone.stop)
        return ClusterPair(Pair(*nodes), alone)

    def stop(self) -> None:
        """End what runs."""
        self._shared = None
        self._running.close()


def _node_beside_the_leader(cluster: RealCluster) -> RunningServer:
    """A node that does not lead the catalog."""
    leader = cluster.wait_leader()
    return next(node.server for node in cluster.nodes if node is not leader and node.server is not None)
