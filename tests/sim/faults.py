"""What goes wrong, and when it is well again. Everything is drawn from the seed.

Rules: never more than the protocol tolerates. Any number of nodes may crash, pause or be cut off, as they
come back with what they had. At most one node at a time may have lost something for good: a damaged record,
a wiped disk, or a disk that lies about what is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.churn import Churn
from tests.sim.events import RATE_UNIT

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World


# How long nodes are down, and links are broken, in elections.
DOWN_ELECTIONS: Final = (0.05, 0.3, 1.5)
CUT_ELECTIONS: Final = (0.3, 2, 3)


class Faults:
    """The misfortune of one run."""

    __slots__ = ("_churn", "_is_lying_in_wait", "_random", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._churn = Churn(world)
        self._is_lying_in_wait = False

    def begin(self) -> None:
        """Something happens now, and again later."""
        world = self._world
        scenario = world.scenario
        if world.is_healing or not scenario.faults:
            return
        delay_us = int(self._random.expovariate(1.0) * scenario.fault_us) + 1
        world.events.after(delay_us, self.begin)
        fault = self._random.choice(scenario.faults)
        world.trace("fault", fault)
        getattr(self, fault)()

    # --- nodes ---

    def _later_us(self, *elections: float) -> int:
        """How long something lasts: a time about one of these, in elections."""
        election_us = self._world.scenario.options.election_ms * 1000
        return int(self._random.expovariate(1.0) * election_us * self._random.choice(elections)) + 1

    def _any_host(self) -> Host:
        """Any node, but the leader more often than the others."""
        world = self._world
        if self._random.random() < 0.4:
            leader = world.leader()
            if leader is not None:
                return leader
        return world.hosts[self._random.choice(world.up())]

    def crash(self, host: Host | None = None) -> None:
        """A machine loses its power, and gets it back."""
        host = host or self._any_host()
        self._stop(host, keeps_all=False)

    def ambush(self) -> None:
        """Whoever asks for votes next loses its power while the votes are on their way."""
        self._is_lying_in_wait = True

    def saw_campaign(self, host: Host) -> None:
        """A node asks for votes."""
        if self._is_lying_in_wait and not self._world.is_healing:
            self._is_lying_in_wait = False
            self._world.events.after(self._later_us(0.01, 0.1), self._crash_briefly, host)

    def _crash_briefly(self, host: Host) -> None:
        if host.raft is not None:
            host.stop()
            self._world.events.after(self._later_us(0.01, 0.1), host.start_if_stopped)

    def restart(self) -> None:
        """A process ends, and what it wrote is still with the system."""
        self._stop(self._any_host(), keeps_all=True)

    def power_cut(self) -> None:
        """Several machines lose their power at once, often all."""
        nodes = self._world.up()
        if self._random.random() < 0.5:
            nodes = self._random.sample(nodes, self._random.randint(1, len(nodes)))
        for node in nodes:
            self._stop(self._world.hosts[node], keeps_all=False)

    def _stop(self, host: Host, *, keeps_all: bool) -> None:
        if host.raft is None:
            return
        host.stop(keeps_all=keeps_all)
        self._world.events.after(self._later_us(*DOWN_ELECTIONS), host.start_if_stopped)
        self.tell_links_of(host)

    def tell_links_of(self, host: Host) -> None:
        """Everyone sees that the link to this node broke, sooner or later or all at once."""
        latest_us = self._random.choice((2_000, 300_000))
        for other in self._world.hosts.values():
            if other is not host:
                self._world.events.after(
                    self._random.randint(0, latest_us), self._world.suspect, other, host.node
                )

    def pause(self) -> None:
        """A node stands still, and its clock goes on."""
        host = self._any_host()
        if not host.is_paused and host.raft is not None:
            host.pause()
            self._world.events.after(self._later_us(*DOWN_ELECTIONS), host.resume)
            if self._random.random() < 0.5:
                self.tell_links_of(host)

    def clock(self) -> None:
        """A node's clock is too fast or too slow from now on."""
        host = self._any_host()
        self._world.are_clocks_alike = False
        host.clock.set_rate(self._random.randint(RATE_UNIT // 2, RATE_UNIT * 2))
        host.restart_timer()

    # --- links ---

    def split(self) -> None:
        """Two groups do not hear each other."""
        nodes = self._world.up()
        one = set(self._random.sample(nodes, self._random.randint(0, len(nodes))))
        self._cut([(a, b) for a in sorted(one) for b in nodes if b not in one], both_ways=True)

    def isolate(self) -> None:
        """One node hears nobody, or is heard by nobody, or both."""
        node = self._any_host().node
        pairs = [(node, other) for other in self._world.up() if other != node]
        way = self._random.randint(0, 2)
        if way == 1:
            pairs = [(other, node) for node, other in pairs]
        self._cut(pairs, both_ways=way == 2)

    def one_way(self) -> None:
        """Some links work in one direction only."""
        nodes = self._world.up()
        pairs = [(a, b) for a in nodes for b in nodes if a != b and self._random.random() < 0.3]
        self._cut(pairs, both_ways=False)

    def _cut(self, pairs: list[tuple[int, int]], *, both_ways: bool, lasts_us: int = 0) -> None:
        world = self._world
        for one, other in pairs:
            world.events.after(self._random.randint(50_000, 1_500_000), self._tell_if_cut, one, other)
        if both_ways:
            pairs = pairs + [(other, one) for one, other in pairs]
        world.network.cut(pairs)
        world.events.after(lasts_us or self._later_us(*CUT_ELECTIONS), world.network.mend, pairs)

    def _tell_if_cut(self, one: int, other: int) -> None:
        if self._world.network.is_cut(one, other):
            for near, far in ((one, other), (other, one)):
                self._world.suspect(self._world.hosts[near], far)

    def weather(self) -> None:
        """All links lose, repeat and delay more or less than before."""
        random = self._random
        election_ms = self._world.scenario.options.election_ms
        self._world.network.set_weather(
            random.choice((0.0, 0.0, 0.01, 0.05, 0.2)),
            random.choice((0.0, 0.05, 0.3)),
            random.choice((200, 2 * election_ms, 50 * election_ms)),
            random.choice((1000, 20 * election_ms, 100 * election_ms, 1000 * election_ms)),
        )

    # --- disks ---

    def slow_disk(self) -> None:
        """A disk takes longer."""
        host = self._any_host()
        election_ms = self._world.scenario.options.election_ms
        host.disk.set_trouble(0.0, self._random.choice((500, 50 * election_ms, 1000 * election_ms)))

    def failing_disk(self) -> None:
        """Syncs of a node fail now and then."""
        host = self._any_host()
        host.disk.set_trouble(self._random.choice((0.0, 0.02, 0.3)), 5000)

    def damage(self) -> None:
        """Some commands on a disk cannot be read any more. That shows at the next start."""
        world = self._world
        host = self._any_host()
        if not self._may_lose(host):
            return
        self._stop(host, keeps_all=self._random.random() < 0.5)
        image = host.disk.image
        first = max(image.base_index, image.checkpoint.index) + 1
        if first > image.last:
            return
        index = self._random.randint(first, image.last)
        for place in range(index, min(image.last, index + self._random.choice((0, 3, 50))) + 1):
            image.damage(place)
        world.trace("damaged", host.node, sorted(image.damaged))

    def scrub(self) -> None:
        """A running node sees that some commands on its disk cannot be read any more."""
        host = self._any_host()
        if host.raft is None or host.is_paused or not self._may_lose(host):
            return
        image = host.disk.image
        first = max(image.base_index, image.checkpoint.index, host.base_index, host.machine.index - 20) + 1
        last = min(image.last, host.base_index + len(host.entries))
        if first <= last:
            index = self._random.randint(first, last)
            host.repair.lose(range(index, min(last, index + self._random.choice((0, 3))) + 1))

    def _may_lose(self, host: Host) -> bool:
        """Whether nobody else has lost something."""
        world = self._world
        others = [other for other in world.hosts.values() if other is not host]
        if any(not other.is_gone and (other.disk.image.damaged or other.repair.missing) for other in others):
            return False
        gone = {other.node for other in others if other.is_gone}
        return not any(gone & world.possible_nodes(other) for other in others if not other.is_gone)

    def wipe(self) -> None:
        """A disk is lost; the machine comes back as another node."""
        world = self._world
        host = self._any_host()
        if len(world.hosts) > 20 or host.disk.image.damaged or not self._may_lose(host):
            return
        host.stop()
        host.is_gone = True
        world.trace("wiped", host.node)
        self.tell_links_of(host)
        world.add_host().start()
        for _ in range(3):
            world.events.after(self._later_us(*DOWN_ELECTIONS), self._churn.replace_gone)

    # --- what operators do ---

    def churn(self) -> None:
        """Other members."""
        self._churn.change()

    def transfer(self) -> None:
        """Another leader."""
        leader = self._world.leader()
        if leader is not None:
            to = self._random.choice(self._world.up())
            leader.call(lambda raft, now_ms: raft.transfer(to, now_ms))

    def scripted(self) -> None:
        """A minority is cut off, one of the others loses its power, then those two have to go on alone."""
        world = self._world
        nodes = world.up()
        self._random.shuffle(nodes)
        half = (len(nodes) - 1) // 2
        late, early = nodes[:half], nodes[half:]
        if not late:
            return
        self._cut([(a, b) for a in late for b in early], both_ways=True)
        delay_us = 5 * world.scenario.options.election_ms * 1000
        world.events.after(delay_us, self._change_sides, late, early)

    def deserted(self) -> None:
        """A leader is cut off, and is asked to store and to show what it cannot know to be true."""
        world = self._world
        leader = world.leader()
        if leader is None or len(world.up()) < 3:
            return
        election_us = world.scenario.options.election_ms * 1000
        # Long enough for another leader, often not long enough for this one to give up.
        lasts_us = self._random.randint(election_us, 3 * election_us)
        pairs = [(leader.node, node) for node in world.up() if node != leader.node]
        self._cut(pairs, both_ways=self._random.random() < 0.7, lasts_us=lasts_us)
        for step in range(1, 30):
            world.events.after(step * election_us // 10, self._use, leader)
        for host in (leader, self._any_host()):
            host.disk.set_trouble(0.0, self._random.choice((2000, election_us // 3, 2 * election_us)))

    def _use(self, host: Host) -> None:
        world = self._world
        if not world.is_healing:
            host.publish([world.clients.new_id()])
            world.clients.read_at(host)

    def _change_sides(self, late: list[int], early: list[int]) -> None:
        if self._world.is_healing:
            return
        self.crash(self._world.hosts[early[0]])
        self._world.network.mend_all()
        self._cut([(a, b) for a in early[1:] for b in [*late, early[0]]], both_ways=True)
