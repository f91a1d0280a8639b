"""Messages from wherever they can still be read, for a salvage: in order, each once, and what is missing.

A message may be in several places: in the segment of the newest generation, in an older segment that is
about to go, and in a journal file that is kept for the older generation. The first readable copy counts.

Rules: nothing is written. A block that is beyond repair is passed over; the next one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Any, NamedTuple

from edged.core.expiry import message_expires_ns
from edged.core.message import Message
from edged.store.block_cache import BlockCache
from edged.store.box import Keyring
from edged.store.deleted import DeletedPositions
from edged.store.errors import Damaged, StoreBroken
from edged.store.files import Files
from edged.store.message_index import LostRange
from edged.store.segment import Segment
from edged.store.segment_format import MessagesLost
from edged.store.stream_log import StreamLog


@dataclass(slots=True)
class Losses:
    """Ranges that may be lost, less what was found of them."""

    ranges: list[LostRange] = field(default_factory=list)
    # First and last seq of runs that were found within those ranges, in order.
    _runs: list[list[int]] = field(default_factory=list)
    _end: int = 0

    def add(self, first_seq: int, last_seq: int, reason: str) -> None:
        """Something is missing."""
        self._end = max(self._end, last_seq)
        last = self.ranges[-1] if self.ranges else None
        if last is not None and last.last_seq + 1 == first_seq and last.reason == reason:
            self.ranges[-1] = last._replace(last_seq=last_seq)
        else:
            self.ranges.append(LostRange(first_seq, last_seq, reason))

    def found(self, seq: int) -> None:
        """A message is there; they come in order, and behind the word that something before is missing."""
        if seq > self._end:
            return
        if self._runs and self._runs[-1][1] + 1 == seq:
            self._runs[-1][1] = seq
        else:
            self._runs.append([seq, seq])

    def left(self) -> list[LostRange]:
        """What is missing after all."""
        left: list[LostRange] = []
        for lost in sorted(self.ranges):
            start = max(lost.first_seq, left[-1].last_seq + 1 if left else 0)
            for first, last in self._runs:
                if last < start or first > lost.last_seq:
                    continue
                if first > start:
                    left.append(LostRange(start, first - 1, lost.reason))
                start = last + 1
            if start <= lost.last_seq:
                left.append(LostRange(start, lost.last_seq, lost.reason))
        return left


def merged(sources: Sequence[Iterable[Message]]) -> Iterator[Message]:
    """The messages of several sources in the order of their seqs, the first copy of each."""
    last_seq = 0
    for message in merge(*sources, key=_seq_of):
        if message.seq > last_seq:
            last_seq = message.seq
            yield message


def _seq_of(message: Message) -> int:
    return message.seq


class Copy(NamedTuple):
    """Another log of the same stream, and what it has lost itself."""

    log: StreamLog
    lost: Sequence[LostRange]

    def is_complete(self, wanted: LostRange) -> bool:
        """Whether it has lost nothing of a range."""
        return not any(
            one.first_seq <= wanted.last_seq and wanted.first_seq <= one.last_seq
            for one in (*self.lost, *self.log.lost)
        )


def live_messages(log: StreamLog, copies: Sequence[Copy], losses: Losses) -> Iterator[Message]:
    """The live messages of a log; those that cannot be read come from a copy, or are lost."""
    seq = log.next_matching((), log.first_seq)
    while seq is not None:
        message, reason = _first_readable((log, *(copy.log for copy in copies)), seq)
        if message is not None:
            yield message
        else:
            losses.add(seq, seq, reason)
        seq = log.next_matching((), seq + 1)


def _first_readable(logs: Sequence[StreamLog], seq: int) -> tuple[Message | None, str]:
    reason = "it cannot be read"
    for log in logs:
        try:
            message = log.get(seq)
        except Damaged as error:
            reason = error.what
            continue
        if message is not None:
            return message, ""
    return None, reason


def rescued_messages(lost: Sequence[LostRange], copies: Sequence[Copy], losses: Losses) -> Iterator[Message]:
    """What copies have of the ranges that a log has lost. What no copy has for certain is lost."""
    for one in lost:
        is_complete = False
        for copy in copies:
            log = copy.log
            is_known = copy.is_complete(one)
            seq = log.next_matching((), one.first_seq)
            while seq is not None and seq <= one.last_seq:
                try:
                    message = log.get(seq)
                except Damaged:
                    is_known = False
                else:
                    if message is not None:
                        yield message
                seq = log.next_matching((), seq + 1)
            is_complete = is_complete or is_known
        if not is_complete:
            losses.add(*one)


class ColdSegments:
    """Some segments of a stream, read without a checkpoint: newer ones count more than older ones."""

    def __init__(self, files: Files, keys: Keyring, cache: BlockCache, paths: Iterable[str]) -> None:
        self._segments: list[Segment] = []
        self.unreadable: list[str] = []
        for path in paths:
            try:
                self._segments.append(Segment.open(files, path, cache, keys, message_expires_ns))
            except (Damaged, StoreBroken) as error:
                if isinstance(error, StoreBroken) and not isinstance(error.__cause__, OSError):
                    raise
                self.unreadable.append(f"{path}: {error.what}")
        # The generation is at the end of the name.
        self._segments.sort(key=lambda segment: segment.path.rpartition("-")[2], reverse=True)

    @property
    def last_seq(self) -> int:
        """The last seq of all."""
        return max((segment.last_seq for segment in self._segments), default=0)

    def get(self, seq: int) -> Message | None:
        """A message, if it can be read."""
        for segment in self._segments:
            try:
                found = segment.get(seq)
            except Damaged:
                continue
            if found is not None:
                return found
        return None

    def messages(self, losses: Losses, is_gone: Callable[[Message], bool]) -> Iterator[Message]:
        """All messages that can be read and are not gone."""
        sources = [_readable(segment, losses) for segment in self._segments]
        return (message for message in merged(sources) if not is_gone(message))


def _readable(segment: Segment, losses: Losses) -> Iterator[Message]:
    for lost in segment.lost:
        losses.add(lost.first_seq, lost.last_seq or segment.last_seq, lost.reason)
    seq = segment.first_seq
    while True:
        try:
            for message in segment.messages(seq):
                seq = message.seq + 1
                yield message
        except MessagesLost as lost:
            losses.add(max(seq, lost.first_seq), lost.last_seq, "its block is beyond repair")
            seq = lost.last_seq + 1
        else:
            return


class DeadMessages:
    """The messages that a checkpoint knows to be gone from a segment; `entry` is its word on the segment."""

    def __init__(self, entry: Sequence[Any]) -> None:
        _, (self._first_seq, self._last_seq), _, dumped = entry
        self._dead = DeletedPositions.load(dumped)

    def __contains__(self, message: Message) -> bool:
        return message.seq - self._first_seq in self._dead
