"""A group: the unit of order in the journal. Group 0 is the catalog of streams; every stream is another.

At a hub several nodes have a group; whoever is not among them knows of a stream that it is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from edged.core.api_errors import STREAM_NOT_FOUND, stream_general
from edged.core.commands import CATALOG as CATALOG
from edged.core.commands import PEERS, Command, PutStream, RemoveStream
from edged.core.replica_records import HardRecord, MembersRecord
from edged.core.stream_machine import MessageLog, Outcome, Refused, StreamMachine
from edged.store.found_log import FoundLog
from edged.store.stream_log import StreamLog

if TYPE_CHECKING:
    from edged.ports import GroupReplica

# What is told of a group: its stream is there or configured otherwise, or it is gone.
PUT: Final = "put"
REMOVED: Final = "removed"
# Told what happened to a stream, and its group.
Listener = Callable[[str, int], None]


class Machine(Protocol):
    """What commands of a group are applied to."""

    def apply(self, command: Command) -> Outcome: ...


class Group:
    """A machine and how far it is: `applied` is behind us, `next_index` is given to the next command."""

    __slots__ = ("applied", "found", "is_reported", "machine", "next_index", "number", "refused", "replica")

    def __init__(self, number: int, machine: Machine, applied: int = 0, is_reported: bool = True) -> None:
        self.number = number
        self.machine = machine
        self.applied = applied
        self.next_index = applied + 1
        # Appends refused since the last batch record.
        self.refused: list[int] = []
        # Whether batch records tell how far it is: not when the journal has nothing of it.
        self.is_reported = is_reported
        # At a hub: the log that recovery found, and from then on who agrees with the other nodes about it.
        self.found: FoundLog | None = None
        self.replica: GroupReplica | None = None

    @property
    def has_losses(self) -> bool:
        """Whether messages of it are known to be lost."""
        return isinstance(self.machine, StreamMachine) and bool(self.machine.log.lost)

    @property
    def lacks_messages(self) -> bool:
        """Whether messages of it are lost that another node may have."""
        machine = self.machine
        log = machine.log if isinstance(machine, StreamMachine) else None
        return isinstance(log, StreamLog) and log.is_lacking

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
        "genesis",
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
        self.is_in_memory = _is_in_memory(command.config)
        # The nodes that the group began with; none if it is of one node alone.
        self.genesis: tuple[int, ...] = ()
        # In the books. By its group, as a name may be used again before its last owner is gone.
        self.key = str(group.number)
        # How much of it a hub has confirmed: what may go first when space runs out.
        self.synced_bytes = 0

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The stream's metadata."""
        return tuple((self.config.get("metadata") or {}).items())


def peers_of(config: dict[str, Any]) -> tuple[int, ...]:
    """The nodes that have a stream; none if it is of one node alone."""
    return tuple(config.get(PEERS) or ())


def _is_in_memory(config: dict[str, Any]) -> bool:
    """What several nodes have is in the journal of each of them, so that none forgets what it confirmed."""
    return config.get("storage") == "memory" and not peers_of(config)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A stream that other nodes have, and with which of them its group began."""

    stream_id: bytes
    account: str
    name: str
    config: dict[str, Any]
    genesis: tuple[int, ...]


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

    __slots__ = (
        *(
            "_make_log",
            "elsewhere",
            "groups",
            "highest_group",
            "left",
            "listener",
            "node",
            "removed",
            "streams",
        ),
    )

    def __init__(self, groups: dict[int, Group], make_log: LogMaker) -> None:
        self._make_log = make_log
        self.groups = groups
        self.streams: dict[int, StreamEntry] = {}
        # Numbers are not given out twice: old records of a removed stream may still be in the journal.
        self.highest_group = CATALOG
        # Streams gone since the last checkpoint, whose files can go once no checkpoint speaks of them.
        self.removed: list[bytes] = []
        # At a hub: which node this is, the streams that only others have, and those of them that this node
        # had once: should they come back, it must not vote before it is as complete as it was.
        self.node = 0
        self.elsewhere: dict[int, Assignment] = {}
        self.left: set[int] = set()
        # Told of every change where it is applied, so that whoever serves streams follows the catalog.
        self.listener: Listener | None = None

    def listen(self, listener: Listener) -> None:
        """Tell of every stream that there is, and from now on of every change."""
        self.listener = listener
        for group in sorted((*self.streams, *self.elsewhere)):
            listener(PUT, group)

    def apply(self, command: Command) -> Outcome:
        if isinstance(command, PutStream):
            outcome = self._put(command)
            if not isinstance(outcome, Refused):
                self._tell(PUT, command.group)
            return outcome
        assert isinstance(command, RemoveStream), command
        self.left.discard(command.group)
        if self.elsewhere.pop(command.group, None) is None and not self._drop(command.group):
            return Refused(STREAM_NOT_FOUND)
        self._tell(REMOVED, command.group)
        return 0

    def _drop(self, group: int) -> bool:
        """Give up what this node has of a stream; False if that is nothing."""
        entry = self.streams.pop(group, None)
        if entry is None:
            return False
        del self.groups[group]
        self.removed.append(entry.stream_id)
        return True

    def _tell(self, kind: str, group: int) -> None:
        if self.listener is not None:
            self.listener(kind, group)

    def add(
        self,
        command: PutStream,
        log: MessageLog,
        applied: int = 0,
        genesis: tuple[int, ...] = (),
        config: dict[str, Any] | None = None,
    ) -> StreamEntry:
        """A stream that is new, or comes from a checkpoint. `genesis`: the nodes that its group began with.

        What several nodes have is configured by a command of their own log, which all apply in the same
        place: `config` is what it was.
        """
        runs = log if isinstance(log, StreamLog) else None
        config = config or {} if genesis else command.config
        group = Group(command.group, StreamMachine(log, config, runs), applied, runs is not None)
        entry = StreamEntry(command, group, log)
        if genesis:
            entry.genesis = genesis
            hard = HardRecord(is_rejoining=command.group in self.left or self._has_forgotten)
            group.found = FoundLog(group, MembersRecord(0, genesis), hard)
        self.groups[command.group] = group
        self.streams[command.group] = entry
        self.highest_group = max(self.highest_group, command.group)
        return entry

    @property
    def _has_forgotten(self) -> bool:
        """Whether this node may have had streams, and confirmed what is in them, that it does not know of."""
        own = self.groups[CATALOG]
        if own.found is not None:
            return own.found.hard.is_rejoining
        return own.replica is not None and own.replica.is_rejoining

    def holes(self) -> list[MissingMessages]:
        """What is lost of all streams."""
        return [
            MissingMessages(number, entry.account, entry.name, *lost)
            for number, entry in sorted(self.streams.items())
            for lost in entry.log.lost
        ]

    def install(self, commands: list[tuple[PutStream, tuple[int, ...]]], highest_group: int) -> list[int]:
        """Have these streams and no others, with the nodes that each began with; those there is news of."""
        listed = {command.group for command, _ in commands}
        gone = sorted({*self.streams, *self.elsewhere} - listed)
        for group in gone:
            self.apply(RemoveStream(group))
        for command, genesis in commands:
            self._put(command, genesis)
        self.highest_group = max(self.highest_group, highest_group)
        return [*gone, *sorted(listed)]

    def _put(self, command: PutStream, began_with: tuple[int, ...] = ()) -> Outcome:
        entry = self.streams.get(command.group)
        known = entry or self.elsewhere.get(command.group)
        if known is not None and known.stream_id != command.stream_id:
            return Refused(stream_general("the group belongs to another stream"))
        peers = peers_of(command.config) if self.node else ()
        genesis = (began_with or peers) if known is None else known.genesis
        if peers and self.node not in peers:
            if self._drop(command.group):
                self.left.add(command.group)
            self.elsewhere[command.group] = Assignment(
                command.stream_id, command.account, command.name, command.config, genesis
            )
            self.highest_group = max(self.highest_group, command.group)
        elif entry is None:
            self.elsewhere.pop(command.group, None)
            log = self._make_log(command.stream_id, _is_in_memory(command.config))
            self.add(command, log, genesis=genesis)
        else:
            entry.config = command.config
            entry.sync = ""
            machine = entry.group.machine
            assert isinstance(machine, StreamMachine)
            if PEERS not in command.config:
                machine.configure(command.config)
            # Else whoever leads the stream says in its own group from where on that counts: the groups of a
            # stream and of the catalog do not advance together on all nodes.
        return 0
