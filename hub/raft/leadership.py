"""What a node does while it leads: replicate, commit, answer reads, change members, hand over.

Rules: only entries of the leader's own term are committed by counting (paper, 5.4.2). A read is answered
after a quorum has confirmed that the leader still led when it was asked (thesis, 6.4); no clock is trusted
for that. A lease says without asking, but trusts clocks to run alike: it is for what may be done twice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from hub.raft.log import Log
from hub.raft.members import Members, NodeId
from hub.raft.messages import (
    Append,
    AppendReply,
    Block,
    Heartbeat,
    HeartbeatReply,
    ReadReply,
    RejoinReply,
    RejoinRequest,
    Snapshot,
    SnapshotPart,
    SnapshotReply,
    TransferNow,
)
from hub.raft.options import RaftOptions
from hub.raft.progress import Pace, Progress
from hub.raft.worklist import Worklist

_ROUNDS_MISSED_MAX: Final = 5
"""Who has not answered so many heartbeats is not waited for."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Somebody waits to read what was committed when it asked."""

    asker: NodeId
    token: int
    index: int
    round: int


class Leadership:
    """One term of one leader."""

    def __init__(self, node: NodeId, term: int, work: Worklist, options: RaftOptions, now_ms: int) -> None:
        self._node = node
        self._term = term
        self._work = work
        self._log: Log = work.log
        self._options = options
        self._followers: dict[NodeId, Progress] = {}
        self._round = 0
        # Rounds that could renew the lease, and when they were sent.
        self._beats: deque[tuple[int, int]] = deque()
        self._lease_until_ms = 0
        self._is_beat_wanted = True
        self._beat_due_ms = now_ms + options.heartbeat_ms
        self._count_due_ms = now_ms + options.election_ms
        # Reads that came before this leader knew what is committed, and reads that wait for a round.
        self._early_reads: list[tuple[NodeId, int]] = []
        self._reads: list[_Read] = []
        self._heir: NodeId = 0
        self._heir_due_ms = 0
        self._idle_beats = 0
        self.is_quiet = False
        # It is to stop leading once what gathered is taken: it is no member any more, or lost the others.
        self.is_over = False
        self._append(1, 0, self._log.members)

    # --- what is asked of it ---

    @property
    def due_ms(self) -> int | None:
        """When tick() is wanted."""
        if self.is_quiet:
            return None
        due_ms = min(self._beat_due_ms, self._count_due_ms)
        return min(due_ms, self._heir_due_ms) if self._heir else due_ms

    def holds_lease(self, now_ms: int) -> bool:
        """Whether nobody else can lead yet: a quorum has heard of this leader and is bound to it.

        An heir may be elected all the same, so a lease ends where handing over begins.
        """
        if self._heir or self.is_over or self._log.quorum_max is not None:
            return False
        if self._log.members.deciding == {self._node}:
            return True
        if now_ms >= self._lease_until_ms:
            confirmed = self._log.quorum.agreed(self._round_of)
            while self._beats and self._beats[0][0] <= confirmed:
                self._lease_until_ms = self._beats.popleft()[1] + self._options.lease_ms
        return now_ms < self._lease_until_ms

    @property
    def is_handing_over(self) -> bool:
        """Whether another node is about to lead."""
        return self._heir != 0

    @property
    def followers(self) -> dict[NodeId, tuple[int, bool]]:
        """What each follower has, and whether it was heard of since they were counted last."""
        return {node: (one.match, one.is_active) for node, one in self._followers.items()}

    @property
    def needed_from(self) -> int:
        """The first entry of this log that somebody needs who answers; behind the last one if nobody does."""
        log, round_min = self._log, self._round - _ROUNDS_MISSED_MAX
        needed = (one.needed_from for one in self._followers.values() if one.round >= round_min)
        return min((index for index in needed if index > log.base_index), default=log.last + 1)

    def propose(self, count: int, size: int) -> int:
        """Put commands into the log; the index of the first."""
        first = self._log.last + 1
        self._append(count, size, None)
        return first

    def change(self, voters: frozenset[NodeId], learners: frozenset[NodeId]) -> bool:
        """Begin to change the members; False if that is not possible now."""
        log = self._log
        # One at a time, and not before something of this term is committed (thesis, 4.3, and its erratum).
        if log.members.is_joint or log.commit < log.change_index or not self._has_committed or self._heir:
            return False
        self._append(1, 0, log.members.towards(voters, learners))
        return True

    def read(self, asker: NodeId, token: int) -> None:
        """Somebody wants to read what is committed by now."""
        if not self._has_committed:
            self._early_reads.append((asker, token))
            return
        self._reads.append(_Read(asker, token, self._log.commit, self._round + 1))
        self._is_beat_wanted = True

    def transfer(self, to: NodeId, now_ms: int) -> bool:
        """Have another voter lead; False if it cannot."""
        if to == self._node or to not in self._log.members.voters or to not in self._followers:
            return False
        self._heir = to
        self._heir_due_ms = now_ms + self._options.election_ms
        self._hand_over_if_ready()
        return True

    def transfer_to_best(self, now_ms: int) -> bool:
        """Have the voter lead that needs the least for it; False if there is none."""
        voters = [node for node in sorted(self._log.members.voters) if node in self._followers]
        active = [node for node in voters if self._followers[node].is_active] or voters
        if not active:
            return False
        return self.transfer(max(active, key=lambda node: self._followers[node].match), now_ms)

    def offer_snapshot(self, peer: NodeId, snapshot: Snapshot) -> None:
        """Send this to a follower that needs a snapshot."""
        follower = self._followers.get(peer)
        if follower is None or follower.pace is not Pace.SNAPSHOT or follower.snapshot is not None:
            return
        if snapshot.index < self._log.base_index:
            # The log went on without it: what follows on that snapshot is gone as well.
            self._work.want_snapshot(peer)
            return
        follower.offer(snapshot)

    def lose_snapshot(self, snapshot: Snapshot) -> None:
        """The bytes of a snapshot are gone: whoever is to get it needs another one."""
        for follower in self._followers.values():
            if follower.pace is Pace.SNAPSHOT and follower.snapshot == snapshot:
                follower.lose_snapshot()

    def wake(self, now_ms: int) -> None:
        """Something happens: followers are told, and asked, again. Quiet time does not count."""
        self._idle_beats = 0
        if not self.is_quiet:
            return
        self.is_quiet = False
        self._is_beat_wanted = True
        self._beat_due_ms = now_ms + self._options.heartbeat_ms
        self._count_due_ms = now_ms + self._options.election_ms
        for follower in self._followers.values():
            follower.is_active = True

    # --- time ---

    def tick(self, now_ms: int) -> None:
        """Do what is due; while quiet nothing is."""
        if self.is_quiet:
            return
        if self._heir and now_ms >= self._heir_due_ms:
            # It may still be elected, at any time and without asking those who are bound to this leader.
            self._heir = 0
            self.is_over = True
        if now_ms >= self._count_due_ms:
            self._count_due_ms = now_ms + self._options.election_ms
            self._count_followers()
        if now_ms >= self._beat_due_ms:
            self._beat_due_ms = now_ms + self._options.heartbeat_ms
            self._is_beat_wanted = True
            self._fall_quiet_if_idle()

    def _count_followers(self) -> None:
        """A leader that no quorum answers is none (check-quorum)."""
        heard = {node for node, follower in self._followers.items() if follower.is_active}
        heard.add(self._node)
        for follower in self._followers.values():
            follower.is_active = False
        if not self._log.quorum.is_quorum(heard):
            self.is_over = True

    def _fall_quiet_if_idle(self) -> None:
        log = self._log
        is_idle = (
            log.commit == log.last == log.stable
            and not self._reads
            and not self._early_reads
            and not self._heir
            and not log.members.is_joint
            and all(
                one.match == log.last and one.commit_told == log.last and one.round >= self._round - 1
                for one in self._followers.values()
            )
        )
        self._idle_beats = self._idle_beats + 1 if is_idle else 0
        if self._options.quiet_beats and self._idle_beats >= self._options.quiet_beats:
            self.is_quiet = True

    # --- what followers say ---

    def on_append_reply(self, sender: NodeId, reply: AppendReply) -> None:
        """A follower took entries, or could not."""
        follower = self._heard_of(sender)
        if follower is None:
            return
        if reply.is_refused:
            next_index = self._log.last_not_above(reply.hint_index, reply.hint_term) + 1
            follower.refused(reply.index, next_index)
            return
        assert reply.index <= self._log.last, (sender, reply, self._log.last)
        if follower.agreed(reply.index):
            self.commit_what_is_agreed()
            if sender == self._heir:
                self._hand_over_if_ready()

    def on_heartbeat_reply(self, sender: NodeId, reply: HeartbeatReply) -> None:
        """A follower confirms that this leader led in that round."""
        follower = self._heard_of(sender)
        if follower is None:
            return
        follower.round = max(follower.round, reply.round)
        if follower.match < self._log.last:
            follower.answered_beat()
            if follower.pace is Pace.SNAPSHOT and follower.is_snapshot_lost:
                # Not sooner, so that one which can never be read does not keep this node busy.
                follower.is_snapshot_lost = False
                self._work.want_snapshot(sender)
        else:
            follower.is_probed = False

    def on_snapshot_reply(self, sender: NodeId, reply: SnapshotReply) -> None:
        """A follower has bytes of a snapshot."""
        follower = self._heard_of(sender)
        if follower is None or follower.snapshot is None:
            return
        snapshot = follower.snapshot
        if (snapshot.index, snapshot.identity) == (reply.index, reply.identity):
            follower.took_part(min(reply.offset, snapshot.size))

    def on_rejoin(self, sender: NodeId, request: RejoinRequest) -> None:
        """A follower forgot what it had confirmed: nothing that it said before counts any more."""
        follower = self._heard_of(sender)
        if follower is None:
            return
        follower.start_over(self._log.last + 1)
        self._work.send(sender, RejoinReply(self._term, request.boot, self._log.last))

    def _heard_of(self, sender: NodeId) -> Progress | None:
        follower = self._followers.get(sender)
        if follower is not None:
            follower.is_active = True
        return follower

    # --- committing ---

    @property
    def _has_committed(self) -> bool:
        """Whether this leader has committed something, and so knows what is committed."""
        return self._log.term(self._log.commit) == self._term

    def commit_what_is_agreed(self) -> None:
        """Commit what a quorum has."""
        log = self._log
        while True:
            index = log.quorum.agreed(self._match_of)
            if index <= log.commit or log.term(index) != self._term:
                return
            log.commit = index
            for asker, token in self._early_reads:
                self.read(asker, token)
            self._early_reads.clear()
            if not self._go_on_with_change():
                return

    def _match_of(self, node: NodeId) -> int:
        if node == self._node:
            return self._log.stable
        follower = self._followers.get(node)
        return follower.match if follower is not None else 0

    def _go_on_with_change(self) -> bool:
        """Once the members are committed: out of the joint state, and out of office if it is none of them."""
        log = self._log
        members = log.members
        if log.commit < log.change_index:
            return False
        if members.is_joint:
            self._append(1, 0, members.settled())
            return True
        if self._node not in members.voters:
            self.is_over = True
        return False

    def _append(self, count: int, size: int, members: Members | None) -> None:
        self._work.append(Block(self._log.last + 1, count, self._term, size, members))
        if members is not None:
            self._follow_members(members)

    def _follow_members(self, members: Members) -> None:
        for node in members.everyone - self._followers.keys() - {self._node}:
            self._followers[node] = Progress(self._log.last)
        for node in self._followers.keys() - members.everyone:
            del self._followers[node]
        # Another quorum decides from now on.
        self._lease_until_ms = 0
        if self._heir and self._heir not in members.voters:
            self.is_over = True

    def _hand_over_if_ready(self) -> None:
        if self._followers[self._heir].match == self._log.last:
            self._work.send(self._heir, TransferNow(self._term))

    # --- sending ---

    def gather(self, now_ms: int) -> None:
        """Write the messages that are due now. Called once for whatever happened since."""
        if self.is_over and self._node not in self._log.members.voters:
            # The last thing it does is to tell the others that they are on their own.
            heirs = [node for node in sorted(self._log.members.voters) if node in self._followers]
            if heirs:
                heir = max(heirs, key=lambda node: self._followers[node].match)
                self._work.send(heir, TransferNow(self._term))
        if self._is_beat_wanted and not self.is_over:
            self._is_beat_wanted = False
            self._round += 1
            while self._beats and self._beats[0][1] + self._options.lease_ms <= now_ms:
                self._beats.popleft()
            self._beats.append((self._round, now_ms))
            for node, follower in self._followers.items():
                commit = min(follower.match, self._log.commit)
                self._work.send_early(node, Heartbeat(self._term, commit, self._round, self.is_quiet))
        for node, follower in self._followers.items():
            self._send_what_is_missing(node, follower)
        self._answer_reads()

    def _send_what_is_missing(self, node: NodeId, follower: Progress) -> None:
        log, options = self._log, self._options
        if follower.pace is not Pace.SNAPSHOT and follower.next <= log.base_index:
            follower.want_snapshot()
            self._work.want_snapshot(node)
        if follower.pace is Pace.SNAPSHOT:
            self._send_snapshot(node, follower)
            return
        if follower.pace is Pace.PROBE:
            if not follower.is_probed:
                self._send_append(node, follower)
            return
        while follower.next <= log.last:
            if follower.is_window_full(options.inflight_messages_max, options.inflight_bytes_max):
                return
            self._send_append(node, follower)
        # Nothing more to send: it need not wait for the next entries to hear what is committed.
        if follower.is_nudged or (follower.commit_told < log.commit and not follower.has_inflight):
            self._send_append(node, follower)

    def _send_append(self, node: NodeId, follower: Progress) -> None:
        log = self._log
        previous = follower.next - 1
        term = log.term(previous)
        assert term is not None, (previous, log.base_index, log.last)
        blocks = log.take(follower.next, self._options.append_bytes_max) if previous < log.last else ()
        self._work.send_early(node, Append(self._term, previous, term, blocks, log.commit))
        follower.is_nudged = False
        follower.commit_told = log.commit
        if blocks:
            follower.sent(blocks[-1].last, sum(block.size for block in blocks))
        elif follower.pace is Pace.PROBE:
            follower.is_probed = True

    def _send_snapshot(self, node: NodeId, follower: Progress) -> None:
        snapshot = follower.snapshot
        if snapshot is None:
            return
        part = self._options.snapshot_part_bytes
        limit = min(follower.offset_acked + part * self._options.snapshot_parts_max, snapshot.size)
        while follower.offset_sent < limit:
            size = min(part, snapshot.size - follower.offset_sent)
            message = SnapshotPart(self._term, snapshot, follower.offset_sent, size)
            self._work.send_early(node, message)
            follower.offset_sent += size

    def _answer_reads(self) -> None:
        if not self._reads:
            return
        confirmed = self._log.quorum.agreed(self._round_of)
        waiting: list[_Read] = []
        for read in self._reads:
            if read.round > confirmed:
                waiting.append(read)
            elif read.asker == self._node:
                self._work.answer_read(read.token, read.index)
            else:
                self._work.send(read.asker, ReadReply(self._term, read.token, read.index))
        self._reads = waiting

    def _round_of(self, node: NodeId) -> int:
        if node == self._node:
            return self._round
        follower = self._followers.get(node)
        return follower.round if follower is not None else 0

    def give_up(self) -> None:
        """It leads no more: who waits for a read has to ask again."""
        for asker, token in [(read.asker, read.token) for read in self._reads] + self._early_reads:
            if asker == self._node:
                self._work.answer_read(token, -1)
