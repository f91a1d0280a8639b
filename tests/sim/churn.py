"""Changes of members: learners come, become voters, leave; voters are replaced, one or all at once.

Rules: a group has at most VOTERS_MAX voters, and not fewer than the scenario allows. A node that left is
switched off only once nobody counts on it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

VOTERS_MAX: Final = 5
HOSTS_MAX: Final = 7
HOSTS_EVER_MAX: Final = 20


class Churn:
    """The operator who never rests."""

    __slots__ = ("_random", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random

    def change(self) -> None:
        """Ask the leader for other members."""
        world, random = self._world, self._random
        leader = world.leader()
        if leader is None or leader.raft is None:
            return
        members = leader.raft.members
        alive = world.up()
        voters = [node for node in sorted(members.voters) if node in alive]
        learners = [node for node in sorted(members.learners) if node in alive]
        others = [node for node in alive if node not in members.everyone]
        way = random.randint(0, 5)
        if way == 0 and others:
            learners.append(random.choice(others))
        elif way == 0 or (way == 1 and not learners):
            self._add_host()
            return
        elif way == 1 and len(voters) < VOTERS_MAX:
            voters.append(learners.pop(random.randrange(len(learners))))
        elif way == 2 and len(voters) > 1:
            gone = voters.pop(random.randrange(len(voters)))
            if random.random() < 0.3:
                learners.append(gone)
        elif way == 3 and learners:
            learners.pop(random.randrange(len(learners)))
        elif way == 4 and others:
            self._retire(world.hosts[random.choice(others)])
            return
        else:
            voters = random.sample(alive, min(len(alive), random.randint(1, VOTERS_MAX)))
            learners = [node for node in learners if node not in voters]
        self._ask(leader, voters, learners)

    def replace_gone(self) -> None:
        """Give the place of a node that does not come back to one that is there."""
        world = self._world
        leader = world.leader()
        if leader is None or leader.raft is None:
            return
        members = leader.raft.members
        alive = world.up()
        voters = [node for node in sorted(members.voters) if node in alive]
        spare = [node for node in alive if node not in voters]
        while len(voters) < len(members.voters) and spare:
            voters.append(spare.pop(self._random.randrange(len(spare))))
        self._ask(leader, voters, [node for node in sorted(members.learners) if node in spare])

    def _ask(self, leader: Host, voters: list[int], learners: list[int]) -> None:
        if len(voters) < self._world.scenario.voters_min:
            return
        self._world.trace("members", leader.node, voters, learners)
        leader.call(lambda raft, now_ms: raft.change(frozenset(voters), frozenset(learners), now_ms))

    def _add_host(self) -> None:
        world = self._world
        if len(world.up()) < HOSTS_MAX and len(world.hosts) < HOSTS_EVER_MAX:
            world.add_host().start()

    def _retire(self, host: Host) -> None:
        """Switch off a node that is no member, if everyone knows that."""
        world = self._world
        others = [other for other in world.hosts.values() if other is not host and not other.is_gone]
        if any(other.raft is None or host.node in world.possible_nodes(other) for other in others):
            return
        world.trace("retired", host.node)
        host.stop()
        host.is_gone = True
