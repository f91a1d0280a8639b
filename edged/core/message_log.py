"""What a stream's decisions need of the log that stores its messages. The log itself decides nothing.

See edged/store/stream_log.py and memory_log.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from edged.core.message import Message
from edged.core.runs import Run

# Inside the protocol `bytes` is a number.
Subject = bytes
# A journal file, an offset in it, and the bytes of the frame there.
Place = tuple[int, int, int]


class MessageBatch(Protocol):
    """Some messages, the seq to go on with, and the seqs before it that match and cannot be read."""

    @property
    def messages(self) -> list[Message]: ...

    @property
    def next_seq(self) -> int: ...

    @property
    def unreadable(self) -> list[int]: ...


class MessageLog(Protocol):
    """Where a stream's messages are."""

    first_seq: int
    last_seq: int
    last_ts_ns: int
    message_count: int
    bytes: int
    lost: list[Any]

    @property
    def subject_count(self) -> int: ...

    @property
    def deleted_count(self) -> int: ...

    def counted_bytes(self, subject_bytes: int, header_bytes: int, data_bytes: int) -> int: ...

    def keep(self, message: Message, message_bytes: int, place: Place) -> None: ...

    def remove(self, seq: int) -> int | None: ...

    def drop_first(self) -> None: ...

    def compact_to(self, seq: int) -> Any: ...

    def skip_to(self, seq: int) -> None: ...

    def lose(self, first_seq: int, last_seq: int) -> None: ...

    def refill(self, message: Message, message_bytes: int) -> str | None: ...

    def get(self, seq: int) -> Message | None: ...

    def peek(self, seq: int) -> Message | None: ...

    def has(self, seq: int) -> bool: ...

    def bytes_of(self, seq: int) -> int | None: ...

    def count_of(self, subject: Subject) -> int: ...

    def first_of(self, subject: Subject) -> int | None: ...

    def last_of(self, subject: Subject) -> int | None: ...

    def previous_matching(self, filters: Sequence[Subject], seq: int) -> int | None: ...

    def next_matching(self, filters: Sequence[Subject], seq: int) -> int | None: ...

    def count_matching(self, filters: Sequence[Subject], from_seq: int = 0) -> int: ...

    def messages(
        self, filters: Sequence[Subject], from_seq: int, count_max: int, bytes_max: int
    ) -> MessageBatch: ...

    def last_seqs(self, filters: Sequence[Subject], to_seq: int | None = None) -> list[int]: ...

    def subjects(self, filters: Sequence[Subject]) -> Iterator[tuple[Subject, int]]: ...

    def seq_freeing(self, size: int) -> int: ...

    def seq_at_time(self, ts_ns: int) -> int: ...

    @property
    def first_ts_ns(self) -> int: ...


class RunLog(Protocol):
    """A log that takes many messages at once, by their places in the journal."""

    def append(
        self,
        seq: int,
        ts_ns: int,
        subject: Subject,
        message_bytes: int,
        file: int,
        offset: int,
        frame_bytes: int,
    ) -> None: ...

    def append_run(self, first_seq: int, file: int, run: Run) -> None: ...

    def trim_subjects(self, subjects: Iterable[Subject], count_max: int) -> None: ...
