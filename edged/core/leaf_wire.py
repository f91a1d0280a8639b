"""The wire protocol between servers and leaf nodes, without I/O: bytes in, events out, and the way back.

A connection carries one account. Each side says by LS+ and LS- what it wants to have, and gets it by LMSG,
with headers by HMSG. A message for queue groups names those that it is for. What JetStream delivers goes by
the deliver subject, and the subject that the client is to see stands behind the reply, as in
`LMSG deliver.here $JS.ACK.ORDERS.C.1.7.7.1700000000000000000.0@orders.new 5`.

Rules: those of wire.py. A `-ERR` is an event, because the peer closes the connection itself when it means to.
Invariant: `leaf_names()` writes what `LeafParser` reads.

This is the reference; `_native.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from edged.core.wire import OperationParser, Publish, SharedEvent, parse_size, publish_form

# What stands in the place of the reply subject when queue groups are named behind it.
_REPLY_AND_QUEUES = b"+"
_QUEUES_ONLY = b"|"

# The subject of an acknowledgement has nine tokens or more; those before the numbers may hold an `@`.
_DELIVERED = re.compile(rb"(\$JS\.ACK\.(?:[^.]*\.){6}[^@]*)@(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LeafSubscribe:
    """LS+; `weight` is how many members the queue group has over there, or 1 for a plain subscription."""

    subject: bytes
    queue: bytes | None
    weight: int


@dataclass(frozen=True, slots=True)
class LeafUnsubscribe:
    """LS-: nobody over there wants this any more."""

    subject: bytes
    queue: bytes | None


@dataclass(frozen=True, slots=True)
class LeafQueueMessage:
    """A message for one member of each of these queue groups, and for all plain subscriptions."""

    message: Publish
    queues: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LeafError:
    """-ERR with its text, without the quotes around it."""

    text: bytes


LeafOwnEvent = LeafSubscribe | LeafUnsubscribe | LeafQueueMessage | LeafError
LeafEvent = SharedEvent | LeafOwnEvent


class LeafParser(OperationParser[LeafOwnEvent]):
    """Turns the bytes of another server into events."""

    __slots__ = ()

    _publish_verbs = (b"LMSG", b"HMSG")
    _publish_forms = (publish_form(b"LMSG", 1), publish_form(b"HMSG", 2))
    _interest_verbs = (b"LS+", b"LS-")

    def _is_address(self, names: list[bytes]) -> bool:
        # Two names are a subject and a reply, even when that is "+" or "|".
        if len(names) <= 2:
            return super()._is_address(names)
        return names[1] == _QUEUES_ONLY or (names[1] == _REPLY_AND_QUEUES and len(names) > 3)

    def _take(self, names: list[bytes], header_bytes: int, data: bytes, events: list[LeafEvent]) -> None:
        if len(names) <= 2:
            super()._take(names, header_bytes, data, events)
            return
        reply, queues = (None, names[2:]) if names[1] == _QUEUES_ONLY else (names[2], names[3:])
        events.append(LeafQueueMessage((names[0], reply, header_bytes, data), tuple(queues)))

    def _interest(self, verb: bytes, arguments: list[bytes]) -> LeafOwnEvent | None:
        if verb == b"LS-" and len(arguments) in (1, 2):
            return LeafUnsubscribe(arguments[0], arguments[1] if len(arguments) == 2 else None)
        if verb == b"LS+" and len(arguments) == 1:
            return LeafSubscribe(arguments[0], None, 1)
        if verb == b"LS+" and len(arguments) == 3 and (weight := parse_size(arguments[2])) >= 0:
            return LeafSubscribe(arguments[0], arguments[1], weight)
        return None

    def _peer_error(self, text: bytes, events: list[LeafEvent]) -> None:
        events.append(LeafError(text.strip(b" \t").removeprefix(b"'").removesuffix(b"'")))


def leaf_names(sid: bytes, subject: bytes, reply: bytes | None, queues: tuple[bytes, ...]) -> bytes:
    """What stands between the verb and the sizes of a message.

    A `sid` is the subject that JetStream delivers to. Without a reply the client gets to see that one.
    """
    if sid:
        reply = b"%s@%s" % (reply, subject) if reply is not None else None
        subject = sid
    if not queues:
        return b"%s %s" % (subject, reply) if reply is not None else subject
    marked = b"%s %s" % (_REPLY_AND_QUEUES, reply) if reply is not None else _QUEUES_ONLY
    return b"%s %s %s" % (subject, marked, b" ".join(queues))


def split_delivered(reply: bytes) -> tuple[bytes, bytes] | None:
    """The subject to acknowledge and the one to show, from the reply of a message that JetStream delivers.

    None when the reply is any other.
    """
    match = _DELIVERED.fullmatch(reply)
    return (match[1], match[2]) if match is not None else None
