"""Whether a stream takes a message: the checks on its headers and size, in the order nats-server has them.

The order is part of the protocol, because a client sees the first refusal only: sealed, sizes, counter
headers, expected stream, TTL allowed, expected last seq of the subject, expected last seq, schedule headers,
the source header; then (the machine asks whether the id was seen) the expected last id, rollup, the missing
increment; then (the machine asks for interest) the TTL itself; then room. nats-server 2.15.1 was asked: up to
2.15.0 it looked at the sizes behind the increment.

Rules: nothing is changed here. Time is an argument. A message is judged as it was submitted: subjects are
transformed, and the bodies of counters final. What was made by a server (INTERNAL) is held to fewer rules.
Which time zones exist is not asked here, because the answer may differ between machines: whoever submits a
schedule has asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final, Protocol

from edged.core import api_errors, schedules
from edged.core.api_errors import ApiError
from edged.core.gotext import quote
from edged.core.message import Message
from edged.core.message_ttl import UNSET_S, parse_ttl_s
from edged.core.publish_headers import (
    EXPECTED_LAST_MESSAGE_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_STREAM,
    INCREMENT,
    ROLLUP,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    SCHEDULE,
    STREAM_SOURCE,
    TTL,
    Fields,
    number_of,
)
from edged.core.schedules import ScheduleRules
from edged.core.subjects import is_literal

HEADER_BYTES_MAX: Final = 65_535
_INCREMENT: Final = re.compile(rb"[+-]?[0-9]+")
# What a counter cannot be combined with.
_NOT_WITH_INCREMENT: Final = (
    *(ROLLUP, EXPECTED_STREAM, EXPECTED_LAST_MESSAGE_ID),
    *(EXPECTED_LAST_SUBJECT, EXPECTED_LAST_SEQ, EXPECTED_LAST_SUBJECT_SEQ),
)


class LastMessages(Protocol):
    """What must be known of a log."""

    @property
    def last_seq(self) -> int: ...

    def has(self, seq: int) -> bool: ...

    def last_of(self, subject: bytes) -> int | None: ...

    def previous_matching(self, filters: Sequence[bytes], seq: int) -> int | None: ...

    def peek(self, seq: int) -> Message | None: ...


def last_seq_of(log: LastMessages, subject: bytes) -> int:
    """The seq of the last message on a subject, which may have wildcards; 0 without one."""
    if subject == b">":
        # As nats-server: the very last seq, and no other if its message is gone.
        return log.last_seq if log.has(log.last_seq) else 0
    if is_literal(subject):
        return log.last_of(subject) or 0
    return log.previous_matching((subject,), log.last_seq) or 0


def last_block_of(log: LastMessages, subject: bytes) -> bytes | None:
    """The header block of a subject's last message; None without a message."""
    seq = log.last_of(subject)
    message = None if seq is None else log.peek(seq)
    return None if message is None else message.data[: message.header_bytes]


def ttl_of(fields: Fields) -> int | None:
    """The TTL in seconds, None if there is one that is not valid; see message_ttl.py."""
    text = fields.get(TTL)
    if not text:
        return UNSET_S
    try:
        return parse_ttl_s(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class PublishRules:
    """What the configuration of a stream says about messages that come in."""

    name: bytes
    is_sealed: bool
    is_mirror: bool
    is_counter: bool
    is_by_interest: bool
    is_republished: bool
    allows_ttl: bool
    allows_rollup: bool
    # Header block and payload; -1 is any size.
    message_bytes_max: int
    # Of delete markers; 0: there are none.
    marker_ttl_ns: int
    schedules: ScheduleRules

    @classmethod
    def of(cls, config: dict[str, Any]) -> PublishRules:
        """From a stored configuration, in which what is missing has its default."""
        allows_ttl = bool(config.get("allow_msg_ttl"))
        subjects = tuple(subject.encode() for subject in config.get("subjects") or ())
        return cls(
            name=str(config.get("name", "")).encode(),
            is_sealed=bool(config.get("sealed")),
            is_mirror=bool(config.get("mirror")),
            is_counter=bool(config.get("allow_msg_counter")),
            is_by_interest=config.get("retention") == "interest",
            is_republished=bool(config.get("republish")),
            allows_ttl=allows_ttl,
            allows_rollup=bool(config.get("allow_rollup_hdrs")) and not config.get("deny_purge"),
            message_bytes_max=int(config.get("max_msg_size") or -1),
            marker_ttl_ns=int(config.get("subject_delete_marker_ttl") or 0),
            schedules=ScheduleRules(bool(config.get("allow_msg_schedules")), allows_ttl, subjects, _any_zone),
        )

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to decide about a message without headers, and nothing to tell of it."""
        is_decided = self.is_sealed or self.is_counter or self.is_by_interest or self.message_bytes_max >= 0
        return not is_decided and not self.is_republished

    # --- one message ---

    def early_refusal(
        self, fields: Fields, subject: bytes, block: bytes, log: LastMessages, ts_ns: int, is_internal: bool
    ) -> ApiError | None:
        """What is checked of the headers before the message id."""
        # Most fields are not there: to look for each is cheaper than to ask for it.
        error: ApiError | None = None
        if INCREMENT in fields:
            error = self.counter_refusal(fields, is_internal)
        if error is None and EXPECTED_STREAM in fields:
            error = self.stream_refusal(fields)
        if error is None and TTL in fields:
            error = self._ttl_disabled(fields, is_internal)
        if error is None and (EXPECTED_LAST_SUBJECT_SEQ in fields or EXPECTED_LAST_SUBJECT in fields):
            error = _wrong_last_subject_seq(fields, subject, log)
        if error is None and EXPECTED_LAST_SEQ in fields:
            error = _wrong_last_seq(fields, log.last_seq)
        if error is not None or is_internal:
            return error
        if SCHEDULE in block:
            error = schedules.refusal(
                subject, block, self.schedules, ts_ns, lambda name: last_block_of(log, name)
            )
        return error or (source_refusal(fields) if STREAM_SOURCE in fields else None)

    def late_refusal(self, fields: Fields, last_message_id: bytes, is_internal: bool) -> ApiError | None:
        """What is checked after the message id."""
        if EXPECTED_LAST_MESSAGE_ID in fields:
            wanted = fields[EXPECTED_LAST_MESSAGE_ID]
            if wanted and wanted != last_message_id:
                return api_errors.stream_wrong_last_message_id(last_message_id.decode("utf-8", "replace"))
        if ROLLUP in fields:
            error = self.rollup_refusal(fields, is_internal)
            if error is not None:
                return error
        if self.is_counter and not fields.get(INCREMENT):
            return api_errors.MESSAGE_INCREMENT_MISSING
        return None

    # --- single checks, which atomic batches make in another order ---

    def counter_refusal(self, fields: Fields, is_internal: bool) -> ApiError | None:
        """Whether an increment is valid, and may stand here. Its payload was looked at before."""
        increment = fields.get(INCREMENT)
        if not increment:
            return None
        if _INCREMENT.fullmatch(increment) is None:
            return api_errors.MESSAGE_INCREMENT_INVALID
        if is_internal:
            return None
        if not self.is_counter:
            return api_errors.MESSAGE_INCREMENT_DISABLED
        if any(fields.get(key) for key in _NOT_WITH_INCREMENT):
            return api_errors.MESSAGE_INCREMENT_INVALID
        return None

    def stream_refusal(self, fields: Fields) -> ApiError | None:
        """Whether the message was meant for this stream."""
        wanted = fields.get(EXPECTED_STREAM)
        return api_errors.STREAM_NOT_MATCH if wanted and wanted != self.name else None

    def _ttl_disabled(self, fields: Fields, is_internal: bool) -> ApiError | None:
        if self.allows_ttl or is_internal:
            return None
        # One that is not valid is refused later, and for that.
        return api_errors.MESSAGE_TTL_DISABLED if ttl_of(fields) else None

    def rollup_refusal(self, fields: Fields, is_internal: bool) -> ApiError | None:
        """Whether a rollup is allowed and one of those there are."""
        rollup = fields.get(ROLLUP)
        if not rollup:
            return None
        if not self.allows_rollup and not is_internal:
            return api_errors.stream_rollup_failed("rollup not permitted")
        if rollup.lower() not in (ROLLUP_SUBJECT, ROLLUP_ALL):
            return api_errors.stream_rollup_failed(f"rollup value invalid: {quote(rollup.lower())}")
        return None

    def early_batch_refusal(self, data_bytes: int) -> ApiError | None:
        """What is checked of a member of an atomic batch before it is let into its batch."""
        if self.is_sealed:
            return api_errors.STREAM_SEALED
        is_too_large = 0 <= self.message_bytes_max < data_bytes
        return api_errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM if is_too_large else None

    def size_refusal(self, header_bytes: int, data_bytes: int) -> ApiError | None:
        """Whether the message is too large; `data_bytes` is header block and payload."""
        if 0 <= self.message_bytes_max < data_bytes:
            return api_errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM
        if header_bytes > HEADER_BYTES_MAX:
            return api_errors.STREAM_HEADER_EXCEEDS_MAXIMUM
        return None


def source_refusal(fields: Fields) -> ApiError | None:
    """Where a message comes from is said by servers only."""
    return api_errors.MESSAGE_SOURCE_HEADER_NOT_ALLOWED if fields.get(STREAM_SOURCE) else None


def _wrong_last_subject_seq(fields: Fields, subject: bytes, log: LastMessages) -> ApiError | None:
    wanted = fields.get(EXPECTED_LAST_SUBJECT_SEQ)
    if not wanted:
        if fields.get(EXPECTED_LAST_SUBJECT):
            return api_errors.STREAM_EXPECTED_LAST_SEQUENCE_PER_SUBJECT_INVALID
        return None
    found = last_seq_of(log, fields.get(EXPECTED_LAST_SUBJECT) or subject)
    return None if found == number_of(wanted) else api_errors.stream_wrong_last_sequence(found)


def _wrong_last_seq(fields: Fields, last_seq: int) -> ApiError | None:
    wanted = fields.get(EXPECTED_LAST_SEQ)
    if not wanted or number_of(wanted) == last_seq:
        return None
    return api_errors.stream_wrong_last_sequence(last_seq)


def _any_zone(_name: str) -> tzinfo:
    return UTC
