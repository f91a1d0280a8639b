"""A group: the unit of order in the journal. Group 0 is the catalog of streams; every stream is another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from edged.core.api_errors import STREAM_NOT_FOUND, stream_general
from edged.core.commands import Command, PutStream, RemoveStream
from edged.core.stream_machine import MessageLog, Outcome, Refused, StreamMachine
from edged.store.stream_log import StreamLog

CATALOG = 0


class Machine(Protocol):
    """What commands of a group are applied to."""

    def apply(self, command: Command) -> Outcome: ...


class Group:
    """A machine and how far it is: `applied` is behind us, `next_index` is given to the next command."""

    __slots__ = ("applied", "is_reported", "machine", "next_index", "number", "refused")

    def __init__(self, number: int, machine: Machine, applied: int = 0, is_reported: bool = True) -> None:
        self.number = number
        self.machine = machine
        self.applied = applied
        self.next_index = applied + 1
        # Appends refused since the last batch record.
        self.refused: list[int] = []
        # Whether batch records tell how far it is: not when the journal has nothing of it.
        self.is_reported = is_reported

    @property
    def has_losses(self) -> bool:
        """Whether messages of it are known to be lost."""
        return isinstance(self.machine, StreamMachine) and bool(self.machine.log.lost)

    @property
    def last_seq(self) -> int:
        """The last seq of a stream's group."""
        machine = self.machine
        return machine.log.last_seq if isinstance(machine, StreamMachine) else 0


class StreamEntry:
    """A stream as the catalog knows it."""

    __slots__ = (
        "account",
        "config",
        "group",
        "is_in_memory",
        "key",
        "log",
        "name",
        "stream_id",
        "sync",
        "synced_bytes",
    )

    def __init__(self, command: PutStream, group: Group, log: MessageLog) -> None:
        self.stream_id = command.stream_id
        self.account = command.account
        self.name = command.name
        self.config: dict[str, Any] = command.config
        # How durable what it acknowledges is; empty until somebody asks, as the store's options say that.
        self.sync = ""
        self.group = group
        self.log = log
        # Whether the messages are in memory only. That never changes.
        self.is_in_memory = command.config.get("storage") == "memory"
        # In the books. By its group, as a name may be used again before its last owner is gone.
        self.key = str(group.number)
        # How much of it a hub has confirmed: what may go first when space runs out.
        self.synced_bytes = 0

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The stream's metadata."""
        return tuple((self.config.get("metadata") or {}).items())


@dataclass(frozen=True, slots=True)
class MissingMessages:
    """Messages of a stream that are lost; among the seqs may be some that never had one."""

    group: int
    account: str
    stream: str
    first_seq: int
    last_seq: int
    reason: str


class LogMaker(Protocol):
    """Makes the log of a new stream."""

    def __call__(self, stream_id: bytes, is_in_memory: bool) -> MessageLog: ...


class Catalog:
    """Which streams exist. The machine of group 0."""

    __slots__ = ("_make_log", "groups", "highest_group", "removed", "streams")

    def __init__(self, groups: dict[int, Group], make_log: LogMaker) -> None:
        self._make_log = make_log
        self.groups = groups
        self.streams: dict[int, StreamEntry] = {}
        # Numbers are not given out twice: old records of a removed stream may still be in the journal.
        self.highest_group = CATALOG
        # Streams gone since the last checkpoint, whose files can go once no checkpoint speaks of them.
        self.removed: list[bytes] = []

    def apply(self, command: Command) -> Outcome:
        if isinstance(command, PutStream):
            return self._put(command)
        assert isinstance(command, RemoveStream), command
        entry = self.streams.pop(command.group, None)
        if entry is None:
            return Refused(STREAM_NOT_FOUND)
        del self.groups[command.group]
        self.removed.append(entry.stream_id)
        return 0

    def add(self, command: PutStream, log: MessageLog, applied: int = 0) -> StreamEntry:
        """A stream that is new, or comes from a checkpoint."""
        runs = log if isinstance(log, StreamLog) else None
        group = Group(command.group, StreamMachine(log, command.config, runs), applied, runs is not None)
        entry = StreamEntry(command, group, log)
        self.groups[command.group] = group
        self.streams[command.group] = entry
        self.highest_group = max(self.highest_group, command.group)
        return entry

    def holes(self) -> list[MissingMessages]:
        """What is lost of all streams."""
        return [
            MissingMessages(number, entry.account, entry.name, *lost)
            for number, entry in sorted(self.streams.items())
            for lost in entry.log.lost
        ]

    def _put(self, command: PutStream) -> Outcome:
        entry = self.streams.get(command.group)
        if entry is None:
            in_memory = command.config.get("storage") == "memory"
            self.add(command, self._make_log(command.stream_id, in_memory))
        elif entry.stream_id != command.stream_id:
            return Refused(stream_general("the group belongs to another stream"))
        else:
            entry.config = command.config
            entry.sync = ""
            machine = entry.group.machine
            assert isinstance(machine, StreamMachine)
            machine.configure(command.config)
        return 0
