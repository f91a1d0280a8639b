"""How much a stream may hold, and what gives way at a limit: the oldest message, or the new one.

Rules: with `discard: new` nothing is removed for the sake of the whole stream; a message that finds no room
is refused. But on a subject that has as many messages as it may, a new one takes the place of the oldest,
unless `discard_new_per_subject` says otherwise, or there are not bytes enough and the oldest is smaller than
the new one. A limit of -1 or 0 is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from edged.core.api_errors import ApiError, stream_store_failed
from edged.core.message_log import MessageLog

TOO_MANY_MESSAGES: Final = stream_store_failed("maximum messages exceeded")
TOO_MANY_BYTES: Final = stream_store_failed("maximum bytes exceeded")
TOO_MANY_OF_SUBJECT: Final = stream_store_failed("maximum messages per subject exceeded")


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of one stream."""

    messages_max: int
    bytes_max: int
    messages_per_subject_max: int
    # Whether a new message may find no room.
    is_new_refused: bool
    is_new_of_subject_refused: bool
    # Whether the oldest messages of the stream go when there are too many.
    is_old_dropped: bool

    @classmethod
    def of(cls, config: dict[str, Any]) -> StreamLimits:
        """From a stored configuration."""
        messages_max, bytes_max = int(config.get("max_msgs", -1)), int(config.get("max_bytes", -1))
        is_limited = messages_max > 0 or bytes_max > 0
        is_new_of_subject_refused = bool(config.get("discard_new_per_subject"))
        is_new_refused = config.get("discard") == "new" and (is_limited or is_new_of_subject_refused)
        return cls(
            messages_max,
            bytes_max,
            int(config.get("max_msgs_per_subject", -1)),
            is_new_refused,
            is_new_refused and is_new_of_subject_refused,
            is_limited and not is_new_refused,
        )

    def refusal(self, log: MessageLog, subject: bytes, size: int, is_rollup: bool) -> ApiError | None:
        """Why a message of so many bytes finds no room, where new ones are refused."""
        is_replacing = 0 < self.messages_per_subject_max <= log.count_of(subject)
        if is_replacing and self.is_new_of_subject_refused and not is_rollup:
            return TOO_MANY_OF_SUBJECT
        if 0 < self.messages_max <= log.message_count and not is_replacing:
            return TOO_MANY_MESSAGES
        if 0 < self.bytes_max < log.bytes + size:
            oldest = log.first_of(subject) if is_replacing else None
            if oldest is None or (log.bytes_of(oldest) or 0) < size:
                return TOO_MANY_BYTES
        return None

    def batch_refusal(
        self, log: MessageLog, subject: bytes, added: tuple[int, int, int], is_rollup: bool
    ) -> ApiError | None:
        """The same for a member of an atomic batch, which replaces nothing.

        `added` is what the batch has so far, with this member: messages, bytes, messages of this subject.
        """
        messages, size, of_subject = added
        if 0 < self.messages_max < log.message_count + messages:
            return TOO_MANY_MESSAGES
        if 0 < self.bytes_max < log.bytes + size:
            return TOO_MANY_BYTES
        if not self.is_new_of_subject_refused or is_rollup:
            return None
        is_full = 0 < self.messages_per_subject_max < log.count_of(subject) + of_subject
        return TOO_MANY_OF_SUBJECT if is_full else None

    def keep(self, log: MessageLog) -> None:
        """Remove the oldest messages while there are too many; called where `is_old_dropped`."""
        while log.message_count and (
            0 < self.messages_max < log.message_count or 0 < self.bytes_max < log.bytes
        ):
            log.drop_first()

    def keep_subject(self, log: MessageLog, subject: bytes) -> list[int]:
        """Remove the oldest messages of a subject while it has too many; called where there is a limit."""
        removed = []
        for _ in range(log.count_of(subject) - self.messages_per_subject_max):
            seq = log.first_of(subject)
            assert seq is not None, subject
            log.remove(seq)
            removed.append(seq)
        return removed

    def keep_all(self, log: MessageLog) -> None:
        """Make everything fit, after the limits changed."""
        if self.messages_per_subject_max > 0:
            for subject, count in list(log.subjects(())):
                if count > self.messages_per_subject_max:
                    self.keep_subject(log, subject)
        if self.is_old_dropped:
            self.keep(log)
