"""A mixed load by seed: publishes with and without ids, deliveries, acks, deletions, configuration.

Rules: every operation is valid in the state that all operations before it lead to, so the one right outcome
of each is known when it is made. Messages go only after every consumer of their stream acknowledged them,
so that the answer does not depend on what a server does with a pending message that is purged. Streams stay
small, so that everything can be compared after every round.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.disks.model import Model, StreamState
from tests.disks.operations import (
    Acknowledge,
    ConfigureStream,
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    Deliver,
    Operation,
    Publish,
    Purge,
    RemoveStream,
)

STREAMS_WANTED: Final = 4
MESSAGES_MAX: Final = 800
CONSUMERS: Final = ("alpha", "beta")
_PROBES_PER_STREAM: Final = 25
_SIZES: Final = (0, 20, 128, 128, 128, 1000, 4096)
_LARGE_BYTES: Final = 100_000


class Load:
    """Makes batches of operations. `submitted` is the state after all of them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0
        self._streams_made = 0
        self.submitted = Model()

    def probes(self) -> list[Operation]:
        """Publishes of ids that are known already: after a crash the store must still know them."""
        operations: list[Operation] = []
        for number, stream in self.submitted.streams.items():
            known = [seq for seq in stream.message_ids.values() if seq in stream.messages]
            operations += [_again(number, stream, seq) for seq in known[-_PROBES_PER_STREAM:]]
        return self._submit(operations)

    def batch(self) -> list[Operation]:
        """What is committed together: sometimes one operation, sometimes many."""
        size = self._random.choice((1, 1, 4, 16, 64))
        operations: list[Operation] = []
        while len(operations) < size:
            operations += self._submit(list(self._some()))
        return operations

    def _submit(self, operations: list[Operation]) -> list[Operation]:
        for operation in operations:
            self.submitted.apply(operation)
        return operations

    def _some(self) -> Iterator[Operation]:
        """One operation, or several of a kind."""
        streams = self.submitted.streams
        if len(streams) < STREAMS_WANTED:
            self._streams_made += 1
            yield CreateStream(self._streams_made, self._next())
            return
        number = self._random.choice(list(streams))
        stream = streams[number]
        if len(stream.messages) > MESSAGES_MAX:
            yield from self._catch_up(number, stream)
            return
        choice = self._random.random()
        if choice < 0.75:
            yield self._publish(number, stream)
        elif choice < 0.85:
            yield from self._consume(number, stream)
        elif choice < 0.92:
            free = [seq for seq in stream.messages if seq <= _floor(stream)]
            if free:
                yield DeleteMessage(number, self._random.choice(free))
        elif choice < 0.96:
            yield ConfigureStream(number, self._next())
        elif choice < 0.9603:
            yield RemoveStream(number)
        elif len(stream.consumers) < len(CONSUMERS):
            yield CreateConsumer(number, CONSUMERS[len(stream.consumers)])

    def _publish(self, number: int, stream: StreamState) -> Publish:
        random = self._random
        if stream.message_ids and random.random() < 0.05:
            seq = random.choice(list(stream.message_ids.values()))
            if seq in stream.messages:
                return _again(number, stream, seq)
        count = self._next()
        size = _LARGE_BYTES if random.random() < 0.002 else random.choice(_SIZES)
        text = b"%d " % count
        # Half of it compresses well.
        payload = text + (random.randbytes(size) if random.random() < 0.5 else text * (size // len(text)))
        message_id = b"id-%d" % count if random.random() < 0.4 else b""
        return Publish(number, b"disk.%d.%d" % (number, random.randrange(20)), message_id, payload)

    def _consume(self, number: int, stream: StreamState) -> Iterator[Operation]:
        for name, consumer in stream.consumers.items():
            fresh = [seq for seq in stream.messages if seq > consumer.delivered]
            if fresh and len(consumer.pending) < 100:
                yield Deliver(number, name, fresh[: self._random.randint(1, 60)])
            elif consumer.pending:
                pending = sorted(consumer.pending)
                for seq in self._random.sample(pending, max(1, len(pending) * 3 // 4)):
                    yield Acknowledge(number, name, seq)

    def _catch_up(self, number: int, stream: StreamState) -> Iterator[Operation]:
        """Let the consumers take all there is, and purge what they took."""
        end = _floor(stream) + 1 - self._random.randint(0, MESSAGES_MAX // 2)
        if end > min(stream.messages):
            yield Purge(number, end)
        for name, consumer in stream.consumers.items():
            for seq in sorted(consumer.pending):
                yield Acknowledge(number, name, seq)
            fresh = [seq for seq in stream.messages if seq > consumer.delivered]
            if fresh:
                yield Deliver(number, name, fresh)

    def _next(self) -> int:
        self._count += 1
        return self._count


def _again(number: int, stream: StreamState, seq: int) -> Publish:
    subject, message_id, payload = stream.messages[seq]
    return Publish(number, subject, message_id, payload)


def _floor(stream: StreamState) -> int:
    """Up to where all consumers have acknowledged; without consumers, nobody waits for anything."""
    return min((consumer.floor for consumer in stream.consumers.values()), default=stream.last_seq)
