"""What must always hold, seen from above: the checkers know every node, its memory and its disk.

Rules: each check is made when what it looks at changes, and looks at no more than that. A check that fails
raises Violation; nothing here changes a node.

Log matching (paper, 5.3) is checked by induction: an entry of some index and term has the same command in
every log that ever had it, and the entry before it has the same term. So equal entries have equal logs
before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hub.raft.members import Members
from hub.raft.messages import VoteReply, VoteRequest
from hub.raft.raft import Raft

if TYPE_CHECKING:
    from tests.sim.disk import Entry
    from tests.sim.host import Host
    from tests.sim.machine import Machine
    from tests.sim.world import World


class Violation(Exception):  # noqa: N818 - it is what was found, not an error of the simulator.
    """Something happened that must never happen."""


def _is_quorum(members: Members, nodes: set[int]) -> bool:
    """Counted here, as the core may count wrong."""
    deciding = [voters for voters in (members.voters, members.outgoing) if voters]
    return all(2 * len(voters & nodes) > len(voters) for voters in deciding)


class Checkers:
    """All that is remembered of a run to judge it."""

    __slots__ = ("_commits", "_entries", "_leaders", "_seqs", "_votes", "_world", "history")

    def __init__(self, world: World) -> None:
        self._world = world
        # Term -> (node, boot) that led in it.
        self._leaders: dict[int, tuple[int, int]] = {}
        # (node, term) -> who got its vote.
        self._votes: dict[tuple[int, int], int] = {}
        # (index, term) -> (command or members, term of the entry before).
        self._entries: dict[tuple[int, int], tuple[Any, int]] = {}
        # Term -> (index, term of that entry): how far its leader committed.
        self._commits: dict[int, tuple[int, int]] = {}
        # By index: (term, chain of checksums) as first applied.
        self.history: list[tuple[int, int]] = [(0, 0)]
        # The last seq by then.
        self._seqs = [0]

    # --- votes and leaders ---

    def started(self, host: Host) -> None:
        """A node begins: it is judged by what it does from here on."""
        host.led_term = 0

    def sends(self, host: Host, to: int, message: Any) -> None:
        """One vote per node and term, over all its starts."""
        kind = type(message)
        if kind is VoteReply:
            if message.is_granted and not message.is_trial:
                self._vote(host.node, message.term, to)
        elif kind is VoteRequest and not message.is_trial:
            self._vote(host.node, message.term, host.node)
            self._world.faults.saw_campaign(host)

    def _vote(self, node: int, term: int, candidate: int) -> None:
        before = self._votes.setdefault((node, term), candidate)
        if before != candidate:
            raise Violation(f"node {node} votes in term {term} for {before} and for {candidate}")

    def leads(self, host: Host, raft: Raft) -> None:
        """Called after whatever happened to a leader."""
        log = raft.log
        self._check_lease(host, raft)
        if host.led_term != raft.term:
            self._elected(host, raft)
        elif log.commit > host.led_commit:
            self._committed(host, raft)
        host.led_commit = log.commit
        host.led_members = log.members
        host.led_change = log.change_index

    def _elected(self, host: Host, raft: Raft) -> None:
        term = raft.term
        host.led_term = term
        before = self._leaders.setdefault(term, (host.node, host.boot))
        if before != (host.node, host.boot):
            raise Violation(
                f"term {term} has two leaders: {before} and {(host.node, host.boot)} (node, boot)"
            )
        # Leader completeness: what the leaders before committed is in its log.
        for committing, (index, entry_term) in self._commits.items():
            if committing < term and index > raft.log.base_index and raft.log.term(index) != entry_term:
                what = f"entry {index}, committed in term {committing}"
                raise Violation(f"node {host.node} leads in term {term} without {what}")
        for other in self._world.hosts.values():
            if other.raft is not None and other.raft.term < term:
                self._check_lease(other, other.raft)
        if host.repair.missing:
            raise Violation(f"node {host.node} leads in term {term} and misses {sorted(host.repair.missing)}")

    def _check_lease(self, host: Host, raft: Raft) -> None:
        """While a node holds a lease, nobody has been elected after it: if clocks run alike."""
        if not self._world.are_clocks_alike or not raft.holds_lease(host.clock.now_ms()):
            return
        latest = max(self._leaders, default=0)
        if raft.term < latest:
            raise Violation(f"node {host.node} has a lease in term {raft.term}, and somebody led in {latest}")

    # --- committing ---

    def _committed(self, host: Host, raft: Raft) -> None:
        log = raft.log
        index = log.commit
        term = log.term(index)
        if term is None:
            return  # It was forgotten at once, so it is applied, and judged there.
        if term != raft.term:
            raise Violation(
                f"node {host.node} commits {index} of term {term} by counting in term {raft.term}"
            )
        self._commits[raft.term] = (index, term)
        if host.led_commit < host.led_change <= index:
            # The members themselves need the quorum that they ask for; what follows may need less.
            self._check_quorum(host, host.led_change, log.term(host.led_change), (host.led_members,))
        self._check_quorum(host, index, term, (host.led_members, log.members))

    def _check_quorum(self, host: Host, index: int, term: int | None, choices: tuple[Members, ...]) -> None:
        """What is committed is durable on a quorum."""
        if term is None:
            return
        durable = {
            node
            for members in choices
            for node in members.voters | members.outgoing
            if self._has(node, index, term)
        }
        if not any(_is_quorum(members, durable) for members in choices):
            raise Violation(
                f"node {host.node} commits {index} of term {term}, durable on {sorted(durable)} only"
            )

    def _has(self, node: int, index: int, term: int) -> bool:
        host = self._world.hosts.get(node)
        if host is None or host.is_gone or host.lies:
            return True  # Nobody can tell.
        image = host.disk.image
        return image.base_index >= index or image.term_at(index) == term

    # --- logs ---

    def truncates(self, host: Host, raft: Raft, index: int) -> None:
        """A leader never does, and nobody cuts off what is committed."""
        if host.led_term == raft.term and raft.leader == host.node:
            raise Violation(
                f"node {host.node} leads in term {raft.term} and cuts off its log from {index} on"
            )
        if index <= host.machine.index:
            raise Violation(f"node {host.node} applied {host.machine.index} and cuts off {index}")
        if index < len(self.history):
            term = host.entries[index - host.base_index - 1][0]
            if self.history[index][0] == term:
                raise Violation(f"node {host.node} cuts off {index} of term {term}, which was committed")

    def appends(self, host: Host, first: int, new: list[Entry]) -> None:
        """Log matching."""
        before = host.entries[-1][0] if host.entries else host.base_term
        known = self._entries
        for index, (term, command, members) in enumerate(new, first):
            entry = (command or members, before)
            seen = known.setdefault((index, term), entry)
            if seen is not entry and seen != entry:
                raise Violation(f"entry {index} of term {term} is {seen} and, on node {host.node}, {entry}")
            before = term

    # --- what everybody has forgotten ---

    def forget(self, has: Callable[[int, int], bool]) -> int | None:
        """What nobody has any more was never committed; the last seq that is left, if it was any."""
        for term, (index, entry_term) in list(self._commits.items()):
            if not has(index, entry_term):
                del self._commits[term]
        history, before = self.history, len(self.history)
        while not has(len(history) - 1, history[-1][0]):
            history.pop()
            self._seqs.pop()
        return self._seqs[-1] if len(history) < before else None

    # --- the applied state ---

    def applied(self, host: Host, index: int, term: int, machine: Machine) -> None:
        """State machine safety: everyone applies the same."""
        history = self.history
        if not host.lies and not self._has(host.node, index, term):
            raise Violation(f"node {host.node} applies {index} of term {term}, which is not durable there")
        if index == len(history):
            history.append((term, machine.chain))
            self._seqs.append(machine.last_seq)
        elif index > len(history):
            raise Violation(f"node {host.node} applies {index} before {len(history)}")
        elif history[index] != (term, machine.chain):
            raise Violation(f"node {host.node} applies something else than others at {index}, in term {term}")

    def installed(self, host: Host) -> None:
        """A snapshot is what everyone else has at its index."""
        machine = host.machine
        if self.history[machine.index] != (machine.term, machine.chain):
            raise Violation(f"node {host.node} has a snapshot of {machine.index} that nobody else has")
