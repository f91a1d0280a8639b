"""Request and reply between two processes, and PING and PONG with the server: what is measured is latency.

Every request carries the same reply subject and there is one responder, so replies come in the order of the
requests and a queue of send times is enough to tell each one's latency.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.generator.process import Control, Limit
from benchmarks.latency import Latency, latency_of
from benchmarks.wire import (
    PING,
    PONG,
    RECEIVE_BYTES,
    Endpoint,
    FixedFrames,
    GeneratorError,
    barrier,
    connect,
    delivered_frame,
    publish_frame,
    subscribe_frame,
    wait_in_kernel,
)

REQUEST_SUBJECT = b"bench.service"
REPLY_SUBJECT = b"bench.inbox.1"
STOP_SUBJECT = b"bench.stop"
WARM_UP_ROUND_TRIPS = 200
_ENDLESS = 1 << 62

Latencies: TypeAlias = "array[int]"


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """What to request, with how many requests in flight."""

    endpoint: Endpoint
    payload: bytes
    in_flight: int
    limit: Limit


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """The round trips that were made, with their times."""

    count: int
    seconds: float
    latency: Latency
    cpu_s: float


def run_responder(plan: RequestPlan, control: Control) -> float:
    """Answer requests until the requester says stop; returns the CPU seconds used."""
    connection = connect(plan.endpoint)
    barrier(connection, subscribe_frame(REQUEST_SUBJECT, b"1") + subscribe_frame(STOP_SUBJECT, b"2"))
    wait_in_kernel(connection)
    request = delivered_frame(REQUEST_SUBJECT, b"1", plan.payload, REPLY_SUBJECT)
    answer = publish_frame(REPLY_SUBJECT, plan.payload)
    stop = delivered_frame(STOP_SUBJECT, b"2", b"")
    frames = FixedFrames(len(request))
    control.ready()
    started_cpu_s = time.process_time()
    while True:
        chunk = connection.recv(RECEIVE_BYTES)
        if not chunk:
            raise GeneratorError("the server closed the responder's connection")
        count = frames.feed(chunk)
        if count:
            connection.sendall(answer * count)
        if frames.tail == stop:  # It is shorter than a request, so it stays in the tail.
            connection.close()
            return time.process_time() - started_cpu_s


def run_requester(plan: RequestPlan, control: Control) -> RoundTrips:
    connection = connect(plan.endpoint)
    barrier(connection, subscribe_frame(REPLY_SUBJECT, b"1"))
    wait_in_kernel(connection)
    request = publish_frame(REQUEST_SUBJECT, plan.payload, REPLY_SUBJECT)
    frames = FixedFrames(len(delivered_frame(REPLY_SUBJECT, b"1", plan.payload)))

    def exchange(limit: Limit) -> Latencies:
        latencies_ns: Latencies = array("q")
        clock = time.perf_counter_ns
        deadline_ns = _deadline_ns(limit)
        left = limit.messages if limit.messages is not None else _ENDLESS
        sent_at_ns: deque[int] = deque()
        burst = min(plan.in_flight, left)
        while burst or sent_at_ns:
            if burst:
                sent_at_ns.extend([clock()] * burst)
                left -= burst
                connection.sendall(request * burst)
            chunk = connection.recv(RECEIVE_BYTES)
            if not chunk:
                raise GeneratorError("the server closed the requester's connection")
            count = frames.feed(chunk)
            now_ns = clock()
            for _ in range(count):
                latencies_ns.append(now_ns - sent_at_ns.popleft())
            burst = min(count, left) if now_ns < deadline_ns else 0
        return latencies_ns

    round_trips = _measure(exchange, plan.limit, control)
    barrier(connection, publish_frame(STOP_SUBJECT, b""))
    connection.close()
    return round_trips


def run_pinger(plan: RequestPlan, control: Control) -> RoundTrips:
    connection = connect(plan.endpoint)
    wait_in_kernel(connection)

    def exchange(limit: Limit) -> Latencies:
        latencies_ns: Latencies = array("q")
        clock = time.perf_counter_ns
        deadline_ns = _deadline_ns(limit)
        left = limit.messages if limit.messages is not None else _ENDLESS
        now_ns = clock()
        while left and now_ns < deadline_ns:
            sent_at_ns = clock()
            connection.sendall(PING)
            chunk = connection.recv(4096)
            while PONG not in chunk:  # A PING of the server's own came alone, ahead of the answer.
                more = connection.recv(4096)
                if not more:
                    raise GeneratorError("the server closed the connection")
                chunk += more
            now_ns = clock()
            latencies_ns.append(now_ns - sent_at_ns)
            left -= 1
        return latencies_ns

    round_trips = _measure(exchange, plan.limit, control)
    connection.close()
    return round_trips


def _deadline_ns(limit: Limit) -> int:
    return time.perf_counter_ns() + (_ENDLESS if limit.seconds is None else int(limit.seconds * 1e9))


def _measure(exchange: Callable[[Limit], Latencies], limit: Limit, control: Control) -> RoundTrips:
    """Warm up when told, say ready, and measure when told again."""
    control.wait()
    exchange(Limit(seconds=None, messages=WARM_UP_ROUND_TRIPS))
    control.ready()
    control.wait()
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    latencies_ns = exchange(limit)
    seconds, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    return RoundTrips(len(latencies_ns), seconds, latency_of(latencies_ns), cpu_s)
