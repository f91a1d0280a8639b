"""What the load asks of a store and what it answers, apart from any store's own interface.

Rules: operations and outcomes are tuples of numbers, strings and bytes, so that they pass through a pipe
unchanged. A stream is known by a number that is never used again. An outcome other than Refused is an
acknowledgement: what it answers must survive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias


class CreateStream(NamedTuple):
    stream: int
    revision: int


class ConfigureStream(NamedTuple):
    stream: int
    revision: int


class RemoveStream(NamedTuple):
    stream: int


class Publish(NamedTuple):
    stream: int
    subject: bytes
    message_id: bytes
    """For deduplication; empty without."""
    payload: bytes


class DeleteMessage(NamedTuple):
    stream: int
    seq: int


class Purge(NamedTuple):
    """All messages below a seq go."""

    stream: int
    below: int


class CreateConsumer(NamedTuple):
    stream: int
    consumer: str


class Deliver(NamedTuple):
    """The next messages are with the consumer now and wait for its acks."""

    stream: int
    consumer: str
    seqs: Sequence[int]


class Acknowledge(NamedTuple):
    stream: int
    consumer: str
    seq: int


class Stored(NamedTuple):
    seq: int
    is_duplicate: bool


class Done(NamedTuple):
    pass


class Refused(NamedTuple):
    """Not acknowledged. With reason `unknown` it may be there after a restart, else it must not be."""

    reason: str
    text: str


FULL: Final = "full"
UNKNOWN: Final = "unknown"
BROKEN: Final = "broken"

Operation: TypeAlias = (
    CreateStream
    | ConfigureStream
    | RemoveStream
    | Publish
    | DeleteMessage
    | Purge
    | CreateConsumer
    | Deliver
    | Acknowledge
)
Outcome: TypeAlias = Stored | Done | Refused

_KINDS: Final = (
    *(CreateStream, ConfigureStream, RemoveStream, Publish, DeleteMessage, Purge),
    *(CreateConsumer, Deliver, Acknowledge, Stored, Done, Refused),
)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}


def packed(values: list[Operation] | list[Outcome]) -> list[list[Any]]:
    """As lists that msgpack takes."""
    return [[_NUMBERS[type(value)], *value] for value in values]


def unpacked(lists: list[list[Any]]) -> list[Any]:
    """The opposite of packed()."""
    return [_KINDS[number](*fields) for number, *fields in lists]
