"""The state of a group that comes from another node, instead of the entries that led to it.

It is what a checkpoint keeps of the group; messages are in segments, which are durable under their names
before the journal speaks of them. An INSTALL frame makes it count: its index is that of the last entry in it.

Rules: the entry of the stream stays, its log and machine are new. Segments of the log before go when no
checkpoint speaks of them any more. A segment made for this has a generation that no checkpoint has. Files are
read before the frame is written (prepare()), as what is durable then has to be taken over: install() of what
is prepared cannot fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgpack

from edged.core.commands import PutStream
from edged.core.replica_records import MembersRecord
from edged.core.stream_machine import StreamMachine
from edged.store.group import CATALOG, StreamEntry
from edged.store.restore import expect_expiries, restore_log
from edged.store.stream_log import StreamLog

if TYPE_CHECKING:
    from edged.store.group import Group
    from edged.store.store import Store

VERSION: Final = 1
GENERATION_MIN: Final = 50_000_000
GENERATIONS: Final = 49_999_999


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group up to some entry: its term, the members then, and what the machine and the log hold."""

    term: int
    members: MembersRecord
    config: dict[str, Any]
    machine: dict[str, Any]
    log: dict[str, Any] | None

    def encode(self) -> bytes:
        """The body of an INSTALL frame."""
        values = [VERSION, self.term, self.members.listed(), self.config, self.machine, self.log]
        body: bytes = msgpack.packb(values)
        return body

    @classmethod
    def decode(cls, body: bytes) -> GroupState:
        """The reverse. Raises ValueError."""
        values = msgpack.unpackb(body, strict_map_key=False)
        if type(values) is not list or len(values) != 6 or values[0] != VERSION:
            raise ValueError("not the state of a group")
        _, term, members, config, machine, log = values
        return cls(term, MembersRecord.of_list(members), config, machine, log)

    @classmethod
    def empty(cls, genesis: tuple[int, ...]) -> GroupState:
        """Of a stream that nothing was ever done with."""
        log = {"last_seq": 0, "last_ts_ns": 0, "segments": [], "lost": []}
        return cls(0, MembersRecord(0, genesis), {}, {}, log)

    @classmethod
    def in_checkpoint(cls, state: dict[str, Any], group: int) -> tuple[int, GroupState] | None:
        """What a checkpoint has of a group, and up to which entry; None if that is nothing."""
        saved = next((one for one in state.get("replicas", ()) if one[0] == group), None)
        if saved is None:
            return None
        _, _, term, members = saved
        record = MembersRecord.of_list(members)
        if group == CATALOG:
            genesis = dict(state.get("genesis", ()))
            streams = [[*one[:5], genesis.get(one[0], [])] for one in state["groups"]]
            catalog = {"highest_group": state["highest_group"], "streams": [*streams, *state["elsewhere"]]}
            return state["catalog"], cls(term, record, {}, catalog, None)
        found = next((one for one in state["groups"] if one[0] == group), None)
        if found is None:
            return None
        _, _, _, _, _, index, machine, log = found
        return index, cls(term, record, dict(state["configs"]).get(group, {}), machine, log)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A state that may be installed: of a stream with its log and machine, which nobody else has."""

    found: GroupState
    log: StreamLog | None = None
    machine: StreamMachine | None = None


def prepare(store: Store, group: int, found: GroupState) -> Prepared:
    """Open what a state speaks of. Raises StoreError."""
    if found.log is None:
        return Prepared(found)
    log = restore_log(store, store.catalog.streams[group].stream_id, found.log)
    machine = StreamMachine(log, found.config, log)
    if found.machine:
        machine.restore(found.machine)
    expect_expiries(machine, log)
    return Prepared(found, log, machine)


def install(store: Store, group: Group, index: int, prepared: Prepared, file: int) -> list[int]:
    """Let a state take the place of a group's; the streams of which the catalog says something new.

    `file` is the journal file that has the INSTALL frame.
    """
    group.applied = index
    group.refused.clear()
    found = prepared.found
    if group.number == CATALOG:
        commands = [
            (PutStream(number, stream_id, account, name, config), tuple(genesis))
            for number, stream_id, account, name, config, genesis in found.machine["streams"]
        ]
        return store.catalog.install(commands, found.machine["highest_group"])
    _install_stream(store, store.catalog.streams[group.number], prepared, file)
    return []


def _install_stream(store: Store, entry: StreamEntry, prepared: Prepared, file: int) -> None:
    assert prepared.log is not None and prepared.machine is not None, entry.name
    old = entry.log
    entry.log, entry.group.machine = prepared.log, prepared.machine
    if isinstance(old, StreamLog):
        store.condemned += [[file + 1, segment.path] for segment in old.segments]
