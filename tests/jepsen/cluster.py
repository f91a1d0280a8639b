"""A cluster of real nodes under test, and how the harness speaks to it while parts of it may be broken.

Rules: nodes run in namespaces of a Network, or on loopback ports where nothing is to be partitioned. Every
request goes from node to node until one answers, up to a deadline. Leaving the context ends every process.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.disks.loop_filesystem import MEBIBYTE, LoopFilesystem
from tests.jepsen.connection import NoAnswerError
from tests.jepsen.network import Network, address_of
from tests.jepsen.nodes import SYSTEM_LOGIN, Node, NodeError, Place

SERVERS: Final = ("nats-server", "edged-hub")
STREAM: Final = "LOG"
CONSUMER: Final = "work"
SUBJECTS: Final = 20
# Elections of nats-server take up to nine seconds, and one may fail.
FORM_S_MAX: Final = 60.0
LEADER_S_MAX: Final = 40.0
ACK_WAIT_NS: Final = 2_000_000_000
ACK_PENDING_MAX: Final = 1000
_DUPLICATE_WINDOW_NS: Final = 600_000_000_000
_PORTS: Final = (4222, 6222, 8222)
_IMAGE_BYTES: Final = 2048 * MEBIBYTE
_RETRY_S: Final = 0.1
_NOT_A_MEMBER: Final = 10044
# Files of the journal that are soon full: messages move into segments, and checkpoints are written.
_SETTINGS: Final = {"edged-hub": "journal_file_size: 1MiB"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is started. `filesystem` puts each node's data on an image whose power can be cut."""

    server: str
    nodes: int = 3
    replicas: int = 3
    has_network: bool = True
    filesystem: str | None = None
    settings: str = ""
    program: str | None = None

    def find_program(self) -> Path:
        """The path of the server: as told, else beside Python."""
        program = Path(self.program) if self.program else Path(sys.executable).with_name(self.server)
        if not program.exists():
            raise FileNotFoundError(f"{program} does not exist")
        return program.absolute()


class Cluster:
    """`nodes` are those that belong to it now, running or not."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.nodes: list[Node] = []
        self.network: Network | None = None
        self._program = plan.find_program()
        self._folder = folder
        self._stack = ExitStack()
        self._numbers = 0
        self._past: list[Node] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self.plan.has_network:
                self.network = Network()
                stack.callback(self.network.close)
            places = [self._new_place() for _ in range(self.plan.nodes)]
            routes = [place.route for place in places]
            for place in places:
                self.nodes.append(self._node(place, routes, stack))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in (*self.nodes, *self._past):
            node.kill()
        self._stack.close()

    def _new_place(self) -> Place:
        self._numbers += 1
        number = self._numbers
        if self.network is None:
            return Place(number, "127.0.0.1", _free_port(), _free_port(), _free_port())
        self.network.add(number)
        return Place(number, address_of(number), *_PORTS, prefix=self.network.command_in(number))

    def _node(self, place: Place, routes: Sequence[str], stack: ExitStack) -> Node:
        settings = "\n  ".join((_SETTINGS.get(self.plan.server, ""), self.plan.settings))
        filesystem = None
        if self.plan.filesystem is not None:
            filesystem = stack.enter_context(LoopFilesystem(self.plan.filesystem, _IMAGE_BYTES))
        name = f"n{place.number}"
        return Node(name, place, self._program, self._folder / name, settings, routes, filesystem)

    # --- nodes ---

    def start(self, nodes: Iterable[Node] | None = None) -> None:
        """Start those that do not run, and wait until each of them answers clients."""
        chosen = [node for node in (self.nodes if nodes is None else nodes) if not node.is_running]
        for node in chosen:
            node.start()
        for node in chosen:
            node.wait_answering()

    def stop(self, nodes: Sequence[Node]) -> None:
        """End them as their operator would, all at the same time."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            for done in [pool.submit(node.stop) for node in nodes]:
                done.result()

    def replace(self, old: Node) -> Node:
        """A node that never was before takes the place of one that has ended for good."""
        assert not old.is_running, old.name
        routes = [node.place.route for node in self.nodes if node is not old]
        new = self._node(self._new_place(), routes, self._stack)
        self._past.append(old)
        self.nodes = [new if node is old else node for node in self.nodes]
        return new

    def heal(self) -> None:
        """End all faults: nothing is cut off, nothing is paused, everything runs."""
        if self.network is not None:
            self.network.heal()
        for node in self.nodes:
            node.resume()
        self.start()

    def power_cut(self, nodes: Sequence[Node]) -> None:
        """Of all of them at the same time, for a client: none says anything after the first is cut."""
        for node in nodes:
            node.pause()
        # Mounting replays the filesystem's log: they need not wait for each other.
        with ThreadPoolExecutor(len(nodes)) as pool:
            for done in [pool.submit(node.cut_power) for node in nodes]:
                done.result()

    def named(self, name: str) -> Node | None:
        """The node of this name, if it belongs to the cluster."""
        return next((node for node in self.nodes if node.name == name), None)

    # --- requests ---

    def ask(
        self,
        endpoint: str,
        body: dict[str, Any] | bytes = b"",
        wait_s: float = FORM_S_MAX,
        nodes: Sequence[Node] = (),
        **login: str,
    ) -> Any:
        """What the first node says that answers without an error. Raises NoAnswerError after the deadline."""
        deadline_s = time.monotonic() + wait_s
        trouble: Exception = NoAnswerError("nothing was asked")
        while True:
            for node in nodes or [node for node in self.nodes if node.is_running and not node.is_paused]:
                try:
                    with node.connect(**login) as connection:
                        return connection.api(endpoint, body)
                except (OSError, NoAnswerError) as error:
                    trouble = error
            if time.monotonic() > deadline_s:
                raise NoAnswerError(f"{endpoint}: no answer for {wait_s:.0f} s, at last: {trouble}")
            time.sleep(_RETRY_S)

    def create(self) -> None:
        """The stream, and its consumer."""
        config = {
            "name": STREAM,
            "subjects": [f"{STREAM}.*"],
            "storage": "file",
            "num_replicas": self.plan.replicas,
            "allow_direct": True,
            "duplicate_window": _DUPLICATE_WINDOW_NS,
        }
        self.ask(f"STREAM.CREATE.{STREAM}", config)
        consumer = {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_NS,
            "max_ack_pending": ACK_PENDING_MAX,
        }
        body = {"stream_name": STREAM, "config": consumer}
        self.ask(f"CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}", body)
        self.wait_replicated(FORM_S_MAX)

    def info(self, wait_s: float = LEADER_S_MAX, nodes: Sequence[Node] = ()) -> dict[str, Any]:
        """The stream's information."""
        document: dict[str, Any] = self.ask(f"STREAM.INFO.{STREAM}", wait_s=wait_s, nodes=nodes)
        return document

    def leader(self, wait_s: float = LEADER_S_MAX) -> Node | None:
        """Who leads the stream."""
        return self.named(self.info(wait_s).get("cluster", {}).get("leader", ""))

    def members(self, wait_s: float = LEADER_S_MAX) -> list[Node]:
        """The nodes that have the stream."""
        cluster = self.info(wait_s)["cluster"]
        names = [cluster.get("leader", ""), *(peer["name"] for peer in cluster.get("replicas") or ())]
        return [node for node in self.nodes if node.name in names]

    def wait_replicated(self, wait_s: float) -> None:
        """Until every copy of the stream has all of it. Raises NoAnswerError."""
        deadline_s = time.monotonic() + wait_s
        while True:
            cluster = self.info(wait_s)["cluster"]
            peers = cluster.get("replicas") or ()
            if (
                cluster.get("leader")
                and len(peers) == self.plan.replicas - 1
                and all(peer.get("current") and not peer.get("offline") for peer in peers)
            ):
                return
            if time.monotonic() > deadline_s:
                raise NoAnswerError(f"the stream has not all its copies after {wait_s:.0f} s: {cluster}")
            time.sleep(_RETRY_S)

    def make_leader(self, node: Node, wait_s: float = LEADER_S_MAX) -> None:
        """Let a node lead the stream. Raises NoAnswerError when it does not come to that."""
        deadline_s = time.monotonic() + wait_s
        body = {"placement": {"preferred": node.name}}
        while self.leader(wait_s) is not node:
            if time.monotonic() > deadline_s:
                raise NoAnswerError(f"{node.name} does not lead after {wait_s:.0f} s")
            try:
                self.ask(f"STREAM.LEADER.STEPDOWN.{STREAM}", body, wait_s=1.0)
            except NoAnswerError:
                continue  # Between two leaders there is nobody to ask.
            time.sleep(_RETRY_S)

    def remove_peer(self, node: Node, wait_s: float, through: Sequence[Node] = ()) -> None:
        """The cluster is told that a node will not come back. If it knows none of that name, all is well."""
        try:
            self.ask("SERVER.REMOVE", {"peer": node.name}, wait_s, through, **SYSTEM_LOGIN)
        except NoAnswerError as error:
            if str(_NOT_A_MEMBER) not in str(error):
                raise


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


__all__ = ["CONSUMER", "SERVERS", "STREAM", "SUBJECTS", "Cluster", "NodeError", "Plan"]
