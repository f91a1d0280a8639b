"""A node of one group: elections, and who of its parts has the word.

Rules: nothing here reads a clock, draws a number or does I/O. Whatever happens is told by tick(), step(),
propose() and the like; what is to be done about it is taken by ready() and, once durable, confirmed by
persisted().
Invariants: the term never falls; one vote per term; only a candidate with enough votes leads (votes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hub.raft.allegiance import Allegiance
from hub.raft.following import Following
from hub.raft.leadership import Leadership
from hub.raft.log import Log, Recovered
from hub.raft.members import Members, NodeId
from hub.raft.messages import (
    Append,
    AppendReply,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    ReadReply,
    ReadRequest,
    RejoinReply,
    RejoinRequest,
    Snapshot,
    SnapshotPart,
    SnapshotReply,
    TransferNow,
    VoteReply,
    VoteRequest,
)
from hub.raft.options import RaftOptions
from hub.raft.ready import Ready
from hub.raft.rejoining import Rejoining
from hub.raft.role import NOBODY, Role
from hub.raft.votes import Votes
from hub.raft.worklist import Worklist

_FROM_LEADER: Final = (Append, Heartbeat, SnapshotPart)


class Raft:
    """One member of one group."""

    def __init__(
        self,
        node: NodeId,
        hard_state: HardState,
        recovered: Recovered,
        options: RaftOptions,
        draw: Callable[[int, int], int],
        now_ms: int,
        *,
        boot: int = 0,
        must_rejoin: bool = False,
        is_unsure: bool = False,
    ) -> None:
        self.node = node
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.role = Role.FOLLOWER
        self.leader = NOBODY
        # A node that lost records may vote, as it knows where its log ends, but must not lead.
        self.is_fit = True
        self.log = Log(recovered)
        self._work = Worklist(self.log, hard_state)
        self._following = Following(self._work)
        self._leadership: Leadership | None = None
        self._options = options
        self._draw = draw
        self._votes = Votes()
        # The Ready that has its vote for itself; 0: the next one, None: there is none under way.
        self._own_vote_number: int | None = None
        # Who has no term yet has never heard of a leader.
        self._allegiance = Allegiance(options, now_ms + options.promise_ms if hard_state.term else now_ms)
        # The link to the leader broke: others are asked more often whether they would have another one.
        self._is_leader_lost = False
        self._election_due_ms = 0
        self._asked_reads: set[int] = set()
        self._rejoining = Rejoining(boot, is_needed=must_rejoin, is_unsure=is_unsure)
        # A node that may lack the end of its log asked for a vote, and lacks what this one has.
        self._is_missed = False
        self._is_work_waiting = True
        self._restart_election_timer(now_ms)
        if self.members.deciding == {node}:
            # Nobody else could lead, so there is nobody to wait for.
            self._election_due_ms = now_ms

    # --- what others ask ---

    @property
    def members(self) -> Members:
        """The members by the last entry that names them."""
        return self.log.members

    @property
    def must_rejoin(self) -> bool:
        """Whether it may have confirmed what it has forgotten, and does not have that again."""
        return self._rejoining.is_needed

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is sent, and nothing missed, until something happens."""
        return self._leadership.is_quiet if self._leadership is not None else self._allegiance.is_quiet

    @property
    def due_ms(self) -> int | None:
        """When tick() is wanted; None: not before something happens."""
        if self._leadership is not None:
            return self._leadership.due_ms
        return None if self._allegiance.is_quiet or not self._may_campaign() else self._election_due_ms

    @property
    def has_ready(self) -> bool:
        """Whether something happened since ready() was called."""
        return self._is_work_waiting

    @property
    def needed_from(self) -> int:
        """The first entry of the log that another member needs; behind the last one if none is known to."""
        return self._leadership.needed_from if self._leadership is not None else self.log.last + 1

    def holds_lease(self, now_ms: int) -> bool:
        """Whether this node leads and nobody else can, as far as clocks run alike. A read renews it."""
        return self._leadership is not None and self._leadership.holds_lease(now_ms)

    @property
    def can_propose(self) -> bool:
        """Whether propose() puts commands into the log."""
        leadership = self._leadership
        return leadership is not None and not leadership.is_handing_over and not leadership.is_over

    def propose(self, count: int, size: int, now_ms: int) -> int | None:
        """Put commands into the log; the index of the first, or None if this is not the leader's to do."""
        if self._leadership is None or not self.can_propose:
            return None
        self._leadership.wake(now_ms)
        self._is_work_waiting = True
        return self._leadership.propose(count, size)

    def change(self, voters: frozenset[NodeId], learners: frozenset[NodeId], now_ms: int) -> bool:
        """Have these members; False if not the leader, or while an earlier change is under way."""
        if self._leadership is None or self._leadership.is_over:
            return False
        self._leadership.wake(now_ms)
        self._is_work_waiting = True
        return self._leadership.change(voters, learners)

    def read(self, token: int, now_ms: int) -> None:
        """Ask from which index on a read may be answered; Ready.reads has the answer."""
        self._is_work_waiting = True
        if self._leadership is not None:
            self._leadership.wake(now_ms)
            self._leadership.read(self.node, token)
        elif self.leader == NOBODY:
            self._work.answer_read(token, -1)
        else:
            self._asked_reads.add(token)
            self._work.send(self.leader, ReadRequest(self.term, token))

    def transfer(self, to: NodeId, now_ms: int) -> bool:
        """Have another voter lead; False if this is not the leader or the other cannot."""
        if self._leadership is not None:
            self._leadership.wake(now_ms)
            self._is_work_waiting = True
        return self._leadership is not None and self._leadership.transfer(to, now_ms)

    def suspect(self, peer: NodeId, now_ms: int) -> None:
        """The link to that node broke. If it leads, there may be an election soon."""
        if self._leadership is not None:
            self._leadership.wake(now_ms)
            self._is_work_waiting = True
        elif peer == self.leader:
            self._allegiance.forget()
            self._is_leader_lost = True
            begin_ms = max(now_ms, self._allegiance.bound_until_ms)
            self._election_due_ms = begin_ms + self._draw(0, self._options.heartbeat_ms)

    def set_fit(self, is_fit: bool, now_ms: int) -> None:
        """Say whether this node could lead; one that cannot hands over."""
        self.is_fit = is_fit
        if is_fit or self.role is Role.FOLLOWER:
            return
        self._is_work_waiting = True
        leadership = self._leadership
        if leadership is not None:
            leadership.wake(now_ms)
        if leadership is None or not leadership.transfer_to_best(now_ms):
            self._follow(self.term, NOBODY, now_ms)

    def set_quorum_max(self, quorum_max: int | None, now_ms: int) -> None:
        """Let so many voters be enough, though they are no majority; None: that is over."""
        self.log.quorum_max = quorum_max
        self.suspect(self.leader, now_ms)

    def offer_snapshot(self, peer: NodeId, snapshot: Snapshot, now_ms: int) -> None:
        """The answer to Ready.snapshots_wanted."""
        if self._leadership is not None:
            self._leadership.wake(now_ms)
            self._leadership.offer_snapshot(peer, snapshot)
            self._is_work_waiting = True

    def lose_snapshot(self, snapshot: Snapshot) -> None:
        """Parts of a snapshot that was offered cannot be read any more: another one will be asked for."""
        if self._leadership is not None:
            self._leadership.lose_snapshot(snapshot)

    def campaign(self, now_ms: int) -> None:
        """Ask the others now whether they would have this node lead, if it could and does not."""
        if self._leadership is not None or not self._may_campaign():
            return
        if self._allegiance.is_bound(now_ms):
            self._election_due_ms = min(self._election_due_ms, self._allegiance.bound_until_ms)
        else:
            self._campaign(now_ms, is_trial=True)

    @property
    def followers(self) -> dict[NodeId, tuple[int, bool]]:
        """While it leads: what each of the others has, and whether it was heard of lately."""
        return self._leadership.followers if self._leadership is not None else {}

    def forget(self, index: int) -> None:
        """Entries up to `index` are applied, and their state is kept in another way."""
        self.log.forget(index)

    # --- the work ---

    def ready(self, now_ms: int) -> Ready:
        """Everything there is to do by now."""
        self._is_work_waiting = False
        leadership = self._leadership
        if leadership is not None:
            leadership.gather(now_ms)
            if leadership.is_over:
                self._follow(self.term, NOBODY, now_ms)
        ready = self._work.take(HardState(self.term, self.vote))
        self._rejoining.taken(ready)
        if self._own_vote_number == 0:
            self._own_vote_number = ready.number
        return ready

    def persisted(self, ready: Ready, now_ms: int) -> None:
        """What was taken as `ready` is durable."""
        if self._work.persisted(ready):
            self._is_work_waiting = True
        if self._own_vote_number and ready.number >= self._own_vote_number:
            self._own_vote_number = None
            if self.role is Role.CANDIDATE:
                self._count_vote(self.node, True, self._rejoining.is_needed, now_ms)
        if self._rejoining.persisted(ready):
            self._restart_election_timer(now_ms)
        if self._leadership is not None:
            self._leadership.commit_what_is_agreed()

    # --- time ---

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        if self._leadership is not None:
            self._leadership.tick(now_ms)
            self._is_work_waiting = True
        elif self._may_campaign() and not self._allegiance.is_quiet and now_ms >= self._election_due_ms:
            self._campaign(now_ms, is_trial=True)

    def _restart_election_timer(self, now_ms: int) -> None:
        is_hasty = self._is_leader_lost and self.role is Role.TRIAL
        least_ms = self._options.heartbeat_ms if is_hasty else self._options.election_ms
        self._election_due_ms = now_ms + self._draw(least_ms, 2 * least_ms)

    # --- roles ---

    def _may_campaign(self) -> bool:
        """Whether it could lead. One that leaves still may, until that is committed (thesis, 4.2.2)."""
        if not self.is_fit or not self._rejoining.may_vote:
            return False
        if self.node in self.log.members.deciding:
            return True
        if self._is_missed and self.node in self.log.members.learners:
            # It leads until a voter has what it has.
            return True
        return any(self.node in members.deciding for members in self.log.possible_members)

    def _follow(self, term: int, leader: NodeId, now_ms: int) -> None:
        """Be a follower; in a new term without having voted."""
        assert term >= self.term, (term, self.term)
        if term > self.term:
            self.term, self.vote = term, NOBODY
            self._fail_asked_reads()
            self._rejoining.restart()
        if self._leadership is not None:
            self._leadership.give_up()
            self._leadership = None
        if leader != self.leader or self.role is not Role.FOLLOWER:
            self._fail_asked_reads()
            self._rejoining.restart()
        self.role = Role.FOLLOWER
        self.leader = leader
        self._allegiance.forget()
        self._is_leader_lost = self._is_missed = False
        self._is_work_waiting = True
        self._restart_election_timer(now_ms)

    def _campaign(self, now_ms: int, *, is_trial: bool, is_transfer: bool = False) -> None:
        """Ask the others for their votes, or first whether they would give them."""
        term = self.term + 1
        if is_trial:
            self.role = Role.TRIAL
        else:
            self.role = Role.CANDIDATE
            self.term, self.vote = term, self.node
        self.leader = NOBODY
        self._allegiance.forget()
        self._fail_asked_reads()
        self._rejoining.restart()
        self._is_work_waiting = True
        self._restart_election_timer(now_ms)
        is_unsure = self._rejoining.is_needed
        members, is_for_all = self.members, is_unsure or self._votes.are_unsure
        self._votes = Votes()
        request = VoteRequest(term, self.log.last, self.log.last_term, is_trial, is_transfer, is_unsure)
        for node in sorted((members.everyone if is_for_all else members.deciding) - {self.node}):
            self._work.send(node, request)
        if is_trial:
            self._count_vote(self.node, True, is_unsure, now_ms)
        else:
            # Its own vote counts once it is durable: else it could lead twice in one term.
            self._own_vote_number = 0

    def _count_vote(self, node: NodeId, is_granted: bool, is_unsure: bool, now_ms: int) -> None:
        self._votes.count(node, is_granted, is_unsure)
        if self._votes.are_enough(self.log):
            if self.role is Role.TRIAL:
                self._campaign(now_ms, is_trial=False)
            else:
                self._lead(now_ms)
        elif self._votes.are_hopeless(self.log):
            self._follow(self.term, NOBODY, now_ms)

    def _lead(self, now_ms: int) -> None:
        assert self.role is Role.CANDIDATE, self.role
        self.role = Role.LEADER
        self._is_work_waiting = True
        self.leader = self.node
        self._rejoining.end()
        self._leadership = Leadership(self.node, self.term, self._work, self._options, now_ms)

    # --- messages ---

    def step(self, sender: NodeId, message: Message, now_ms: int) -> None:
        """Another member said something."""
        self._is_work_waiting = True
        if self._leadership is not None and type(message) is not HeartbeatReply:
            self._leadership.wake(now_ms)
        if message.term < self.term:
            self._answer_old(sender, message)
            return
        if type(message) is VoteRequest:
            self._on_vote_request(sender, message, now_ms)
            return
        if message.term > self.term and not (
            type(message) is VoteReply and message.is_trial and message.is_granted
        ):
            leader = sender if type(message) in _FROM_LEADER else NOBODY
            self._follow(message.term, leader, now_ms)
        if type(message) in _FROM_LEADER:
            self._hear_of_leader(sender, now_ms)
        _HANDLERS[type(message)](self, sender, message, now_ms)

    def _answer_old(self, sender: NodeId, message: Message) -> None:
        """Somebody who missed a term is told of it, so that it can take part again."""
        if type(message) in _FROM_LEADER:
            self._work.send(sender, AppendReply(self.term, 0, is_refused=True))
        elif type(message) is VoteRequest:
            self._work.send(sender, VoteReply(self.term, message.is_trial, is_granted=False))

    def _hear_of_leader(self, sender: NodeId, now_ms: int) -> None:
        assert self._leadership is None, (self.node, sender, self.term)
        if self.leader != sender or self.role is not Role.FOLLOWER:
            assert self.leader in (NOBODY, sender), (self.leader, sender, self.term)
            self._follow(self.term, sender, now_ms)
        self._allegiance.hear(now_ms)
        self._restart_election_timer(now_ms)
        question = self._rejoining.request(self.term)
        if question is not None:
            self._work.send(sender, question)

    def _is_loyal(self, now_ms: int) -> bool:
        """Whether it helps nobody to lead who comes without the word of the leader."""
        allegiance = self._allegiance
        return self._leadership is not None or allegiance.is_led(now_ms) or allegiance.is_bound(now_ms)

    def _on_vote_request(self, sender: NodeId, request: VoteRequest, now_ms: int) -> None:
        if not request.is_transfer and sender != self.leader and self._is_loyal(now_ms):
            if self._allegiance.is_quiet:
                self._allegiance.doubt(now_ms)
                self._restart_election_timer(now_ms)
            return
        if not request.is_trial and request.term > self.term:
            self._follow(request.term, NOBODY, now_ms)
        is_complete = self.log.is_behind(request.last_index, request.last_term)
        self._is_missed |= request.is_unsure and not is_complete
        may_vote, is_unsure = self._rejoining.may_vote, self._rejoining.is_needed
        if request.is_trial:
            is_granted = request.term > self.term and is_complete and may_vote
            term = request.term if is_granted else self.term
            self._work.send(sender, VoteReply(term, True, is_granted, is_unsure))
            return
        is_free = self.vote == sender or (self.vote == NOBODY and self.leader == NOBODY)
        is_granted = is_free and is_complete and may_vote
        if is_granted:
            self.vote = sender
            self._restart_election_timer(now_ms)
        self._work.send(sender, VoteReply(self.term, False, is_granted, is_unsure))

    def _on_vote_reply(self, sender: NodeId, reply: VoteReply, now_ms: int) -> None:
        if reply.is_trial:
            is_current = self.role is Role.TRIAL and (not reply.is_granted or reply.term == self.term + 1)
        else:
            is_current = self.role is Role.CANDIDATE
        if is_current:
            self._count_vote(sender, reply.is_granted, reply.is_unsure, now_ms)

    def _on_append(self, sender: NodeId, message: Append, now_ms: int) -> None:
        agreed = self._following.append(sender, self.term, message)
        if agreed is not None:
            self._rejoining.agreed(agreed)

    def _on_heartbeat(self, sender: NodeId, message: Heartbeat, now_ms: int) -> None:
        log = self.log
        # The leader knows that this much is here; a node that forgot has to hear it again first.
        if not self.must_rejoin:
            log.commit = max(log.commit, min(message.commit, log.last))
        is_complete = log.commit == log.last == log.stable == message.commit
        self._allegiance.is_quiet = message.is_quiet and is_complete
        self._work.send(sender, HeartbeatReply(self.term, message.round))

    def _on_snapshot_part(self, sender: NodeId, message: SnapshotPart, now_ms: int) -> None:
        if self._following.take_part(sender, self.term, message):
            self._rejoining.agreed(message.snapshot.index)

    def _on_append_reply(self, sender: NodeId, reply: AppendReply, now_ms: int) -> None:
        if self._leadership is not None:
            self._leadership.on_append_reply(sender, reply)

    def _on_heartbeat_reply(self, sender: NodeId, reply: HeartbeatReply, now_ms: int) -> None:
        if self._leadership is not None:
            self._leadership.on_heartbeat_reply(sender, reply)

    def _on_snapshot_reply(self, sender: NodeId, reply: SnapshotReply, now_ms: int) -> None:
        if self._leadership is not None:
            self._leadership.on_snapshot_reply(sender, reply)

    def _on_transfer_now(self, sender: NodeId, message: TransferNow, now_ms: int) -> None:
        if self._leadership is None and self._may_campaign():
            self._campaign(now_ms, is_trial=False, is_transfer=True)

    def _on_read_request(self, sender: NodeId, request: ReadRequest, now_ms: int) -> None:
        if self._leadership is not None:
            self._leadership.read(sender, request.token)

    def _on_read_reply(self, sender: NodeId, reply: ReadReply, now_ms: int) -> None:
        if reply.token in self._asked_reads:
            self._asked_reads.discard(reply.token)
            self._work.answer_read(reply.token, reply.index)

    def _fail_asked_reads(self) -> None:
        for token in sorted(self._asked_reads):
            self._work.answer_read(token, -1)
        self._asked_reads.clear()

    def _on_rejoin_request(self, sender: NodeId, request: RejoinRequest, now_ms: int) -> None:
        if self._leadership is not None:
            self._leadership.on_rejoin(sender, request)

    def _on_rejoin_reply(self, sender: NodeId, reply: RejoinReply, now_ms: int) -> None:
        if sender == self.leader:
            self._rejoining.answered(reply)


_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    VoteReply: Raft._on_vote_reply,
    Append: Raft._on_append,
    AppendReply: Raft._on_append_reply,
    Heartbeat: Raft._on_heartbeat,
    HeartbeatReply: Raft._on_heartbeat_reply,
    SnapshotPart: Raft._on_snapshot_part,
    SnapshotReply: Raft._on_snapshot_reply,
    TransferNow: Raft._on_transfer_now,
    ReadRequest: Raft._on_read_request,
    ReadReply: Raft._on_read_reply,
    RejoinRequest: Raft._on_rejoin_request,
    RejoinReply: Raft._on_rejoin_reply,
}
