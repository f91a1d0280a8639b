"""How much every stream and account uses and has reserved, and whether more fits: exact, in memory.

Rules: bytes are counted as edged.core.message counts them. check() looks, add() and remove() count; who
stores calls check() before and add() after. A reservation is what a stream may grow to (its max_bytes): it is
taken from the account when the stream is made, so that streams with limits never get in each other's way.
Invariant: what an account uses is the sum of its streams, and the total the sum of the accounts. Nothing is
negative.
"""

from dataclasses import dataclass
from typing import Any

from edged.store.errors import StoreFull


class AccountFull(StoreFull):
    """A limit of the account, not of the disk: other accounts can still store."""


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """Of one account; -1 means no limit."""

    bytes_max: int = -1
    streams_max: int = -1
    stream_bytes_max: int = -1


@dataclass(slots=True)
class Usage:
    """Of a stream or, summed up, of an account or of everything."""

    messages: int = 0
    bytes: int = 0
    reserved_bytes: int = 0

    def change(self, messages: int, size: int) -> None:
        """Count so much more, or less."""
        self.messages += messages
        self.bytes += size
        assert self.messages >= 0 and self.bytes >= 0, self


_NO_LIMITS = UsageLimits()


class Accounts:
    """Streams by account and name. bytes_max is that of the whole store, for reservations; -1: no limit."""

    def __init__(self, bytes_max: int = -1) -> None:
        self.bytes_max = bytes_max
        self.total = Usage()
        self._limits: dict[str, UsageLimits] = {}
        self._accounts: dict[str, Usage] = {}
        self._streams: dict[str, dict[str, Usage]] = {}

    def set_limits(self, account: str, limits: UsageLimits) -> None:
        """What the account may use from now on; what it uses already stays."""
        self._limits[account] = limits

    def open_stream(self, account: str, stream: str, reserved_bytes: int = 0) -> None:
        """Count a new stream; AccountFull or StoreFull when it or its reservation is too much."""
        streams = self._streams.get(account, {})
        assert stream not in streams, (account, stream)
        limits = self._limits.get(account, _NO_LIMITS)
        if 0 <= limits.streams_max <= len(streams):
            raise AccountFull(f"the account may have {limits.streams_max} streams")
        self._check_reservation(account, reserved_bytes, reserved_bytes)
        self._streams.setdefault(account, {})[stream] = Usage()
        self._accounts.setdefault(account, Usage())
        self._reserve(account, stream, reserved_bytes)

    def reserve(self, account: str, stream: str, reserved_bytes: int) -> None:
        """Change what a stream has reserved; raises and changes nothing when it is too much."""
        more_bytes = reserved_bytes - self._streams[account][stream].reserved_bytes
        if more_bytes > 0:
            self._check_reservation(account, reserved_bytes, more_bytes)
        self._reserve(account, stream, more_bytes)

    def close_stream(self, account: str, stream: str) -> Usage:
        """Forget a stream with all that it used; returns that."""
        used = self._streams[account].pop(stream)
        for usage in (self._accounts[account], self.total):
            usage.change(-used.messages, -used.bytes)
            usage.reserved_bytes -= used.reserved_bytes
        if not self._streams[account]:
            assert self._accounts[account] == Usage(), account
            del self._streams[account], self._accounts[account]
        return used

    def check(self, account: str, stream: str, size: int) -> None:
        """AccountFull when so many bytes more are too much for the account or for one of its streams."""
        limits = self._limits.get(account)
        if limits is None:
            return
        if 0 <= limits.bytes_max < self._accounts[account].bytes + size:
            raise AccountFull(f"the account may store {limits.bytes_max} bytes")
        if 0 <= limits.stream_bytes_max < self._streams[account][stream].bytes + size:
            raise AccountFull(f"a stream of the account may store {limits.stream_bytes_max} bytes")

    def add(self, account: str, stream: str, messages: int, size: int) -> None:
        """Count messages that were stored."""
        self._streams[account][stream].change(messages, size)
        self._accounts[account].change(messages, size)
        self.total.change(messages, size)

    def remove(self, account: str, stream: str, messages: int, size: int) -> None:
        """Count messages that are gone."""
        self.add(account, stream, -messages, -size)

    def account(self, account: str) -> Usage:
        """What an account uses; nothing if it has no stream."""
        return self._accounts.get(account, Usage())

    def stream(self, account: str, stream: str) -> Usage:
        """What a stream uses."""
        return self._streams[account][stream]

    def stream_count(self, account: str) -> int:
        """How many streams an account has."""
        return len(self._streams.get(account, ()))

    def snapshot(self) -> dict[str, Any]:
        """Everything but the limits, as plain values for a checkpoint."""
        return {
            account: {
                name: [usage.messages, usage.bytes, usage.reserved_bytes] for name, usage in streams.items()
            }
            for account, streams in self._streams.items()
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over what a snapshot says, in place of all that was counted; limits do not matter here."""
        self.total = Usage()
        self._accounts = {}
        self._streams = {}
        for account, streams in snapshot.items():
            self._accounts[account] = Usage()
            self._streams[account] = {}
            for stream, (messages, size, reserved_bytes) in streams.items():
                self._streams[account][stream] = Usage()
                self.add(account, stream, messages, size)
                self._reserve(account, stream, reserved_bytes)

    def _check_reservation(self, account: str, reserved_bytes: int, more_bytes: int) -> None:
        limits = self._limits.get(account, _NO_LIMITS)
        if more_bytes <= 0:
            return
        if 0 <= limits.stream_bytes_max < reserved_bytes:
            raise AccountFull(f"a stream of the account may store {limits.stream_bytes_max} bytes")
        if 0 <= limits.bytes_max < self.account(account).reserved_bytes + more_bytes:
            raise AccountFull(f"the account may reserve {limits.bytes_max} bytes for its streams")
        if 0 <= self.bytes_max < self.total.reserved_bytes + more_bytes:
            raise StoreFull(f"streams may reserve {self.bytes_max} bytes together")

    def _reserve(self, account: str, stream: str, more_bytes: int) -> None:
        for usage in (self._streams[account][stream], self._accounts[account], self.total):
            usage.reserved_bytes += more_bytes
            assert usage.reserved_bytes >= 0, usage
