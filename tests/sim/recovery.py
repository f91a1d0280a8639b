"""After the faults: everything is well again, and the group has to show that it works.

In this order, within a bounded time: somebody leads; what is published by any node's view is acknowledged;
every member answers a read; the members can be changed; another voter can be made the leader; then
everything once more, until all members have the same state and, where that is wanted, have fallen quiet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hub.raft.raft import Raft
from tests.sim.checkers import Violation

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

# So many times the time of an election, everything must be well.
ELECTIONS_MAX: Final = 100
EVENTS_MAX: Final = 100_000


class Recovery:
    """What is asked of a group that was healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        # By node: the message that is published by its view.
        self._published: dict[int, int] = {}
        # The nodes that answered a read, and the tokens under way.
        self._reading: dict[int, int] = {}
        self._voters: frozenset[int] | None = None
        self._heir = 0

    def run(self) -> None:
        """Raise a Violation if it takes too long, or if something that was acknowledged is not there."""
        world = self._world
        election_us = world.scenario.options.election_ms * 1000
        deadline_us = world.events.now_us + ELECTIONS_MAX * election_us
        events_max = world.events.handled + EVENTS_MAX
        for step in (self._use, self._change, self._hand_over, self._use_again, self._settle):
            while missing := self._leaderless() or step():
                if world.events.now_us >= deadline_us or world.events.handled >= events_max:
                    raise Violation(f"no progress: {missing}; {world.describe()}")
                world.events.run(events_max, world.events.now_us + election_us // 4)
        for host in self._members():
            world.clients.check_stored(host)

    def _leader(self) -> tuple[Host, Raft]:
        leader = self._world.leader()
        assert leader is not None
        assert leader.raft is not None
        return leader, leader.raft

    def _members(self) -> list[Host]:
        """Those that exist."""
        nodes = sorted(self._leader()[1].members.everyone)
        return [self._world.hosts[node] for node in nodes if not self._world.hosts[node].is_gone]

    # --- the steps: each says what is missing ---

    def _leaderless(self) -> str:
        if self._world.leader() is None:
            return "nobody leads"
        return "the members are changing" if self._leader()[1].members.is_joint else ""

    def _use(self) -> str:
        clients = self._world.clients
        for host in self._members():
            if host.raft is None:
                return f"node {host.node} does not run"
            if host.node not in self._published:
                self._published[host.node] = clients.new_id()
            command = self._published[host.node]
            if command not in clients.seq_of:
                if host.raft.leader:
                    self._world.hosts[host.raft.leader].publish([command])
                return f"what is published by the view of node {host.node} is not acknowledged"
            token = self._reading.get(host.node)
            if token is None or token not in clients.answered:
                if token not in host.reads:
                    # It was told to ask again.
                    self._reading[host.node] = clients.read_at(host)
                return f"node {host.node} does not answer a read"
        return ""

    def _use_again(self) -> str:
        if self._heir:
            self._published.clear()
            self._reading.clear()
            self._heir = 0
        return self._use()

    def _change(self) -> str:
        leader, raft = self._leader()
        members, alive = raft.members, self._world.up()
        if self._voters is None:
            voters = [node for node in sorted(members.voters) if node in alive]
            spare = [node for node in alive if node not in voters]
            if len(voters) == len(members.voters) and len(voters) > 1:
                voters.remove(self._world.random.choice(voters))
            elif spare:
                voters.append(spare[0])
            self._voters = frozenset(voters)
        learners = frozenset(node for node in alive if node in members.everyone) - self._voters
        if members.voters != self._voters or raft.log.commit < raft.log.change_index:
            voters_wanted = self._voters
            leader.call(lambda raft, now_ms: raft.change(voters_wanted, learners, now_ms))
            return f"the voters are not {sorted(self._voters)}"
        return ""

    def _hand_over(self) -> str:
        leader, raft = self._leader()
        voters = sorted(raft.members.voters)
        if not self._heir:
            self._heir = self._world.random.choice(voters)
        if leader.node != self._heir:
            leader.call(lambda raft, now_ms: raft.transfer(self._heir, now_ms))
            return f"node {self._heir} does not get to lead"
        return ""

    def _settle(self) -> str:
        leader, raft = self._leader()
        best = leader.machine
        for host in self._members():
            if host.raft is None or host.repair.missing:
                return f"node {host.node} still misses {sorted(host.repair.missing)}"
            if host.raft.must_rejoin:
                return f"node {host.node} is not believed again"
            if (host.machine.index, host.machine.chain) != (best.index, best.chain):
                return f"node {host.node} has not applied what the leader has"
            if host.raft.log.last != best.index:
                return f"node {host.node} has not committed its log"
        if self._world.scenario.options.quiet_beats and not self._is_disturbed(raft):
            for host in self._members():
                if host.raft is not None and not host.raft.is_quiet and host.node in raft.members.voters:
                    return f"node {host.node} does not fall quiet"
        return ""

    def _is_disturbed(self, raft: Raft) -> bool:
        """Whether somebody who is no member any more, and does not know, keeps asking for votes."""
        members = raft.members.everyone
        if any(self._world.hosts[node].is_gone for node in members):
            return True
        others = [host for node, host in self._world.hosts.items() if node not in members]
        return any(host.raft is not None and host.raft.due_ms is not None for host in others)
