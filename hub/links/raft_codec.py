"""The messages of consensus as bytes.

A message is one byte for its kind, the group, the term, and what the kind has; numbers are little-endian.
Payloads stand behind everything else of a message, as they lie in the journal, so that a sender hands them on
without looking at them. Messages follow each other without gaps: each says itself where it ends.

Rules: nothing here trusts what it reads. Whatever is not a message, as a whole, is a CodecError; a size that
is claimed is compared with what is there before anything is taken. docs/format.md has the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from struct import Struct
from typing import Any, Final

from hub.raft.members import Members, NodeId
from hub.raft.messages import (
    Append,
    AppendReply,
    Block,
    Heartbeat,
    HeartbeatReply,
    Message,
    ReadReply,
    ReadRequest,
    RejoinReply,
    RejoinRequest,
    Snapshot,
    SnapshotPart,
    SnapshotReply,
    TransferNow,
    VoteReply,
    VoteRequest,
)

VERSION: Final = 1

Part = bytes | bytearray | memoryview

_HEAD: Final = Struct("<BQQ")
_SIZE: Final = Struct("<I")
_COUNTS: Final = Struct("<HHHH")
_VOTE_REQUEST: Final = Struct("<QQB")
_FLAGS: Final = Struct("<B")
_APPEND: Final = Struct("<QQQI")
_BLOCK: Final = Struct("<QIQIB")
_APPEND_REPLY: Final = Struct("<QBQQ")
_HEARTBEAT: Final = Struct("<QQB")
_SNAPSHOT: Final = Struct("<QQQQ")
_PART: Final = Struct("<QIB")
_ONE: Final = Struct("<Q")
_TWO: Final = Struct("<QQ")
_THREE: Final = Struct("<QQQ")

_HAS_MEMBERS: Final = 1
_HAS_PAYLOAD: Final = 2


class CodecError(ValueError):
    """Bytes that are not a message."""


class _Cursor:
    """Takes fields off the front of some bytes."""

    __slots__ = ("data", "position")

    def __init__(self, data: memoryview, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, layout: Struct) -> tuple[int, ...]:
        stop = self.position + layout.size
        if stop > len(self.data):
            raise CodecError("a message is cut off")
        fields: tuple[int, ...] = layout.unpack_from(self.data, self.position)
        self.position = stop
        return fields

    def flags(self, value: int, *known: int) -> tuple[bool, ...]:
        """The bits of a byte, of which no others may be set."""
        if value & ~sum(known):
            raise CodecError(f"unknown flags {value:#x}")
        return tuple(bool(value & bit) for bit in known)

    def nodes(self, count: int) -> frozenset[NodeId]:
        found = frozenset(self.take(_ONE)[0] for _ in range(count))
        if len(found) != count:
            raise CodecError("a member is named twice")
        return found

    def members(self) -> Members:
        counts = self.take(_COUNTS)
        if sum(counts) * _ONE.size > len(self.data) - self.position:
            raise CodecError("more members than bytes")
        try:
            return Members(*(self.nodes(count) for count in counts))
        except ValueError as error:
            raise CodecError(str(error)) from error

    def payload(self) -> bytes:
        """The payload that comes next; its size stands before it."""
        (size,) = self.take(_SIZE)
        stop = self.position + size
        if stop > len(self.data):
            raise CodecError("a payload is cut off")
        found = bytes(self.data[self.position : stop])
        self.position = stop
        return found


def encode(group: int, message: Message) -> list[Part]:
    """A message as parts, to be sent one behind the other; payloads are the objects that the message has."""
    kind, body = _ENCODERS[type(message)]
    parts: list[Part] = [_HEAD.pack(kind, group, message.term)]
    body(message, parts)
    return parts


def decode(data: memoryview, position: int = 0) -> tuple[int, Message, int]:
    """The group, the message at a position, and where the next one begins. CodecError when it is none."""
    cursor = _Cursor(data, position)
    kind, group, term = cursor.take(_HEAD)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise CodecError(f"unknown kind of message {kind}")
    message = decoder(cursor, term)
    return group, message, cursor.position


def decode_all(data: memoryview) -> list[tuple[int, Message]]:
    """All messages of a frame. CodecError when any of it is no message; then none counts."""
    found = []
    position = 0
    while position < len(data):
        group, message, position = decode(data, position)
        found.append((group, message))
    return found


# --- parts of messages ---


def _flags(*bits: bool) -> int:
    return sum(1 << place for place, bit in enumerate(bits) if bit)


def _members(members: Members) -> bytes:
    sets = (members.voters, members.outgoing, members.learners, members.demoted)
    nodes: Iterable[int] = (node for one in sets for node in sorted(one))
    return _COUNTS.pack(*map(len, sets)) + b"".join(map(_ONE.pack, nodes))


def _payload(payload: Any, parts: list[Part]) -> None:
    if payload is not None:
        parts.append(_SIZE.pack(len(payload)))
        parts.append(payload)


def _encode_append(message: Append, parts: list[Part]) -> None:
    heads = [_APPEND.pack(message.prev_index, message.prev_term, message.commit, len(message.blocks))]
    for block in message.blocks:
        flags = _flags(block.members is not None, block.payload is not None)
        heads.append(_BLOCK.pack(block.first, block.count, block.term, block.size, flags))
        if block.members is not None:
            heads.append(_members(block.members))
    parts.append(b"".join(heads))
    for block in message.blocks:
        _payload(block.payload, parts)


def _decode_append(cursor: _Cursor, term: int) -> Append:
    prev_index, prev_term, commit, count = cursor.take(_APPEND)
    if count * _BLOCK.size > len(cursor.data) - cursor.position:
        raise CodecError("more blocks than bytes")
    heads = []
    for _ in range(count):
        first, entries, block_term, size, flags = cursor.take(_BLOCK)
        has_members, has_payload = cursor.flags(flags, _HAS_MEMBERS, _HAS_PAYLOAD)
        members = cursor.members() if has_members else None
        heads.append((Block(first, entries, block_term, size, members), has_payload))
    blocks = tuple(
        replace(block, payload=cursor.payload()) if has_payload else block for block, has_payload in heads
    )
    return Append(term, prev_index, prev_term, blocks, commit)


def _encode_part(message: SnapshotPart, parts: list[Part]) -> None:
    snapshot = message.snapshot
    parts.append(_SNAPSHOT.pack(snapshot.index, snapshot.term, snapshot.size, snapshot.identity))
    parts.append(_members(snapshot.members))
    parts.append(_PART.pack(message.offset, message.size, _flags(message.payload is not None)))
    _payload(message.payload, parts)


def _decode_part(cursor: _Cursor, term: int) -> SnapshotPart:
    index, snapshot_term, total, identity = cursor.take(_SNAPSHOT)
    members = cursor.members()
    offset, size, flags = cursor.take(_PART)
    (has_payload,) = cursor.flags(flags, 1)
    payload = cursor.payload() if has_payload else None
    return SnapshotPart(term, Snapshot(index, snapshot_term, members, total, identity), offset, size, payload)


def _vote_request(cursor: _Cursor, term: int) -> VoteRequest:
    last_index, last_term, flags = cursor.take(_VOTE_REQUEST)
    is_trial, is_transfer, is_unsure = cursor.flags(flags, 1, 2, 4)
    return VoteRequest(term, last_index, last_term, is_trial, is_transfer, is_unsure)


def _vote_reply(cursor: _Cursor, term: int) -> VoteReply:
    is_trial, is_granted, is_unsure = cursor.flags(cursor.take(_FLAGS)[0], 1, 2, 4)
    return VoteReply(term, is_trial, is_granted, is_unsure)


def _append_reply(cursor: _Cursor, term: int) -> AppendReply:
    index, flags, hint_index, hint_term = cursor.take(_APPEND_REPLY)
    (is_refused,) = cursor.flags(flags, 1)
    return AppendReply(term, index, is_refused, hint_index, hint_term)


def _heartbeat(cursor: _Cursor, term: int) -> Heartbeat:
    commit, count, flags = cursor.take(_HEARTBEAT)
    (is_quiet,) = cursor.flags(flags, 1)
    return Heartbeat(term, commit, count, is_quiet)


# The number of each kind of message, what writes it and what reads it. A number is never used anew.
_Encoder = Callable[[Any, list[Part]], None]
_ENCODERS: Final[dict[type, tuple[int, _Encoder]]] = {
    VoteRequest: (
        1,
        lambda m, parts: parts.append(
            _VOTE_REQUEST.pack(m.last_index, m.last_term, _flags(m.is_trial, m.is_transfer, m.is_unsure))
        ),
    ),
    VoteReply: (
        2,
        lambda m, parts: parts.append(_FLAGS.pack(_flags(m.is_trial, m.is_granted, m.is_unsure))),
    ),
    Append: (3, _encode_append),
    AppendReply: (
        4,
        lambda m, parts: parts.append(
            _APPEND_REPLY.pack(m.index, _flags(m.is_refused), m.hint_index, m.hint_term)
        ),
    ),
    Heartbeat: (5, lambda m, parts: parts.append(_HEARTBEAT.pack(m.commit, m.round, _flags(m.is_quiet)))),
    HeartbeatReply: (6, lambda m, parts: parts.append(_ONE.pack(m.round))),
    SnapshotPart: (7, _encode_part),
    SnapshotReply: (8, lambda m, parts: parts.append(_THREE.pack(m.index, m.identity, m.offset))),
    TransferNow: (9, lambda m, parts: None),
    ReadRequest: (10, lambda m, parts: parts.append(_ONE.pack(m.token))),
    ReadReply: (11, lambda m, parts: parts.append(_TWO.pack(m.token, m.index))),
    RejoinRequest: (12, lambda m, parts: parts.append(_ONE.pack(m.boot))),
    RejoinReply: (13, lambda m, parts: parts.append(_TWO.pack(m.boot, m.index))),
}
_DECODERS: Final[dict[int, Callable[[_Cursor, int], Message]]] = {
    1: _vote_request,
    2: _vote_reply,
    3: _decode_append,
    4: _append_reply,
    5: _heartbeat,
    6: lambda cursor, term: HeartbeatReply(term, *cursor.take(_ONE)),
    7: _decode_part,
    8: lambda cursor, term: SnapshotReply(term, *cursor.take(_THREE)),
    9: lambda cursor, term: TransferNow(term),
    10: lambda cursor, term: ReadRequest(term, *cursor.take(_ONE)),
    11: lambda cursor, term: ReadReply(term, *cursor.take(_TWO)),
    12: lambda cursor, term: RejoinRequest(term, *cursor.take(_ONE)),
    13: lambda cursor, term: RejoinReply(term, *cursor.take(_TWO)),
}
