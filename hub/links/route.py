"""A route: the interest of another node, and the messages that go there and come from there.

It is text, read by the parser that reads clients, so that a message costs on a route what it costs on a
client connection. Four kinds of lines are used:

    INFO {"account": …, "number": …}     the number by which the sender of this line calls its account
    SUB <subject> [queue] <number>:<n>   n subscriptions of the sender; 0 takes the interest away
    INFO <address>                       whom the publishes that follow are for, in numbers of the receiver
    PUB, HPUB                            a message

An address is `7` for all who listen in account 7, `7 workers` for one member of a queue group, and `7!` for
handlers that are not announced. With `7=inbox.1` the messages are for those who listen to `inbox.1`, whatever
subjects they show: so consumers deliver.

Rules: what arrives is delivered here and nowhere else. Interest of an account that is not known here waits
until it is. A peer that cannot keep up is cut off like a slow subscriber, and dialled again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from edged.core import wire
from edged.core.subjects import valid_subscription
from edged.core.twins import PUBLISHES, Outbox, Parser, Subscription
from edged.ports import RouteStatus
from edged.server import reasons
from edged.server.peers import DeliveryContext, PeerContext, Towards
from edged.server.reasons import Reason
from edged.server.writer import Writer
from hub.limits import (
    ROUTE_ADDRESSES_MAX,
    ROUTE_INTEREST_MAX,
    ROUTE_LINE_BYTES_MAX,
    ROUTE_PAYLOAD_BYTES_MAX,
)
from hub.links.connection import Connection
from hub.links.frames import FrameError

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.account import Account
    from edged.server.server import Server
    from hub.links.opening import Opened
    from hub.links.peer import Peer
    from hub.router import ClusterRouter

_HANDLERS: Final = b"!"
# An interest by account: subject and queue, and the subscription that stands for it.
_Interest = dict[tuple[bytes, bytes | None], Subscription]


class RouteLink(Connection):
    """The one route to another node. The fan-out sees its outbox as that of any subscriber."""

    kind = "Router"
    delivery_rights = None

    def __init__(
        self,
        server: Server,
        router: ClusterRouter,
        peer: Peer,
        opened: Opened,
        number: int,
        did_solicit: bool,
    ) -> None:
        super().__init__(server, opened.transport, f"route {peer.name}")
        self.peer = peer
        self.cid = number
        self.did_solicit = did_solicit
        self.is_compressed = opened.is_compressed
        self.started_at_ns = self.active_at_ns = server.now_ns()
        self.rtt_ns = 0
        self.outbox = Outbox(self, server.options.max_pending)
        self.outbox.is_route = self.outbox.headers = True
        self.writer = Writer(server, opened.transport, self.outbox, self.name, self._give_up)
        # How many members of its queue group a subscription of ours stands for.
        self.weights: dict[Subscription, int] = {}
        self._router = router
        self._parser = Parser(ROUTE_LINE_BYTES_MAX, ROUTE_PAYLOAD_BYTES_MAX)
        self._parser.headers_allowed = True
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._interest: dict[str, _Interest] = {}
        self._interest_count = 0
        self._addresses: dict[bytes, PeerContext | None] = {}
        self._context: PeerContext | DeliveryContext | None = None
        self._pinged_at_ns = 0

    # --- what the other node is told ---

    def announce_account(self, name: str, number: int) -> None:
        """Tell by which number an account is called here."""
        document = json.dumps({"account": name, "number": number}, separators=(",", ":"))
        self.writer.send(b"INFO %s\r\n" % document.encode())

    def announce(self, number: int, subject: bytes, queue: bytes | None, count: int) -> None:
        """Tell how many subscriptions there are here."""
        queue_part = b"" if queue is None else b"%s " % queue
        self.writer.send(b"SUB %s %s%d:%d\r\n" % (subject, queue_part, number, count))

    def forward(self, account: str, message: Publish) -> bool:
        """Send a message to the handlers there that are not announced. False when it cannot be sent."""
        number = self._numbers.get(account)
        if number is None or self.why is not None:
            return False
        self.server.fanout.encode(self.outbox, b"%d!" % number, message)
        return True

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._pinged_at_ns = self.server.monotonic_ns()
        self.writer.send(b"PING\r\n")

    # --- input ---

    @property
    def is_crowded(self) -> bool:
        jetstream = self.server.jetstream
        return jetstream is not None and jetstream.is_crowded

    async def room(self) -> None:
        jetstream = self.server.jetstream
        if jetstream is not None:
            await jetstream.room()

    def received(self, chunk: memoryview | bytes) -> None:
        server = self.server
        self.active_at_ns = server.now_ns()
        try:
            for event in self._parser.feed(chunk):
                if isinstance(event, PUBLISHES):
                    context = self._context
                    if context is not None:
                        server.fanout.publish(event, context.routes, context.resolve, self.outbox)
                else:
                    self._operate(event)
                if self.why is not None:
                    return
        except FrameError as error:
            server.log.error("a peer sent what cannot be read", link=self.name, error=error)
            self.close(str(error))
            return
        if server.fanout.crowded:
            # A subscriber has much to read: it is written to before more comes.
            server.fanout.crowded = False
            server.flush()
        if self.is_crowded:
            server.flush()

    def _operate(self, event: wire.Event) -> None:
        if isinstance(event, wire.Info):
            if event.body.startswith(b"{"):
                self._name(event.body)
            else:
                self._address(event.body)
        elif isinstance(event, wire.Subscribe):
            self._subscribe(event)
        elif isinstance(event, wire.Ping):
            self.writer.send(b"PONG\r\n")
        elif isinstance(event, wire.Pong):
            self.rtt_ns = max(1, self.server.monotonic_ns() - self._pinged_at_ns)
        else:
            raise FrameError(f"unexpected {type(event).__name__} on a route")

    def _address(self, body: bytes) -> None:
        """The publishes that follow are for somebody else."""
        if body in self._addresses:
            self._context = self._addresses[body]
            return
        if len(self._addresses) >= ROUTE_ADDRESSES_MAX:
            self._addresses.clear()
        head, blank, queue = body.partition(b" ")
        text, is_delivery, subject = head.partition(b"=")
        towards = Towards.QUEUE if blank else Towards.LISTENERS
        if text.endswith(_HANDLERS):
            towards, text = Towards.HANDLERS, text[:-1]
        account = self._router.account_of(_number(text))
        context = None if account is None else account.peer_context(towards, queue if blank else None)
        self._context = context
        # Subjects that are answered to are used once, and not worth remembering.
        self._addresses[text + blank + queue if is_delivery else body] = context
        if is_delivery and context is not None:
            self._context = DeliveryContext(context, subject)

    def _name(self, body: bytes) -> None:
        """The other node tells by which number it calls an account."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise FrameError("INFO holds no JSON") from error
        match document:
            case {"account": str() as name, "number": int() as number} if 0 < number < 1 << 31:
                self._names[number] = name
                self._numbers[name] = number
            case _:
                raise FrameError("INFO names no account")

    # --- interest ---

    def _subscribe(self, event: wire.Subscribe) -> None:
        number, _, count = event.sid.partition(b":")
        name = self._names.get(_number(number))
        if name is None or not valid_subscription(event.subject):
            raise FrameError("SUB names no account, or no subject")
        weight = _number(count)
        if not self._router.may_export(event.subject, event.queue):
            return
        interest = self._interest.setdefault(name, {})
        key = (event.subject, event.queue)
        known = interest.get(key)
        account = self.server.accounts.get(name)
        if weight == 0:
            if known is not None:
                self._withdraw(interest, key, account)
        elif known is not None:
            self.weights[known] = weight
            if account is not None:
                account.interest_changed(event.subject)
        else:
            if self._interest_count >= ROUTE_INTEREST_MAX:
                raise FrameError("it listens to too many subjects")
            self._interest_count += 1
            sid = number if event.queue is None else b"%s %s" % (number, event.queue)
            added = interest[key] = Subscription(event.subject, event.queue, sid, self.outbox)
            if event.queue is not None:
                self.weights[added] = weight
            if account is not None:
                account.subscribe(added, is_announced=False)
            else:
                self._router.wants_account(name)

    def _withdraw(
        self, interest: _Interest, key: tuple[bytes, bytes | None], account: Account | None
    ) -> None:
        subscription = interest.pop(key)
        self._interest_count -= 1
        self.weights.pop(subscription, None)
        if account is not None:
            account.unsubscribe(subscription)

    def account_appeared(self, account: Account) -> None:
        """An account is known here now: what the other node listens to in it counts from now on."""
        for subscription in self._interest.get(account.name, {}).values():
            account.subscribe(subscription, is_announced=False)

    # --- what the fan-out reports ---

    @property
    def reason(self) -> Reason | None:
        """Why it is closed, as far as the fan-out must know."""
        return None if self.why is None else reasons.CLIENT_CLOSED

    def no_responders(self, subject: bytes, reply: bytes) -> None:
        """Whoever published was told by its own node."""

    def subscription_exhausted(self, subscription: Subscription) -> None:
        """The interest of a node has no end."""

    def reserved_reply(self, reply: bytes) -> bool:
        """Servers may use their own subjects."""
        return True

    def reply_delivered(self, reply: bytes) -> None:
        """Nodes need no right to answer."""

    def publish_denied(self, subject: bytes) -> None:
        """It was checked where it was published."""

    def may_respond(self, subject: bytes) -> bool:
        """Nodes need no right to answer."""
        return True

    # --- end ---

    def _give_up(self, reason: Reason) -> None:
        """Writing has failed."""
        if reason is not reasons.WRITE_ERROR and self.why is None:
            self.server.slow_consumers[reason] += 1
            self.server.log.warn("slow peer", peer=self.peer.name, pending_bytes=self.outbox.pending_bytes)
        self.close(f"writing failed: {reason}")

    def closed(self) -> None:
        self.writer.stop()
        for name, interest in self._interest.items():
            account = self.server.accounts.get(name)
            if account is not None:
                for subscription in interest.values():
                    account.unsubscribe(subscription)
        self._interest.clear()
        self.weights.clear()

    # --- for people who watch ---

    def status(self) -> RouteStatus:
        """How it is doing."""
        transport, outbox = self.transport, self.outbox
        return RouteStatus(
            number=self.cid,
            remote_id=self.peer.id,
            remote_name=self.peer.name,
            did_solicit=self.did_solicit,
            is_configured=self.peer.is_configured,
            ip=transport.remote_ip,
            port=transport.remote_port,
            started_at_ns=self.started_at_ns,
            active_at_ns=self.active_at_ns,
            rtt_ns=self.rtt_ns or self.peer.rtt_ns,
            pending_bytes=outbox.pending_bytes,
            in_messages=outbox.in_messages,
            in_bytes=outbox.in_bytes,
            out_messages=outbox.out_messages,
            out_bytes=outbox.out_bytes,
            is_compressed=self.is_compressed,
            tls_version=transport.tls_version,
            tls_cipher=transport.tls_cipher,
            interest=tuple(
                (name, subject, queue)
                for name, interest in self._interest.items()
                for subject, queue in interest
            ),
        )


def _number(text: bytes) -> int:
    number = wire.parse_size(text)
    if number < 0:
        raise FrameError("no number where one belongs")
    return number
