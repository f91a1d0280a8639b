"""Faults put into the core or into the host on purpose: a simulator that does not find them finds nothing.

The first nine were found in a widely used server, years after it was first released, and are named after
what was wrong there. Each is a few attributes of classes that are replaced for as long as the fault is
wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from hub.raft.allegiance import Allegiance
from hub.raft.leadership import Leadership
from hub.raft.log import Log, Recovered
from hub.raft.members import Members
from hub.raft.messages import HardState, Heartbeat
from hub.raft.raft import Raft
from hub.raft.ready import Ready
from hub.raft.votes import Votes
from hub.raft.worklist import Worklist
from tests.sim import disk as records
from tests.sim.disk import Disk, Image
from tests.sim.host import Host
from tests.sim.machine import Machine, State
from tests.sim.repair import Repair

Patch = tuple[type, str, Any]


def _commits_entries_of_earlier_terms() -> list[Patch]:
    original = Leadership.commit_what_is_agreed

    def commit_what_is_agreed(self: Any) -> None:
        index = self._log.members.agreed(self._match_of)
        if index > self._log.commit and self._log.term(index) != self._term:
            self._log.commit = index
        original(self)

    return [(Leadership, "commit_what_is_agreed", commit_what_is_agreed)]


def _forgets_vote_when_stepping_down() -> list[Patch]:
    original = Raft._follow

    def follow(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.vote = 0

    return [(Raft, "_follow", follow)]


def _keeps_stale_vote_on_disk() -> list[Patch]:
    original = Host._records

    def written(self: Host, raft: Raft, ready: Ready) -> list[records.Record]:
        stale = self.disk.image.vote
        return [
            (record[0], record[1], stale)
            if record[0] == records.HARD_STATE and record[2] == self.node
            else record
            for record in original(self, raft, ready)
        ]

    return [(Host, "_records", written)]


def _keeps_log_beside_snapshot() -> list[Patch]:
    original = Image.carry_out

    def carry_out(self: Image, record: records.Record) -> None:
        entries, damaged = list(self.entries), dict(self.damaged)
        original(self, record)
        if record[0] == records.INSTALL:
            self.entries, self.damaged = entries, damaged

    return [(Image, "carry_out", carry_out)]


def _votes_after_write_error() -> list[Patch]:
    def on_disk_failed(self: Host) -> None:
        assert self.raft is not None
        if self.in_flight:
            ready, messages = self.in_flight.popleft()
            self._finish(self.raft, ready, messages)
            self.pump()

    original = Host.on_synced

    def on_synced(self: Host, is_durable: bool) -> None:
        if self.in_flight or self.raft is None or self.is_paused:
            original(self, is_durable)

    return [(Host, "on_disk_failed", on_disk_failed), (Host, "on_synced", on_synced)]


def _acknowledges_without_term() -> list[Patch]:
    def acknowledge(self: Host, index: int, term: int, command: int, seq: int) -> None:
        self.world.clients.acknowledged(self, self.waiting.pop(index)[1], seq)

    return [(Host, "acknowledge", acknowledge), (Host, "give_up_waiting", lambda self, index: None)]


def _skips_entry_after_snapshot() -> list[Patch]:
    original = Host.adopt_state

    def adopt_state(self: Host, state: State) -> None:
        original(self, state)
        self.machine.index += 1

    return [(Host, "adopt_state", adopt_state)]


def _is_alone_after_replay() -> list[Patch]:
    def recover(self: Host) -> tuple[HardState, Recovered]:
        hard_state, recovered = self.disk.image.recovered()
        alone = Members(frozenset((self.node,)))
        blocks = [
            block if block.members is None else replace(block, members=alone) for block in recovered.blocks
        ]
        return hard_state, replace(recovered, blocks=tuple(blocks))

    return [(Host, "recover", recover)]


def _takes_one_sync_for_all() -> list[Patch]:
    original = Host.on_synced

    def on_synced(self: Host, is_durable: bool) -> None:
        if self.raft is None or self.is_paused or not is_durable:
            original(self, is_durable)
            return
        while self.in_flight:
            ready, messages = self.in_flight.popleft()
            self._finish(self.raft, ready, messages)
        self.pump()

    return [(Host, "on_synced", on_synced)]


UPSTREAM: Final[dict[str, Callable[[], list[Patch]]]] = {
    "commits-entries-of-earlier-terms": _commits_entries_of_earlier_terms,
    "forgets-vote-when-stepping-down": _forgets_vote_when_stepping_down,
    "keeps-stale-vote-on-disk": _keeps_stale_vote_on_disk,
    "keeps-log-beside-snapshot": _keeps_log_beside_snapshot,
    "votes-after-write-error": _votes_after_write_error,
    "acknowledges-without-term": _acknowledges_without_term,
    "skips-entry-after-snapshot": _skips_entry_after_snapshot,
    "is-alone-after-replay": _is_alone_after_replay,
    "takes-one-sync-for-all": _takes_one_sync_for_all,
}


# --- others ---


def _sends_before_sync() -> list[Patch]:
    original = Raft.ready

    def ready(self: Raft, now_ms: int) -> Ready:
        taken = original(self, now_ms)
        taken.early += taken.messages
        taken.messages = []
        return taken

    return [(Raft, "ready", ready)]


def _needs_new_majority_only() -> list[Patch]:
    is_quorum, agreed = Members.is_quorum, Members.agreed

    def new_is_quorum(self: Members, granted: Collection[int]) -> bool:
        return is_quorum(Members(self.voters), granted)

    def new_agreed(self: Members, value_of: Callable[[int], int]) -> int:
        return agreed(Members(self.voters), value_of)

    return [(Members, "is_quorum", new_is_quorum), (Members, "agreed", new_agreed)]


def _counts_learners() -> list[Patch]:
    agreed = Members.agreed

    def with_learners(self: Members, value_of: Callable[[int], int]) -> int:
        return agreed(Members(self.voters | self.learners, self.outgoing), value_of)

    return [(Members, "agreed", with_learners)]


def _reads_without_quorum() -> list[Patch]:
    return [(Leadership, "_round_of", lambda self, node: self._round)]


def _leads_with_holes() -> list[Patch]:
    return [(Repair, "tell_core", lambda self, **arguments: None)]


def _never_rejoins() -> list[Patch]:
    original = Raft.__init__

    def begin(self: Raft, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **{**options, "must_rejoin": False})

    return [(Raft, "__init__", begin)]


def _counts_unsure_votes() -> list[Patch]:
    original = Votes.count

    def count(self: Votes, node: int, is_granted: bool, is_unsure: bool) -> None:
        original(self, node, is_granted, False)

    return [(Votes, "count", count)]


def _elects_the_unsure_without_learners() -> list[Patch]:
    original = Votes.are_enough

    def are_enough(self: Any, log: Log) -> bool:
        return original(self, log) or log.members.deciding <= self._granted | self._unsure

    return [(Votes, "are_enough", are_enough)]


def _votes_for_shorter_logs() -> list[Patch]:
    return [(Log, "is_behind", lambda self, last_index, last_term: True)]


def _keeps_conflicting_entries() -> list[Patch]:
    def agrees_to(self: Log, first: int, last: int, term: int) -> int:
        return first - 1 if first > self.last else min(last, self.last)

    return [(Log, "agrees_to", agrees_to)]


def _beats_with_commit_of_leader() -> list[Patch]:
    original = Worklist.send_early

    def send_early(self: Worklist, to: int, message: Any) -> None:
        if type(message) is Heartbeat:
            message = replace(message, commit=self.log.commit)
        original(self, to, message)

    return [(Worklist, "send_early", send_early)]


def _never_writes_hard_state() -> list[Patch]:
    original = Disk.write

    def write(self: Disk, written: list[records.Record]) -> None:
        original(self, [record for record in written if record[0] != records.HARD_STATE])

    return [(Disk, "write", write)]


def _loses_ids_with_snapshot() -> list[Patch]:
    original = Machine.state

    def state(self: Machine) -> State:
        return replace(original(self), seqs={})

    return [(Machine, "state", state)]


def _applies_what_is_not_durable() -> list[Patch]:
    original = Worklist.take

    def take(self: Worklist, hard_state: HardState) -> Ready:
        ready = original(self, hard_state)
        if self.log.commit > self._applied_to:
            ready.apply_to = self._applied_to = self.log.commit
        return ready

    return [(Worklist, "take", take)]


def _takes_old_sync_for_new_entries() -> list[Patch]:
    return [(Worklist, "_note_rewriting", lambda self, after: None)]


def _is_never_bound() -> list[Patch]:
    original = Allegiance.hear

    def hear(self: Allegiance, now_ms: int) -> None:
        original(self, now_ms)
        self.bound_until_ms = 0

    return [(Allegiance, "hear", hear)]


def _keeps_lease_while_handing_over() -> list[Patch]:
    original = Leadership.holds_lease

    def holds_lease(self: Any, now_ms: int) -> bool:
        heir, self._heir = self._heir, 0
        try:
            return original(self, now_ms)
        finally:
            self._heir = heir

    return [(Leadership, "holds_lease", holds_lease)]


def _leads_on_without_its_heir() -> list[Patch]:
    original = Leadership.tick

    def tick(self: Any, now_ms: int) -> None:
        if self._heir and now_ms >= self._heir_due_ms:
            self._heir = 0
        original(self, now_ms)

    return [(Leadership, "tick", tick)]


OTHERS: Final[dict[str, Callable[[], list[Patch]]]] = {
    "sends-before-sync": _sends_before_sync,
    "needs-new-majority-only": _needs_new_majority_only,
    "counts-learners": _counts_learners,
    "reads-without-quorum": _reads_without_quorum,
    "leads-with-holes": _leads_with_holes,
    "never-rejoins": _never_rejoins,
    "counts-unsure-votes": _counts_unsure_votes,
    "elects-the-unsure-without-learners": _elects_the_unsure_without_learners,
    "votes-for-shorter-logs": _votes_for_shorter_logs,
    "keeps-conflicting-entries": _keeps_conflicting_entries,
    "beats-with-commit-of-leader": _beats_with_commit_of_leader,
    "never-writes-hard-state": _never_writes_hard_state,
    "loses-ids-with-snapshot": _loses_ids_with_snapshot,
    "applies-what-is-not-durable": _applies_what_is_not_durable,
    "takes-old-sync-for-new-entries": _takes_old_sync_for_new_entries,
    "is-never-bound": _is_never_bound,
    "keeps-lease-while-handing-over": _keeps_lease_while_handing_over,
    "leads-on-without-its-heir": _leads_on_without_its_heir,
}
MUTATIONS: Final = {**UPSTREAM, **OTHERS}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The fault of that name is there; none, if the name is empty."""
    before: list[Patch] = []
    try:
        for owner, attribute, value in MUTATIONS[name]() if name else []:
            before.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in reversed(before):
            setattr(owner, attribute, value)
