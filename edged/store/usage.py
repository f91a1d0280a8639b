"""How much every stream and account stores, and whether more fits: exact, in memory.

Rules: bytes are counted as edged.core.message counts them. check() looks, change() counts; who stores calls
check() before and change() after. What streams may reserve is decided before they are made, in
edged.core.stream_bounds.
Invariant: what an account uses is the sum of its streams, and the total the sum of the accounts. Nothing is
negative.
"""

from dataclasses import dataclass

from edged.store.errors import StoreFull


class AccountFull(StoreFull):
    """A limit of the account, not of the disk: other accounts can still store."""


@dataclass(slots=True)
class Usage:
    """Of a stream or, summed up, of an account or of everything."""

    messages: int = 0
    bytes: int = 0

    def change(self, messages: int, size: int) -> None:
        """Count so much more, or less."""
        self.messages += messages
        self.bytes += size
        assert self.messages >= 0 and self.bytes >= 0, self


class Accounts:
    """Streams by account and name."""

    def __init__(self) -> None:
        self.total = Usage()
        self._bytes_max: dict[str, int] = {}
        # Whether an account has, or had, a limit.
        self.is_limited = False
        self._accounts: dict[str, Usage] = {}
        self._streams: dict[str, dict[str, Usage]] = {}

    def set_bytes_max(self, account: str, bytes_max: int) -> None:
        """What the account may store from now on, -1: no limit; what it has stored already stays."""
        self._bytes_max[account] = bytes_max
        self.is_limited = self.is_limited or bytes_max >= 0

    def open_stream(self, account: str, stream: str) -> None:
        """Count a new stream."""
        streams = self._streams.setdefault(account, {})
        assert stream not in streams, (account, stream)
        streams[stream] = Usage()
        self._accounts.setdefault(account, Usage())

    def close_stream(self, account: str, stream: str) -> Usage:
        """Forget a stream with all that it used; returns that."""
        used = self._streams[account].pop(stream)
        for usage in (self._accounts[account], self.total):
            usage.change(-used.messages, -used.bytes)
        if not self._streams[account]:
            assert self._accounts[account] == Usage(), account
            del self._streams[account], self._accounts[account]
        return used

    def check(self, account: str, size: int) -> None:
        """AccountFull when so many bytes more are too much for the account."""
        bytes_max = self._bytes_max.get(account, -1)
        if 0 <= bytes_max < self._accounts[account].bytes + size:
            raise AccountFull(f"the account may store {bytes_max} bytes")

    def change(self, account: str, stream: str, messages: int, size: int) -> None:
        """Count messages that were stored or, below 0, that are gone."""
        # Written out instead of called: this runs for every batch.
        own, summed, total = self._streams[account][stream], self._accounts[account], self.total
        own.messages += messages
        own.bytes += size
        summed.messages += messages
        summed.bytes += size
        total.messages += messages
        total.bytes += size
        # The others are sums of such, and not less.
        assert own.messages >= 0 and own.bytes >= 0, own

    def account(self, account: str) -> Usage:
        """What an account uses; nothing if it has no stream."""
        return self._accounts.get(account, Usage())

    def stream(self, account: str, stream: str) -> Usage:
        """What a stream uses."""
        return self._streams[account][stream]
