"""Gives consumers their turns to deliver: at the end of each turn of the loop, a slice of messages at a time.

Whoever learns that a consumer may have something to do lists it. What is listed has its turn when the loop
flushes, so that one turn's messages, requests and acknowledgements are dealt with together. Consumers that
have more to do are listed again, and a task lets the loop go on with them, after everybody else had a turn.

Rules: a consumer is listed once at most, so the list is bounded by their number. A fault in one consumer must
not end the others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from edged.core.steady_clock import SteadyClock
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.consumers.consumer import Consumer
    from edged.server.server import Server


class Turns:
    """Of all consumers. `run()` is the task."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ready: deque[Consumer] = deque()
        self._arrival = trio.Event()
        self._clock = SteadyClock(server.now_ns(), server.monotonic_ns())

    def now_ns(self) -> int:
        """The time, for whatever is due after a while."""
        return self._clock.read(self._server.now_ns(), self._server.monotonic_ns())

    @property
    def are_waiting(self) -> bool:
        """Whether a consumer is listed."""
        return bool(self._ready)

    def add(self, consumer: Consumer) -> None:
        """Let a consumer have a turn with the next flush."""
        if not consumer.is_listed:
            consumer.is_listed = True
            self._ready.append(consumer)

    def take(self) -> None:
        """Give a turn to everyone who is listed now."""
        for _ in range(len(self._ready)):
            consumer = self._ready.popleft()
            consumer.is_listed = False
            try:
                has_more = consumer.step()
            except (StoreError, OSError) as error:
                self._failed(consumer, "messages of a stream cannot be read", error)
                continue
            except Exception as error:  # A fault in one consumer must not end the others.
                self._failed(consumer, "a fault in edged failed a consumer", error)
                continue
            if has_more:
                self.add(consumer)

    def go_on(self) -> None:
        """Let the loop come back soon, if somebody has more to do."""
        if self._ready:
            self._arrival.set()
            self._server.tasks_waiting = True

    async def run(self) -> None:
        """Let consumers go on that have more to do, forever."""
        while True:
            if not self._ready:
                self._arrival = trio.Event()
                await self._arrival.wait()
            await trio.lowlevel.checkpoint()
            self._server.flush()

    def _failed(self, consumer: Consumer, what: str, error: Exception) -> None:
        stream = consumer.stream
        self._server.log.error(
            what,
            account=stream.account.account.name,
            stream=stream.name,
            consumer=consumer.machine.name,
            error=repr(error),
        )
        consumer.failed()
