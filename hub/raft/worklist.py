"""The work that gathers until somebody takes it: every change of the log is made here and noted as work.

Invariant: what was handed out, carried out in order, gives the same log as the one here.
"""

from __future__ import annotations

from dataclasses import replace

from hub.raft.log import Log
from hub.raft.members import NodeId
from hub.raft.messages import Block, HardState, Message, Snapshot, SnapshotPart
from hub.raft.ready import Ready


class Worklist:
    """A log, and what is to be done so that the disk and the others know what it says."""

    def __init__(self, log: Log, hard_state: HardState) -> None:
        self.log = log
        self._ready = Ready()
        # What the work taken so far says.
        self._hard_state = hard_state
        self._last_handed_out = log.last
        self._applied_to = 0
        self._number = 0
        # Entries behind this one were written anew by the work of that number: what was taken before it says
        # nothing about them any more.
        self._rewritten_after = 0
        self._rewritten_by = 0

    def send(self, to: NodeId, message: Message) -> None:
        """Send this once everything that it may speak of is durable."""
        self._ready.messages.append((to, message))

    def send_early(self, to: NodeId, message: Message) -> None:
        """Send this at once: it promises nothing about this node's disk."""
        self._ready.early.append((to, message))

    def answer_read(self, token: int, index: int) -> None:
        """A read may be answered from this index on; -1: it has to be asked again."""
        self._ready.reads.append((token, index))

    def want_snapshot(self, peer: NodeId) -> None:
        """Ask for a snapshot to send to this node."""
        self._ready.snapshots_wanted.append(peer)

    def append(self, block: Block) -> None:
        """Put entries behind the last one."""
        self.log.append(block)
        pending = self._ready.append
        if pending and pending[-1].payload is None and _are_commands(pending[-1], block):
            before = pending[-1]
            pending[-1] = replace(before, count=before.count + block.count, size=before.size + block.size)
        else:
            pending.append(block)

    def truncate(self, index: int) -> None:
        """Cut off the entry at `index` and all behind it."""
        self.log.truncate(index)
        if index <= self._last_handed_out:
            before = self._ready.truncate_from
            self._ready.truncate_from = index if before is None else min(before, index)
            self._last_handed_out = index - 1
            self._note_rewriting(index - 1)
        pending = self._ready.append
        while pending and pending[-1].last >= index:
            block = pending.pop()
            if block.first < index:
                pending.append(front_of(block, index - block.first))

    def keep_part(self, part: SnapshotPart) -> None:
        """Write down a part of a snapshot."""
        self._ready.snapshot_parts.append(part)

    def install(self, snapshot: Snapshot) -> None:
        """A snapshot takes the place of the log."""
        self.log.reset(snapshot.index, snapshot.term, snapshot.members)
        self._ready.install = snapshot
        self._ready.append.clear()
        self._ready.truncate_from = None
        self._last_handed_out = snapshot.index
        self._note_rewriting(0)

    def _note_rewriting(self, after: int) -> None:
        is_pending = self._rewritten_by > 0
        self._rewritten_after = min(self._rewritten_after, after) if is_pending else after
        self._rewritten_by = self._number + 1

    def take(self, hard_state: HardState) -> Ready:
        """Everything that gathered."""
        ready, self._ready = self._ready, Ready()
        if hard_state != self._hard_state:
            ready.hard_state = self._hard_state = hard_state
        log = self.log
        self._number += 1
        ready.number = self._number
        ready.last_index = self._last_handed_out = log.last
        apply_to = min(log.commit, log.stable)
        if apply_to > self._applied_to:
            ready.apply_to = self._applied_to = apply_to
        return ready

    def persisted(self, ready: Ready) -> bool:
        """What was taken as `ready`, and all before it, is durable; True if that says something new."""
        durable_to = ready.last_index
        if ready.number < self._rewritten_by:
            durable_to = min(durable_to, self._rewritten_after)
        else:
            self._rewritten_by = 0
        durable_to = min(durable_to, self.log.last)
        if durable_to <= self.log.stable:
            return False
        self.log.stable = durable_to
        return True


def _are_commands(one: Block, other: Block) -> bool:
    """Whether they are commands of one term that this node itself put into the log, to be told as one."""
    return one.term == other.term and one.members is None and other.members is None and other.payload is None


def front_of(block: Block, count: int) -> Block:
    """Its first entries."""
    payload = None if block.payload is None else block.payload[:count]
    return replace(block, count=count, payload=payload)


def rest_of(block: Block, first: int) -> Block:
    """Its entries from `first` on."""
    if first == block.first:
        return block
    gone = first - block.first
    payload = None if block.payload is None else block.payload[gone:]
    return replace(block, first=first, count=block.count - gone, payload=payload)
