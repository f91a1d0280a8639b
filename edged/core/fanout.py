"""From publishes to bytes for subscribers: the loop that runs once per message and subscriber.

A connection that may receive has an `Outbox`. A `Subscription` belongs to an outbox, or to a handler inside
the server. A `Route` says who gets the messages of one subject; the broker computes it once and caches it.
`Fanout.publish()` walks a batch of publishes along their routes.

Rules:
* Nothing here writes to a socket. Outboxes that gained bytes are listed in `Fanout.dirty`, to be flushed.
* Every permission was checked when the route was computed; a route lists only who may get the message.
* An outbox over its limit takes nothing more and says so in `overflowed`; its owner closes the connection.
* A subscription that has had all it asked for is closed here at once, then reported to its owner.

This is the reference; `_native.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol

from edged.core.leaf_wire import leaf_names
from edged.core.limits import STALL_BYTES
from edged.core.message import Message
from edged.core.wire import Publish, Publishes

# The most that a message adds around subject, sid, reply and payload: a verb, blanks, numbers, line ends.
LINE_BYTES = 36
# What the line before it, which says whom it is for, has around the address.
ADDRESS_BYTES = 8
_MASK = (1 << 64) - 1
# Reply subjects that only servers make: service imports, consumer acknowledgements, gateways.
RESERVED_REPLIES = (b"_R_.", b"$JS.ACK.", b"_GR_.", b"$GR.")


class Owner(Protocol):
    """What a connection must answer to while its messages are routed."""

    def no_responders(self, subject: bytes, reply: bytes) -> None:
        """A request of this connection reached nobody."""

    def subscription_exhausted(self, subscription: Subscription) -> None:
        """A subscription of this connection got its last message and is closed."""

    def reserved_reply(self, reply: bytes) -> bool:
        """A publish of this connection names a reply subject of the server's own. True lets it pass."""

    def reply_delivered(self, reply: bytes) -> None:
        """A message with a reply subject was delivered to this connection, which may answer it once."""


class Replies(Protocol):
    """Where answers go: the routes of an account's reply subjects, as edged/server/account.py keeps them."""

    @property
    def routes(self) -> dict[bytes, Route]:
        """Routes by subject."""

    @property
    def below(self) -> dict[bytes, Route]:
        """Routes by all but the last token, for subjects that nobody subscribed to by their full name."""

    @property
    def literals(self) -> Container[bytes]:
        """The subjects that somebody subscribed to by their full name."""

    def resolve(self, subject: bytes) -> Route:
        """Compute the route of a subject, and cache it where that pays."""


class Outbox:
    """Bytes that wait to be written to one connection, and what the fan-out must know about it."""

    __slots__ = (
        "_data",
        "address",
        "echo",
        "headers",
        "in_bytes",
        "in_messages",
        "is_leaf",
        "is_route",
        "limit_bytes",
        "listed",
        "out_bytes",
        "out_messages",
        "overflowed",
        "owner",
        "tracks_replies",
        "wants_no_responders",
    )

    def __init__(self, owner: Owner, limit_bytes: int) -> None:
        self.owner = owner
        self.limit_bytes = limit_bytes
        self.echo = True
        self.headers = False
        self.wants_no_responders = False
        self.tracks_replies = False
        # To another node: publishes are written, and before them whom they are for, when that changes.
        self.is_route = False
        self.address: bytes | None = None
        # To a leaf node, or from one to its hub: messages name the queue groups that they are for.
        self.is_leaf = False
        self.overflowed = False
        self.listed = False
        self.in_messages = self.in_bytes = self.out_messages = self.out_bytes = 0
        self._data = bytearray()

    @property
    def pending_bytes(self) -> int:
        """How much waits to be written."""
        return len(self._data)

    def append(self, data: bytes) -> None:
        """Queue protocol bytes that are not a message. They count towards the limit like all others."""
        if len(self._data) + len(data) > self.limit_bytes:
            self.overflowed = True
        else:
            self._data += data

    def peek(self) -> memoryview | bytes:
        """All that waits, to be given to the socket before anything else is appended."""
        return bytes(self._data)

    def consume(self, count: int) -> None:
        """Forget the first `count` bytes: the socket has them."""
        del self._data[:count]

    def discard(self) -> None:
        """Forget everything: the connection is gone."""
        self._data.clear()


class Subscription:
    """One SUB of a connection (`outbox` set), or a consumer inside the server (`handler` set).

    Several with handlers may gather `with_` a first one: its handler gets the messages of all, in order.
    """

    __slots__ = (
        "closed",
        "delivered",
        "deliveries_max",
        "gatherer",
        "handler",
        "inbox",
        "outbox",
        "queue",
        "sid",
        "subject",
    )

    def __init__(
        self,
        subject: bytes,
        queue: bytes | None,
        sid: bytes,
        outbox: Outbox | None,
        handler: Handler | None = None,
        with_: Subscription | None = None,
    ) -> None:
        assert (outbox is None) != (handler is None), "a subscription has an outbox or a handler"
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.outbox = outbox
        self.handler = handler
        self.inbox: list[Publish] = []
        # Who gathers the messages, None when that is this one.
        self.gatherer = with_
        self.delivered = 0
        self.deliveries_max = 0
        self.closed = False


# A handler gets all messages of one batch for its subscription, and the outbox of who published them.
Handler = Callable[[Subscription, list[Publish], Outbox | None], None]
# What a route does instead of plain delivery; True when somebody got the message.
Special = Callable[[Outbox | None, Publish], bool]
# A recipient and the subject it is to see, None when that is the published one.
Recipient = tuple[Subscription, bytes | None]


class Route:
    """Who gets the messages of a subject. Immutable: a change of interest makes new routes."""

    __slots__ = ("plain", "queues", "special")

    def __init__(
        self,
        plain: Iterable[Recipient] = (),
        queues: Iterable[Iterable[Recipient]] = (),
        special: Special | None = None,
    ) -> None:
        self.plain = tuple(plain)
        self.queues = tuple(tuple(members) for members in queues)
        self.special = special

    @property
    def is_empty(self) -> bool:
        """Whether nobody listens."""
        return not self.plain and not self.queues and self.special is None


def are_plain(messages: Sequence[Publish]) -> bool:
    """Whether none of these has headers, or a reply subject of a fast batch, which ends with `$FI`."""
    return not any(
        header_bytes > 0 or (reply is not None and reply.endswith(b"$FI"))
        for _, reply, header_bytes, _ in messages
    )


class Fanout:
    """Walks publishes along their routes. One per server; `seed` decides which queue member comes first."""

    __slots__ = ("_seed", "_touched", "crowded", "dirty")

    def __init__(self, seed: int) -> None:
        self._seed = (seed & _MASK) or 1
        self._touched: list[tuple[Subscription, Outbox | None]] = []
        # Outboxes that gained bytes since the list was last emptied by whoever flushes.
        self.dirty: list[Outbox] = []
        # Whether an outbox grew past STALL_BYTES since somebody set this to False.
        self.crowded = False

    def publish(
        self,
        batch: Publishes | Iterable[Publish],
        routes: dict[bytes, Route],
        resolve: Callable[[bytes], Route],
        origin: Outbox | None,
    ) -> None:
        """Deliver a batch. `resolve` fills `routes`, the cache for the publisher's account and rights."""
        for message in batch:
            subject, reply, _, data = message
            if origin is not None:
                origin.in_messages += 1
                origin.in_bytes += len(data)
                reserved = reply if reply is not None and reply.startswith(RESERVED_REPLIES) else None
                if reserved is not None and not origin.is_route and not origin.owner.reserved_reply(reserved):
                    continue
            route = routes.get(subject) or resolve(subject)
            if route.special is not None:
                route.special(origin, message)
            else:
                self.deliver(route, origin, message)
        self._call_handlers()

    def deliver(self, route: Route, origin: Outbox | None, message: Publish, unanswered: bool = True) -> bool:
        """Hand one message to everyone on a plain route. True when somebody got it.

        Handlers are called when the batch is through. With `unanswered`, a requester hears of nobody.
        """
        delivered = False
        for recipient in route.plain:
            if self._offer(recipient, origin, message):
                delivered = True
        for members in route.queues:
            count = len(members)
            start = self._draw() % count if count > 1 else 0
            for step in range(count):
                if self._offer(members[(start + step) % count], origin, message):
                    delivered = True
                    break
        if unanswered and not delivered and origin is not None and origin.wants_no_responders:
            subject, reply, _, _ = message
            if reply is not None:
                origin.owner.no_responders(subject, reply)
        return delivered

    def acknowledge(self, messages: Sequence[Publish], first_seq: int, head: bytes, replies: Replies) -> None:
        """Answer each message that names a reply subject: `head`, its number, and a closing brace.

        The numbers count up from `first_seq`. Handlers are called when all are answered.
        """
        for seq, message in enumerate(messages, first_seq):
            reply = message[1]
            if reply is None:
                continue
            answer = (reply, None, -1, b"%s%d}" % (head, seq))
            route = replies.routes.get(reply) or replies.resolve(reply)
            if route.special is not None:
                route.special(None, answer)
            else:
                self.deliver(route, None, answer, False)
        self._call_handlers()

    def hand_out(
        self, route: Route, messages: Sequence[Message], prefix: bytes, first_seq: int, left: int
    ) -> int:
        """Deliver stored messages for the first time; how many somebody got.

        The reply of each is the subject to acknowledge it, which begins with `prefix`: `first_seq` is the
        consumer seq of the first one, and `left` is how many messages wait behind it. The route is a plain
        one. Handlers are called later, with the batch this is part of.
        """
        delivered = 0
        for place, (seq, ts_ns, subject, header_bytes, data) in enumerate(messages):
            reply = b"%s1.%d.%d.%d.%d" % (prefix, seq, first_seq + place, ts_ns, max(left - place, 0))
            delivered += self.deliver(route, None, (subject, reply, header_bytes, data), False)
        return delivered

    def _offer(self, recipient: Recipient, origin: Outbox | None, message: Publish) -> bool:
        """Give a message to one subscription; False when it cannot take it."""
        subscription, seen_subject = recipient
        if subscription.closed:
            return False
        if seen_subject is not None:
            message = (seen_subject, *message[1:])
        outbox = subscription.outbox
        if outbox is None:
            subscription.delivered += 1
            gatherer = subscription.gatherer or subscription
            if not gatherer.inbox:
                self._touched.append((gatherer, origin))
            gatherer.inbox.append(message)
            return True
        if outbox is origin and not outbox.echo:
            return False
        self._write(outbox, subscription.sid, (), message)
        subscription.delivered += 1
        reply = message[1]
        if outbox.tracks_replies and reply is not None:
            outbox.owner.reply_delivered(reply)
        if subscription.delivered == subscription.deliveries_max:
            subscription.closed = True
            outbox.owner.subscription_exhausted(subscription)
        return True

    def encode(self, outbox: Outbox, sid: bytes, message: Publish) -> None:
        """Append MSG or HMSG to an outbox, and list it as dirty.

        To another node it is PUB or HPUB, behind an INFO with the sid when the one before had another. To a
        leaf node it is LMSG or HMSG, and a sid that is not empty is the subject that JetStream delivers to.
        """
        self._write(outbox, sid, (), message)

    def encode_queues(self, outbox: Outbox, sid: bytes, queues: tuple[bytes, ...], message: Publish) -> None:
        """As encode(), to a leaf node, for one member of each of these queue groups as well."""
        assert outbox.is_leaf and queues, "queue groups are named to leaf nodes only"
        self._write(outbox, sid, queues, message)

    def _write(self, outbox: Outbox, sid: bytes, queues: tuple[bytes, ...], message: Publish) -> None:
        subject, reply, header_bytes, data = message
        if header_bytes > 0 and not outbox.headers:
            data = data[header_bytes:]
            header_bytes = 0
        kind = b"H" if header_bytes > 0 else b""
        reply_part = b"%s " % reply if reply is not None else b""
        sizes = b"%d %d" % (header_bytes, len(data)) if header_bytes > 0 else b"%d" % len(data)
        line_bytes_max = len(subject) + len(sid) + len(reply or b"") + LINE_BYTES
        if outbox.is_route:
            address = b"" if sid == outbox.address else b"INFO %s\r\n" % sid
            line = b"%s%sPUB %s %s%s\r\n" % (address, kind, subject, reply_part, sizes)
            line_bytes_max += ADDRESS_BYTES
        elif outbox.is_leaf:
            names = leaf_names(sid, subject, reply, queues)
            line = b"%sMSG %s %s\r\n" % (kind or b"L", names, sizes)
            line_bytes_max += sum(len(queue) + 1 for queue in queues)
        else:
            line = b"%sMSG %s %s %s%s\r\n" % (kind, subject, sid, reply_part, sizes)
        waiting = outbox._data
        if len(waiting) + line_bytes_max + len(data) > outbox.limit_bytes:
            outbox.overflowed = True
        else:
            if outbox.is_route:
                outbox.address = sid
            waiting += line
            waiting += data
            waiting += b"\r\n"
            outbox.out_messages += 1
            outbox.out_bytes += len(data)
            if len(waiting) > STALL_BYTES:
                self.crowded = True
        if not outbox.listed:
            outbox.listed = True
            self.dirty.append(outbox)

    def _call_handlers(self) -> None:
        while self._touched:
            touched, self._touched = self._touched, []
            for subscription, origin in touched:
                messages, subscription.inbox = subscription.inbox, []
                assert subscription.handler is not None
                subscription.handler(subscription, messages, origin)

    def _draw(self) -> int:
        """The next number of a xorshift generator: fair enough for queues, and the same in both twins."""
        seed = self._seed
        seed ^= (seed << 13) & _MASK
        seed ^= seed >> 7
        seed ^= (seed << 17) & _MASK
        self._seed = seed
        return seed
