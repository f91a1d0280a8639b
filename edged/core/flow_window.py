"""How much a push consumer may send before its client has said that it has dealt with it.

The window begins small and doubles with each answer. When more than half of it is used a request for an
answer is sent; when more than all of it is, nothing is sent until the answer comes. What was sent after the
request stays counted, unless that is a whole window.

Rules: the subjects that answers come to are made up by the caller; only the last one counts.
"""

from __future__ import annotations

from typing import Final

WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024
WINDOW_BYTES_FIRST: Final = WINDOW_BYTES_MAX // 16


class FlowWindow:
    """Of one consumer, while it is active."""

    __slots__ = ("_asked_bytes", "asked", "bytes_max", "used_bytes")

    def __init__(self) -> None:
        self.bytes_max = WINDOW_BYTES_FIRST
        self.used_bytes = 0
        # The subject that an answer is waited for on, None when none is.
        self.asked: bytes | None = None
        self._asked_bytes = 0

    @property
    def is_closed(self) -> bool:
        """Whether nothing may be sent."""
        return self.used_bytes > self.bytes_max

    def sent(self, size: int) -> bool:
        """A message was sent; True when an answer is to be asked for."""
        self.used_bytes += size
        if self.asked is None:
            return self.used_bytes > self.bytes_max // 2
        if self.used_bytes - self._asked_bytes >= self.bytes_max:
            self._asked_bytes += size
        return False

    def ask(self, subject: bytes) -> None:
        """An answer was asked for."""
        self.asked = subject
        self._asked_bytes = self.used_bytes

    def answered(self, subject: bytes) -> bool:
        """An answer came; False when it is not the one that is waited for."""
        if subject != self.asked:
            return False
        self.bytes_max = min(2 * self.bytes_max, WINDOW_BYTES_MAX)
        self.used_bytes = max(self.used_bytes - self._asked_bytes, 0)
        self.asked = None
        self._asked_bytes = 0
        return True
