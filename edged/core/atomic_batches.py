"""Atomic batches before their commit: members wait here, and at the commit all go to the stream in one piece.

A member names its batch in `Nats-Batch-Id` and its place, from 1, in `Nats-Batch-Sequence`. The last one
has `Nats-Batch-Commit`: `1` when it is stored itself, `eob` when it only says that the batch is complete.

Rules: messages in, decisions out; time is an argument, and whoever owns the table asks expired() before it
passes a member with the same time. Nothing here looks at the stream: whether the messages of a commit fit it
is decided when they are applied, all of them or none. The checks are in nats-server's order.
Invariants: what is open here is what it has counted in `OpenBatches`; batches are in the order of their last
member, so those that idled too long come first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from edged.core import gotext, header_edits, headers
from edged.core.api_errors import (
    ATOMIC_PUBLISH_DISABLED,
    ATOMIC_PUBLISH_INCOMPLETE_BATCH,
    ATOMIC_PUBLISH_INVALID_BATCH_COMMIT,
    ATOMIC_PUBLISH_INVALID_BATCH_ID,
    ATOMIC_PUBLISH_MISSING_SEQUENCE,
    ATOMIC_PUBLISH_TOO_MANY_INFLIGHT,
    INSUFFICIENT_RESOURCES,
    REQUIRED_API_LEVEL,
    ApiError,
    atomic_publish_too_large_batch,
)
from edged.core.batch_limits import BATCH_ID_BYTES_MAX, BatchLimits, OpenBatches, api_level_missing
from edged.core.frames import MORE
from edged.core.wire import Publish

BATCH_ID: Final = b"Nats-Batch-Id"
BATCH_SEQUENCE: Final = b"Nats-Batch-Sequence"
BATCH_COMMIT: Final = b"Nats-Batch-Commit"

_REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
_SEQUENCE_MAX: Final = 2**64 - 1

Reason = Literal["timeout", "large", "incomplete", "unsupported"]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A batch was given up; the advisory `stream_batch_abandoned` says so and why."""

    batch_id: bytes
    reason: Reason


@dataclass(frozen=True, slots=True)
class Staged:
    """The member waits for the commit: the answer to it is an empty message."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The answer to the member is this error. `abandoned` is what is to be announced besides."""

    error: ApiError
    abandoned: Abandoned | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The batch is complete: submit these in one piece; the outcome of the last one is that of the batch.

    All but the last carry MORE in their header bytes. Only the last has a reply: what to answer there once
    the outcome is known is a PubAck with ack_fields(), or the error.
    """

    batch_id: bytes
    messages: list[Publish]


Decision = Staged | Rejected | Commit

_STAGED: Final = Staged()


@dataclass(slots=True)
class _Batch:
    """Members so far, when it is given up, and what it takes of memory."""

    expires_ns: int = 0
    size: int = 0
    members: list[Publish] = field(default_factory=list)


class AtomicBatches:
    """The open batches of one stream."""

    __slots__ = ("_batches", "_limits", "_open")

    def __init__(self, limits: BatchLimits, open_batches: OpenBatches) -> None:
        self._limits = limits
        self._open = open_batches
        self._batches: dict[bytes, _Batch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def member(self, message: Publish, now_ns: int, allowed: bool = True) -> Decision:
        """Take a message whose batch_id() is not empty; `allowed` is the stream's `allow_atomic`."""
        subject, reply, header_bytes, data = message
        block = data[:header_bytes]
        batch_id = headers.value(block, BATCH_ID) or b""
        sequence = _sequence(headers.value(block, BATCH_SEQUENCE))
        if not allowed:
            return Rejected(ATOMIC_PUBLISH_DISABLED)
        if len(batch_id) > BATCH_ID_BYTES_MAX:
            return Rejected(ATOMIC_PUBLISH_INVALID_BATCH_ID)
        if sequence is None:
            return Rejected(ATOMIC_PUBLISH_MISSING_SEQUENCE)
        commit = headers.value(block, BATCH_COMMIT)
        # The end of the batch is no message of it. Nothing before place 0 is a very large batch.
        size = (sequence - (commit == b"eob")) % (_SEQUENCE_MAX + 1)
        batch = self._batches.get(batch_id)
        if batch is None:
            error = self._not_opened(sequence, size)
            if error is not None:
                return Rejected(error)
            batch = self._opened(batch_id)
        if commit not in (None, b"1", b"eob"):
            self._close(batch_id)
            return Rejected(ATOMIC_PUBLISH_INVALID_BATCH_COMMIT)
        required = headers.value(block, _REQUIRED_LEVEL)
        if api_level_missing(required, self._limits.api_level):
            return self._abandon(batch_id, REQUIRED_API_LEVEL, "unsupported")
        if required:
            block = header_edits.removed(block, _REQUIRED_LEVEL)
            message = (subject, reply, len(block), block + data[header_bytes:])
        if len(batch.members) + 1 != sequence or (sequence == 1 and commit == b"eob"):
            return self._abandon(batch_id, ATOMIC_PUBLISH_INCOMPLETE_BATCH, "incomplete")
        if size > self._limits.atomic_messages_max:
            error = atomic_publish_too_large_batch(self._limits.atomic_messages_max)
            return self._abandon(batch_id, error, "large")
        if commit is not None:
            return self._commit(batch_id, batch, message, commit == b"eob")
        return self._stage(batch_id, batch, message, now_ns)

    def expired(self, now_ns: int) -> list[Abandoned]:
        """Give up the batches that had no member for too long."""
        found: list[Abandoned] = []
        for batch_id, batch in self._batches.items():
            if batch.expires_ns > now_ns:
                break
            found.append(Abandoned(batch_id, "timeout"))
        for abandoned in found:
            self._close(abandoned.batch_id)
        return found

    def next_ns(self) -> int | None:
        """When to ask expired() again; None while nothing is open."""
        return next((batch.expires_ns for batch in self._batches.values()), None)

    def close(self) -> None:
        """Forget all batches, silently: the stream goes, or allows none any more."""
        for batch_id in list(self._batches):
            self._close(batch_id)

    def _not_opened(self, sequence: int, size: int) -> ApiError | None:
        """Why a batch that is not open is not opened."""
        limits = self._limits
        if sequence != 1:
            if size > limits.atomic_messages_max:
                return atomic_publish_too_large_batch(limits.atomic_messages_max)
            return ATOMIC_PUBLISH_INCOMPLETE_BATCH
        stream_is_full = len(self._batches) >= limits.atomic_per_stream_max
        server_is_full = self._open.atomic >= limits.atomic_per_server_max
        return ATOMIC_PUBLISH_TOO_MANY_INFLIGHT if stream_is_full or server_is_full else None

    def _opened(self, batch_id: bytes) -> _Batch:
        self._open.atomic += 1
        batch = self._batches[batch_id] = _Batch()
        return batch

    def _stage(self, batch_id: bytes, batch: _Batch, message: Publish, now_ns: int) -> Decision:
        size = len(message[0]) + len(message[3])
        if self._open.staged_bytes + size > self._limits.staged_bytes_max:
            return self._abandon(batch_id, INSUFFICIENT_RESOURCES, "large")
        batch.members.append((message[0], None, message[2] | MORE, message[3]))
        batch.size += size
        self._open.staged_bytes += size
        batch.expires_ns = now_ns + self._limits.idle_ns
        # Last in the order of idling.
        self._batches[batch_id] = self._batches.pop(batch_id)
        return _STAGED

    def _commit(self, batch_id: bytes, batch: _Batch, message: Publish, is_end: bool) -> Decision:
        self._close(batch_id)
        members = batch.members
        if is_end:
            # The last member becomes what it would have been with a commit of its own.
            subject, _, header_bytes, data = members.pop()
            header_bytes &= ~MORE
            block = headers.adding(data[:header_bytes], BATCH_COMMIT, b"1")
            message = (subject, message[1], len(block), block + data[header_bytes:])
        members.append(message)
        return Commit(batch_id, members)

    def _abandon(self, batch_id: bytes, error: ApiError, reason: Reason) -> Rejected:
        self._close(batch_id)
        return Rejected(error, Abandoned(batch_id, reason))

    def _close(self, batch_id: bytes) -> None:
        batch = self._batches.pop(batch_id)
        self._open.atomic -= 1
        self._open.staged_bytes -= batch.size


def batch_id(block: bytes) -> bytes:
    """The batch that a message is of, empty when it is of none."""
    return headers.value(block, BATCH_ID) or b""


def ack_fields(batch: bytes, count: int) -> bytes:
    """What the PubAck of a batch has behind its seq."""
    return b',"batch":%b,"count":%d' % (gotext.quote(batch).encode("utf-8", "surrogateescape"), count)


def _sequence(text: bytes | None) -> int | None:
    if not text or not text.isdigit() or len(text.lstrip(b"0")) > 20:
        return None
    sequence = int(text.lstrip(b"0") or b"0")
    return sequence if sequence <= _SEQUENCE_MAX else None
