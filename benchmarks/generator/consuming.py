"""Receives the messages of a stream through consumers, and acknowledges them.

A lane is one connection that pulls for one consumer, or listens to what is pushed. A message is known by the
ack subject in its frame; everything that arrived together is acknowledged together. A run ends when every
message has come, and is over when the server has no ack pending any more: the workload asks for that.

Invariant: a lane has asked for no more than `ahead` messages that have not come.
"""

from __future__ import annotations

import re
import select
import socket
import time
from dataclasses import dataclass

from benchmarks.generator.process import Control
from benchmarks.wire import (
    PING,
    PONG,
    RECEIVE_BYTES,
    REPLY_TIMEOUT_S,
    Endpoint,
    GeneratorError,
    barrier,
    connect,
    publish_frame,
    subscribe_frame,
)

_MESSAGE = re.compile(rb"(\$JS\.ACK\.\S+) \d+\r\n")
_STATUS = re.compile(rb"NATS/1\.0 (?!100|408)[^\r]*")
_EXPIRES_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class LanePlan:
    """`request` is where messages are asked for; empty where `subject` is pushed to."""

    subject: bytes
    request: bytes = b""
    queue: bytes = b""


@dataclass(frozen=True, slots=True)
class ConsumingPlan:
    """How many messages over all lanes; a request is for `batch`, and `ahead` of them are on their way."""

    endpoint: Endpoint
    lanes: tuple[LanePlan, ...]
    messages: int
    batch: int
    ahead: int
    is_acknowledged: bool


@dataclass(frozen=True, slots=True)
class Consumed:
    """What came, and the time and processor that took."""

    messages: int
    started_at_s: float
    finished_at_s: float
    cpu_s: float


def run_consuming(plan: ConsumingPlan, control: Control) -> Consumed:
    lanes = [_Lane(plan, lane) for lane in plan.lanes]
    control.ready()
    control.wait()
    started_at_s, started_cpu_s = time.monotonic(), time.process_time()
    poller = select.poll()
    by_descriptor = {lane.connection.fileno(): lane for lane in lanes}
    for descriptor, lane in by_descriptor.items():
        poller.register(descriptor, select.POLLIN)
        lane.start()
    received = 0
    while received < plan.messages:
        ready = poller.poll(REPLY_TIMEOUT_S * 1000)
        if not ready:
            raise GeneratorError(f"{received} of {plan.messages} messages came, then nothing")
        received += sum([by_descriptor[descriptor].receive() for descriptor, _ in ready])
    for lane in lanes:
        lane.finish()
    finished_at_s, finished_cpu_s = time.monotonic(), time.process_time()
    return Consumed(received, started_at_s, finished_at_s, finished_cpu_s - started_cpu_s)


class _Lane:
    """One connection."""

    def __init__(self, plan: ConsumingPlan, lane: LanePlan) -> None:
        self._plan = plan
        self._lane = lane
        self._tail = b""
        self._on_their_way = 0
        body = b'{"batch":%d,"expires":%d}' % (plan.batch, _EXPIRES_NS)
        self._request = publish_frame(lane.request, body, reply=lane.subject) if lane.request else b""
        self.connection: socket.socket = connect(plan.endpoint)
        if lane.request:
            barrier(self.connection, subscribe_frame(lane.subject, b"1"))

    def start(self) -> None:
        """Let the messages come."""
        if self._request:
            self.connection.sendall(self._more())
        else:
            self.connection.sendall(subscribe_frame(self._lane.subject, b"1", self._lane.queue))

    def receive(self) -> int:
        """Take what has arrived, and answer for it; how many messages that is."""
        data = self._tail + self.connection.recv(RECEIVE_BYTES)
        replies = _MESSAGE.findall(data)
        if not replies:
            status = _STATUS.search(data)
            if status is not None:
                raise GeneratorError(f"the server says {status.group()!r}")
        self._tail = data[data.rfind(b"\r\n") + 2 :]
        self._on_their_way -= len(replies)
        answers = [self._more()] if self._request else []
        if self._plan.is_acknowledged:
            answers += [b"PUB %b 0\r\n\r\n" % reply for reply in replies]
        if PING in data:
            answers.append(PONG)
        if answers:
            self.connection.sendall(b"".join(answers))
        return len(replies)

    def finish(self) -> None:
        """Wait until the server has read everything."""
        barrier(self.connection)
        self.connection.close()

    def _more(self) -> bytes:
        count = (self._plan.ahead - self._on_their_way) // self._plan.batch
        self._on_their_way += count * self._plan.batch
        return self._request * count
