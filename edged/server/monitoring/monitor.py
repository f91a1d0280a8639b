"""The monitoring port and the documents behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from edged.server.monitoring.answers import Answer

if TYPE_CHECKING:
    from edged.server.server import Server


class Monitor:
    """Describes a server, over HTTP when a port is configured, and to the system account always."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @property
    def addresses(self) -> list[str]:
        """URLs of the monitoring ports, for the ports file."""
        return []

    async def start(self, nursery: trio.Nursery) -> None:
        """Listen on http_port or https_port, if configured. ListenError when that fails."""

    def close(self) -> None:
        """Accept nothing more."""

    def document(self, name: str, query: Mapping[str, str]) -> Answer:
        """The document `varz`, `connz`, `healthz`... for the options of an HTTP query. Raises BadRequest."""
        raise NotImplementedError

    def document_from_options(self, name: str, options: Mapping[str, object]) -> Answer:
        """The same for options as typed JSON, as requests to the system account carry them. BadRequest."""
        raise NotImplementedError
