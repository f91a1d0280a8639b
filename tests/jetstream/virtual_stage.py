"""Transcripts under a virtual clock: everything happens at its exact time, and nothing takes any."""

from __future__ import annotations

from typing import Any

from edged.core.twins import Outbox, Subscription
from edged.core.wire import Publish
from tests.jetstream.transcript import Arrival
from tests.jetstream.virtual_server import START_NS, Inbox, VirtualServer


class _ClientInbox(Inbox):
    """Puts what arrives into the list of all, with its time."""

    def __init__(self, client: str, server: VirtualServer, found: list[Arrival]) -> None:
        super().__init__()
        self._client = client
        self._server = server
        self._found = found

    def arrived(self, subscription: Subscription, messages: list[Publish], origin: Outbox | None) -> None:
        """Called by the server."""
        at_ns = self._server.now_ns - START_NS
        for subject, reply, header_bytes, data in messages:
            block = data[: max(header_bytes, 0)]
            self._found.append(
                Arrival(
                    *(self._client, at_ns, subject.decode(), (reply or b"").decode()),
                    block,
                    len(data) - len(block),
                )
            )


class VirtualStage:
    """A server of its own for each transcript."""

    def __init__(self) -> None:
        self._server = VirtualServer()
        self._found: list[Arrival] = []
        self._inboxes: dict[str, Inbox] = {}

    def listen(self, client: str, subject: str, group: str) -> None:
        inbox = _ClientInbox(client, self._server, self._found)
        self._inboxes[client] = self._server.subscribe(subject, group, inbox)

    def leave(self, client: str) -> None:
        self._server.unsubscribe(self._inboxes.pop(client))

    def publish(self, subject: str, data: bytes, reply: str) -> None:
        self._server.publish(subject, data, reply)

    def confirm(self, subject: str, data: bytes) -> None:
        self._server.publish(subject, data, "nobody.listens")

    def api(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        return self._server.api(name, request)

    def duration_ns(self, written_ns: int) -> int:
        """As it is written."""
        return written_ns

    def after(self, passed_ns: int) -> None:
        self._server.advance(passed_ns)

    def restart(self) -> None:
        self._server.restart()

    def arrivals(self, expected: int) -> list[Arrival]:
        found = list(self._found)
        self._found.clear()
        return found
