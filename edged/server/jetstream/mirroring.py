"""A mirror: the messages of one origin with their seqs and times.

Rules: the mirror's own last seq says where it goes on, so there is nothing to keep besides. What the
origin has lost, or what is filtered out, is a gap here as well. Where messages can be refused, a batch
ends before a gap, and after a refusal nothing of it is taken: otherwise a message would get the seq of
another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from edged.core.commands import Skip
from edged.core.frames import FOLLOWS, INTERNAL
from edged.core.message import Message
from edged.core.source_header import mirrored_block
from edged.core.stream_machine import Outcome, Refused
from edged.core.wire import Publish
from edged.server.jetstream.origin_reader import Failure, OriginReader
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.core.source_config import StreamSource
    from edged.server.jetstream.origin import Origin
    from edged.server.jetstream.origins import Origins
    from edged.server.jetstream.stream import Stream

# One message and what is stored of it.
_Pair = tuple[Message, Publish]
_HEADERS_REMOVED: Final = b"\r\nNats-"


class MirrorReader(OriginReader):
    """The origin of a mirror."""

    DELIVERY = b"M"

    def __init__(self, origins: Origins, stream: Stream, source: StreamSource) -> None:
        super().__init__(origins, stream, source)
        config = stream.config
        self._can_refuse = config.discard == "new" or config.max_msg_size > 0
        # Of the batch on its way: how much of it is still out, what was stored, and what failed first.
        self._outstanding = 0
        self._stored: list[tuple[Sequence[Publish], Sequence[Outcome]]] = []
        self._failure: Failure | None = None

    def _begin(self, origin: Origin) -> int:
        last_seq = self.stream.log.last_seq
        start = origin.start_seq(self.source) if not last_seq else max(last_seq + 1, origin.first_seq())
        if start > last_seq + 1:
            self._skip_to(start - 1)
        return start

    def _prepared(self, origin: Origin, messages: Sequence[Message]) -> list[Publish] | Failure:
        publishes: list[Publish] = []
        flags = INTERNAL if self._can_refuse else 0
        seq_before = messages[0].seq - 1
        for seq, _, subject, header_bytes, data in messages:
            if self._can_refuse and seq != seq_before + 1:
                break
            seq_before = seq
            if header_bytes and _HEADERS_REMOVED in data:
                block = mirrored_block(data[:header_bytes])
                header_bytes, data = len(block), block + data[header_bytes:]
            publishes.append((self._local_subject(subject), None, (header_bytes | flags) or -1, data))
            if flags:
                flags = INTERNAL | FOLLOWS
        return publishes

    def _submit(self, messages: Sequence[Message], publishes: Sequence[Publish]) -> None:
        """Submit runs of messages that have the same time, and what says that there are gaps between them."""
        self._stored, self._failure = [], None
        # Whatever ends at once must not end the batch before all of it is submitted.
        self._outstanding = 1
        last_seq = self.stream.log.last_seq
        pairs = zip(messages, publishes, strict=True)
        for (ts_ns, _), run in groupby(pairs, _Runs(last_seq)):
            taken = [pair for pair in run if pair[0].seq > last_seq]
            if not taken:
                continue
            if taken[0][0].seq > last_seq + 1:
                self._skip_to(taken[0][0].seq - 1)
            last_seq = taken[-1][0].seq
            self._append(ts_ns, [publish for _, publish in taken])
            if self._failure is not None:
                break
        self._jetstream.crowd()
        self._part_finished()

    def _append(self, ts_ns: int, publishes: list[Publish]) -> None:
        self._outstanding += 1
        done = partial(self._appended, publishes)
        self._jetstream.committer.submit_appends(self.stream.group, publishes, ts_ns, done)

    def _appended(self, publishes: Sequence[Publish], result: Sequence[Outcome] | StoreError) -> None:
        if isinstance(result, StoreError):
            self._failure = self._failure or result
        else:
            self._stored.append((publishes, result))
            if not isinstance(result, range) and self._failure is None:
                refused = next((one for one in result if isinstance(one, Refused)), None)
                self._failure = None if refused is None else refused.error
        self._part_finished()

    def _part_finished(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        stored, self._stored = self._stored, []
        if self.stream.config.republish is not None:
            for publishes, outcomes in stored:
                self.stream.ingest.stored(publishes, outcomes)
        else:
            self.stream.stored()
        self._finished(self.stream.log.last_seq, self._failure)

    def _skip_to(self, seq: int) -> None:
        """What lies between the last message and this seq is missing at the origin, or not wanted."""
        self._jetstream.committer.submit(self.stream.group, Skip(seq), _skipped)


class _Runs:
    """Tells to which run a message belongs: those of a run have the same time, and no gaps between them."""

    def __init__(self, last_seq: int) -> None:
        self._last_seq = last_seq
        self._gaps = 0

    def __call__(self, pair: _Pair) -> tuple[int, int]:
        message = pair[0]
        if message.seq != self._last_seq + 1:
            self._gaps += 1
        self._last_seq = message.seq
        return message.ts_ns, self._gaps


def _skipped(_result: object) -> None:
    """If it failed, so did the messages behind it, and all of it comes again."""
