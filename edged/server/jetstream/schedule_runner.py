"""Fires the schedules of a stream: messages that have more messages published later, once or again and again.

Rules: a schedule is the last message of its subject, so what has to be known is found in the stream itself:
when it is opened, and in whatever is stored afterwards. A firing stores what it produces in the same stream,
which says when the next one is due; so a restart neither forgets a schedule nor fires one twice. Firings that
were missed are made up for once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from edged.core import schedules
from edged.core.api_errors import ApiFailure
from edged.core.frames import HEADER_SIZE_MASK, INTERNAL
from edged.core.schedule_table import Due, ScheduleTable
from edged.core.stream_machine import Outcome, Stored
from edged.core.wire import Publish
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream

RETRY_NS: Final = 1_000_000_000
"""When a firing is tried again whose message could not be stored."""


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo | None:
    """A time zone by its name; None when this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


class ScheduleRunner:
    """The schedules of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._table = ScheduleTable()
        log = stream.log
        for seq in log.last_seqs((b">",)):
            message = log.peek(seq)
            if message is not None and message.header_bytes:
                block = message.data[: message.header_bytes]
                self._table.stored(seq, message.ts_ns, message.subject, block, zone_of)

    def stored(self, messages: Sequence[Publish], outcomes: Sequence[Outcome]) -> None:
        """Messages were published to the stream."""
        for (subject, _, header_bytes, data), outcome in zip(messages, outcomes, strict=True):
            seq = outcome.seq if isinstance(outcome, Stored) else outcome
            if isinstance(seq, int):
                block = data[: header_bytes & HEADER_SIZE_MASK] if header_bytes > 0 else b""
                kept = self._stream.log.peek(seq) if block else None
                ts_ns = kept.ts_ns if kept is not None else 0
                self._table.stored(seq, ts_ns, subject, block, zone_of)
        self._stream.alarm.set(self.next_ns())

    def next_ns(self) -> int | None:
        """When the next one is due; None when there is none that is not on its way already."""
        return self._table.next_ns()

    def tick(self, now_ns: int) -> None:
        """Fire what is due."""
        for due in self._table.due(now_ns):
            self._fire(due, now_ns)

    def _fire(self, due: Due, now_ns: int) -> None:
        message = self._stream.log.peek(due.seq)
        if message is None:
            self._table.removed(due.seq)
            return
        block, payload = message.data[: message.header_bytes], message.data[message.header_bytes :]
        try:
            firing = schedules.next_firing(block, due.at_ns, now_ns, zone_of)
        except ApiFailure:
            firing = None
        produced = None
        if firing is not None:
            produced = schedules.produced(due.subject, block, payload, firing, self._source(block))
        if produced is None:
            # It cannot fire: a message like any other.
            self._table.removed(due.seq)
            return
        header_bytes = len(produced.block) | INTERNAL
        messages: list[Publish] = [(produced.subject, None, header_bytes, produced.block + produced.payload)]
        done = partial(self._fired, due.subject, messages, now_ns + RETRY_NS)
        self._stream.jetstream.committer.submit_appends(self._stream.group, messages, now_ns, done)

    def _source(self, block: bytes) -> tuple[bytes, bytes] | None:
        """Headers and payload of the message that a schedule publishes in place of itself."""
        subject = schedules.source_of(block)
        seq = None if subject is None else self._stream.log.last_of(subject)
        message = None if seq is None else self._stream.log.peek(seq)
        if message is None:
            return None
        return message.data[: message.header_bytes], message.data[message.header_bytes :]

    def _fired(
        self, subject: bytes, messages: list[Publish], retry_ns: int, result: Sequence[Outcome] | StoreError
    ) -> None:
        if isinstance(result, StoreError) or not isinstance(result[0], int | Stored):
            self._table.released(subject, retry_ns)
        else:
            self._stream.ingest.stored(messages, result)
