"""The fan-out: the same conversation gives the same bytes for every connection from reference and twin."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from edged.core import _native, fanout, wire
from edged.core.subjects import matches, valid_subscription
from tests.fuzz.target import Target
from tests.fuzz.targets.wire_seeds import SEEDS, WORDS

CONNECTIONS = 4
CONTROL_LINE_MAX = 4096
PAYLOAD_MAX = 1024
PENDING_MAX = 2000
SUBSCRIPTIONS_MAX = 50


class Owner:
    """A connection as the fan-out sees it: it notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def no_responders(self, subject: bytes, reply: bytes) -> None:
        self.told.append(("nobody", subject, reply))

    def subscription_exhausted(self, subscription: Any) -> None:
        self.told.append(("exhausted", subscription.sid))

    def reserved_reply(self, reply: bytes) -> bool:
        self.told.append(("reserved", reply))
        return len(self.told) % 2 == 0

    def reply_delivered(self, reply: bytes) -> None:
        self.told.append(("reply", reply))


class Broker:
    """A few connections that take turns in sending the operations of one input."""

    def __init__(self, twin: ModuleType, parser_class: Any) -> None:
        self.twin = twin
        self.parser = parser_class(CONTROL_LINE_MAX, PAYLOAD_MAX)
        self.parser.headers_allowed = True
        self.fanout = twin.Fanout(7)
        self.outboxes = [twin.Outbox(Owner(), PENDING_MAX) for _ in range(CONNECTIONS)]
        for place, outbox in enumerate(self.outboxes):
            outbox.headers = place != 0
            outbox.echo = place != 1
            outbox.wants_no_responders = place == 2
            outbox.tracks_replies = place == 2
            outbox.is_leaf = place == 3
        self.subscriptions: list[Any] = []
        self.routes: dict[bytes, Any] = {}
        self.turn = 0
        self.handled: list[tuple[object, ...]] = []
        self.subscriptions.append(twin.Subscription(b"a.b", None, b"", None, self._handle))

    def _handle(self, subscription: Any, messages: list[Any], origin: Any) -> None:
        self.handled.append((subscription.subject, list(messages), self.outboxes.index(origin)))

    def run(self, data: bytes) -> list[tuple[object, ...]]:
        """Everything that can be seen from outside."""
        events = self.parser.feed(data)
        while events:
            for event in events:
                self._operate(event)
            events = self.parser.feed(b"") if isinstance(events[-1], wire.Connect) else []
        return [
            *(
                (
                    bytes(box.peek()),
                    box.overflowed,
                    box.pending_bytes,
                    *(box.in_messages, box.in_bytes, box.out_messages, box.out_bytes),
                    box.owner.told,
                    self.fanout.dirty.count(box),
                )
                for box in self.outboxes
            ),
            tuple(self.handled),
        ]

    def _operate(self, event: Any) -> None:
        outbox = self.outboxes[self.turn % CONNECTIONS]
        self.turn += 1
        if isinstance(event, wire.Subscribe):
            if valid_subscription(event.subject) and len(self.subscriptions) < SUBSCRIPTIONS_MAX:
                made = self.twin.Subscription(event.subject, event.queue, event.sid, outbox)
                self.subscriptions.append(made)
                self.routes.clear()
        elif isinstance(event, wire.Unsubscribe):
            for subscription in self.subscriptions:
                if subscription.sid == event.sid:
                    subscription.deliveries_max = event.deliveries_max
                    subscription.closed = subscription.closed or event.deliveries_max == 0
        elif hasattr(event, "__iter__"):
            self.fanout.publish(event, self.routes, self._resolve, outbox)
            written = outbox.pending_bytes // 2
            outbox.consume(written)

    def _resolve(self, subject: bytes) -> Any:
        found = [item for item in self.subscriptions if matches(subject, item.subject)]
        queues: dict[bytes, list[Any]] = {}
        for item in found:
            if item.queue is not None:
                queues.setdefault(item.queue, []).append((item, None))
        # Every second subscription sees the message under another name, as with imports.
        plain = [(item, b"seen" if place % 2 else None) for place, item in enumerate(found) if not item.queue]
        route = self.routes[subject] = self.twin.Route(plain, queues.values())
        return route


def run(data: bytes) -> None:
    expected = Broker(fanout, wire.Parser).run(data)
    assert Broker(_native, _native.Parser).run(data) == expected
    assert Broker(fanout, _native.Parser).run(data) == expected, "a batch of the twin reads differently"


TARGETS = (Target("fanout", run, SEEDS, WORDS, share=12),)
