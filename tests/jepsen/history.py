"""What clients did and saw: the evidence that the checkers judge.

Rules: nothing here touches a socket or a clock; times are monotonic seconds of one process. A publish that
was not acknowledged is *unknown*: it may be stored or not, never more than once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_PAYLOAD_REPEATS: Final = 40


def payload_of(message_id: str) -> bytes:
    """Every message has content that follows from its id, and lengths that differ."""
    return f"{message_id} ".encode() * (1 + sum(message_id.encode()) % _PAYLOAD_REPEATS)


@dataclass(slots=True)
class Publish:
    """One message: when it was first sent, and what became of it."""

    message_id: str
    publisher: int
    number: int
    invoked_s: float
    completed_s: float | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it was read."""

    seq: int
    message_id: str
    is_intact: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """All messages in the order in which they came, through one node in one way."""

    node: str
    way: str
    messages: Sequence[Stored]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that came to a worker, and when the worker had asked for it."""

    seq: int
    asked_s: float


@dataclass(slots=True)
class Consumption:
    """What workers of one durable consumer saw. `confirmed`: by seq, when that was heard."""

    deliveries: list[Delivery] = field(default_factory=list)
    confirmed: dict[int, float] = field(default_factory=dict)
    said: set[int] = field(default_factory=set)
    """Acknowledged, and nobody heard whether that arrived."""
    is_drained: bool = False
    """At the end the consumer had nothing left to deliver."""


@dataclass(slots=True)
class History:
    """Everything of one round."""

    publishes: list[Publish] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    consumption: Consumption = field(default_factory=Consumption)
    # By node, what it could not do after all faults had ended.
    unusable: dict[str, str] = field(default_factory=dict)

    @property
    def acknowledged(self) -> list[Publish]:
        """Those whose seq a client was told."""
        return [publish for publish in self.publishes if publish.seq is not None]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be: a word that stands for its kind, and the details."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def counts(history: History) -> Mapping[str, int]:
    """How much there was to judge."""
    return {
        "published": len(history.publishes),
        "acknowledged": len(history.acknowledged),
        "read": max((len(reading.messages) for reading in history.readings), default=0),
        "readings": len(history.readings),
        "delivered": len(history.consumption.deliveries),
        "confirmed": len(history.consumption.confirmed),
    }
