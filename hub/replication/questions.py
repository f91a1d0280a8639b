"""Between a node that lost messages and one that may have them: a question by seqs, and the answer.

A question is `{group, stream, applied, ranges}`: the stream's id, how far the asking node has applied the
group, and which seqs it lacks, `[[first, last], ...]` in order. The answer is `{applied, last_seq, to,
messages, lost, unsure}`: how far the other node is, up to which seq it answers here, the messages, each
beside its checksum, which ranges it has lost itself, and of which it cannot tell now. Of every other seq up
to `to` and `last_seq` it has no message.

A question without ranges only says that the copy of a node began anew.

Rules: an answer is bounded, and says how far it goes. What comes from another node is checked here, once,
and is typed behind that. A message whose checksum is not its own is not believed, and neither is the rest of
that answer. Only what was read and is damaged is lost: what the disk does not give just now, a file that
cannot be opened for example, may be there another time, and nobody is to give it up for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edged.core.message import Message
from edged.core.repair_records import checksum_of, message_of
from edged.store.errors import StoreError, is_damage
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
    unsure: tuple[range, ...] = ()

    def document(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "applied": self.applied,
            "last_seq": self.last_seq,
            "to": self.to,
            "messages": [[*message, checksum_of(message)] for message in self.messages],
            "lost": [[seqs.start, seqs.stop - 1] for seqs in self.lost],
            "unsure": [[seqs.start, seqs.stop - 1] for seqs in self.unsure],
        }

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Answer:
        """The reverse. Raises ValueError, also when a checksum is wrong."""
        match document:
            case {"applied": int() as applied, "last_seq": int() as last_seq, "to": int() as to}:
                messages = tuple(map(_checked, _listed(document.get("messages"))))
                lost, unsure = (_ranges(document.get(key), None) for key in ("lost", "unsure"))
                return cls(applied, last_seq, to, messages, lost, unsure)
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
    messages = tuple(sorted(search.messages))
    lost_ranges = tuple(_apart([*lost, *search.lost]))
    return Answer(
        entry.group.applied, log.last_seq, search.to, messages, lost_ranges, tuple(_apart(search.unsure))
    )


class _Search:
    """Gathers messages up to the bounds of an answer. All up to the seq `to` is looked at."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._bytes_left = REPAIR_BYTES_MAX
        self.is_full = False
        self.messages: list[Message] = []
        # What is damaged here, and what the disk does not give just now.
        self.lost: list[range] = []
        self.unsure: list[range] = []
        self.to = 0

    def look(self, seqs: range) -> None:
        """Look at a range, as far as there is room."""
        seq = seqs.start
        while seq < seqs.stop and not self.is_full:
            count = min(REPAIR_MESSAGES_MAX - len(self.messages), seqs.stop - seq)
            try:
                batch = self._log.messages((), seq, count, self._bytes_left)
            except (StoreError, OSError):
                # Not even which messages there are can be read everywhere: where, is seen one by one. That
                # takes its time, so it ends the answer.
                seq += self._look_closely(range(seq, min(seq + REPAIR_MESSAGES_MAX, seqs.stop)))
                self.is_full = True
                break
            for message in batch.messages:
                if message.seq >= seqs.stop:
                    break
                self._take(message)
            unreadable = [one for one in batch.unreadable if one < seqs.stop]
            self._leave_open(unreadable[self._look_closely(unreadable) :])
            # Behind its last message this node has nothing to look at.
            seq = seqs.stop if batch.next_seq > self._log.last_seq else max(batch.next_seq, seq + 1)
        self.to = min(seq, seqs.stop) - 1

    def _look_closely(self, seqs: Sequence[int]) -> int:
        """Look at messages one by one while there is room; at how many."""
        for place, seq in enumerate(seqs):
            if self.is_full:
                return place
            try:
                message = self._log.get(seq)
            except (StoreError, OSError) as error:
                if not is_damage(error):
                    # A disk may take long to refuse something, so the others are not tried.
                    self._leave_open(seqs[place:])
                    break
                self.lost.append(range(seq, seq + 1))
            else:
                if message is not None:
                    self._take(message)
        return len(seqs)

    def _leave_open(self, seqs: Sequence[int]) -> None:
        self.unsure += (range(seq, seq + 1) for seq in seqs)

    def _take(self, message: Message) -> None:
        self.messages.append(message)
        self._bytes_left -= len(message.data)
        self.is_full = self._bytes_left <= 0 or len(self.messages) >= REPAIR_MESSAGES_MAX


def _apart(ranges: Iterable[range]) -> list[range]:
    """Ranges in the order of their beginnings, without what two of them have in common."""
    found: list[range] = []
    for seqs in sorted(ranges, key=lambda one: one.start):
        start = max(seqs.start, found[-1].stop) if found else seqs.start
        if start < seqs.stop:
            found.append(range(start, seqs.stop))
    return found
