"""Receives messages of one size on one or more connections, and only counts bytes while the clock runs.

Afterwards it proves the count: the first frame of every connection is compared byte by byte, and a PING is
sent on each, whose PONG must follow directly after the expected number of frames. Only PINGs from the server
may be in between.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from dataclasses import dataclass, field

from benchmarks.generator.process import Control
from benchmarks.wire import (
    PING,
    RECEIVE_BYTES,
    REPLY_TIMEOUT_S,
    Endpoint,
    GeneratorError,
    barrier,
    connect,
    delivered_frame,
    subscribe_frame,
)

SID = b"1"
# A server pings to measure the round trip, or when a connection is idle; more often than this in one run is
# not a PING but a miscount.
_SERVER_PINGS_MAX = 5


@dataclass(frozen=True, slots=True)
class Subscription:
    """One connection: its subscription, and the subject of the first message that it may receive."""

    subject: bytes
    first_subject: bytes
    queue: bytes = b""


@dataclass(frozen=True, slots=True)
class SubscriberPlan:
    """What to subscribe to, and how many messages to expect."""

    endpoint: Endpoint
    subscriptions: tuple[Subscription, ...]
    payload: bytes
    header: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """Said by the runner once it knows how many messages there are over all connections together."""

    messages: int
    patience_s: float
    """How long the server may deliver nothing before the rest counts as lost."""


@dataclass(frozen=True, slots=True)
class Received:
    """What arrived, and the time and processor it took."""

    messages: int
    finished_at_s: float
    connections_lost: int
    cpu_s: float


@dataclass(slots=True)
class _Inbox:
    connection: socket.socket
    first_frame: bytes
    received_bytes: int = 0
    head: bytearray = field(default_factory=bytearray)
    is_open: bool = True

    def receive(self, buffer: memoryview) -> None:
        """Take what is there. One call empties a plain socket mostly; a TLS one gives a record at a time."""
        while True:
            try:
                count = self.connection.recv_into(buffer)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            except ConnectionResetError:
                count = 0
            if len(self.head) <= len(self.first_frame):
                self.head += buffer[: min(count, len(self.first_frame))]
            self.received_bytes += count
            if count == 0:
                self.is_open = False
                return
            if not isinstance(self.connection, ssl.SSLSocket):
                return


def run_subscriber(plan: SubscriberPlan, control: Control) -> Received:
    inboxes = [_subscribe(plan, subscription) for subscription in plan.subscriptions]
    frame_bytes = len(inboxes[0].first_frame)
    assert all(len(inbox.first_frame) == frame_bytes for inbox in inboxes)
    control.ready()
    started_cpu_s = time.process_time()
    expected, finished_at_s = _receive_all(inboxes, control, frame_bytes)
    finished_cpu_s = time.process_time()
    total_bytes = sum(inbox.received_bytes for inbox in inboxes)
    messages = min(expected, total_bytes // frame_bytes)
    if messages == expected:
        _verify(inboxes, expected * frame_bytes)
    for inbox in inboxes:
        inbox.connection.close()
    closed = sum(not inbox.is_open for inbox in inboxes)
    return Received(messages, finished_at_s, closed, finished_cpu_s - started_cpu_s)


def _subscribe(plan: SubscriberPlan, subscription: Subscription) -> _Inbox:
    connection = connect(plan.endpoint)
    barrier(connection, subscribe_frame(subscription.subject, SID, subscription.queue))
    connection.setblocking(False)
    first_frame = delivered_frame(subscription.first_subject, SID, plan.payload, header=plan.header)
    return _Inbox(connection, first_frame)


def _receive_all(inboxes: list[_Inbox], control: Control, frame_bytes: int) -> tuple[int, float]:
    """Receive until all that is expected has come, or nothing comes any more.

    Returns the expected number of messages and the time of the last byte.
    """
    by_descriptor = {inbox.connection.fileno(): inbox for inbox in inboxes}
    poller = select.poll()
    for descriptor in (*by_descriptor, control.fileno()):
        poller.register(descriptor, select.POLLIN)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    expect: Expect | None = None
    last_byte_at_s = time.monotonic()
    while True:
        ready = poller.poll(None if expect is None else expect.patience_s * 1000)
        for descriptor, _ in ready:
            inbox = by_descriptor.get(descriptor)
            if inbox is None:
                expect = control.wait()
                poller.unregister(descriptor)
                continue
            inbox.receive(buffer)
            last_byte_at_s = time.monotonic()
            if not inbox.is_open:
                poller.unregister(descriptor)
        if expect is None:
            continue
        is_complete = sum(inbox.received_bytes for inbox in inboxes) >= expect.messages * frame_bytes
        if is_complete or not ready or not any(inbox.is_open for inbox in inboxes):
            return expect.messages, last_byte_at_s


def _verify(inboxes: list[_Inbox], expected_bytes: int) -> None:
    total_bytes = 0
    for inbox in inboxes:
        head = bytes(inbox.head).removeprefix(PING)[: len(inbox.first_frame)]
        if not inbox.first_frame.startswith(head):
            raise GeneratorError(f"the first message is not what was published: {head[:100]!r}")
        total_bytes += inbox.received_bytes
        if inbox.is_open:
            inbox.connection.settimeout(REPLY_TIMEOUT_S)
            total_bytes += len(barrier(inbox.connection))
    pings, rest = divmod(total_bytes - expected_bytes, len(PING))
    if rest or not 0 <= pings <= _SERVER_PINGS_MAX * len(inboxes):
        raise GeneratorError(f"received {total_bytes} bytes where {expected_bytes} were published")
