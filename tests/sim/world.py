"""One run: a cluster, its clients and its misfortune; then everything is well, and it has to recover.

Rules: a run is a function of its seed and its length. Safety is checked all the time, progress at the end.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from hub.raft.members import Members
from hub.raft.raft import Role
from tests.sim.checkers import Checkers, Violation
from tests.sim.client import Clients
from tests.sim.events import RATE_UNIT, Events
from tests.sim.faults import Faults
from tests.sim.host import Host
from tests.sim.losses import Losses
from tests.sim.network import Network
from tests.sim.recovery import Recovery
from tests.sim.scenario import draw_scenario

# Nothing that takes so long is waited for: a run that has nothing to do ends here.
END_US: Final = 10**10


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run. `trouble` is empty if all was well."""

    seed: int
    events: int
    digest: int
    simulated_us: int
    acknowledged: int
    reads: int
    trouble: str = ""


class World:
    """Everything that one seed makes."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.scenario = draw_scenario(self.random)
        self.events = Events()
        self.is_traced = is_traced
        self.is_healing = False
        # Whether no clock was ever too fast or too slow.
        self.are_clocks_alike = True
        self.batch_us = self.scenario.batch_us
        self.snapshots = 0
        # Messages whose entries were gone before they could be sent.
        self.unfilled = 0
        self.network = Network(self.events, self.random)
        self.checkers = Checkers(self)
        self.clients = Clients(self)
        self.losses = Losses(self)
        self.genesis = Members(frozenset(range(1, self.scenario.nodes + 1)))
        self.hosts: dict[int, Host] = {}
        for _ in range(self.scenario.nodes):
            self.add_host()
        self.faults = Faults(self)

    def add_host(self) -> Host:
        """One more machine, with an empty disk."""
        node = len(self.hosts) + 1
        host = self.hosts[node] = Host(self, node, self.genesis, lies=node == self.scenario.liar)
        return host

    # --- looking around ---

    def up(self) -> list[int]:
        """The nodes that exist, running or not."""
        return [node for node, host in self.hosts.items() if not host.is_gone]

    def leader(self) -> Host | None:
        """The node that leads in the highest term."""
        found = None
        for host in self.hosts.values():
            raft = host.raft
            if raft is not None and raft.role is Role.LEADER:
                assert found is None or found.raft is not None
                if found is None or raft.term > found.raft.term:  # type: ignore[union-attr]
                    found = host
        return found

    def possible_nodes(self, host: Host) -> set[int]:
        """Everyone who is a member by what a node knows, or may be one."""
        if host.raft is not None:
            found = host.raft.log.possible_members
        else:
            image = host.disk.image
            found = [image.base_members, *(members for _, _, members in image.entries if members is not None)]
        return {node for members in found for node in members.everyone}

    def draw(self, low: int, high: int) -> int:
        """What the cores draw numbers with."""
        if self.scenario.is_contended and not self.is_healing:
            high = low + (high - low) // 20
        return self.random.randint(low, high)

    def suspect(self, host: Host, peer: int) -> None:
        """A node sees that its link to another one broke."""
        host.call(lambda raft, now_ms: raft.suspect(peer, now_ms))

    def trace(self, *facts: Any) -> None:
        """Say what happens, if somebody wants to know."""
        if self.is_traced:
            print(f"{self.events.now_us / 1000:12.3f}", *facts)

    # --- a run ---

    def run(self, events_max: int) -> Result:
        """The whole of it."""
        trouble = ""
        try:
            self._suffer(events_max)
            self._heal()
            Recovery(self).run()
        except Violation as violation:
            trouble = f"violation: {violation}"
        except Exception:  # Whatever else is raised is a fault of the core or of the simulator.
            trouble = traceback.format_exc()
        return Result(
            self.seed,
            self.events.handled,
            hash((self.events.digest, self.checkers.history[-1][1])),
            self.events.now_us,
            len(self.clients.seq_of),
            len(self.clients.answered),
            trouble,
        )

    def _suffer(self, events_max: int) -> None:
        for host in self.hosts.values():
            host.start()
        if self.scenario.is_stormy:
            self.faults.weather()
        self.events.after(1, self.clients.begin)
        self.events.after(self.scenario.fault_us, self.faults.begin)
        self.events.run(events_max, END_US)

    def _heal(self) -> None:
        self.is_healing = True
        self.trace("heal")
        self.batch_us = 0
        self.network.mend_all()
        self.network.set_weather(0.0, 0.0, 300, 2000)
        for host in self.hosts.values():
            if host.is_gone:
                continue
            host.disk.set_trouble(0.0, 1000)
            host.clock.set_rate(RATE_UNIT)
            if host.is_paused:
                host.resume()
            host.start_if_stopped()
            host.restart_timer()
        # The links are new: whoever is not there is known not to be.
        for host in self.hosts.values():
            for other in self.hosts.values():
                if other.is_gone:
                    self.suspect(host, other.node)

    def describe(self) -> str:
        """All nodes, for whoever has to find out what went wrong."""
        lines = []
        for node, host in self.hosts.items():
            raft = host.raft
            if raft is not None:
                log = raft.log
                lines.append(
                    f"node {node}: {raft.role.name} term {raft.term} leader {raft.leader}"
                    f" log {log.base_index}..{log.commit}..{log.stable}..{log.last}"
                    f" applied {host.machine.index} due {raft.due_ms} now {host.clock.now_ms()}"
                    f" quiet {raft.is_quiet} fit {raft.is_fit} rejoin {raft.must_rejoin} {raft.members}"
                )
        return "\n  ".join(["", *lines])


def run(seed: int, events_max: int, *, is_traced: bool = False) -> Result:
    """One run."""
    return World(seed, is_traced=is_traced).run(events_max)
