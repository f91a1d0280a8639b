"""Lets other threads call back into the loop, at the price of one system call.

Rules: `wake()` may be called in any thread. The callback runs in the loop's thread, in a turn of the reactor;
several wakes before it are one.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from edged.server.log import Log
from edged.server.reactor import Reactor


class Waker:
    """Calls `awake` soon after each wake(), as long as it is open."""

    def __init__(self, reactor: Reactor, log: Log, awake: Callable[[], None]) -> None:
        self._reactor = reactor
        self._log = log
        self._awake = awake
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        reactor.watch(self._descriptor, self)

    def wake(self) -> None:
        """Let the loop call back."""
        os.eventfd_write(self._descriptor, 1)

    def readable(self) -> None:
        """Called by the reactor."""
        os.eventfd_read(self._descriptor)
        self._awake()

    def failed(self, error: Exception) -> None:
        """A fault of ours: what was to be done for others is lost, so nothing may go on as if it were not."""
        self._log.error("a fault in edged while it finished a commit", error=repr(error))
        raise error

    def close(self) -> None:
        """Hear nothing more. Nobody may call wake() after this."""
        self._reactor.unwatch(self._descriptor)
        os.close(self._descriptor)
