"""What is done to a store in the laboratory: batches of steps by seed, and what must be true after each step.

The model is as naive as can be: dicts of everything. A store is right if what it holds equals the model after
some number of steps, at least those that were acknowledged and at most those that were begun.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any, Final

WINDOW_NS: Final = 120_000_000_000
START_NS: Final = 1_800_000_000_000_000_000
BATCH_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PutStream:
    group: int
    name: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DropStream:
    group: int


@dataclass(frozen=True, slots=True)
class Publish:
    group: int
    subject: bytes
    payload: bytes
    message_id: bytes | None = None

    @property
    def headers(self) -> bytes:
        if self.message_id is None:
            return b""
        return b"NATS/1.0\r\nNats-Msg-Id: " + self.message_id + b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class PublishTogether:
    """An atomic batch: all messages are stored, or none."""

    publishes: tuple[Publish, ...]

    @property
    def group(self) -> int:
        return self.publishes[0].group


@dataclass(frozen=True, slots=True)
class DeleteMessage:
    group: int
    seq: int


@dataclass(frozen=True, slots=True)
class PurgeStream:
    group: int
    to_seq: int = 0
    subject: bytes = b""
    keep: int = 0


@dataclass(frozen=True, slots=True)
class PutConsumer:
    group: int
    consumer: int
    name: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DropConsumer:
    group: int
    consumer: int


@dataclass(frozen=True, slots=True)
class Deliver:
    group: int
    consumer: int
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AckMessages:
    group: int
    consumer: int
    seqs: tuple[int, ...]


Step = (
    PutStream
    | DropStream
    | Publish
    | PublishTogether
    | DeleteMessage
    | PurgeStream
    | PutConsumer
    | DropConsumer
    | Deliver
    | AckMessages
)


def publishes_of(step: Step) -> list[tuple[Publish, bool]]:
    """The messages of a step, and whether another of the same atomic batch follows."""
    if isinstance(step, Publish):
        return [(step, False)]
    if not isinstance(step, PublishTogether):
        return []
    return [(one, number < len(step.publishes)) for number, one in enumerate(step.publishes, 1)]


@dataclass(slots=True)
class ConsumerModel:
    name: str
    config: dict[str, Any]
    delivered: int = 0
    pending: set[int] = field(default_factory=set)
    # Acknowledged, and the delivery is forgotten.
    ahead: set[int] = field(default_factory=set, compare=False)

    def apply(self, step: Deliver | AckMessages) -> None:
        if isinstance(step, Deliver):
            self.pending.update(seq for seq in step.seqs if seq > self.delivered and seq not in self.ahead)
            self.delivered = max(self.delivered, *step.seqs)
            return
        self.pending.difference_update(step.seqs)
        self.ahead.update(seq for seq in step.seqs if seq > self.delivered)


@dataclass(slots=True)
class StreamModel:
    name: str
    config: dict[str, Any]
    last_seq: int = 0
    # seq -> (time, subject, header bytes, header block and payload)
    messages: dict[int, tuple[int, bytes, int, bytes]] = field(default_factory=dict)
    message_ids: dict[bytes, int] = field(default_factory=dict)
    consumers: dict[int, ConsumerModel] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return min(self.messages, default=self.last_seq + 1)

    def seqs_of(self, subject: bytes) -> list[int]:
        return [seq for seq in sorted(self.messages) if not subject or self.messages[seq][1] == subject]

    def publish(self, step: Publish, now_ns: int) -> int:
        """The seq it has, or had before."""
        if step.message_id is not None and step.message_id in self.message_ids:
            return self.message_ids[step.message_id]
        self.store(step, self.last_seq + 1, now_ns)
        return self.last_seq

    def publish_together(self, step: PublishTogether, now_ns: int) -> bool:
        """Whether they were stored: not if one is there already, or there twice."""
        ids = [one.message_id for one in step.publishes if one.message_id is not None]
        if len(set(ids)) < len(ids) or not self.message_ids.keys().isdisjoint(ids):
            return False
        for one in step.publishes:
            self.publish(one, now_ns)
        return True

    def store(self, step: Publish, seq: int, now_ns: int) -> None:
        """A message that is new gets this seq."""
        self.last_seq = seq
        data = step.headers + step.payload
        self.messages[seq] = (now_ns, step.subject, len(step.headers), data)
        if step.message_id is not None:
            self.message_ids[step.message_id] = seq
        self.keep_limits()

    def keep_limits(self) -> None:
        per_subject = self.config.get("max_msgs_per_subject", -1)
        for subject in {message[1] for message in self.messages.values()} if per_subject > 0 else ():
            for seq in self.seqs_of(subject)[:-per_subject]:
                del self.messages[seq]
        most = self.config.get("max_msgs", -1)
        for seq in sorted(self.messages)[:-most] if most > 0 else ():
            del self.messages[seq]
        self.drop_pending()

    def drop_pending(self) -> None:
        """What is gone waits for nobody."""
        for consumer in self.consumers.values():
            consumer.pending &= self.messages.keys()

    def purge(self, step: PurgeStream) -> None:
        matching = self.seqs_of(step.subject)
        end = step.to_seq or self.last_seq + 1
        gone = matching[: -step.keep] if step.keep else [seq for seq in matching if seq < end]
        for seq in gone:
            del self.messages[seq]
        if step.subject in (b"", b">") and not step.keep:
            self.last_seq = max(self.last_seq, end - 1)
        for consumer in self.consumers.values():
            consumer.delivered = max(consumer.delivered, self.start - 1)


@dataclass(slots=True)
class StoreModel:
    """Everything a store must hold, by group."""

    streams: dict[int, StreamModel] = field(default_factory=dict)

    def apply(self, step: Step, now_ns: int) -> None:
        if isinstance(step, PutStream):
            known = self.streams.get(step.group)
            if known is None:
                self.streams[step.group] = StreamModel(step.name, step.config)
            else:
                known.config = step.config
                known.keep_limits()
            return
        stream = self.streams[step.group]
        if isinstance(step, DropStream):
            del self.streams[step.group]
        elif isinstance(step, Publish):
            stream.publish(step, now_ns)
        elif isinstance(step, PublishTogether):
            stream.publish_together(step, now_ns)
        elif isinstance(step, DeleteMessage):
            stream.messages.pop(step.seq, None)
        elif isinstance(step, PurgeStream):
            stream.purge(step)
        elif isinstance(step, PutConsumer):
            new = ConsumerModel(step.name, step.config, stream.start - 1)
            stream.consumers.setdefault(step.consumer, new).config = step.config
        elif isinstance(step, DropConsumer):
            stream.consumers.pop(step.consumer, None)
        elif step.consumer in stream.consumers:
            stream.consumers[step.consumer].apply(step)
        stream.drop_pending()


@dataclass(frozen=True, slots=True)
class Batch:
    """Steps that are committed together, at one time."""

    steps: tuple[Step, ...]
    now_ns: int


SUBJECTS: Final = (b"a", b"b.c", b"orders.new", b"orders.done")
CONFIGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"max_msgs": 6},
    {"max_msgs_per_subject": 2},
    {"duplicate_window": WINDOW_NS, "description": "x" * 90},
)


class Workload:
    """Batches by seed. What is published is different every time: nothing can stand in for another."""

    def __init__(self, chance: random.Random, batch_count: int, payload_bytes_max: int) -> None:
        self._chance = chance
        self._payload_bytes_max = payload_bytes_max
        self._model = StoreModel()
        self._groups_used = 0
        self._numbers_used = 0
        self.batches = [self._batch(number) for number in range(batch_count)]

    def _batch(self, number: int) -> Batch:
        now_ns = START_NS + number * BATCH_NS
        steps: list[Step] = []
        # A stream takes commands from the batch after the one that made it.
        there = list(self._model.streams)
        for _ in range(self._chance.choice((1, 1, 2, 3, 5))):
            step = self._step(there)
            if isinstance(step, DropStream):
                there.remove(step.group)
            self._model.apply(step, now_ns)
            steps.append(step)
        return Batch(tuple(steps), now_ns)

    def _step(self, there: list[int]) -> Step:
        chance = self._chance
        if not there or (len(self._model.streams) < 3 and chance.random() < 0.05):
            self._groups_used += 1
            return PutStream(self._groups_used, f"S{self._groups_used}", chance.choice(CONFIGS))
        group = chance.choice(there)
        stream = self._model.streams[group]
        kind = chance.random()
        if kind < 0.6 or not stream.messages:
            return self._publish_some(group, stream)
        if kind < 0.67:
            return DeleteMessage(group, chance.choice(sorted(stream.messages)))
        if kind < 0.71:
            return self._purge(group, stream)
        if kind < 0.73:
            return DropStream(group)
        if kind < 0.75:
            return PutStream(group, stream.name, chance.choice(CONFIGS))
        return self._consume(group, stream)

    def _publish_some(self, group: int, stream: StreamModel) -> Step:
        if self._chance.random() < 0.85:
            return self._publish(group, stream)
        count = self._chance.choice((2, 2, 3, 4))
        return PublishTogether(tuple(self._publish(group, stream) for _ in range(count)))

    def _publish(self, group: int, stream: StreamModel) -> Publish:
        chance = self._chance
        self._numbers_used += 1
        message_id = None
        if chance.random() < 0.4:
            message_id = b"id-%d" % self._numbers_used
            if stream.message_ids and chance.random() < 0.3:
                message_id = chance.choice(sorted(stream.message_ids))
        size = chance.choice((0, 30, 200, self._payload_bytes_max))
        payload = b"%d:" % self._numbers_used + chance.randbytes(size)
        return Publish(group, chance.choice(SUBJECTS), payload, message_id)

    def _purge(self, group: int, stream: StreamModel) -> Step:
        chance = self._chance
        subject = chance.choice((b"", b"", b"a", b"b.c"))
        if chance.random() < 0.3:
            return PurgeStream(group, subject=subject, keep=chance.randrange(1, 3))
        return PurgeStream(group, to_seq=chance.choice((0, *stream.messages)), subject=subject)

    def _consume(self, group: int, stream: StreamModel) -> Step:
        chance = self._chance
        if not stream.consumers or chance.random() < 0.1:
            number = max(stream.consumers, default=0) + 1
            return PutConsumer(group, number, f"C{number}", {"ack_policy": "explicit"})
        number = chance.choice(sorted(stream.consumers))
        consumer = stream.consumers[number]
        fresh = [seq for seq in sorted(stream.messages) if seq > consumer.delivered]
        if chance.random() < 0.05:
            return DropConsumer(group, number)
        if consumer.pending and (not fresh or chance.random() < 0.5):
            return AckMessages(group, number, (chance.choice(sorted(consumer.pending)),))
        if not fresh:
            return self._publish(group, stream)
        return Deliver(group, number, tuple(fresh[: chance.randrange(1, 4)]))


def models_of(batches: list[Batch]) -> list[StoreModel]:
    """The model before the first step and after each step, over all batches."""
    model = StoreModel()
    models = [copy.deepcopy(model)]
    for batch in batches:
        for step in batch.steps:
            model.apply(step, batch.now_ns)
            models.append(copy.deepcopy(model))
    return models


def difference(found: StoreModel, wanted: StoreModel) -> str:
    """The first thing that differs, in words; empty if nothing does."""
    if found.streams.keys() != wanted.streams.keys():
        return f"streams {sorted(found.streams)}, not {sorted(wanted.streams)}"
    for group, stream in wanted.streams.items():
        other = found.streams[group]
        for name in StreamModel.__slots__:
            have, want = getattr(other, name), getattr(stream, name)
            if have == want:
                continue
            if isinstance(want, dict):
                key = next(key for key in {**have, **want} if have.get(key) != want.get(key))
                name, have, want = f"{name} {key}", have.get(key), want.get(key)
            return f"stream {group} {name}: {have!r:.200}, not {want!r:.200}"
    return ""
