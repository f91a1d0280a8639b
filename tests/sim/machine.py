"""The state that the log is applied to: a stream whose messages get a seq, once per message id.

Rules: a command is the id of a message, a whole number above 0. An entry that names members has the command
0.
Invariant: last_seq == number of ids; `chain` is a function of all that was applied, in its order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hub.raft.members import Members

MEMBERS_BYTES: Final = 64


def command_bytes(command: int) -> int:
    """How large a command says it is: some are larger than what a message of the log may carry."""
    return command * 7919 % 6000 + 1


def checksum_of(command: int) -> int:
    """What a disk keeps apart from a command, to know it by."""
    return command * 2654435761 & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class State:
    """What a checkpoint or a snapshot holds. Nobody changes `seqs`."""

    index: int
    term: int
    members: Members
    last_seq: int
    chain: int
    seqs: dict[int, int] = field(repr=False)


class Machine:
    """The applied state of one node."""

    __slots__ = ("chain", "index", "last_seq", "members", "seqs", "term")

    def __init__(self, state: State) -> None:
        self.index = state.index
        self.term = state.term
        self.members = state.members
        self.last_seq = state.last_seq
        self.chain = state.chain
        self.seqs = dict(state.seqs)

    def apply(self, term: int, command: int, members: Members | None) -> int:
        """Apply the next entry; the seq of its message, or 0."""
        self.index += 1
        self.term = term
        self.chain = hash((self.chain, term, command))
        if members is not None:
            self.members = members
            return 0
        seq = self.seqs.get(command)
        if seq is None:
            self.last_seq = seq = self.last_seq + 1
            self.seqs[command] = seq
        return seq

    def state(self) -> State:
        """A copy."""
        return State(self.index, self.term, self.members, self.last_seq, self.chain, dict(self.seqs))


def first_state(members: Members) -> State:
    """Before the first entry: everyone knows who began."""
    return State(0, 0, members, 0, 0, {})
