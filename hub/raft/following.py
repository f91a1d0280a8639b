"""What a node does while another leads: takes entries and snapshots, and says how far it has come.

Rules: entries are compared by index and term only; what is committed is never cut off (paper, 5.3). Every
answer waits for the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from hub.raft.log import Log
from hub.raft.members import NodeId
from hub.raft.messages import Append, AppendReply, Block, Snapshot, SnapshotPart, SnapshotReply
from hub.raft.worklist import Worklist, rest_of


@dataclass(slots=True)
class _Incoming:
    """A snapshot that arrives in parts."""

    snapshot: Snapshot
    offset: int


class Following:
    """The log of a node, as its leader changes it."""

    def __init__(self, work: Worklist) -> None:
        self._work = work
        self._log: Log = work.log
        self._incoming: _Incoming | None = None

    def append(self, sender: NodeId, term: int, message: Append) -> int | None:
        """Take entries; the index up to which the log is the leader's then, or None if they do not fit."""
        log = self._log
        last = message.blocks[-1].last if message.blocks else message.prev_index
        if message.prev_index < log.commit:
            # What is committed here the leader has as well, or it would not lead.
            blocks = _behind(message.blocks, log.commit)
            last = max(last, log.commit)
        elif log.term(message.prev_index) == message.prev_term:
            blocks = message.blocks
        else:
            hint = log.last_not_above(message.prev_index, message.prev_term)
            hint_term = log.term(hint)
            assert hint_term is not None, (hint, log.base_index, log.last)
            self._work.send(sender, AppendReply(term, message.prev_index, True, hint, hint_term))
            return None
        for block in blocks:
            self._take(block)
        log.commit = max(log.commit, min(message.commit, last))
        self._work.send(sender, AppendReply(term, last))
        return last

    def _take(self, block: Block) -> None:
        log = self._log
        agreed = log.agrees_to(block.first, block.last, block.term)
        if agreed == block.last:
            return
        if agreed < log.last:
            self._work.truncate(agreed + 1)
        self._work.append(rest_of(block, agreed + 1))

    def take_part(self, sender: NodeId, term: int, part: SnapshotPart) -> bool:
        """Take a part of a snapshot; True when the log is the leader's up to it."""
        log, snapshot = self._log, part.snapshot
        if snapshot.index <= log.commit or log.term(snapshot.index) == snapshot.term:
            # Everything is there.
            log.commit = max(log.commit, snapshot.index)
            self._incoming = None
            self._work.send(sender, AppendReply(term, max(snapshot.index, log.commit)))
            return True
        incoming = self._incoming
        if incoming is None or incoming.snapshot != snapshot:
            incoming = self._incoming = _Incoming(snapshot, 0)
        if part.kept is not None:
            incoming.offset = part.kept
        elif part.offset == incoming.offset:
            self._work.keep_part(part)
            incoming.offset += part.size
        if incoming.offset < snapshot.size:
            reply = SnapshotReply(term, snapshot.index, snapshot.identity, incoming.offset)
            self._work.send(sender, reply)
            return False
        self._incoming = None
        self._work.install(snapshot)
        self._work.send(sender, AppendReply(term, snapshot.index))
        return True


def _behind(blocks: tuple[Block, ...], index: int) -> tuple[Block, ...]:
    """The entries behind this one."""
    return tuple(rest_of(block, max(block.first, index + 1)) for block in blocks if block.last > index)
