"""What a store must hold after some operations, computed in the most naive way, and the check against it.

The rule of the check: after a crash each stream is as if all acknowledged operations and some first part of
the unacknowledged ones had been carried out, in the order in which they were asked for. So nothing that was
acknowledged is missing or changed, nothing is there that nobody asked for, and no order is turned around.
Deduplication cannot be seen from outside; the load publishes ids again and checks the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tests.disks.operations import (
    Acknowledge,
    ConfigureStream,
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    Deliver,
    Done,
    Operation,
    Outcome,
    Publish,
    Purge,
    RemoveStream,
    Stored,
)


class ViolationError(Exception):
    """The store broke its promise."""


@dataclass(slots=True)
class ConsumerState:
    """Invariant: floor < every pending seq <= delivered. An ack moves the floor, a delivery does not."""

    floor: int = 0
    delivered: int = 0
    pending: set[int] = field(default_factory=set)

    def copy(self) -> ConsumerState:
        return ConsumerState(self.floor, self.delivered, set(self.pending))

    def acknowledge(self, seq: int) -> None:
        """Only what waits the longest holds the floor back."""
        is_lowest = seq == min(self.pending)
        self.pending.remove(seq)
        if not self.pending:
            self.floor = self.delivered
        elif is_lowest:
            self.floor = min(self.pending) - 1

    def pass_over(self, seq: int) -> None:
        """Nothing up to here is left to be delivered."""
        self.delivered = max(self.delivered, seq)
        if not self.pending:
            self.floor = self.delivered


@dataclass(slots=True)
class StreamState:
    """What can be seen of a stream from outside, and its message ids."""

    revision: int = 0
    last_seq: int = 0
    messages: dict[int, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    """By seq: subject, message id, payload."""
    consumers: dict[str, ConsumerState] = field(default_factory=dict)
    message_ids: dict[bytes, int] = field(default_factory=dict, compare=False)

    def copy(self) -> StreamState:
        consumers = {name: consumer.copy() for name, consumer in self.consumers.items()}
        return StreamState(
            self.revision, self.last_seq, dict(self.messages), consumers, dict(self.message_ids)
        )

    def packed(self) -> list[Any]:
        """As a list that msgpack takes."""
        consumers = [
            [name, one.floor, one.delivered, sorted(one.pending)] for name, one in self.consumers.items()
        ]
        return [
            self.revision,
            self.last_seq,
            [[seq, *self.messages[seq]] for seq in self.messages],
            consumers,
        ]

    @classmethod
    def unpacked(cls, fields: list[Any]) -> Self:
        """The opposite of packed(), without the message ids."""
        revision, last_seq, messages, consumers = fields
        by_name = {
            name: ConsumerState(floor, delivered, set(pending))
            for name, floor, delivered, pending in consumers
        }
        return cls(revision, last_seq, {seq: tuple(rest) for seq, *rest in messages}, by_name)


class Model:
    """All streams of a store."""

    def __init__(self) -> None:
        self.streams: dict[int, StreamState] = {}

    def copy(self) -> Model:
        model = Model()
        model.streams = {number: stream.copy() for number, stream in self.streams.items()}
        return model

    def apply(self, operation: Operation) -> Outcome:
        """Carry out an operation and say what the store has to answer."""
        if isinstance(operation, CreateStream):
            self.streams[operation.stream] = StreamState(operation.revision)
            return Done()
        if isinstance(operation, RemoveStream):
            del self.streams[operation.stream]
            return Done()
        return _apply(self.streams[operation.stream], operation)


def _apply(stream: StreamState, operation: Operation) -> Outcome:
    match operation:
        case Publish(_, subject, message_id, payload):
            if message_id and message_id in stream.message_ids:
                return Stored(stream.message_ids[message_id], True)
            stream.last_seq += 1
            stream.messages[stream.last_seq] = (subject, message_id, payload)
            if message_id:
                stream.message_ids[message_id] = stream.last_seq
            return Stored(stream.last_seq, False)
        case DeleteMessage(_, seq):
            del stream.messages[seq]
        case Purge(_, below):
            for seq in [seq for seq in stream.messages if seq < below]:
                del stream.messages[seq]
            for consumer in stream.consumers.values():
                consumer.pass_over(_start(stream) - 1)
        case ConfigureStream(_, revision):
            stream.revision = revision
        case CreateConsumer(_, name):
            start = _start(stream) - 1
            stream.consumers[name] = ConsumerState(start, start)
        case Deliver(_, name, seqs):
            consumer = stream.consumers[name]
            consumer.pending |= set(seqs)
            consumer.delivered = max(seqs)
        case Acknowledge(_, name, seq):
            stream.consumers[name].acknowledge(seq)
    return Done()


def _start(stream: StreamState) -> int:
    """The first message that there is, or the next one."""
    return min(stream.messages, default=stream.last_seq + 1)


def recovered_model(
    acknowledged: Model, in_flight: Iterable[Operation], found: Mapping[int, StreamState]
) -> Model:
    """The model of what was found after a crash. ViolationError when it cannot have come about."""
    by_stream: dict[int, list[Operation]] = {}
    for operation in in_flight:
        by_stream.setdefault(operation.stream, []).append(operation)
    model = Model()
    for stream in sorted(acknowledged.streams.keys() | by_stream.keys() | found.keys()):
        candidate = Model()
        if stream in acknowledged.streams:
            candidate.streams[stream] = acknowledged.streams[stream].copy()
        operations = by_stream.get(stream, [])
        _advance_until_equal(candidate, stream, operations, found.get(stream))
        model.streams |= candidate.streams
    return model


def _advance_until_equal(
    candidate: Model, stream: int, operations: list[Operation], found: StreamState | None
) -> None:
    difference = differences(candidate.streams.get(stream), found)
    for operation in operations:
        if difference is None:
            return
        try:
            candidate.apply(operation)
        except KeyError:
            break  # It builds on one that was refused, so it cannot have been carried out.
        if candidate.streams.get(stream) == found:
            return
    if difference is not None:
        last = differences(candidate.streams.get(stream), found)
        raise ViolationError(
            f"stream {stream}: compared with what was acknowledged: {difference};"
            f" and with {len(operations)} more operations that were asked for: {last}"
        )


def differences(wanted: StreamState | None, found: StreamState | None) -> str | None:
    """In words, in what two states differ; None if they do not."""
    if wanted == found:
        return None
    if wanted is None or found is None:
        return "it is there" if wanted is None else "it is gone"
    parts = []
    for name in ("revision", "last_seq"):
        if getattr(wanted, name) != getattr(found, name):
            parts.append(f"{name} is {getattr(found, name)}, not {getattr(wanted, name)}")
    shared = wanted.messages.keys() & found.messages.keys()
    for what, seqs in (
        ("lost", wanted.messages.keys() - shared),
        ("invented or back again", found.messages.keys() - shared),
        ("changed", {seq for seq in shared if wanted.messages[seq] != found.messages[seq]}),
    ):
        if seqs:
            parts.append(f"{len(seqs)} messages {what}: {_some(seqs)}")
    for name in sorted(wanted.consumers.keys() | found.consumers.keys()):
        before, after = wanted.consumers.get(name), found.consumers.get(name)
        if before != after:
            parts.append(f"consumer {name} is {_consumer_text(after)}, not {_consumer_text(before)}")
    return "; ".join(parts)


def _some(seqs: Iterable[int]) -> str:
    numbers = sorted(seqs)
    return ", ".join(map(str, numbers[:5])) + (f" ... {numbers[-1]}" if len(numbers) > 5 else "")


def _consumer_text(consumer: ConsumerState | None) -> str:
    if consumer is None:
        return "gone"
    return f"at floor {consumer.floor} of {consumer.delivered}, {len(consumer.pending)} pending"
