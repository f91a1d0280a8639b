"""Between a node that lost messages and one that may have them: a question by seqs, and the answer.

A question is `{group, stream, applied, ranges}`: the stream's id, how far the asking node has applied the
group, and which seqs it lacks, `[[first, last], ...]` in order. The answer is `{applied, last_seq, to,
messages, lost}`: how far the other node is, up to which seq it answers here, the messages, each beside its
checksum, and which ranges it has lost itself. Of every other seq up to `to` and `last_seq` it has no
message.

A question without ranges only says that the copy of a node began anew.

Rules: an answer is bounded, and says how far it goes. What comes from another node is checked here, once,
and is typed behind that. A message whose checksum is not its own is not believed, and neither is the rest of
that answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edged.core.message import Message
from edged.core.repair_records import checksum_of, message_of
from edged.store.errors import StoreError
from edged.store.stream_log import StreamLog
from hub.limits import REPAIR_BYTES_MAX, REPAIR_MESSAGES_MAX, REPAIR_RANGES_MAX

if TYPE_CHECKING:
    from edged.store.store import Store


@dataclass(frozen=True, slots=True)
class Question:
    """Which messages of a stream are missing on a node that has applied its group up to here."""

    group: int
    stream: bytes
    applied: int
    ranges: tuple[range, ...]

    def document(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "group": self.group,
            "stream": self.stream,
            "applied": self.applied,
            "ranges": [[seqs.start, seqs.stop - 1] for seqs in self.ranges],
        }

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Question:
        """The reverse. Raises ValueError."""
        match document:
            case {"group": int() as group, "stream": bytes() as stream, "applied": int() as applied}:
                return cls(group, stream, applied, _ranges(document.get("ranges")))
        raise ValueError("not a question for messages")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node that was asked has, up to the seq `to`."""

    applied: int
    last_seq: int
    to: int
    messages: tuple[Message, ...]
    lost: tuple[range, ...]

    def document(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "applied": self.applied,
            "last_seq": self.last_seq,
            "to": self.to,
            "messages": [[*message, checksum_of(message)] for message in self.messages],
            "lost": [[seqs.start, seqs.stop - 1] for seqs in self.lost],
        }

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Answer:
        """The reverse. Raises ValueError, also when a checksum is wrong."""
        match document:
            case {"applied": int() as applied, "last_seq": int() as last_seq, "to": int() as to}:
                messages = tuple(map(_checked, _listed(document.get("messages"))))
                return cls(applied, last_seq, to, messages, _ranges(document.get("lost"), None))
        raise ValueError("not an answer with messages")


def _listed(values: Any) -> list[Any]:
    if type(values) is not list or len(values) > REPAIR_MESSAGES_MAX:
        raise ValueError("not a list of messages")
    return values


def _checked(values: Any) -> Message:
    if type(values) is not list or len(values) != 6:
        raise ValueError("not a message with its checksum")
    message = message_of(values[:5])
    if values[5] != checksum_of(message):
        raise ValueError(f"message {message.seq} is not what its checksum says")
    return message


def _ranges(values: Any, count_max: int | None = REPAIR_RANGES_MAX) -> tuple[range, ...]:
    if type(values) is not list or (count_max is not None and len(values) > count_max):
        raise ValueError("not a list of ranges")
    found: list[range] = []
    for value in values:
        match value:
            case [int() as first, int() as last] if (found[-1].stop if found else 1) <= first <= last:
                found.append(range(first, last + 1))
            case _:
                raise ValueError("ranges that are not in order")
    return tuple(found)


def answer(store: Store, question: Question) -> Answer | None:
    """What this node has of it; None if it has no copy of that stream."""
    entry = store.catalog.streams.get(question.group)
    if entry is None or entry.stream_id != question.stream or not isinstance(entry.log, StreamLog):
        return None
    log = entry.log
    search = _Search(log)
    for seqs in question.ranges:
        if search.is_full:
            break
        search.look(seqs)
    lost = [range(one.first_seq, one.last_seq + 1) for one in log.lost if one.first_seq <= search.to]
    unreadable = [range(seq, seq + 1) for seq in search.unreadable]
    ordered = _apart(sorted([*lost, *unreadable], key=lambda seqs: seqs.start))
    return Answer(entry.group.applied, log.last_seq, search.to, tuple(search.messages), tuple(ordered))


class _Search:
    """Gathers messages up to the bounds of an answer. All up to the seq `to` is looked at."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._bytes_left = REPAIR_BYTES_MAX
        self.messages: list[Message] = []
        self.unreadable: list[int] = []
        self.to = 0

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0 or len(self.messages) >= REPAIR_MESSAGES_MAX

    def look(self, seqs: range) -> None:
        """Look at a range, as far as there is room."""
        seq = seqs.start
        while seq < seqs.stop and not self.is_full:
            count = min(REPAIR_MESSAGES_MAX - len(self.messages), seqs.stop - seq)
            try:
                batch = self._log.messages((), seq, count, self._bytes_left)
            except (StoreError, OSError):
                # The disk does not even say which messages there are: it is as if this node had lost them.
                self.unreadable += seqs[seq - seqs.start :][:REPAIR_MESSAGES_MAX]
                seq = self.unreadable[-1] + 1
                break
            self.unreadable += [one for one in batch.unreadable if one < seqs.stop]
            for message in batch.messages:
                if message.seq >= seqs.stop:
                    break
                self.messages.append(message)
                self._bytes_left -= len(message.data)
            # Behind its last message this node has nothing to look at.
            seq = seqs.stop if batch.next_seq > self._log.last_seq else max(batch.next_seq, seq + 1)
        self.to = min(seq, seqs.stop) - 1


def _apart(ranges: Sequence[range]) -> list[range]:
    """Ranges in the order of their beginnings, without what two of them have in common."""
    found: list[range] = []
    for seqs in ranges:
        start = max(seqs.start, found[-1].stop) if found else seqs.start
        if start < seqs.stop:
            found.append(range(start, seqs.stop))
    return found
