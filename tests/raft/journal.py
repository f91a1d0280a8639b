"""What one node of the tests has on its disk, and what it has written there without a sync.

Rules: a Ready is carried out in the order of its fields (hub/raft/ready.py). Nothing here decides anything.
Invariant: entries have no gap and follow on the base.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from hub.raft.log import Recovered
from hub.raft.members import Members
from hub.raft.messages import Block, HardState, Snapshot
from hub.raft.ready import Ready


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: a command, or the members."""

    index: int
    term: int
    command: str | None = None
    members: Members | None = None


@dataclass(slots=True)
class Journal:
    """Hard state, log, and the snapshot that the log follows on."""

    members: Members
    hard_state: HardState = field(default_factory=lambda: HardState(0, 0))
    base_index: int = 0
    base_term: int = 0
    entries: list[Entry] = field(default_factory=list)
    # The state up to the base: all commands so far.
    commands: tuple[str, ...] = ()
    # Bytes of snapshots that arrive, by identity; a later one may begin before an earlier one is installed.
    received: dict[int, bytes] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return self.base_index + len(self.entries)

    def entry(self, index: int) -> Entry:
        return self.entries[index - self.base_index - 1]

    def term(self, index: int) -> int:
        return self.base_term if index == self.base_index else self.entry(index).term

    def terms(self) -> list[int]:
        """The terms of all entries there are."""
        return [entry.term for entry in self.entries]

    def copy(self) -> Journal:
        return deepcopy(self)

    def carry_out(self, ready: Ready) -> None:
        """Write what is to be written, in the order of the fields. Blocks must have their commands."""
        if ready.hard_state is not None:
            assert ready.hard_state.term >= self.hard_state.term, (ready.hard_state, self.hard_state)
            if ready.hard_state.term == self.hard_state.term and self.hard_state.vote:
                assert ready.hard_state.vote == self.hard_state.vote, "two votes in one term"
            self.hard_state = ready.hard_state
        for part in ready.snapshot_parts:
            identity = part.snapshot.identity
            before = self.received[identity] if part.offset else b""
            assert part.offset == len(before), (part, len(before))
            assert len(part.payload) == part.size, part
            self.received[identity] = before + part.payload
        if ready.install is not None:
            self._install(ready.install)
        if ready.truncate_from is not None:
            assert self.base_index < ready.truncate_from <= self.last, (ready.truncate_from, self.last)
            del self.entries[ready.truncate_from - self.base_index - 1 :]
        for block in ready.append:
            self._append(block)

    def _append(self, block: Block) -> None:
        assert block.first == self.last + 1, (block, self.last)
        if block.members is not None:
            assert block.count == 1, block
            self.entries.append(Entry(block.first, block.term, members=block.members))
            return
        assert len(block.payload) == block.count, block
        for place, command in enumerate(block.payload):
            self.entries.append(Entry(block.first + place, block.term, command))

    def _install(self, snapshot: Snapshot) -> None:
        state = self.received.pop(snapshot.identity)
        assert len(state) == snapshot.size, (len(state), snapshot.size)
        self.base_index, self.base_term, self.members = snapshot.index, snapshot.term, snapshot.members
        self.commands = decoded(state)
        self.entries.clear()

    def forget(self, index: int) -> None:
        """Keep the state up to an entry in place of the entries."""
        term = self.term(index)
        while self.base_index < index:
            entry = self.entries.pop(0)
            self.base_index += 1
            if entry.members is not None:
                self.members = entry.members
            elif entry.command is not None:
                self.commands += (entry.command,)
        self.base_term = term

    def snapshot(self, identity: int) -> Snapshot:
        """The state at the base."""
        size = len(encoded(self.commands))
        return Snapshot(self.base_index, self.base_term, self.members, size, identity)

    def recovered(self) -> Recovered:
        """The log as a node finds it when it starts."""
        blocks = tuple(
            Block(entry.index, 1, entry.term, len(entry.command or ""), entry.members)
            for entry in self.entries
        )
        return Recovered(self.base_index, self.base_term, self.members, blocks, self.base_index)


def encoded(commands: tuple[str, ...]) -> bytes:
    """The state as the bytes of a snapshot, of which there is at least one."""
    return "\n".join(("state", *commands)).encode()


def decoded(state: bytes) -> tuple[str, ...]:
    """The other way round."""
    return tuple(state.decode().split("\n")[1:])
