"""A client connection: greets, authenticates, reads batches, answers, and is closed for a reason.

Rules:
* A task per connection does whatever may wait. While nothing has to, the reactor reads on its behalf.
  Either way a whole buffer is parsed and handed on in batches, without awaiting in between.
* Output goes to the outbox and from there straight to the socket; only when the socket is full does a second
  task exist, which writes the rest.
* Whoever finds a reason to end the connection calls close() with it; the reading task ends and cleans up.
"""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from edged.core import headers, trace, wire
from edged.core.fanout import RESERVED_REPLIES
from edged.core.gotext import quote
from edged.core.limits import STALL_S
from edged.core.permissions import ALL, Permissions, ResponseTracker
from edged.core.subjects import valid_literal
from edged.core.twins import PUBLISHES, Outbox, Parser, Publishes, Subscription
from edged.server import interest, reasons
from edged.server.connect import ConnectError, ConnectFields, is_json_object, parse_connect
from edged.server.identity import AuthFailed, Identity
from edged.server.reasons import Reason
from edged.server.timers import Timers
from edged.server.transport import ConnectionLost, PlainTransport, Transport
from edged.server.writer import Writer

if TYPE_CHECKING:
    from edged.core.wire import Event, Publish
    from edged.server.account import Account, PublishContext
    from edged.server.server import Server


class ClientConnection:
    """One client, from accept to close. Monitoring reads its fields."""

    # Slots, because thousands of these are alive or remembered as closed.
    # fmt: off
    __slots__ = (
        "_congested", "_connect_due", "_connect_seen", "_first_pong_sent", "_handed_back",
        "_is_admitted", "_scope", "account", "active_at_ns", "cid", "connection_type", "context",
        "delivery_rights", "fields", "identity", "kind", "nonce", "outbox", "parser", "permissions",
        "reason", "responses", "rtt_ns", "server", "stalls", "started_at_ns", "stopped_at_ns",
        "subscriptions", "subscriptions_left", "subscriptions_max", "timers", "transport", "writer",
    )
    # fmt: on

    def __init__(self, server: Server, transport: Transport, cid: int) -> None:
        options = server.options
        self.server = server
        self.transport = transport
        self.cid = cid
        self.kind = "Client"
        self.connection_type = transport.kind
        self.started_at_ns = self.active_at_ns = server.now_ns()
        self.stopped_at_ns = 0
        self.reason: Reason | None = None
        self.rtt_ns = 0
        self.nonce: bytes | None = None
        self.fields = ConnectFields()
        self.identity: Identity | None = None
        self.account: Account = server.default_account
        self.permissions: Permissions = ALL
        self.delivery_rights: Permissions | None = None
        self.responses: ResponseTracker | None = None
        self.subscriptions: dict[bytes, Subscription] = {}
        self.subscriptions_left: tuple[Subscription, ...] = ()  # when closed, what it had
        self.subscriptions_max = options.max_subscriptions
        self.stalls = 0
        self.outbox = Outbox(self, options.max_pending)
        self.writer = Writer(server, transport, self.outbox, str(self), self._give_up)
        self.parser = Parser(options.max_control_line, 0)
        self.context: PublishContext = self.account.internal
        # Cancelled by close(), which mostly comes from somebody other than the reading task.
        self._scope = trio.CancelScope()
        self._is_admitted = False
        self._connect_seen = False
        self._first_pong_sent = False
        self.timers = Timers(self)
        # What the reactor left for the task to wait for.
        self._handed_back = trio.Event()
        self._connect_due: wire.Connect | None = None
        self._congested: ClientConnection | None = None

    def __str__(self) -> str:
        """How the log names a connection."""
        return f"{self.transport.remote_ip}:{self.transport.remote_port} - cid:{self.cid}"

    # --- life ---

    async def serve(self) -> None:
        """Run the connection to its end."""
        try:
            with self._scope:
                self._open()
                await self._read()
        except ConnectionLost:
            self.close(reasons.READ_ERROR)
        except Exception as error:  # a fault of ours ends this connection, not the daemon
            self.failed(error)
        finally:
            self.close(reasons.SERVER_SHUTDOWN)
            peer_is_gone = self.reason in (reasons.CLIENT_CLOSED, reasons.READ_ERROR, reasons.WRITE_ERROR)
            self.server.forget(self)
            if peer_is_gone and isinstance(self.transport, PlainTransport):
                self.transport.close()
            else:
                await self.transport.shutdown()

    async def _read(self) -> None:
        while self.reason is None:
            if self._is_admitted and not self.transport.has_work:
                await self._be_attended()
            else:
                await self._read_once()

    async def _read_once(self) -> None:
        """Receive and process in this task, which may wait for an answer about a login."""
        chunk = await self.transport.receive()
        if not chunk:
            self.close(reasons.CLIENT_CLOSED)
            return
        self.timers.received_at = trio.current_time()
        self.active_at_ns = self.server.now_ns()
        if not self._is_admitted:
            # Authentication awaits, and the receive buffer is shared by all connections.
            chunk = bytes(chunk)
            if chunk[:1] not in b"Cc" and not self.parser.buffered_bytes:
                await self._admit_by_default()
        await self._process(self.parser.feed(chunk))
        congested = self.server.flush()
        if congested is not None and self.reason is None:
            await self._stall(congested)
        await self._await_room()

    async def _await_room(self) -> None:
        """Wait while the journal has as much to write as it may: what is not read takes no memory."""
        jetstream = self.server.jetstream
        if jetstream is not None and jetstream.is_crowded and self.reason is None:
            await jetstream.room()

    async def _be_attended(self) -> None:
        """Let the reactor read, until something comes up that this task must wait for."""
        self._handed_back = trio.Event()
        await self.server.reactor.attend(self, self.transport.socket, self._handed_back)
        connect, self._connect_due = self._connect_due, None
        congested, self._congested = self._congested, None
        if connect is not None and self.reason is None:
            await self._process([connect])
            self.server.flush()
        if congested is not None and self.reason is None:
            await self._stall(congested)
        await self._await_room()

    def readable(self) -> None:
        """What the reactor calls: receive, parse and route, without waiting for anything."""
        transport = self.transport
        try:
            chunk = transport.receive_nowait()
        except ConnectionLost:
            self.close(reasons.READ_ERROR)
            return
        if transport.has_work:
            self._hand_back()
        if chunk is None or self.reason is not None:
            return
        if not chunk:
            self.close(reasons.CLIENT_CLOSED)
            return
        server = self.server
        self.timers.received_at = server.turn_at
        self.active_at_ns = server.turn_at_ns
        events = self.parser.feed(chunk)
        if server.log.is_trace:
            self._trace_incoming(events)
        for event in events:
            if isinstance(event, PUBLISHES):
                self._publish(event)
            elif isinstance(event, wire.Connect):
                self._connect_due = event
                self._hand_back()
            else:
                self._operate(event)
            if self.reason is not None:
                return
        if server.fanout.crowded:
            # What this one published is too much for a subscriber, who gets it before more is read.
            server.fanout.crowded = False
            self._congested = server.flush()
            if self._congested is not None:
                self._hand_back()
        if server.jetstream is not None and server.jetstream.is_crowded:
            server.flush()
            if server.jetstream.is_crowded:
                self._hand_back()

    def _hand_back(self) -> None:
        self.server.reactor.release(self.transport.socket)
        self.server.tasks_waiting = True
        self._handed_back.set()

    def take_transport(self, transport: Transport) -> None:
        """Go on over another transport: the same socket, wrapped in TLS."""
        self.transport = self.writer.transport = transport

    def _open(self) -> None:
        """Start the clock. Without authentication a client need not send CONNECT, so none is waited for."""
        server = self.server
        if self.reason is None and server.is_full_with(self):
            self.close(reasons.CONNECTIONS_EXCEEDED, "maximum connections exceeded")
        if self.reason is not None:
            return
        if server.authenticator.auth_required:
            self.timers.await_login(server.auth_timeout_s(self))
        else:
            self.timers.start_pings(is_first=False)

    def close(self, reason: Reason, error: str | None = None) -> None:
        """End the connection, with an -ERR first when there is something to say. The first reason stays."""
        if self.reason is not None:
            return
        self.reason = reason
        self.stopped_at_ns = self.server.now_ns()
        if error is not None:
            self.send_error(error)
        if not self.outbox.overflowed:
            # The peer may be gone already; then there is nobody to tell.
            with suppress(ConnectionLost):
                self.writer.write()
        self.timers.stop()
        self.writer.stop()
        self._scope.cancel()
        self._hand_back()
        self.server.closing(self)

    def failed(self, error: Exception) -> None:
        """A fault of ours came up while this connection was served: report it, and end the connection."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{where.filename}:{where.lineno}"
        self.server.log.error("a fault in edged ended a connection", cid=self.cid, error=repr(error), at=at)
        self.close(reasons.INTERNAL_ERROR)

    def become_history(self) -> None:
        """Keep what monitoring shows of closed connections, and nothing that weighs or is secret."""
        self.fields = self.fields.without_secrets()
        del (
            self.parser,
            self.writer,
            self.timers,
            self.context,
            self.responses,
            self._scope,
            self._handed_back,
        )

    # --- input ---

    async def _process(self, events: list[Event]) -> None:
        while True:
            if self.server.log.is_trace:
                self._trace_incoming(events)
            for event in events:
                if self.reason is not None:
                    return
                if isinstance(event, wire.Connect):
                    await self._connect(event)
                elif isinstance(event, PUBLISHES):
                    self._publish(event)
                else:
                    self._operate(event)
            if not events or not isinstance(events[-1], wire.Connect) or self.reason is not None:
                return
            events = self.parser.feed(b"")

    def _trace_incoming(self, events: list[Event]) -> None:
        payload_max = self.server.log.options.max_traced_msg_len
        for event in events:
            for line in trace.incoming(event, payload_max):
                self.server.log.trace(f"{self} - {line}")

    def _operate(self, event: Event) -> None:
        """Everything but CONNECT and publishes."""
        if isinstance(event, wire.Ping):
            self._ping()
        elif isinstance(event, wire.Pong):
            self.timers.pong()
        elif isinstance(event, wire.Subscribe):
            interest.subscribe(self, event)
        elif isinstance(event, wire.Unsubscribe):
            interest.unsubscribe(self, event)
        elif isinstance(event, wire.Info):
            if not is_json_object(event.body):
                self.close(reasons.PROTOCOL_VIOLATION)
        elif isinstance(event, wire.Broken):
            self.close(reasons.OF_BROKEN_INPUT[event.reason], event.error)

    def _ping(self) -> None:
        self.send(b"PONG\r\n")
        if self._connect_seen and not self._first_pong_sent:
            self._first_pong_sent = True
            if self.fields.protocol >= 1:
                self.send(self.server.info_line(self, is_connected=True))

    def _publish(self, batch: Publishes) -> None:
        if self.fields.verbose or self.fields.pedantic:
            for message in batch:
                self._publish_checked(message)
        else:
            self.server.fanout.publish(batch, self.context.routes, self.context.resolve, self.outbox)

    def _publish_checked(self, message: Publish) -> None:
        """One publish of a client that wants an answer to each, or strict subjects."""
        subject, reply = message[0], message[1]
        if self.fields.pedantic and not valid_literal(subject):
            self.send_error("Invalid Publish Subject")
        if self.fields.verbose and not self.context.refuses(subject) and not is_reserved(reply):
            self.send(b"+OK\r\n")
        self.server.fanout.publish([message], self.context.routes, self.context.resolve, self.outbox)

    async def _stall(self, congested: ClientConnection) -> None:
        """Wait a moment for a subscriber that cannot keep up with this publisher."""
        if self.server.options.no_fast_producer_stall or congested is self or congested.reason is not None:
            return
        self.stalls += 1
        relieved = congested.writer.relieved()
        with trio.move_on_after(STALL_S):
            await relieved.wait()

    # --- CONNECT ---

    async def _connect(self, event: wire.Connect) -> None:
        try:
            fields = parse_connect(event.body, self.fields)
        except ConnectError:
            self.close(reasons.PROTOCOL_VIOLATION)
            return
        is_first = not self._connect_seen
        self.timers.pause()
        if not is_first:
            self._drop_subscriptions()
        self.fields = self.completed(fields)
        self._connect_seen = True
        try:
            identity = await self.server.authenticate(self)
        except AuthFailed as failure:
            self.server.authentication_failed(self, failure)
            self.close(reasons.of_auth_failure(failure.text), failure.text)
            return
        if self.reason is not None:
            return
        error = fields.problem()
        if error is not None:
            self._admit(identity)
            self.close(error[0], error[1])
            return
        if not self._admit(identity):
            return
        self.timers.start_pings(is_first)
        if is_first:
            self.rtt_ns = max(0, self.server.now_ns() - self.started_at_ns)
            self.server.connected(self)
        if self.fields.verbose:
            self.send(b"+OK\r\n")

    def completed(self, fields: ConnectFields) -> ConnectFields:
        """What CONNECT says, together with what the transport knows about the client."""
        return fields

    async def _admit_by_default(self) -> bool:
        """Let a client in that has no credentials (yet), if the configuration allows it."""
        try:
            return self._admit(await self.server.authenticate(self))
        except AuthFailed as failure:
            self.server.authentication_failed(self, failure)
            self.close(reasons.of_auth_failure(failure.text), failure.text)
            return False

    def _admit(self, identity: Identity) -> bool:
        """Bind the connection to an identity and its account."""
        try:
            account = self.server.bind(self, identity)
        except AuthFailed as failure:
            self.close(reasons.of_auth_failure(failure.text), failure.text)
            return False
        self.identity = identity
        self.account = account
        self._is_admitted = True
        self.outbox.echo = self.fields.echo
        self.outbox.headers = self.parser.headers_allowed = (
            self.fields.headers and not self.server.options.no_header_support
        )
        self.outbox.wants_no_responders = self.fields.no_responders
        self.apply_rights(identity)
        if identity.expires_at_s is not None:
            self.timers.expire_in(identity.expires_at_s - self.server.now_ns() / 1e9)
        return True

    def apply_rights(self, identity: Identity) -> None:
        """Take over the rights and limits of an identity, at CONNECT and after a reload."""
        permissions = identity.permissions
        self.permissions = permissions
        self.context = self.account.context(permissions)
        self.delivery_rights = permissions if permissions.subscribe_deny else None
        rule = permissions.allow_responses
        self.responses = ResponseTracker(rule) if rule is not None else None
        self.outbox.tracks_replies = rule is not None
        self.parser.payload_max = self.server.payload_max(identity, self.account)
        self.parser.control_line_max = self.server.options.max_control_line
        self.subscriptions_max = identity.max_subscriptions or self.server.options.max_subscriptions

    # --- subscriptions ---

    def _drop_subscriptions(self) -> None:
        for subscription in self.subscriptions.values():
            self.account.unsubscribe(subscription)
        self.subscriptions.clear()

    def drop_subscription(self, subscription: Subscription) -> None:
        """End one subscription, as UNSUB does."""
        self.subscriptions.pop(subscription.sid, None)
        self.account.unsubscribe(subscription)

    def leave(self) -> None:
        """Take everything of this connection out of its account."""
        self._drop_subscriptions()

    # --- what the fan-out reports ---

    def no_responders(self, subject: bytes, reply: bytes) -> None:
        """Answer a request that reached nobody with status 503, if the client itself awaits the answer."""
        for item in self.account.subscriptions.match(reply).plain:
            if isinstance(item, Subscription) and item.outbox is self.outbox:
                block = headers.encode([(b"Nats-Subject", subject)], b"503")
                self.server.fanout.encode(self.outbox, item.sid, (reply, None, len(block), block))
                return

    def subscription_exhausted(self, subscription: Subscription) -> None:
        self.drop_subscription(subscription)

    def reserved_reply(self, reply: bytes) -> bool:
        self.send_error(f"Permissions Violation for Publish with Reply of {quote(reply)}")
        return False

    def reply_delivered(self, reply: bytes) -> None:
        if self.responses is not None and not self.permissions.may_publish(reply):
            self.responses.remember(reply, self.server.now_ns())

    def may_respond(self, subject: bytes) -> bool:
        return self.responses is not None and self.responses.take(subject, self.server.now_ns())

    def publish_denied(self, subject: bytes) -> None:
        self.send_error(f"Permissions Violation for Publish to {quote(subject)}")
        self.server.log.warn("publish refused", cid=self.cid, subject=_text(subject))

    # --- output ---

    def send(self, data: bytes) -> None:
        """Queue protocol bytes; they leave with the next flush."""
        self.writer.send(data)

    def tell_news(self) -> None:
        """Send INFO again, if this client is one that expects news."""
        if self._first_pong_sent and self.fields.protocol >= 1 and self.reason is None:
            self.send(self.server.info_line(self))

    def send_error(self, text: str) -> None:
        """Queue an -ERR. Line breaks cannot be smuggled into it."""
        line = text.replace("\r", "").replace("\n", "").encode("utf-8", "surrogateescape")
        self.writer.send(b"-ERR '%s'\r\n" % line)

    def _give_up(self, reason: Reason) -> None:
        """Writing has failed."""
        if reason is not reasons.WRITE_ERROR and self.reason is None:
            self.server.slow_consumer(self, reason)
        self.close(reason)


def is_reserved(reply: bytes | None) -> bool:
    """Whether a reply subject is one that only servers make."""
    return reply is not None and reply.startswith(RESERVED_REPLIES)


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "surrogateescape")
