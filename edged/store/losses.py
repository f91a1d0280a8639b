"""Messages of a log that are lost: which of them somebody may still have, and what became of those.

Rules: a seq is lost until its message is put back, until it is known that there is none to be had back, or
until a command deletes it. What nobody has any more stays listed, with NOWHERE as the reason, and is not
asked for again.
"""

from __future__ import annotations

from typing import Final

from edged.core.message import Message
from edged.store.message_index import LostRange
from edged.store.message_reads import MessageReads

NOWHERE: Final = "no other node has it either"


class Losses(MessageReads):
    """A log that knows what it lacks. `missing_count`: how many messages are lost that somebody may have."""

    def __init__(self) -> None:
        super().__init__()
        self.missing_count = 0

    def refill(self, message: Message, message_bytes: int) -> str | None:
        """Put a message back that is lost or cannot be read; if it is neither, why it is not wanted."""
        seq = message.seq
        is_lost = any(lost.first_seq <= seq <= lost.last_seq for lost in self.lost)
        reason = super().refill(message, message_bytes)
        if reason is None and is_lost:
            self.missing_count = max(self.missing_count - 1, 0)
        return reason

    @property
    def is_lacking(self) -> bool:
        """Whether messages are lost that somebody may have."""
        return bool(self.lost) and any(lost.reason != NOWHERE for lost in self.lost)

    def lacking(self) -> list[range]:
        """The seqs of those messages; among them may be some that never had one."""
        return [range(lost.first_seq, lost.last_seq + 1) for lost in self.lost if lost.reason != NOWHERE]

    def settle_lost(self, first_seq: int, last_seq: int, is_lost: bool) -> None:
        """Nobody has the messages that are lost between these seqs: for good, or because there are none."""
        found: list[LostRange] = []
        for lost in self.lost:
            start, stop = max(lost.first_seq, first_seq), min(lost.last_seq, last_seq)
            if start > stop or lost.reason == NOWHERE:
                found.append(lost)
                continue
            if lost.first_seq < start:
                found.append(lost._replace(last_seq=start - 1))
            if is_lost:
                found.append(LostRange(start, stop, NOWHERE))
                self.missing_count = max(self.missing_count - (stop - start + 1), 0)
            if lost.last_seq > stop:
                found.append(lost._replace(first_seq=stop + 1))
        self.lost = sorted(found)
        if not self.is_lacking:
            self.missing_count = 0
