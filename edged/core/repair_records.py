"""What a node got back from others of messages that it had lost: the bodies of REPAIR frames.

    [seq, time_ns, subject, size of the header block, header block and payload]    a message
    [first_seq, last_seq, is_lost]    of these seqs no other node has a message. With `is_lost` there was one,
                                      and nobody can read it any more; else it was deleted, or never was
    [nodes]                           the copy of this node is given up, and begins anew: the nodes that the
                                      group began with

Rules: such a frame is no entry of the group's log. It concerns this node's copy alone, since the others have
no hole. It changes only what is lost, so to read it twice, or behind a delete of the same message, does no
harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

import msgpack

from edged.core.frames import BODY_BYTES_MAX
from edged.core.message import Message

CHECKSUM_BYTES: Final = 16
_HEAD: Final = Struct("<QQII")


@dataclass(frozen=True, slots=True)
class Settled:
    """Of these seqs no other node has a message."""

    first_seq: int
    last_seq: int
    is_lost: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """This node's copy begins anew, with nothing. `genesis`: the nodes that the group began with."""

    genesis: tuple[int, ...]


# What one frame says.
Repaired = Message | Settled | GivenUp


def encode_repaired(record: Repaired) -> bytes:
    """The body of a REPAIR frame."""
    values: list[Any]
    if isinstance(record, Message):
        values = list(record)
    elif isinstance(record, Settled):
        values = [record.first_seq, record.last_seq, record.is_lost]
    else:
        values = [list(record.genesis)]
    body: bytes = msgpack.packb(values)
    return body


def decode_repaired(body: bytes) -> Repaired:
    """The reverse. Raises ValueError."""
    values = msgpack.unpackb(body, max_bin_len=BODY_BYTES_MAX)
    match values:
        case [_, _, _, _, _]:
            return message_of(values)
        case [int() as first_seq, int() as last_seq, bool() as is_lost]:
            return Settled(first_seq, last_seq, is_lost)
        case [list() as nodes] if all(type(node) is int for node in nodes):
            return GivenUp(tuple(nodes))
    raise ValueError("not what a repair says")


def message_of(values: Any) -> Message:
    """A message from plain values. Raises ValueError."""
    if type(values) is not list or [type(value) for value in values] != [int, int, bytes, int, bytes]:
        raise ValueError("not a message")
    message = Message(*values)
    if message.seq < 1 or message.ts_ns < 0 or not 0 <= message.header_bytes <= len(message.data):
        raise ValueError("not a message of a stream")
    return message


def checksum_of(message: Message) -> bytes:
    """What tells a message, with its place and time, from every other one."""
    seq, ts_ns, subject, header_bytes, data = message
    found = blake2b(_HEAD.pack(seq, ts_ns, header_bytes, len(subject)), digest_size=CHECKSUM_BYTES)
    found.update(subject)
    found.update(data)
    return found.digest()
