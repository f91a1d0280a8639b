"""The commands that a journal's COMMAND frames hold, and their bytes: msgpack [tag, field, field, ...].

Appends are not among them: there is one per message, and they have a frame kind of their own. A command says
what was decided, not why: its `apply` needs nothing that is not in it or in the state of its group.

Rules:
* A tag is never given to another command, and a command never gets another field: what needs one takes a new
  tag. So a tag that is not known was written by a newer version, and nothing else is wrong with the journal.
* `decode()` raises ValueError for all other bytes, whatever they are, and no size in them is believed that is
  above the bounds named here.
* Lists of seqs are written as differences: the first, then from each to the next; a pair [difference, times]
  stands for one that repeats (edged/core/seq_runs.py).
* `encode()` raises ValueError rather than return what `decode()` would refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

import msgpack

from edged.core.frames import BODY_BYTES_MAX, GROUP_MAX, SUBJECT_BYTES_MAX
from edged.core.seq_runs import folded, unfolded

COMMAND_BYTES_MAX: Final = 4 * 1024 * 1024
# What one command can list, be it seqs or entries of a configuration. Who has more makes several commands.
SEQS_MAX: Final = 65_536
TEXT_BYTES_MAX: Final = 4096
CONFIG_DEPTH_MAX: Final = 32
STREAM_ID_BYTES: Final = 16
NUMBER_MAX: Final = 2**64 - 1
# In a list seqs are written as differences, mostly one byte each; those must fit into 64 bits with a sign.
SEQ_LISTED_MAX: Final = 2**63 - 1

# A range costs nothing to look through; what comes from a journal is always a tuple.
Seqs = tuple[int, ...] | range

# A configuration as it was parsed: text, numbers, booleans, None, lists, and dicts with text keys.
Config = dict[str, Any]
CREATED: Final = "edged.created"
"""Where the configuration of a stream says when it was made, in ns since the epoch."""
CATALOG: Final = 0
"""The group of the commands that say which streams there are."""
PEERS: Final = "edged.peers"
"""Where the configuration of a stream in a cluster says which nodes have it."""
TARGET: Final = "edged.target"
"""Where it says which nodes are to have it in the end, while it moves."""
BEFORE: Final = "edged.before"
"""And which nodes had it before it began to move."""
MOVE: Final = "edged.move"
"""And how often it was told to move: what is said of one move says nothing of the next one."""
# What of a stored configuration is about where a stream is, and nothing to the stream itself.
ASSIGNED: Final = frozenset((PEERS, TARGET, BEFORE, MOVE))


def assigned_to(stored: Config, nodes: list[int]) -> Config:
    """What a configuration says of where a stream is that is to be on these nodes from now on.

    Those it leaves have it until the members of its group have changed: they may be needed to decide that.
    """
    here: list[int] = stored[PEERS]
    if TARGET not in stored and set(nodes) == set(here):
        return {PEERS: here}
    both = [*nodes, *(node for node in here if node not in nodes)]
    before = stored.get(BEFORE) or here
    return {PEERS: both, TARGET: nodes, BEFORE: before, MOVE: stored.get(MOVE, 0) + 1}


class UnknownCommand(ValueError):  # noqa: N818 - says what happened
    """A command with a tag that this version does not know."""

    def __init__(self, tag: int) -> None:
        super().__init__(f"command {tag} was written by a newer version")
        self.tag = tag


@dataclass(frozen=True, slots=True)
class PutStream:
    """A stream is made, or its configuration replaced. Of group 0; `group` is the stream's own."""

    tag: ClassVar[int] = 1
    group: int
    stream_id: bytes
    account: str
    name: str
    config: Config


@dataclass(frozen=True, slots=True)
class RemoveStream:
    """A stream goes, with its messages and consumers. Of group 0."""

    tag: ClassVar[int] = 2
    group: int


@dataclass(frozen=True, slots=True)
class Delete:
    """One message goes. `erase` is what the client asked for; its bytes are not overwritten either way."""

    tag: ClassVar[int] = 3
    seq: int
    erase: bool


@dataclass(frozen=True, slots=True)
class Purge:
    """Messages below `to_seq` (0: all) that match `subject` (empty: all) go, but for the last `keep`."""

    tag: ClassVar[int] = 4
    to_seq: int
    subject: bytes
    keep: int


@dataclass(frozen=True, slots=True)
class Expire:
    """Messages below `to_seq`, and those listed, have outlived their time."""

    tag: ClassVar[int] = 5
    to_seq: int
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PutConsumer:
    """A consumer is made, or its configuration replaced. `consumer` is its number within the stream."""

    tag: ClassVar[int] = 6
    consumer: int
    name: str
    config: Config


@dataclass(frozen=True, slots=True)
class RemoveConsumer:
    """A consumer goes."""

    tag: ClassVar[int] = 7
    consumer: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Messages were handed out at `ts_ns`; the first was the consumer's delivery `first_delivery_seq`."""

    tag: ClassVar[int] = 8
    consumer: int
    ts_ns: int
    seqs: Seqs
    # 0 means the next one, for whoever did not count.
    first_delivery_seq: int


# The kinds of an Ack: messages one by one, everything up to a message, an end without success, and an end
# because there were deliveries enough or the message is gone.
ACK: Final = 0
ACK_ALL: Final = 1
TERM: Final = 2
GIVEN_UP: Final = 3


@dataclass(frozen=True, slots=True)
class Ack:
    """Messages were answered for, in the way that `kind` says."""

    tag: ClassVar[int] = 9
    consumer: int
    kind: int
    seqs: Seqs


@dataclass(frozen=True, slots=True)
class Skip:
    """The stream's last seq becomes `to_seq`; what lies between never existed."""

    tag: ClassVar[int] = 10
    to_seq: int


@dataclass(frozen=True, slots=True)
class Shed:
    """Messages were given up for the sake of others, and `reason` says which need there was."""

    tag: ClassVar[int] = 11
    first_seq: int
    last_seq: int
    reason: str
    ts_ns: int


@dataclass(frozen=True, slots=True)
class Refill:
    """A message that was lost, from somebody who still had it, comes back under its seq."""

    tag: ClassVar[int] = 12
    seq: int
    ts_ns: int
    subject: bytes
    header_bytes: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ResetConsumer:
    """A consumer begins anew with the message of this seq; 0: behind the last one that it has settled."""

    tag: ClassVar[int] = 13
    consumer: int
    seq: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """A client will not have a message again, and says why; an Ack of kind TERM says it without that."""

    tag: ClassVar[int] = 14
    consumer: int
    seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class LettersTaken:
    """The dead letters of messages that a consumer gave up are where they belong. It may be gone by now."""

    tag: ClassVar[int] = 15
    consumer: int
    seqs: Seqs


@dataclass(frozen=True, slots=True)
class Configure:
    """From here on this is the configuration of a stream that several nodes have. Others have PutStream."""

    tag: ClassVar[int] = 16
    config: Config


Command = (
    PutStream
    | RemoveStream
    | Delete
    | Purge
    | Expire
    | PutConsumer
    | RemoveConsumer
    | Dispatch
    | Ack
    | Skip
    | Shed
    | Refill
    | ResetConsumer
    | Terminate
    | LettersTaken
    | Configure
)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def _is_group(value: Any) -> bool:
    return type(value) is int and 0 < value <= GROUP_MAX


def _is_kind(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 0xFF


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value.encode()) <= TEXT_BYTES_MAX


def _is_subject(value: Any) -> bool:
    return type(value) is bytes and len(value) <= SUBJECT_BYTES_MAX


def _is_data(value: Any) -> bool:
    return type(value) is bytes and len(value) <= BODY_BYTES_MAX


def _is_stream_id(value: Any) -> bool:
    return type(value) is bytes and len(value) == STREAM_ID_BYTES


def _are_seqs(value: Any) -> bool:
    if type(value) is range:
        ends = sorted((value[0], value[-1])) if value else (0, 0)
        return len(value) <= SEQS_MAX and ends[0] >= 0 and ends[1] <= SEQ_LISTED_MAX
    if type(value) is not tuple or len(value) > SEQS_MAX:
        return False
    return not value or (set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= SEQ_LISTED_MAX)


def _is_config(value: Any) -> bool:
    """Whether it is a dict that comes out of msgpack as it went in. No recursion: it may come from a disk."""
    if type(value) is not dict:
        return False
    level: list[Any] = [value]
    for _ in range(CONFIG_DEPTH_MAX):
        inner: list[Any] = []
        for item in level:
            if type(item) in (dict, list):
                if len(item) > SEQS_MAX:
                    return False
                if type(item) is dict and not all(type(key) is str for key in item):
                    return False
                inner += item.values() if type(item) is dict else item
            elif type(item) is int:
                if not -(2**63) <= item <= NUMBER_MAX:
                    return False
            elif item is not None and type(item) not in (bool, float, str, bytes):
                return False
        if not inner:
            return True
        level = inner
    return False


_CLASSES: Final[dict[int, type[Command]]] = {
    command.tag: command
    for command in (
        *(PutStream, RemoveStream, Delete, Purge, Expire, PutConsumer, RemoveConsumer),
        *(Dispatch, Ack, Skip, Shed, Refill, ResetConsumer, Terminate, LettersTaken, Configure),
    )
}
# A name means the same in every command.
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "group": _is_group,
    "stream_id": _is_stream_id,
    "account": _is_text,
    "name": _is_text,
    "reason": _is_text,
    "config": _is_config,
    "seq": _is_number,
    "to_seq": _is_number,
    "first_seq": _is_number,
    "last_seq": _is_number,
    "first_delivery_seq": _is_number,
    "keep": _is_number,
    "consumer": _is_number,
    "ts_ns": _is_number,
    "seqs": _are_seqs,
    "subject": _is_subject,
    "erase": _is_flag,
    "kind": _is_kind,
    "header_bytes": _is_number,
    "data": _is_data,
}
_NAMES: Final = {tag: tuple(field.name for field in fields(known)) for tag, known in _CLASSES.items()}


# How a refill begins: a list of its tag and its fields.
_REFILL_START: Final = bytes([0x90 | 1 + len(_NAMES[Refill.tag]), Refill.tag])


def _bytes_max(body: bytes) -> int:
    """How large a command may be. A message has room for as much as the frame in which it came at first."""
    return BODY_BYTES_MAX if body.startswith(_REFILL_START) else COMMAND_BYTES_MAX


def encode(command: Command) -> bytes:
    """The body of a COMMAND frame; ValueError if there is more in the command than one may hold."""
    values: list[Any] = [command.tag]
    for name in _NAMES[command.tag]:
        value = getattr(command, name)
        if not _CHECKS[name](value):
            raise ValueError(f"{name} of {type(command).__name__} cannot be stored")
        values.append(folded(value) if name == "seqs" else value)
    body: bytes = msgpack.packb(values)
    if len(body) > _bytes_max(body):
        raise ValueError(f"{type(command).__name__} of {len(body)} bytes is too large to be stored")
    return body


def decode(body: bytes) -> Command:
    """The command in the body of a COMMAND frame; ValueError if it is none, UnknownCommand if it is new."""
    if len(body) > _bytes_max(body):
        raise ValueError(f"a command of {len(body)} bytes")
    values = msgpack.unpackb(body, max_array_len=SEQS_MAX, max_map_len=SEQS_MAX)
    if type(values) is not list or not values or type(values[0]) is not int:
        raise ValueError("not a command")
    tag = values[0]
    command = _CLASSES.get(tag)
    if command is None:
        raise UnknownCommand(tag)
    names = _NAMES[tag]
    if len(values) != 1 + len(names):
        raise ValueError(f"{command.__name__} with {len(values) - 1} fields")
    found: dict[str, Any] = {}
    for name, value in zip(names, values[1:], strict=True):
        found[name] = unfolded(value, SEQS_MAX) if name == "seqs" and type(value) is list else value
        if not _CHECKS[name](found[name]):
            raise ValueError(f"{name} of {command.__name__} is not valid")
    return command(**found)
