"""Between what the consensus core says and what the journal says of it."""

from __future__ import annotations

from edged.core.replica_records import MembersRecord
from edged.store.found_log import FoundLog
from hub.raft.log import Recovered
from hub.raft.members import Members
from hub.raft.messages import Block

_MARK_BYTES = 16 * 1024


def members_of(record: MembersRecord) -> Members:
    """As the core has them."""
    lists = (record.voters, record.outgoing, record.learners, record.demoted)
    return Members(*map(frozenset, lists))


def record_of(members: Members, term: int) -> MembersRecord:
    """As the journal has them."""
    lists = (members.voters, members.outgoing, members.learners, members.demoted)
    return MembersRecord(term, *(tuple(sorted(nodes)) for nodes in lists))


def recovered_of(found: FoundLog) -> Recovered:
    """The log that a node begins with after a start."""
    blocks: list[Block] = []
    for one in found.blocks:
        members = None if one.members is None else members_of(one.members)
        block = Block(one.first, one.last - one.first + 1, one.term, one.size, members)
        before = blocks[-1] if blocks else None
        is_joined = before is not None and before.term == block.term and before.size < _MARK_BYTES
        if before is not None and is_joined and before.members is None and members is None:
            joined = Block(before.first, before.count + block.count, block.term, before.size + block.size)
            blocks[-1] = joined
        else:
            blocks.append(block)
    base_members = members_of(found.base_members)
    return Recovered(
        found.base_index, found.base_term, base_members, tuple(blocks), applied=found.group.applied
    )
