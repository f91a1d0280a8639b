"""The timers of one client: it logs in in time, answers pings, and leaves when its credentials expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from edged.server import reasons

if TYPE_CHECKING:
    from edged.server.client import ClientConnection
    from edged.server.deadlines import Deadline
    from edged.server.reasons import Reason

# The first ping comes soon after CONNECT, so that the round-trip time is known.
_FIRST_PING_S = 2.0


class Timers:
    """At most one deadline for the state of the connection, and one for its credentials."""

    __slots__ = ("_connection", "_deadline", "_expiry", "_ping_sent_at", "_pings_out", "received_at")

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._deadline: Deadline | None = None
        self._expiry: Deadline | None = None
        self._pings_out = 0
        self._ping_sent_at = 0.0
        # When the client was last heard of, by the loop's clock.
        self.received_at = 0.0

    def await_login(self, timeout_s: float) -> None:
        """Close the connection unless it logs in within the time."""
        self._set(timeout_s, self._login_late)

    def start_pings(self, is_first: bool) -> None:
        """Ping from now on; soon, if this is right after CONNECT."""
        server = self._connection.server
        interval_s = server.ping_interval_s(self._connection)
        self._set(
            min(_FIRST_PING_S * server.jitter(), interval_s) if is_first else interval_s, self._ping_due
        )

    def pause(self) -> None:
        """No deadline while a login is being decided."""
        if self._deadline is not None:
            self._deadline.cancel()

    def expire_in(self, delay_s: float) -> None:
        """Close the connection when its credentials are no longer good."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._connection.server.deadlines.after(max(0.0, delay_s), self._expired)

    def pong(self) -> None:
        """The client answered."""
        self._pings_out = 0
        if self._ping_sent_at:
            self._connection.rtt_ns = int((trio.current_time() - self._ping_sent_at) * 1e9)

    def stop(self) -> None:
        """Nothing is due any more."""
        self.pause()
        if self._expiry is not None:
            self._expiry.cancel()

    def _set(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.pause()
        self._deadline = self._connection.server.deadlines.after(delay_s, callback)

    def _ping_due(self) -> None:
        """Ping a silent client; give up on one that has left too many pings unanswered."""
        connection = self._connection
        server = connection.server
        now = trio.current_time()
        is_first = self._ping_sent_at == 0.0
        if is_first or now - self.received_at >= server.ping_interval_s(connection):
            if self._pings_out >= server.options.ping_max:
                server.stale_connections += 1
                self._close(reasons.STALE_CONNECTION, "Stale Connection")
                return
            self._pings_out += 1
            self._ping_sent_at = now
            connection.send(b"PING\r\n")
            server.flush()
        self.start_pings(is_first=False)

    def _login_late(self) -> None:
        self._close(reasons.AUTHENTICATION_TIMEOUT, "Authentication Timeout")

    def _expired(self) -> None:
        self._close(reasons.AUTHENTICATION_EXPIRED, "User Authentication Expired")

    def _close(self, reason: Reason, error: str) -> None:
        self._connection.close(reason, error)
        self._connection.server.flush()
