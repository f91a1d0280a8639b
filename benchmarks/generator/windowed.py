"""Sends requests and counts their answers, with no more than a window of them on its way per connection.

A request is a publish to a stream, or a question to one; its answer is known by a few bytes that every
answer has once. Frames are built before the clock starts wherever they fit into memory.

Invariant: sent - answered <= window; a run ends when every request that was sent has its answer.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass

from benchmarks.generator.process import Control, Limit
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

# Up to so many different frames are built in advance, and sent again and again.
FRAMES_MAX = 100_000
_SEND_FRAMES_MAX = 2048
_ERROR = b'"error":'


@dataclass(frozen=True, slots=True)
class WindowedPlan:
    """`subjects` has one pattern per connection, with a `%07d` that counts up to `subject_count`."""

    endpoint: Endpoint
    subjects: tuple[bytes, ...]
    subject_count: int
    payload: bytes
    answer: bytes
    """What every answer has exactly once."""
    window: int
    limit: Limit


@dataclass(frozen=True, slots=True)
class Answered:
    """How many requests were answered, and the time and processor that took."""

    messages: int
    started_at_s: float
    finished_at_s: float
    cpu_s: float


def run_windowed(plan: WindowedPlan, control: Control) -> Answered:
    share = None if plan.limit.messages is None else -(-plan.limit.messages // len(plan.subjects))
    lanes = [_Lane(plan, number, share) for number in range(len(plan.subjects))]
    control.ready()
    control.wait()
    started_at_s, started_cpu_s = time.monotonic(), time.process_time()
    deadline_s = None if plan.limit.seconds is None else started_at_s + plan.limit.seconds
    _run_all(lanes, deadline_s)
    finished_at_s, finished_cpu_s = time.monotonic(), time.process_time()
    for lane in lanes:
        lane.connection.close()
    answered = sum(lane.answered for lane in lanes)
    return Answered(answered, started_at_s, finished_at_s, finished_cpu_s - started_cpu_s)


class _Lane:
    """One connection: what of it is on its way, and what is still to be written."""

    def __init__(self, plan: WindowedPlan, number: int, share: int | None) -> None:
        self._reply = b"_INBOX.window%02d.x" % number
        self._subject, self._subject_count = plan.subjects[number], plan.subject_count
        self._payload, self._needle, self._window = plan.payload, plan.answer, plan.window
        self._frame_bytes = len(self._frame(0))
        self._built: memoryview | None = None
        if plan.subject_count <= FRAMES_MAX:
            repeats = max(1, _SEND_FRAMES_MAX // plan.subject_count)
            cycle = b"".join(self._frame(place) for place in range(plan.subject_count))
            self._built = memoryview(cycle * repeats)
            self._subject_count = plan.subject_count * repeats
        self._left = share
        self._rest = memoryview(b"")
        self._tail = b""
        self.sent = self.answered = 0
        self.is_over = False
        self.connection: socket.socket = connect(plan.endpoint)
        barrier(self.connection, subscribe_frame(self._reply, b"1"))
        self.connection.setblocking(False)

    @property
    def is_finished(self) -> bool:
        return self.is_over and self.answered == self.sent and not self._rest

    @property
    def wants_to_send(self) -> bool:
        return bool(self._rest) or (not self.is_over and self.sent - self.answered < self._window)

    def send(self) -> None:
        if not self._rest:
            self._refill()
        if self._rest:
            try:
                self._rest = self._rest[self.connection.send(self._rest) :]
            except BlockingIOError:
                return

    def receive(self) -> None:
        try:
            data = self.connection.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise GeneratorError("the server closed the connection")
        if _ERROR in data:
            raise GeneratorError(f"the server refused: {data[data.find(_ERROR) :][:200]!r}")
        if PING in data:
            self._rest = memoryview(bytes(self._rest) + PONG)
        data = self._tail + data
        self.answered += data.count(self._needle)
        # The beginning of what the next bytes may complete, unless it was counted already.
        keep = len(self._needle) - 1
        self._tail = data[-keep:] if keep and not data.endswith(b"\r\n") else b""
        if self._needle in self._tail:
            self._tail = b""

    def _refill(self) -> None:
        count = min(self._window - (self.sent - self.answered), _SEND_FRAMES_MAX)
        if self._window > 4:
            # Full windows would make the server wait for us, and us for it, in turn.
            count = min(count, max(1, self._window // 4))
        if self._left is not None:
            count = min(count, self._left)
        start = self.sent % self._subject_count
        count = min(count, self._subject_count - start)
        if not count:
            self.is_over = self._left == 0 or self.is_over
            return
        if self._built is not None:
            self._rest = self._built[start * self._frame_bytes : (start + count) * self._frame_bytes]
        else:
            self._rest = memoryview(b"".join(self._frame(place) for place in range(start, start + count)))
        self.sent += count
        if self._left is not None:
            self._left -= count
            self.is_over = self.is_over or self._left == 0

    def _frame(self, place: int) -> bytes:
        subject = self._subject % place if b"%" in self._subject else self._subject
        return publish_frame(subject, self._payload, reply=self._reply)


def _run_all(lanes: list[_Lane], deadline_s: float | None) -> None:
    poller = select.poll()
    active = {lane.connection.fileno(): lane for lane in lanes}
    while active:
        for descriptor, lane in active.items():
            poller.register(descriptor, select.POLLIN | (select.POLLOUT if lane.wants_to_send else 0))
        ready = poller.poll(REPLY_TIMEOUT_S * 1000)
        if not ready:
            raise GeneratorError(f"the server answered nothing for {REPLY_TIMEOUT_S:.0f} s")
        is_late = deadline_s is not None and time.monotonic() >= deadline_s
        for descriptor, events in ready:
            lane = active[descriptor]
            lane.is_over = lane.is_over or is_late
            if events & ~select.POLLOUT:
                lane.receive()
            if lane.wants_to_send:
                lane.send()
            if lane.is_finished:
                poller.unregister(descriptor)
                del active[descriptor]
