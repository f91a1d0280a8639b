"""What an archive of a stream holds besides its messages, as typed values, and the bounds for reading one.

Rules: documents come from outside. They become typed values here, once; ArchiveError is the only failure.
Invariant: ack_floor.stream_seq < every pending seq <= delivered.stream_seq.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

# Above this a seq is no seq but damage; the store keeps it in a signed number, too.
SEQ_MAX: Final = (1 << 63) - 1


class ArchiveError(ValueError):
    """This is no archive of a stream, a damaged or cut one, or one that exceeds the bounds."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may cost whoever reads it."""

    # All that comes out of the compression, headers and padding included.
    output_bytes_max: int
    # Header block and payload of one message.
    message_bytes_max: int
    # The state, and configuration and state of all consumers together: these are kept in memory.
    documents_bytes_max: int = 32 * 1024 * 1024
    consumers_max: int = 65_536
    # Only for archives of nats-server up to 2.14: its index of the stream, which is read as a whole, and how
    # many groups of 512 neighbouring seqs there may be, each of which costs up to 200 bytes.
    index_bytes_max: int = 128 * 1024 * 1024
    pages_max: int = 1 << 19


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """The stream's own account of itself. `first_seq` is `last_seq` + 1 when it holds no message."""

    messages: int
    size_bytes: int
    first_seq: int
    last_seq: int
    consumers: int

    @classmethod
    def parse(cls, document: dict[str, Any]) -> ArchiveState:
        """From the JSON of `state.json`, which is that of the stream's info."""
        state = cls(
            messages=_number(document, "messages"),
            size_bytes=_number(document, "bytes"),
            first_seq=max(1, _number(document, "first_seq")),
            last_seq=_number(document, "last_seq"),
            consumers=_number(document, "consumer_count"),
        )
        if state.first_seq > state.last_seq + 1:
            raise ArchiveError(f"the state begins at {state.first_seq} and ends at {state.last_seq}")
        return state


class SeqPair(NamedTuple):
    """A place in the deliveries of a consumer and the message that was delivered there."""

    consumer_seq: int
    stream_seq: int


class PendingMessage(NamedTuple):
    """A delivery that waits for its acknowledgement."""

    consumer_seq: int
    ts_ns: int


@dataclass(frozen=True, slots=True)
class ConsumerPosition:
    """How far a consumer got. The keys of `pending` and `redelivered` are seqs of the stream."""

    delivered: SeqPair
    ack_floor: SeqPair
    pending: dict[int, PendingMessage] = field(default_factory=dict)
    # How often a message was delivered again.
    redelivered: dict[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> ConsumerPosition:
        """From the JSON that nats-server writes; what is missing there is empty."""
        pending = {
            _seq(key): PendingMessage(_number(value, "Sequence"), _number(value, "Timestamp"))
            for key, value in _object(document, "pending").items()
        }
        redelivered = _object(document, "redelivered")
        return cls.checked(
            delivered=_pair(_object(document, "delivered")),
            ack_floor=_pair(_object(document, "ack_floor")),
            pending=pending,
            redelivered={_seq(key): _number(redelivered, key) for key in redelivered},
        )

    @classmethod
    def checked(
        cls,
        delivered: SeqPair,
        ack_floor: SeqPair,
        pending: dict[int, PendingMessage],
        redelivered: dict[int, int],
    ) -> ConsumerPosition:
        """From what an archive says. What is settled or was never delivered does not wait for anything."""
        if ack_floor.stream_seq > delivered.stream_seq or ack_floor.consumer_seq > delivered.consumer_seq:
            raise ArchiveError("a consumer has acknowledged more than it was given")
        waiting = {seq: pending[seq] for seq in pending if ack_floor.stream_seq < seq <= delivered.stream_seq}
        again = {seq: count for seq, count in redelivered.items() if seq in waiting}
        return cls(delivered, ack_floor, waiting, again)

    def document(self) -> dict[str, Any]:
        """As nats-server writes and reads it."""
        document: dict[str, Any] = {
            "delivered": self.delivered._asdict(),
            "ack_floor": self.ack_floor._asdict(),
        }
        if self.pending:
            document["pending"] = {
                str(seq): {"Sequence": wait.consumer_seq, "Timestamp": wait.ts_ns}
                for seq, wait in self.pending.items()
            }
        if self.redelivered:
            document["redelivered"] = {str(seq): count for seq, count in self.redelivered.items()}
        return document


@dataclass(frozen=True, slots=True)
class ArchivedConsumer:
    """A consumer of the stream. `config` is its JSON as it is in the archive, not checked."""

    name: str
    config: dict[str, Any]
    position: ConsumerPosition
    # Only in archives of nats-server up to 2.14.
    created_ns: int | None = None

    @classmethod
    def parse(cls, name: str, document: dict[str, Any]) -> ArchivedConsumer:
        """From the JSON of `consumers/<name>`."""
        if not _object(document, "config"):
            raise ArchiveError(f"the consumer {name!r} has no configuration")
        return cls(name, _object(document, "config"), ConsumerPosition.parse(_object(document, "state")))

    def document(self) -> dict[str, Any]:
        """The JSON of `consumers/<name>`."""
        return {"config": self.config, "state": self.position.document()}


@dataclass(frozen=True, slots=True)
class ArchiveEnd:
    """Everything was read and the archive is whole."""

    last_seq: int


def parse_document(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object; ArchiveError names `what` was to be one."""
    try:
        document = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{what} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ArchiveError(f"{what} is no JSON object")
    return document


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _object(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ArchiveError(f"{key!r} is no JSON object")
    return value


def _number(document: Any, key: str) -> int:
    """What is missing is zero, as where it comes from."""
    if not isinstance(document, dict):
        raise ArchiveError(f"{key!r} is looked for in what is no JSON object")
    value = document.get(key, 0)
    if type(value) is not int or not 0 <= value <= SEQ_MAX:
        raise ArchiveError(f"{key!r} is no number of the right kind")
    return value


def _seq(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not 0 < int(text) <= SEQ_MAX:
        raise ArchiveError("a seq of a consumer is no number")
    return int(text)


def _pair(document: dict[str, Any]) -> SeqPair:
    return SeqPair(_number(document, "consumer_seq"), _number(document, "stream_seq"))
