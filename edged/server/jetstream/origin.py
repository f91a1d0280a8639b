"""What a mirror or a sourcing stream needs of the stream that it takes messages from, wherever that one is.

Rules: a reader asks for messages from a seq on, and is woken when there are more. An origin never decides
what becomes of them. Everything happens in the loop's thread; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from edged.core.short_names import stream_identity

if TYPE_CHECKING:
    from edged.core.source_config import StreamSource
    from edged.server.jetstream.origin_hold import OriginHold
    from edged.server.jetstream.stream import Stream
    from edged.store.message_reads import ReadBatch

Filters = Sequence[bytes]
# What is called when an origin has more messages.
Wake = Callable[[], None]


class Hold(Protocol):
    """What keeps messages of an origin for its reader."""

    @property
    def name(self) -> str:
        """The consumer that does."""

    def release(self) -> None:
        """Nobody reads the origin any more."""


class Origin(Protocol):
    """A stream that messages are taken from, for one reader."""

    @property
    def identity(self) -> str:
        """What tells it from another stream that had its name before; empty if that is not known."""

    @property
    def hold(self) -> Hold:
        """What keeps messages there until they are here."""

    def open(self, wake: Wake) -> None:
        """Begin to wake the reader."""

    def close(self) -> None:
        """End that; once is enough, more does no harm."""

    def start_seq(self, source: StreamSource) -> int:
        """Where who has read nothing yet begins, as its configuration says."""

    def first_seq(self) -> int:
        """What lies before is gone."""

    def read(self, filters: Filters, from_seq: int, count_max: int, bytes_max: int) -> ReadBatch | None:
        """The messages that are there from a seq on, or some of them; None until that is known."""

    def pending(self, filters: Filters, from_seq: int) -> int:
        """How many there are from a seq on."""

    def settle(self, filters: Filters, to_seq: int) -> None:
        """The messages up to a seq are durable elsewhere, all that match."""


class LocalOrigin:
    """A stream of this server, of whatever account. Its log is read as it is."""

    def __init__(self, stream: Stream, hold: OriginHold) -> None:
        self.stream = stream
        self._hold = hold
        self.identity = stream_identity(stream.created_ns)
        self._wake: Wake | None = None

    @property
    def hold(self) -> Hold:
        return self._hold

    def open(self, wake: Wake) -> None:
        self.close()
        self._wake = wake
        self.stream.listeners.append(wake)

    def close(self) -> None:
        if self._wake is not None:
            self.stream.listeners.remove(self._wake)
            self._wake = None

    def start_seq(self, source: StreamSource) -> int:
        if source.opt_start_seq:
            return max(source.opt_start_seq, self.first_seq())
        if source.opt_start_time is not None:
            return self.stream.log.seq_at_time(source.opt_start_time)
        return self.first_seq()

    def first_seq(self) -> int:
        return self.stream.log.first_seq

    def read(self, filters: Filters, from_seq: int, count_max: int, bytes_max: int) -> ReadBatch:
        return self.stream.reads.messages(filters, from_seq, count_max, bytes_max)

    def pending(self, filters: Filters, from_seq: int) -> int:
        return self.stream.log.count_matching(filters, from_seq)

    def settle(self, filters: Filters, to_seq: int) -> None:
        """A stream that keeps messages for its consumers lets go of what was taken over."""
        if self.stream.config.retention != "limits":
            self._hold.settle(filters, to_seq)
