"""The messages of a stream that lives in memory. The same questions and answers as a StreamLog.

Bytes are counted as nats-server counts them for its memory store: subject, headers, payload and 16.

Messages are kept in pages; a page goes when its last message goes.
Rules: see message_index.py. Nothing here outlives the process: there are no segments and no checkpoints.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from edged.core.message import Message
from edged.store.log_part import GrowingPart
from edged.store.message_index import Removed
from edged.store.message_reads import MessageReads

_RECORD_BYTES: Final = 16
_PAGE_MESSAGES: Final = 4096


class MemoryPage(GrowingPart):
    """Some messages in a row."""

    __slots__ = ("_messages",)

    def __init__(self, first_seq: int) -> None:
        super().__init__(first_seq)
        self._messages: list[Message | None] = []

    def append(self, message: Message, number: int) -> None:
        """One more message."""
        seq, ts_ns = message.seq, message.ts_ns
        if self._seqs is None and seq != self.last_seq + 1:
            self._seqs = array("Q", range(self.first_seq, self.last_seq + 1))
        if self._seqs is not None:
            assert isinstance(self._seqs, array)
            self._seqs.append(seq)
        if not self.count % self.PAGE:
            pages = self.page_times_ns
            pages.append(max(ts_ns, pages[-1]) if pages else ts_ns)
        self._messages.append(message)
        self.numbers.append(number)
        self.count += 1
        self.live_bytes += memory_bytes(message)
        self.last_seq = seq
        self.last_ts_ns = ts_ns

    def bytes_at(self, position: int) -> int:
        return memory_bytes(self._message(position))

    def message_at(self, position: int, names: Sequence[bytes | None]) -> Message:
        return self._message(position)

    def timestamp_at(self, position: int) -> int:
        return self._message(position).ts_ns

    def remove(self, position: int, size: int) -> None:
        super().remove(position, size)
        self._messages[position] = None

    def remove_many(self, positions: Sequence[int], size: int) -> None:
        super().remove_many(positions, size)
        for position in positions:
            self._messages[position] = None

    def remove_below(self, position: int) -> Iterable[tuple[int, int]]:
        start = self.deleted.floor
        removed = super().remove_below(position)
        self._messages[start:position] = [None] * max(position - start, 0)
        return removed

    def _message(self, position: int) -> Message:
        message = self._messages[position]
        assert message is not None, position
        return message


class MemoryLog(MessageReads):
    """A log whose messages are in memory only."""

    @staticmethod
    def counted_bytes(subject_bytes: int, header_bytes: int, data_bytes: int) -> int:
        """What a message counts for; header block and payload are both in `data_bytes`."""
        return subject_bytes + data_bytes + _RECORD_BYTES

    def keep(self, message: Message, message_bytes: int, place: tuple[int, int, int]) -> None:
        """Store a message; it needs no place in the journal."""
        self.append(message)

    def append(self, message: Message) -> None:
        """Store a message behind all others; seqs may be left out."""
        seq = message.seq
        assert seq > self.last_seq, (seq, self.last_seq)
        if not self._parts or self._parts[-1].count >= _PAGE_MESSAGES:
            self._add_part(MemoryPage(seq))
        page = self._parts[-1]
        assert isinstance(page, MemoryPage)
        number = self.table.numbers.get(message.subject)
        if number is None:
            number = self.table.add(message.subject)
        page.append(message, number)
        self.table.append(number, seq)
        if not self.message_count:
            self.first_seq = seq
        self.message_count += 1
        self.bytes += memory_bytes(message)
        self.last_seq = seq
        self.last_ts_ns = message.ts_ns

    def append_run(self, messages: Sequence[Message]) -> None:
        """Store many messages."""
        for message in messages:
            self.append(message)

    def remove(self, seq: int) -> int | None:
        index = self._part_index(seq)
        size = super().remove(seq)
        if size is not None and not self._parts[index].live_count:
            del self._parts[index]
            del self._starts[index]
        return size

    def compact_to(self, seq: int) -> Removed:
        removed = super().compact_to(seq)
        if removed.count:
            self._parts = [part for part in self._parts if part.live_count]
            self._starts = [part.first_seq for part in self._parts]
        return removed


def memory_bytes(message: Message) -> int:
    """What a message in memory counts for."""
    return len(message.subject) + len(message.data) + _RECORD_BYTES
