"""How long publishes fail after the leader of a stream was killed: `python -m benchmarks.failover`.

Three nodes, a stream in three copies, and one client at each node that publishes at a steady pace whatever
comes back. A round kills the node that leads with SIGKILL. For each of the other nodes the time counts from
that moment to the first acknowledgement of a message which was sent after it; the figure of a round is that
of the slower one. Then the node is started again, and the next round begins when all copies are current.
"""

from __future__ import annotations

import argparse
import json
import re
import select
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.cluster import ClusterNode, RunningCluster
from benchmarks.machine import machine_facts
from benchmarks.servers import CLUSTER_NAMES, HUB, REFERENCE, ServerError, find_kinds
from benchmarks.wire import PING, PONG, Endpoint, GeneratorError, connect, publish_frame, subscribe_frame
from benchmarks.workloads.jetstream_api import ask, asking

NODES: Final = 3
STREAM: Final = "failover"
INTERVAL_S: Final = 0.005
# With this many on their way nothing more is sent until the next connection.
UNANSWERED_MAX: Final = 100_000
OUTAGE_S_MAX: Final = 60.0
CALM_S: Final = 0.5
_RETRY_S: Final = 0.02
_RECEIVE_BYTES: Final = 1 << 16
_PAYLOAD: Final = b"x" * 128
_ACK: Final = re.compile(rb"MSG F\.\w+\.\d+\.(\d+) 1 \d+\r\n\{[^\r]*\"seq\":")


class Prober(threading.Thread):
    """Publishes through one node at a steady pace, and remembers which messages were acknowledged when."""

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        super().__init__(daemon=True)
        # In a cluster an inbox is known everywhere: each connection needs one that nobody else has.
        self._name = name
        self._connections = 0
        self._endpoint = endpoint
        self._stopping = threading.Event()
        self._sent_s: list[float] = []
        self.acknowledged = 0
        # (sent, acknowledged), of messages that were sent after the moment that is waited for.
        self._after_s = float("inf")
        self._success = threading.Event()
        self.success_s = 0.0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with connect(self._endpoint) as connection:
                    self._connections += 1
                    inbox = f"F.{self._name}.{self._connections}".encode()
                    connection.sendall(subscribe_frame(inbox + b".*", b"1"))
                    self._publish(connection, inbox)
            except (OSError, GeneratorError):
                self._stopping.wait(_RETRY_S)  # The node is down, or just starting.

    def _publish(self, connection: socket.socket, inbox: bytes) -> None:
        self._sent_s, tail, due_s = [], b"", time.monotonic()
        while not self._stopping.is_set() and len(self._sent_s) < UNANSWERED_MAX:
            now_s = time.monotonic()
            if now_s >= due_s:
                reply = b"%b.%d" % (inbox, len(self._sent_s))
                self._sent_s.append(now_s)
                connection.sendall(publish_frame(STREAM.encode(), _PAYLOAD, reply))
                due_s = max(due_s + INTERVAL_S, now_s)
            if select.select([connection], [], [], max(0.0, due_s - time.monotonic()))[0]:
                tail = self._receive(connection, tail)

    def _receive(self, connection: socket.socket, tail: bytes) -> bytes:
        data = connection.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the node closed the connection")
        if PING in data:
            connection.sendall(PONG)
        data = tail + data
        now_s, end = time.monotonic(), 0
        for match in _ACK.finditer(data):
            end = match.end()
            self.acknowledged += 1
            if self._sent_s[int(match[1])] > self._after_s and not self._success.is_set():
                self.success_s = now_s
                self._success.set()
        return data[max(end, len(data) - 512) :]

    def expect(self, after_s: float) -> None:
        """From now on the first acknowledgement of a message counts that was sent after this moment."""
        self._success.clear()
        self._after_s = after_s

    def wait_success(self, deadline_s: float) -> float | None:
        """When it came."""
        return self.success_s if self._success.wait(max(0.0, deadline_s - time.monotonic())) else None

    def end(self) -> None:
        self._stopping.set()
        self.join()


@dataclass(frozen=True, slots=True)
class Outage:
    """Of one round: seconds from the kill to success through the first node and through all that are left."""

    first_s: float
    all_s: float


def measure(cluster: RunningCluster, rounds: int) -> list[Outage]:
    """Kill the leader again and again."""
    with asking(cluster) as connection:
        config = {"name": STREAM, "subjects": [STREAM], "storage": "file", "num_replicas": NODES}
        ask(connection, f"STREAM.CREATE.{STREAM}", config)
    probers = {node.name: Prober(node.name, node.endpoint) for node in cluster.nodes}
    for prober in probers.values():
        prober.start()
    outages = []
    try:
        for number in range(1, rounds + 1):
            leader = cluster.wait_current(STREAM)
            _wait_flowing(probers)
            outages.append(_kill(leader, probers))
            print(
                f"[{number}/{rounds}] {cluster.kind.name} {leader.name} was the leader: "
                f"{outages[-1].first_s:.3f} s, through all {outages[-1].all_s:.3f} s",
                file=sys.stderr,
                flush=True,
            )
            leader.restart()
    finally:
        for prober in probers.values():
            prober.end()
    return outages


def _wait_flowing(probers: dict[str, Prober]) -> None:
    """Until publishes succeed through every node, and for a moment more."""
    now_s = time.monotonic()
    for prober in probers.values():
        prober.expect(now_s)
    for name, prober in probers.items():
        if prober.wait_success(now_s + OUTAGE_S_MAX) is None:
            raise ServerError(f"no publish succeeds through {name} for {OUTAGE_S_MAX:.0f} s")
    time.sleep(CALM_S)


def _kill(leader: ClusterNode, probers: dict[str, Prober]) -> Outage:
    others = [prober for name, prober in probers.items() if name != leader.name]
    leader.server.kill()
    killed_s = time.monotonic()
    for prober in others:
        prober.expect(killed_s)
    found = [prober.wait_success(killed_s + OUTAGE_S_MAX) for prober in others]
    if None in found:
        raise ServerError(f"no publish succeeds {OUTAGE_S_MAX:.0f} s after {leader.name} was killed")
    times_s = [success_s - killed_s for success_s in found if success_s is not None]
    return Outage(min(times_s), max(times_s))


def percentile(figures: Sequence[float], share: float) -> float:
    """By nearest rank: a figure that was measured."""
    ordered = sorted(figures)
    return ordered[max(0, -(-int(len(ordered) * share * 1000) // 1000) - 1)]


def summary(name: str, outages: Sequence[Outage]) -> str:
    """One line."""
    figures = [outage.all_s for outage in outages]
    parts = " ".join(
        f"p{share * 100:.0f}={percentile(figures, share):.3f}s" for share in (0.5, 0.9, 0.95, 0.99)
    )
    return f"{name}: rounds={len(figures)} min={min(figures):.3f}s {parts} max={max(figures):.3f}s"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.add_argument("--server", choices=CLUSTER_NAMES, default=HUB)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--edged-hub", metavar="PROGRAM")
    parser.add_argument("--nats-server", metavar="PROGRAM")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    programs = {HUB: options.edged_hub, REFERENCE: options.nats_server}
    try:
        (kind,) = find_kinds([options.server], programs)
    except FileNotFoundError as error:
        parser.error(str(error))
    with (
        tempfile.TemporaryDirectory(prefix="failover-") as folder,
        RunningCluster(kind, Path(folder), NODES) as cluster,
    ):
        outages = measure(cluster, options.rounds)
    print(summary(kind.name, outages))
    if options.json is not None:
        document = {"machine": machine_facts([kind]), "outages": [asdict(outage) for outage in outages]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
