"""Whether a stream takes an atomic batch: all of its messages, or none.

The checks are those of publish_rules.py, in the order nats-server has them for batches, each message judged
as if those before it were stored. What would have to look into the batch itself is refused: an expected last
seq but on the first message; an expectation about, or a rollup of, a subject that an earlier message is on.

Rules: nothing is changed here; time is an argument.
"""

from __future__ import annotations

from typing import NamedTuple

from edged.core import api_errors, schedules
from edged.core.api_errors import ApiError
from edged.core.dedupe import Dedupe
from edged.core.message_log import MessageLog, Place
from edged.core.publish_headers import (
    EXPECTED_LAST_MESSAGE_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT,
    EXPECTED_LAST_SUBJECT_SEQ,
    INCREMENT,
    MESSAGE_ID,
    ROLLUP,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    SCHEDULE,
    Fields,
    number_of,
)
from edged.core.publish_rules import PublishRules, last_block_of, last_seq_of, source_refusal, ttl_of
from edged.core.stream_limits import StreamLimits


class Member(NamedTuple):
    """A message of a batch. A tuple: there is one per message."""

    ts_ns: int
    subject: bytes
    header_bytes: int
    data: bytes
    place: Place
    fields: Fields


class BatchCheck:
    """The checks of one batch."""

    __slots__ = (
        *("_dedupe", "_limits", "_log", "_rules"),
        *("_bytes", "_expected", "_ids", "_last_blocks", "_totals"),
    )

    def __init__(self, rules: PublishRules, limits: StreamLimits, log: MessageLog, dedupe: Dedupe) -> None:
        self._rules = rules
        self._limits = limits
        self._log = log
        self._dedupe = dedupe
        # What the messages looked at so far bring: ids, the number of each subject and its last header block.
        self._ids: set[bytes] = set()
        self._totals: dict[bytes, int] = {}
        self._last_blocks: dict[bytes, bytes] = {}
        self._bytes = 0
        # The last seqs of subjects that were asked for.
        self._expected: dict[bytes, int] = {}

    def refusal(self, members: list[Member]) -> ApiError | None:
        """Why the batch is refused; None if all of it can be stored."""
        rules = self._rules
        if rules.is_sealed:
            return api_errors.STREAM_SEALED
        if any(0 <= rules.message_bytes_max < len(member.data) for member in members):
            return api_errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM
        for position, member in enumerate(members):
            error = self._member_refusal(position, member)
            if error is not None:
                return error
        return None

    def _member_refusal(self, position: int, member: Member) -> ApiError | None:
        rules = self._rules
        fields = member.fields
        if fields.get(EXPECTED_LAST_MESSAGE_ID):
            return api_errors.atomic_publish_unsupported_header_batch(EXPECTED_LAST_MESSAGE_ID.decode())
        error = (
            rules.size_refusal(member.header_bytes, len(member.data))
            or rules.counter_refusal(fields, is_internal=False)
            or rules.stream_refusal(fields)
            or self._ttl_refusal(fields)
            or self._id_refusal(member)
            or source_refusal(fields)
        )
        if error is None and rules.is_counter and not fields.get(INCREMENT):
            error = api_errors.MESSAGE_INCREMENT_MISSING
        return (
            error
            or self._last_seq_refusal(position, fields)
            or self._last_subject_seq_refusal(member)
            or self._schedule_refusal(member)
            or self._rollup_refusal(position, member)
            or self._room_refusal(position, member)
        )

    def _ttl_refusal(self, fields: Fields) -> ApiError | None:
        ttl_s = ttl_of(fields)
        if ttl_s is not None and (not ttl_s or self._rules.allows_ttl):
            return None
        return api_errors.MESSAGE_TTL_INVALID if self._rules.allows_ttl else api_errors.MESSAGE_TTL_DISABLED

    def _id_refusal(self, member: Member) -> ApiError | None:
        message_id = member.fields.get(MESSAGE_ID)
        if not message_id:
            return None
        if message_id in self._ids or self._dedupe.seen(message_id, member.ts_ns) is not None:
            return api_errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE
        self._ids.add(message_id)
        return None

    def _last_seq_refusal(self, position: int, fields: Fields) -> ApiError | None:
        wanted = fields.get(EXPECTED_LAST_SEQ)
        if not wanted:
            return None
        last_seq = self._log.last_seq + position
        if number_of(wanted) != last_seq:
            return api_errors.stream_wrong_last_sequence(last_seq)
        return api_errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT if position else None

    def _last_subject_seq_refusal(self, member: Member) -> ApiError | None:
        fields = member.fields
        wanted = fields.get(EXPECTED_LAST_SUBJECT_SEQ)
        subject = fields.get(EXPECTED_LAST_SUBJECT)
        if not wanted:
            return api_errors.STREAM_EXPECTED_LAST_SEQUENCE_PER_SUBJECT_INVALID if subject else None
        subject = subject or member.subject
        if subject in self._totals:
            return api_errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT
        found = self._expected.get(subject)
        if found is None:
            found = self._expected[subject] = last_seq_of(self._log, subject)
        return None if found == number_of(wanted) else api_errors.stream_wrong_last_sequence(found)

    def _schedule_refusal(self, member: Member) -> ApiError | None:
        block = member.data[: member.header_bytes]
        if SCHEDULE not in block:
            return None
        return schedules.refusal(
            member.subject, block, self._rules.schedules, member.ts_ns, self._last_block_of
        )

    def _last_block_of(self, subject: bytes) -> bytes | None:
        block = self._last_blocks.get(subject)
        return last_block_of(self._log, subject) if block is None else block

    def _rollup_refusal(self, position: int, member: Member) -> ApiError | None:
        rollup = member.fields.get(ROLLUP, b"").lower()
        error = self._rules.rollup_refusal(member.fields, is_internal=False) if rollup else None
        if error is None and rollup == ROLLUP_SUBJECT and member.subject in self._totals:
            error = api_errors.stream_rollup_failed("batch rollup sub invalid")
        elif error is None and rollup == ROLLUP_ALL and position:
            error = api_errors.stream_rollup_failed("batch rollup all invalid")
        return error

    def _room_refusal(self, position: int, member: Member) -> ApiError | None:
        subject = member.subject
        self._totals[subject] = of_subject = self._totals.get(subject, 0) + 1
        self._last_blocks[subject] = member.data[: member.header_bytes]
        self._bytes += self._log.counted_bytes(len(subject), member.header_bytes, len(member.data))
        if not self._limits.is_new_refused:
            return None
        added = (position + 1, self._bytes, of_subject)
        return self._limits.batch_refusal(self._log, subject, added, bool(member.fields.get(ROLLUP)))
