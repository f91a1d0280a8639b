"""A fan-out with connections that write down what they are told."""

from __future__ import annotations

from typing import Any

LIMIT = 1 << 20


class Owner:
    """A connection that writes down what it is told."""

    def __init__(self, allows_reserved: bool = False) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.allows_reserved = allows_reserved

    def no_responders(self, subject: bytes, reply: bytes) -> None:
        self.told.append(("no responders", subject, reply))

    def subscription_exhausted(self, subscription: Any) -> None:
        self.told.append(("exhausted", subscription.sid))

    def reserved_reply(self, reply: bytes) -> bool:
        self.told.append(("reserved", reply))
        return self.allows_reserved

    def reply_delivered(self, reply: bytes) -> None:
        self.told.append(("reply delivered", reply))


class Bench:
    """A fan-out with some connections; routes are given by hand."""

    def __init__(self, twin: Any, connections: int = 3, limit: int = LIMIT) -> None:
        self.twin = twin
        self.fanout = twin.Fanout(7)
        self.owners = [Owner() for _ in range(connections)]
        self.outboxes = [twin.Outbox(owner, limit) for owner in self.owners]
        self.routes: dict[bytes, Any] = {}
        self.missed: list[bytes] = []

    def subscription(self, connection: int, sid: bytes = b"1", queue: bytes | None = None) -> Any:
        return self.twin.Subscription(b"a", queue, sid, self.outboxes[connection])

    def publish(self, data: bytes, origin: int | None = 0) -> None:
        parser = self.twin.Parser(4096, LIMIT)
        parser.headers_allowed = True
        source = None if origin is None else self.outboxes[origin]
        for batch in parser.feed(data):
            self.fanout.publish(batch, self.routes, self.resolve, source)

    def resolve(self, subject: bytes) -> Any:
        self.missed.append(subject)
        route = self.routes[subject] = self.twin.Route()
        return route

    def written(self, connection: int) -> bytes:
        return bytes(self.outboxes[connection].peek())
