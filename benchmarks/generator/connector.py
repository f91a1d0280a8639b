"""Opens connections: many one after another for the rate, or many at once to be held."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from array import array
from dataclasses import dataclass

from benchmarks.generator.process import Control, Limit
from benchmarks.latency import Latency, latency_of
from benchmarks.wire import (
    CONNECT_AND_PING,
    PING,
    PONG,
    REPLY_TIMEOUT_S,
    Endpoint,
    GeneratorError,
    connect,
    open_socket,
    source_address,
)


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """How many connections to make, one after the other, and where."""

    endpoint: Endpoint
    in_flight: int
    limit: Limit


@dataclass(frozen=True, slots=True)
class Connected:
    """How long the connections took."""

    count: int
    seconds: float
    latency: Latency
    cpu_s: float


@dataclass(frozen=True, slots=True)
class HoldPlan:
    """How many connections to hold open, and where."""

    endpoint: Endpoint
    connections: int


@dataclass(frozen=True, slots=True)
class Held:
    """How many connections were held."""

    opened: int
    lost: int
    seconds: float
    cpu_s: float


@dataclass(slots=True)
class _Attempt:
    connection: socket.socket
    started_at_ns: int
    received: bytes = b""
    has_introduced_itself: bool = False


def run_connector(plan: ConnectPlan, control: Control) -> Connected:
    """Keep some attempts under way, each from connect() to the first PONG, until the limit."""
    control.ready()
    control.wait()
    attempts: dict[int, _Attempt] = {}
    poller = select.poll()
    latencies_ns: array[int] = array("q")
    left = plan.limit.messages if plan.limit.messages is not None else 1 << 62
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    deadline_s = started_s + (plan.limit.seconds if plan.limit.seconds is not None else 1 << 31)

    def start() -> None:
        attempt = _Attempt(open_socket(), time.perf_counter_ns())
        attempt.connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # The connection is completed in the background.
            attempt.connection.connect((plan.endpoint.host, plan.endpoint.port))
        attempts[attempt.connection.fileno()] = attempt
        poller.register(attempt.connection, select.POLLIN)

    while attempts or left:
        while left and len(attempts) < plan.in_flight:
            start()
            left -= 1
        ready = poller.poll(REPLY_TIMEOUT_S * 1000)
        if not ready:
            raise GeneratorError(f"no connection made progress for {REPLY_TIMEOUT_S:.0f} s")
        for descriptor, _ in ready:
            if _advance(attempts[descriptor]):
                attempt = attempts.pop(descriptor)
                latencies_ns.append(time.perf_counter_ns() - attempt.started_at_ns)
                poller.unregister(descriptor)
                attempt.connection.close()
        if time.monotonic() >= deadline_s:
            left = 0
    seconds, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    return Connected(len(latencies_ns), seconds, latency_of(latencies_ns), cpu_s)


def _advance(attempt: _Attempt) -> bool:
    """Take the next step of the handshake; True once the server has answered the PING."""
    chunk = attempt.connection.recv(65536)
    if not chunk:
        raise GeneratorError(f"the server closed a new connection after {attempt.received[-200:]!r}")
    attempt.received += chunk
    if not attempt.has_introduced_itself:
        if attempt.received.endswith(b"\r\n"):
            attempt.connection.sendall(CONNECT_AND_PING)
            attempt.has_introduced_itself = True
        return False
    if b"-ERR" in attempt.received:
        raise GeneratorError(f"the server answered {attempt.received[-200:]!r}")
    return PONG in attempt.received


def run_holder(plan: HoldPlan, control: Control) -> Held:
    """Open connections when told, hold them until told again, and report how many were still good."""
    control.wait()
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    connections = [connect(plan.endpoint, source_address(number)) for number in range(plan.connections)]
    seconds, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    control.ready()
    control.wait()
    lost = sum(_is_lost(connection) for connection in connections)
    for connection in connections:
        connection.close()
    return Held(len(connections), lost, seconds, cpu_s)


def _is_lost(connection: socket.socket) -> bool:
    """Whether the server said anything but PING to an idle connection, or closed it."""
    connection.setblocking(False)
    try:
        while chunk := connection.recv(4096):
            if chunk.replace(PING, b""):
                return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True
