"""A disk: records are written, become durable by a sync, and may be lost, damaged or refused.

Rules: syncs end in the order in which they were begun. A power cut keeps all that is durable and any first
part of what is not; a record that was torn counts as not there, as its checksum says so. The image is what
a start would find. A disk that lies says that entries are durable when they are not; what names a term or a
vote it does keep. A lax one is not asked to keep commands, and keeps them no later than what follows on them.

Damage hits the commands of entries only. Where the entries are, of which term, who the members are, and the
hard state are kept twice, as is the checksum that tells what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from hub.raft.log import Recovered
from hub.raft.members import Members
from hub.raft.messages import Block, HardState
from tests.sim.events import Events
from tests.sim.machine import MEMBERS_BYTES, State, checksum_of, command_bytes, first_state

# (term, command, members): the command is None where it was damaged, the members where there is a command.
Entry = tuple[int, int | None, Members | None]
Record = tuple[Any, ...]

# The kinds of records.
HARD_STATE: Final = 0  # term, vote
APPEND: Final = 1  # first index, entries
TRUNCATE: Final = 2  # first index that goes
PART: Final = 3  # nothing: the parts of a snapshot are of no use after a start
INSTALL: Final = 4  # state
CHECKPOINT: Final = 5  # state, last index that is forgotten
REPAIR: Final = 6  # index, command


class Image:
    """What is durable."""

    __slots__ = (
        *("base_index", "base_members", "base_term", "boot", "checkpoint", "damaged", "entries"),
        *("term", "vote"),
    )

    def __init__(self, genesis: Members) -> None:
        self.term = 0
        self.vote = 0
        self.boot = 0
        self.checkpoint: State = first_state(genesis)
        self.base_index = 0
        self.base_term = 0
        self.base_members = genesis
        self.entries: list[Entry] = []
        # Index -> checksum of the command that cannot be read.
        self.damaged: dict[int, int] = {}

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.base_index + len(self.entries)

    def term_at(self, index: int) -> int | None:
        """The term of an entry that is there; the base stands for all before it."""
        place = index - self.base_index - 1
        if place >= len(self.entries):
            return None
        return self.entries[place][0] if place >= 0 else self.base_term

    def carry_out(self, record: Record) -> None:
        """One more record is durable."""
        kind = record[0]
        if kind == APPEND:
            self._append(record[1], record[2])
        elif kind == HARD_STATE:
            self.term, self.vote = record[1], record[2]
        elif kind == TRUNCATE:
            del self.entries[record[1] - self.base_index - 1 :]
            self._keep_damage(lambda index: index < record[1])
        elif kind == INSTALL:
            self.checkpoint = record[1]
            self._start_at(record[1])
            self.entries.clear()
            self.damaged.clear()
        elif kind == CHECKPOINT:
            self.checkpoint = record[1]
            self.forget(record[2])
        elif kind == REPAIR and record[1] in self.damaged:
            term, _, members = self.entries[record[1] - self.base_index - 1]
            self.entries[record[1] - self.base_index - 1] = (term, record[2], members)
            del self.damaged[record[1]]

    def _append(self, first: int, entries: list[Entry]) -> None:
        """Entries know their index: they void what is there already, and are void behind a gap."""
        last = self.base_index + len(self.entries)
        if first <= last:
            del self.entries[max(0, first - self.base_index - 1) :]
        if first <= last + 1:
            self.entries.extend(entries)

    def _start_at(self, state: State) -> None:
        self.base_index, self.base_term, self.base_members = state.index, state.term, state.members

    def _keep_damage(self, is_kept: Callable[[int], bool]) -> None:
        if self.damaged:
            self.damaged = {index: value for index, value in self.damaged.items() if is_kept(index)}

    def forget(self, index: int) -> None:
        """The entries up to there are in the checkpoint."""
        count = index - self.base_index
        if count <= 0:
            return
        for _, _, members in self.entries[:count]:
            if members is not None:
                self.base_members = members
        self.base_term = self.entries[count - 1][0]
        self.base_index = index
        del self.entries[:count]
        self._keep_damage(lambda damaged: damaged > index)

    def damage(self, index: int) -> bool:
        """Lose a command; False if there is none to lose."""
        place = index - self.base_index - 1
        term, command, members = self.entries[place]
        if members is not None or command is None:
            return False
        self.damaged[index] = checksum_of(command)
        self.entries[place] = (term, None, None)
        return True

    def adopt(self, state: State) -> None:
        """Take the state of another node instead of what is damaged. It was committed, so it fits."""
        if self.term_at(state.index) == state.term and state.index > self.base_index:
            self.forget(state.index)
        else:
            self.entries.clear()
            self.damaged.clear()
            self._start_at(state)
        self.checkpoint = state
        if state.term > self.term:
            self.term, self.vote = state.term, 0

    def recovered(self) -> tuple[HardState, Recovered]:
        """What the core is told at a start."""
        blocks: list[Block] = []
        first = self.base_index + 1
        for index, (term, command, members) in enumerate(self.entries, first):
            if members is not None:
                blocks.append(Block(index, 1, term, MEMBERS_BYTES, members))
            else:
                blocks.append(Block(index, 1, term, command_bytes(command or 0)))
        recovered = Recovered(
            self.base_index, self.base_term, self.base_members, tuple(blocks), self.checkpoint.index
        )
        return HardState(self.term, self.vote), recovered


class Disk:
    """The disk of one node, over all its starts."""

    __slots__ = (
        *("_busy_us", "_events", "_fail", "_floating", "_is_lax", "_life", "_lies", "_pending", "_random"),
        *("_slow_us", "_syncing", "_synced", "image"),
    )

    def __init__(
        self, events: Events, random: Random, genesis: Members, *, lies: bool, is_lax: bool = False
    ) -> None:
        self._events = events
        self._random = random
        self._lies = lies
        self._is_lax = is_lax
        self._fail = 0.0
        self._slow_us = 2000
        self._pending: list[Record] = []
        # What it said was durable, and is not.
        self._floating: list[Record] = []
        self._life = 0
        self._busy_us = 0
        self._synced: Callable[[bool], None] | None = None
        # How many of the pending records a sync is under way for.
        self._syncing = 0
        self.image = Image(genesis)

    def set_trouble(self, fail: float, slow_us: int) -> None:
        """How likely a sync fails, and how long one takes at most."""
        self._fail = fail
        self._slow_us = slow_us

    def attach(self, synced: Callable[[bool], None]) -> None:
        """`synced` is told of each sync whether it worked."""
        self._synced = synced

    def write(self, records: list[Record]) -> None:
        """Write records; a sync makes them durable."""
        self._pending.extend(records)

    def sync(self) -> None:
        """Begin to make durable what was written since the last sync was begun."""
        count = len(self._pending) - self._syncing
        self._syncing += count
        late = self._random.random()
        delay_us = 100 + int(self._slow_us * late * late * late * late)
        self._busy_us = max(self._busy_us, self._events.now_us) + delay_us
        self._events.at(self._busy_us, self._end_sync, self._life, count)

    def _end_sync(self, life: int, count: int) -> None:
        if life != self._life:
            return
        assert self._synced is not None
        if self._fail and self._random.random() < self._fail:
            # Nobody knows how much of it is there; what was written behind it is of no use.
            del self._pending[self._random.randint(0, count) :]
            self._syncing = 0
            self._synced(False)
            return
        done = self._pending[:count]
        del self._pending[:count]
        self._syncing -= count
        if self._is_floating(done):
            self._floating.extend(done)
            # Sooner or later it does write.
            if len(self._floating) > 50:
                self._settle(self._random.randint(1, len(self._floating)))
        else:
            if self._floating:
                self._settle(len(self._floating))
            carry_out = self.image.carry_out
            for record in done:
                carry_out(record)
        self._synced(True)

    def _is_floating(self, done: list[Record]) -> bool:
        """Whether these are said to be durable, and are not."""
        if self._is_lax:
            return all(record[0] == CHECKPOINT or _has_only_commands(record) for record in done)
        return self._lies and not any(record[0] == HARD_STATE for record in done)

    def _settle(self, count: int) -> None:
        for record in self._floating[:count]:
            self.image.carry_out(record)
        del self._floating[:count]

    def stop(self, *, keeps_all: bool) -> None:
        """The node stops: of what is not durable any first part is there at the next start."""
        unsure = self._floating + self._pending
        kept = len(unsure) if keeps_all else self._random.randint(0, len(unsure))
        for record in unsure[:kept]:
            self.image.carry_out(record)
        self._floating.clear()
        self._pending.clear()
        self._syncing = 0
        self._life += 1
        self._busy_us = 0


def _has_only_commands(record: Record) -> bool:
    return record[0] == APPEND and all(members is None for _, _, members in record[2])
