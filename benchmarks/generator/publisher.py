"""Publishes prebuilt buffers of PUB frames over one or more connections, as fast as the server takes them.

Invariant: a connection sends whole frames in the end, whatever cut its buffer short, so that the number of
published messages is exact.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from dataclasses import dataclass

from benchmarks.generator.process import Control, Limit
from benchmarks.wire import REPLY_TIMEOUT_S, Endpoint, GeneratorError, barrier, connect, publish_frame

BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class PublisherPlan:
    """What to publish, how much of it, and where."""

    endpoint: Endpoint
    subjects_by_connection: tuple[tuple[bytes, ...], ...]
    payload: bytes
    header: bytes
    limit: Limit


@dataclass(frozen=True, slots=True)
class Published:
    """What was published, and the time and processor it took."""

    messages: int
    started_at_s: float
    """On the monotonic clock, which all processes of the machine share."""
    finished_at_s: float
    """When the server had answered a PING sent after the last message."""
    cpu_s: float


def run_publisher(plan: PublisherPlan, control: Control) -> Published:
    connections = len(plan.subjects_by_connection)
    share = None if plan.limit.messages is None else -(-plan.limit.messages // connections)
    senders = [
        _Sender(connect(plan.endpoint), subjects, plan, share) for subjects in plan.subjects_by_connection
    ]
    control.ready()
    control.wait()
    started_at_s, started_cpu_s = time.monotonic(), time.process_time()
    deadline_s = None if plan.limit.seconds is None else started_at_s + plan.limit.seconds
    _send_all(senders, deadline_s)
    for sender in senders:
        sender.connection.settimeout(REPLY_TIMEOUT_S)
        barrier(sender.connection)
    finished_at_s, finished_cpu_s = time.monotonic(), time.process_time()
    for sender in senders:
        sender.connection.close()
    messages = sum(sender.messages_sent for sender in senders)
    return Published(messages, started_at_s, finished_at_s, finished_cpu_s - started_cpu_s)


class _Sender:
    """One connection and the part of its buffer that is still to be sent."""

    def __init__(
        self, connection: socket.socket, subjects: tuple[bytes, ...], plan: PublisherPlan, share: int | None
    ) -> None:
        frames = [publish_frame(subject, plan.payload, header=plan.header) for subject in subjects]
        self._frame_bytes = len(frames[0])
        assert all(len(frame) == self._frame_bytes for frame in frames)
        cycle = b"".join(frames)
        self._buffer = memoryview(cycle * max(1, BUFFER_BYTES // len(cycle)))
        self._rest = self._buffer[:0]
        self._messages_left = share
        self.messages_sent = 0
        self.connection = connection
        connection.setblocking(False)

    def refill(self) -> bool:
        """Take up the next buffer; False when the last message has been taken."""
        messages = len(self._buffer) // self._frame_bytes
        if self._messages_left is not None:
            messages = min(messages, self._messages_left)
            self._messages_left -= messages
        self._rest = self._buffer[: messages * self._frame_bytes]
        self.messages_sent += messages
        return messages > 0

    def push(self, deadline_s: float | None) -> bool:
        """Send what the socket takes; True once there is nothing left to send."""
        if not self._rest and (
            (deadline_s is not None and time.monotonic() >= deadline_s) or not self.refill()
        ):
            return True
        try:
            sent = self.connection.send(self._rest)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return False
        self._rest = self._rest[sent:]
        return False


def _send_all(senders: list[_Sender], deadline_s: float | None) -> None:
    poller = select.poll()
    active = {sender.connection.fileno(): sender for sender in senders}
    for descriptor in active:
        poller.register(descriptor, select.POLLOUT)
    while active:
        writable = poller.poll(REPLY_TIMEOUT_S * 1000)
        if not writable:
            raise GeneratorError(f"the server read nothing for {REPLY_TIMEOUT_S:.0f} s")
        for descriptor, _ in writable:
            if active[descriptor].push(deadline_s):
                poller.unregister(descriptor)
                del active[descriptor]
