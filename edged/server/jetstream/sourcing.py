"""Sources: a stream takes over the messages of others, under new seqs.

Rules: each message says in a header where it is from, and the machine of the stream keeps, per source, the
position of the last one it took: so position and message are durable together, and nothing is taken twice or
left out, whenever the process ends. An origin that was made anew is read from its beginning. Counters are
counted when nothing of the stream is on its way: CounterIntake says when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edged.core import counters
from edged.core.api_errors import ApiError
from edged.core.frames import FOLLOWS, INTERNAL
from edged.core.message import Message
from edged.core.publish_headers import MESSAGE_ID
from edged.core.source_header import SourceHeader
from edged.core.stream_machine import Outcome, Refused
from edged.core.wire import Publish
from edged.server.jetstream.origin_reader import Document, Failure, OriginReader
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.core.source_config import StreamSource
    from edged.server.jetstream.origin import Origin
    from edged.server.jetstream.origins import Origins
    from edged.server.jetstream.stream import Stream


class SourceReader(OriginReader):
    """One source of a stream."""

    DELIVERY = b"S"

    def __init__(self, origins: Origins, stream: Stream, source: StreamSource) -> None:
        super().__init__(origins, stream, source)
        self._header = SourceHeader(source)
        self._is_counter = stream.config.allow_msg_counter
        # Whether it waits for the turn of its counters, and what ends that turn.
        self._is_invited = False
        self._leave: Callable[[], None] | None = None

    def _begin(self, origin: Origin) -> int:
        known = self.stream.machine.source_positions.get(self._header.index)
        if known is None or (known.identity and origin.identity and known.identity != origin.identity):
            return origin.start_seq(self.source)
        return known.seq + 1

    def step(self) -> None:
        """Move one batch; one of counters when it is their turn."""
        if not self._is_counter:
            super().step()
        elif not self._is_invited:
            self._is_invited = True
            self.stream.ingest.lend_counters(self._count)

    def _count(self, leave: Callable[[], None]) -> None:
        """Nothing of the stream is on its way until leave() is called."""
        self._is_invited = False
        try:
            super().step()
        except (StoreError, OSError) as error:
            self.failed(error)
        if self._is_busy:
            self._leave = leave
        else:
            leave()

    def _finished(self, position: int, failure: Failure | None) -> None:
        super()._finished(position, failure)
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def _prepared(self, origin: Origin, messages: Sequence[Message]) -> list[Publish] | Failure:
        identity = origin.identity.encode()
        totals = _Totals(self.stream) if self._is_counter else None
        publishes: list[Publish] = []
        flags = INTERNAL
        for seq, _, subject, header_bytes, data in messages:
            block = self._header.block(data[:header_bytes], seq, subject, identity)
            payload = data[header_bytes:]
            subject = self._local_subject(subject)
            if totals is not None:
                counted = totals.count(subject, block, payload)
                if not isinstance(counted, counters.Counted):
                    return publishes or counted or []
                block, payload = counted.block, counted.payload
            publishes.append((subject, None, len(block) | flags, block + payload))
            flags = INTERNAL | FOLLOWS
        return publishes

    def _submit(self, messages: Sequence[Message], publishes: Sequence[Publish]) -> None:
        jetstream = self._jetstream
        done = partial(self._appended, messages, publishes)
        jetstream.committer.submit_appends(self.stream.group, publishes, jetstream.now_ns(), done)
        jetstream.crowd()

    def _appended(
        self,
        messages: Sequence[Message],
        publishes: Sequence[Publish],
        result: Sequence[Outcome] | StoreError,
    ) -> None:
        if isinstance(result, StoreError):
            self._finished(self._position, result)
            return
        position, failure = self._position, None
        for message, outcome in zip(messages, result, strict=True):
            if isinstance(outcome, Refused):
                failure = outcome.error
                break
            position = message.seq
        self.stream.ingest.stored(publishes, result)
        self._finished(position, failure)

    def _described_position(self) -> Document:
        return {"seq": self._position} if self._position else {}


class _Totals:
    """Counts the messages of one batch."""

    def __init__(self, stream: Stream) -> None:
        self._log = stream.log
        self._known: dict[bytes, tuple[bytes, bytes]] = {}
        self._uncertain: set[bytes] = set()

    def count(self, subject: bytes, block: bytes, payload: bytes) -> counters.Counted | ApiError | None:
        """What is stored for a message; None if the batch must end before it.

        That is so if one before it might be here already, and then does not count.
        """
        if subject in self._uncertain:
            return None
        error = counters.refusal(block, len(payload), allowed=True, sourced=True)
        if error is not None:
            return error
        counted = counters.counted(subject, block, payload, self._known.get(subject) or self._last(subject))
        if isinstance(counted, counters.Counted):
            self._known[subject] = (counted.block, counted.payload)
            if MESSAGE_ID in block:
                self._uncertain.add(subject)
        return counted

    def _last(self, subject: bytes) -> tuple[bytes, bytes] | None:
        """Raises StoreError and OSError; then nothing is taken, and it is tried again after a while."""
        seq = self._log.last_of(subject)
        message = None if seq is None else self._log.get(seq)
        if message is None:
            return None
        return message.data[: message.header_bytes], message.data[message.header_bytes :]
