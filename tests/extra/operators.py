"""Somebody who types the real `nats` command, to nats-server or to edged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.extra.test_nats_command import Nats
from tests.jetstream.jetstream_servers import CONFIG
from tests.servers import RunningServer, start_server


class Operator:
    """Somebody with the command, and a server that can be started again."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self.directory = directory
        self.server: RunningServer = start_server(kind, CONFIG, directory)

    def restart(self) -> None:
        self.server.stop()
        self.server = start_server(self._kind, CONFIG, self.directory)

    def run(self, *arguments: str, status: int = 0) -> str:
        return Nats(self.server, self.directory, "any", "any").run(*arguments, status=status)

    def json(self, *arguments: str) -> Any:
        return Nats(self.server, self.directory, "any", "any").json(*arguments)

    def state(self, stream: str) -> dict[str, Any]:
        state: dict[str, Any] = self.json("stream", "info", stream, "--json")["state"]
        return state


def add_orders(operator: Operator) -> None:
    operator.run(
        *("stream", "add", "ORDERS", "--subjects", "orders.>", "--storage", "file"),
        *("--retention", "limits", "--defaults"),
    )
    for text in ("Order #1001", "Order #1002"):
        operator.run("pub", "orders.new", text)
    operator.run("pub", "orders.shipped", "Order #1001 shipped")
