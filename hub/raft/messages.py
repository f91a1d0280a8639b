"""What the members of a group say to each other, and what their logs are made of.

The core knows a log by indexes, terms and sizes. The commands themselves pass it by: whoever carries a
message fills in the bytes of its blocks from the journal (`payload`), and whoever receives it writes them
down as they are.

Every message has the term of its sender; a term of 0 does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hub.raft.members import Members


@dataclass(frozen=True, slots=True)
class Block:
    """Entries of one term that lie next to each other: commands, or one entry that says who the members are.

    Every term begins with such an entry, by which the leader commits what it found (Raft paper, 5.4.2 and 8).
    """

    first: int
    count: int
    term: int
    size: int
    members: Members | None = None
    payload: Any = None

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.first + self.count - 1


@dataclass(frozen=True, slots=True)
class HardState:
    """What a node must never forget: the term it is in, and to whom it gave its vote in it (0: nobody)."""

    term: int
    vote: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state that stands for the log up to `index`. `size` is that of its bytes, at least one."""

    index: int
    term: int
    members: Members
    size: int
    # Tells two snapshots of the same index apart, whose bytes may differ.
    identity: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A node would lead in `term`. As `is_trial` it only asks whether it would be elected (thesis, 9.6)."""

    term: int
    last_index: int
    last_term: int
    is_trial: bool
    # The leader itself asked for this election, so having heard of it lately is no reason to refuse.
    is_transfer: bool
    # It may lack the end of its log.
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class VoteReply:
    """The answer; to a trial that is granted, with the term that was asked for."""

    term: int
    is_trial: bool
    is_granted: bool
    # Whoever answers may lack the end of its log: it is of weight if everybody agrees (votes.py).
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Entries that follow on the one at `prev_index`; without any it says how far is committed."""

    term: int
    prev_index: int
    prev_term: int
    blocks: tuple[Block, ...]
    commit: int


@dataclass(frozen=True, slots=True)
class AppendReply:
    """Everything up to `index` is as in the leader's log, and durable.

    If `is_refused`, the entry before was not the leader's: `index` is that entry's, and the logs can agree at
    most up to `hint_index`, where the follower has an entry of `hint_term`.
    """

    term: int
    index: int
    is_refused: bool = False
    hint_index: int = 0
    hint_term: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The leader is there. `commit` is only as much as the follower is known to have.

    `round` counts heartbeats: the answer proves that the leader still led after it was sent. With `is_quiet`
    no more will come until something happens.
    """

    term: int
    commit: int
    round: int
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to the heartbeat of this round."""

    term: int
    round: int


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """Bytes of a snapshot, from `offset` on.

    Whoever receives it may say how many bytes are there with it, from the first one on (`kept`): then the
    core does not count them, and nothing is to be kept by its work.
    """

    term: int
    snapshot: Snapshot
    offset: int
    size: int
    payload: Any = None
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """The follower has the bytes before `offset`, durable or not, and wants what follows."""

    term: int
    index: int
    identity: int
    offset: int


@dataclass(frozen=True, slots=True)
class TransferNow:
    """The leader wants the receiver to lead, at once."""

    term: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A follower asks from which index on it may answer a read."""

    term: int
    token: int


@dataclass(frozen=True, slots=True)
class ReadReply:
    """Whoever has applied `index` may answer the read."""

    term: int
    token: int
    index: int


@dataclass(frozen=True, slots=True)
class RejoinRequest:
    """A node that may have forgotten what it confirmed asks how far it has to come to be believed again."""

    term: int
    boot: int


@dataclass(frozen=True, slots=True)
class RejoinReply:
    """Once everything up to `index` is durable there, nothing is missing that the node ever confirmed."""

    term: int
    boot: int
    index: int


Message = (
    VoteRequest
    | VoteReply
    | Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | SnapshotPart
    | SnapshotReply
    | TransferNow
    | ReadRequest
    | ReadReply
    | RejoinRequest
    | RejoinReply
)
