"""What the journal says about a group that several nodes have, beside its entries, and the bytes of it.

    HARD_STATE  msgpack [term, vote, is_rejoining]: what a node must never forget; index 0
    CUT         the entries from the frame's index on are void; the body is empty, or RESUMED
    MEMBERS     msgpack [term, voters, outgoing, learners, demoted]: an entry, which begins a term or changes
                the members; with index 0 the members before the first entry
    INSTALL     the state up to the frame's index comes from another node (edged/store/install.py)
    REPAIR      a message that this node had lost is back, or nobody has it (repair_records.py); index 0

Rules: an entry has the term of the last MEMBERS entry at or before it. `decode` raises ValueError for other
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgpack

NODES_MAX: Final = 4096
"""How many nodes a list of members may have: no cluster is near that."""
RESUMED: Final = b"\x01"
"""The body of a CUT at which damage had ended a log: from here on it is complete again."""


@dataclass(frozen=True, slots=True)
class HardRecord:
    """The term of a node, for whom it voted in it, and whether it may have forgotten what it confirmed."""

    term: int = 0
    vote: int = 0
    is_rejoining: bool = False

    def encode(self) -> bytes:
        """The body of a HARD_STATE frame."""
        body: bytes = msgpack.packb([self.term, self.vote, self.is_rejoining])
        return body

    @classmethod
    def decode(cls, body: bytes) -> HardRecord:
        """The reverse. Raises ValueError."""
        values = msgpack.unpackb(body)
        if type(values) is not list or [type(value) for value in values] != [int, int, bool]:
            raise ValueError("not a hard state")
        return cls(*values)


@dataclass(frozen=True, slots=True)
class MembersRecord:
    """The nodes that have a group (hub/raft/members.py), and the term of the entry that says so."""

    term: int
    voters: tuple[int, ...]
    outgoing: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    demoted: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """The body of a MEMBERS frame."""
        body: bytes = msgpack.packb(self.listed())
        return body

    @classmethod
    def decode(cls, body: bytes) -> MembersRecord:
        """The reverse. Raises ValueError."""
        return cls.of_list(msgpack.unpackb(body, max_array_len=NODES_MAX))

    def listed(self) -> list[Any]:
        """As plain values, for a checkpoint."""
        return [self.term, *map(list, (self.voters, self.outgoing, self.learners, self.demoted))]

    @classmethod
    def of_list(cls, values: Any) -> MembersRecord:
        """The reverse of listed(). Raises ValueError."""
        if type(values) is not list or len(values) != 5 or type(values[0]) is not int:
            raise ValueError("no members")
        if any(
            type(nodes) is not list or any(type(node) is not int for node in nodes) for nodes in values[1:]
        ):
            raise ValueError("members that are no nodes")
        voters, outgoing, learners, demoted = (tuple(nodes) for nodes in values[1:])
        return cls(values[0], voters, outgoing, learners, demoted)
