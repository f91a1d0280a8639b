"""A client of one node of the fake cluster."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

import trio

from edged.core.subjects import matches
from edged.core.twins import Outbox, Subscription
from edged.core.wire import Publish
from tests.cluster_api.fake_cluster import ACCOUNT, FakeHub

_DEADLINE_S: Final = 30.0

Document = dict[str, Any]


class Client:
    """A client of one node. Its subscriptions are on all of them."""

    def __init__(self, hub: FakeHub, node: int, account: str = ACCOUNT) -> None:
        self._hub = hub
        self._home = hub.nodes[node]
        self._account_name = account
        self._messages: deque[Publish] = deque()
        self._arrival = trio.Event()
        self._count = 0

    def subscribe(self, subject: str) -> None:
        for node in self._hub.nodes.values():
            subscription = Subscription(subject.encode(), None, b"1", None, self._arrived)
            node.account(self._account_name).subscribe(subscription, is_announced=False)

    def _arrived(self, subscription: Subscription, messages: list[Publish], origin: Outbox | None) -> None:
        self._messages.extend(message for message in messages if message[0] != self._hub.routed)
        self._arrival.set()

    def publish(self, subject: str, data: bytes = b"", reply: str = "", block: bytes = b"") -> None:
        """Publish on the own node, and have it routed to others who listen."""
        name = subject.encode()
        message = (name, reply.encode() or None, block + data, len(block) or -1)
        self._home.account(self._account_name).publish(*message)
        self._home.server.flush()
        for node in self._hub.nodes.values():
            if node is not self._home and any(
                account == self._account_name and matches(name, pattern)
                for account, pattern in node.router.announced
            ):
                self._hub.routed = name
                node.account(self._account_name).publish(*message)
                self._hub.routed = b""
                node.server.flush()

    async def receive(self) -> Publish:
        """The next message."""
        with trio.fail_after(_DEADLINE_S):
            while not self._messages:
                self._arrival = trio.Event()
                await self._arrival.wait()
        return self._messages.popleft()

    def taken(self) -> list[Publish]:
        """Everything that has arrived."""
        found, self._messages = list(self._messages), deque()
        return found

    async def ask(self, subject: str, data: bytes = b"", block: bytes = b"") -> Publish:
        """Publish, and wait for the one answer."""
        self._count += 1
        inbox = Client(self._hub, self._home.node, self._account_name)
        reply = f"inbox.{id(self)}.{self._count}"
        inbox.subscribe(reply)
        self.publish(subject, data, reply, block)
        return await inbox.receive()

    async def request(self, name: str, body: Document | None = None) -> Document:
        """A request to the JetStream API."""
        data = b"" if body is None else json.dumps(body).encode()
        _, _, header_bytes, answer = await self.ask(f"$JS.API.{name}", data)
        document: Document = json.loads(answer[max(header_bytes, 0) :])
        return document

    async def api(self, name: str, body: Document | None = None) -> Document:
        """One that must succeed."""
        document = await self.request(name, body)
        assert "error" not in document, document
        return document

    async def refused(self, name: str, body: Document | None = None) -> tuple[int, str]:
        """One that must fail: its code and why."""
        error = (await self.request(name, body))["error"]
        return error["err_code"], error["description"]
