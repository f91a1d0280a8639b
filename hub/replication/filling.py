"""Fills messages of the consensus core with bytes: entries as they lie in the journal, parts of snapshots.

Rules:
* Entries that are not applied are in memory, all others in the journal or its tail. What lies next to each
  other in a batch is copied at once, and for all receivers only once.
* Applied entries that cannot be read count as forgotten from then on, as those do whose files are gone. So
  whoever lacks one of them gets a snapshot, with a checkpoint that has it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from hub.raft.messages import Append, Block, SnapshotPart
from hub.replication.held import Held
from hub.replication.work import Outgoing

if TYPE_CHECKING:
    from hub.replication.replica import Replica
    from hub.replication.snapshots import Snapshots


class Filling:
    """Of one group."""

    def __init__(self, replica: Replica, snapshots: Snapshots, tag_bytes: int) -> None:
        self._replica = replica
        self._snapshots = snapshots
        self._tag_bytes = tag_bytes
        # What was filled in last: from and to which entry, and its bytes.
        self._payload: tuple[int, int, bytes] = (0, 0, b"")

    def forget(self) -> None:
        """Entries may have changed."""
        self._payload = (0, 0, b"")

    def fill(self, messages: Outgoing, held: deque[Held]) -> Outgoing:
        """With the bytes of entries and snapshots; without those whose bytes cannot be had."""
        filled: Outgoing = []
        for to, message in messages:
            if type(message) is Append and message.blocks:
                blocks = [self._filled_block(block, held) for block in message.blocks]
                found = tuple(block for block in blocks if block is not None)
                if len(found) == len(blocks):
                    filled.append((to, replace(message, blocks=found)))
            elif type(message) is SnapshotPart:
                payload = self._snapshots.read(self._replica.number, to, message)
                if payload is not None:
                    filled.append((to, replace(message, payload=payload)))
            else:
                filled.append((to, message))
        return filled

    def _filled_block(self, block: Block, held: deque[Held]) -> Block | None:
        if block.members is not None:
            return block
        if self._payload[:2] != (block.first, block.last):
            found = self._bytes_of(block.first, block.last, held)
            if found is None:
                return None
            self._payload = (block.first, block.last, found)
        return replace(block, payload=self._payload[2])

    def _bytes_of(self, first: int, last: int, held: deque[Held]) -> bytes | None:
        """The frames of some entries."""
        replica = self._replica
        applied = replica.group.applied
        parts: list[bytes] = []
        if first <= applied:
            end = min(last, applied)
            found = replica.places.read(first, end)
            if found is None:
                if end > replica.raft.log.base_index:
                    replica.raft.forget(end)
                return None
            parts.append(found)
            first = applied + 1
        place = len(held)
        wanted: list[Held] = []
        while first <= last and place and held[place - 1].last >= first:
            place -= 1
            if held[place].first <= last:
                wanted.append(held[place])
        wanted.reverse()
        parts += self._joined(wanted, first, last)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _joined(self, wanted: list[Held], first: int, last: int) -> list[bytes]:
        parts: list[bytes] = []
        start = 0
        while start < len(wanted):
            one = wanted[start]
            stop = start + 1
            if one.first < first or one.last > last or one.batch is None or self._tag_bytes:
                stretch = one.stretch(self._replica.number, self._tag_bytes)
                parts.append(stretch.between(max(first, one.first), min(last, one.last)).raw())
            else:
                # What lies next to each other in a batch is copied at once.
                while stop < len(wanted) and _is_next(wanted[stop - 1], wanted[stop], last):
                    stop += 1
                end = wanted[stop - 1].end
                parts.append(one.batch.buffer.bytes_at(one.start, end - one.start))
            start = stop
        return parts


def _is_next(one: Held, other: Held, last: int) -> bool:
    return other.batch is one.batch and other.start == one.end and other.last <= last
