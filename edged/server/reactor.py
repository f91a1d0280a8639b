"""Reads all connections from one task, so that a message does not cost a task switch.

A connection has a task of its own for whatever may wait: handshakes, logins, a full subscriber. Between such
moments the task is parked in `attend()`, and this reactor reads the socket, parses and routes, for every
connection that has something, in rounds; what a round produced is written once at its end.

Rules:
* A turn lingers: while traffic keeps coming it polls for more, up to LINGER_S at a time and TURN_S in all,
  before it gives the loop back. Anything that happens elsewhere in the loop (new connections, sockets that
  take bytes again, threads that report) wakes it at once, because the loop's own epoll is polled along.
* Whoever makes a task runnable from inside a turn sets `server.tasks_waiting`, and the turn ends.
* Nothing in a turn awaits. A connection that must is handed back to its task.

Two epoll sets hold the sockets: `_idle`, which the loop waits on between turns, and `_busy`, which is polled
during a turn and also holds the loop's own epoll. One set cannot do both, for it would contain itself.
"""

from __future__ import annotations

import select
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    import socket

    from edged.server.server import Server

# epoll counts in milliseconds: the shortest wait that is not none.
LINGER_S = 0.001
TURN_S = 0.005
# How many sockets one round reads; the others come next.
ROUND_MAX = 256


class Attended(Protocol):
    """What the reactor reads for."""

    def readable(self) -> None:
        """The socket has bytes, or its end. Must not await."""

    def failed(self, error: Exception) -> None:
        """readable() raised: a fault of ours, which must not take the other connections along."""


class Reactor:
    """One per server. `run()` is its task."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._attended: dict[int, Attended] = {}
        self._idle = select.epoll()
        self._busy = select.epoll()
        self._linger_s = 0.0

    async def run(self) -> None:
        """Read until cancelled."""
        loop_epoll = _epoll_of_the_loop()
        if loop_epoll is not None:
            self._busy.register(loop_epoll.fileno(), select.EPOLLIN)
            self._linger_s = LINGER_S
        try:
            while True:
                await trio.lowlevel.wait_readable(self._idle.fileno())
                self._turn()
        finally:
            self._idle.close()
            self._busy.close()

    async def attend(self, who: Attended, connected: socket.socket, handed_back: trio.Event) -> None:
        """Read for a connection until `handed_back` is set by `release()`, or the caller is cancelled."""
        self.watch(connected.fileno(), who)
        try:
            await handed_back.wait()
        finally:
            self.release(connected)

    def release(self, connected: socket.socket) -> None:
        """Read no more from this socket; does nothing when that is so already."""
        self.unwatch(connected.fileno())

    def watch(self, descriptor: int, who: Attended) -> None:
        """Call readable() whenever the descriptor can be read."""
        self._attended[descriptor] = who
        self._idle.register(descriptor, select.EPOLLIN)
        self._busy.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        """The reverse of watch(); once is enough, more does no harm."""
        if self._attended.pop(descriptor, None) is not None and not self._idle.closed:
            self._idle.unregister(descriptor)
            self._busy.unregister(descriptor)

    def _turn(self) -> None:
        server = self._server
        attended = self._attended
        poll = self._busy.poll
        server.tasks_waiting = False
        server.turn_started()
        ends_at = perf_counter() + TURN_S
        ready = poll(0, ROUND_MAX)
        while ready:
            is_elsewhere = False
            for descriptor, _ in ready:
                who = attended.get(descriptor)
                if who is not None:
                    try:
                        who.readable()
                    except Exception as error:  # reported by the connection, which it ends
                        who.failed(error)
                else:
                    is_elsewhere = True
            server.flush()
            if is_elsewhere or server.tasks_waiting or perf_counter() > ends_at:
                return
            ready = poll(self._linger_s, ROUND_MAX)


def _epoll_of_the_loop() -> select.epoll | None:
    """The epoll that trio itself waits on. Without it a turn simply does not linger."""
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        found = GLOBAL_RUN_CONTEXT.runner.io_manager._epoll
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, select.epoll) else None
