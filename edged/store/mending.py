"""Puts lost messages back: by a command at the edge, by frames of this node alone where several nodes agree.

Where a group is replicated a hole is the matter of one node, and its log is that of all. So what comes from
another node is a REPAIR frame (edged/core/repair_records.py): durable first, then put back, and again in
every replay.

Rules: nothing is put back that is not lost or unreadable here; what is refused is not an error, as a command
may have deleted the message meanwhile. Limits are not looked at: only commands decide what goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from edged.core.commands import Refill
from edged.core.frames import REPAIR
from edged.core.message import Message
from edged.core.repair_records import GivenUp, Repaired, Settled, encode_repaired
from edged.core.stream_machine import Outcome, StreamMachine
from edged.store.batch import Mend
from edged.store.errors import StoreFull
from edged.store.install import GroupState, install, prepare
from edged.store.stream_log import StreamLog

if TYPE_CHECKING:
    from edged.store.batch import Done
    from edged.store.group import Group, MissingMessages
    from edged.store.store import Store


class Mending:
    """The part of a store that makes good what its disk has lost."""

    @property
    def holes(self) -> list[MissingMessages]:
        """The messages of all streams that are known to be lost, for who can get them elsewhere."""
        return cast("Store", self).catalog.holes()

    def add_refill(self, group: int, message: Message, done: Done) -> None:
        """Let a lost message, from somebody who still has it, be part of the next batch."""
        store = cast("Store", self)
        if self._admits(group, len(message.data), done):
            store.add(group, Refill(*message), done)

    def add_repair(self, group: int, records: Sequence[Repaired], done: Done) -> None:
        """Let what other nodes said of lost messages be part of the next batch. KeyError without a stream."""
        store = cast("Store", self)
        size = sum(len(record.data) for record in records if isinstance(record, Message))
        if not self._admits(group, size, done):
            return
        batch = store.gathering
        for record in records:
            batch.buffer.add(REPAIR, group, 0, encode_repaired(record))
        batch.entries.append(Mend(group, records, done))
        batch.frees_space = False
        batch.is_sync_needed = batch.is_sync_needed or store.waits_for_disk(group)

    def _admits(self, group: int, size: int, done: Done) -> bool:
        """Whether there is room; else `done` is told."""
        store = cast("Store", self)
        try:
            store.room.admit(store.catalog.streams[group], size, store.gathered_bytes, store.options.now_ns())
        except StoreFull as error:
            done(error)
            return False
        return True

    def mend(self, entry: Mend, file: int) -> Sequence[Outcome]:
        """Put back what is durable, in this journal file; for each record a seq, or why it was not wanted."""
        store = cast("Store", self)
        group = store.groups.get(entry.group)
        if group is None:
            # Its stream was removed by a command before this one.
            return []
        outcomes: list[Outcome] = []
        for record in entry.records:
            if isinstance(record, GivenUp):
                empty = prepare(store, entry.group, GroupState.empty(record.genesis))
                install(store, group, 0, empty, file)
                group.next_index = 1
                outcomes.append(0)
            else:
                outcomes.append(put_back(group, record))
        store.room.count(store.catalog.streams[entry.group])
        return outcomes


def put_back(group: Group, record: Message | Settled) -> Outcome:
    """Take over what is known of lost messages."""
    machine = group.machine
    assert isinstance(machine, StreamMachine), group.number
    if isinstance(record, Message):
        return machine.put_back(record)
    if isinstance(machine.log, StreamLog):
        machine.log.settle_lost(record.first_seq, record.last_seq, record.is_lost)
    return 0
