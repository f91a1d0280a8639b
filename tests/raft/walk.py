"""A walk by seed through everything that can happen to a group; the cluster checks on every step.

One node, by seed, has a disk that may forget what it said was durable, but for its term and vote.
`python -m tests.raft.walk --first 0 --seeds 1000` walks on; a failing seed is printed and replays.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from typing import Final

from hub.raft.options import RaftOptions
from hub.raft.raft import Role
from tests.raft.cluster import Cluster, Node

NODES: Final = 5
STEPS: Final = 400
_CHANCES: Final = {
    "deliver": 60,
    "pass_time": 12,
    "propose": 12,
    "read": 5,
    "drop": 3,
    "repeat": 3,
    "hold": 3,
    "sync": 6,
    "compact": 2,
    "offer": 4,
    "crash": 1,
    "start": 3,
    "change": 2,
    "transfer": 1,
    "suspect": 1,
    "fit": 1,
    "cut": 1,
    "isolate": 2,
    "heal": 3,
}


class Walk:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        options = RaftOptions(
            quiet_beats=self._random.choice((0, 2)),
            append_bytes_max=self._random.choice((8, 1000)),
            inflight_messages_max=self._random.choice((1, 2, 64)),
            snapshot_part_bytes=self._random.choice((5, 1000)),
            snapshot_parts_max=2,
        )
        self._forgetful = self._random.choice((0, 0, 1, 2, 3))
        # Without the vote of the forgetful one there have to be enough others.
        self._voters_min = 3 if self._forgetful else 1
        self._cluster = Cluster(self._random.randint(self._voters_min, 3), options=options)
        for number in range(1, NODES + 1):
            self._cluster.draws[number] = self._random.randint
            if number not in self._cluster.nodes:
                self._cluster.add(number)
        # What the forgetful one had on disk at some time.
        self._history = [self._cluster[max(1, self._forgetful)].durable.copy()]
        self._serial = 0
        # By token, what was applied somewhere when the read was asked for; answers seen so far per node.
        self._reads: dict[int, int] = {}
        self._applied_max = 0
        self.commands: tuple[str, ...] = ()

    def run(self) -> None:
        """Walk, then let everything heal and see that the group works."""
        names, weights = list(_CHANCES), list(_CHANCES.values())
        for _ in range(STEPS):
            getattr(self, f"_{self._random.choices(names, weights)[0]}")()
            self._check()
        self._recover()

    @property
    def leaders(self) -> dict[int, int]:
        """Who led in which term."""
        return self._cluster.leaders

    # --- what is always so ---

    def _check(self) -> None:
        for node in self._up():
            self._applied_max = max(self._applied_max, node.applied)
            if len(node.commands) > len(self.commands):
                self.commands = node.commands
            assert node.commands == self.commands[: len(node.commands)]
            for token, index in node.answers:
                assert index < 0 or index >= self._reads[token], f"read {token} is answered from the past"
            node.answers.clear()
            if node.node == self._forgetful and self._random.random() < 0.1:
                self._history.append(node.durable.copy())

    def _up(self) -> list[Node]:
        return [node for node in self._cluster.nodes.values() if node.is_up]

    def _any(self) -> Node | None:
        nodes = self._up()
        return self._random.choice(nodes) if nodes else None

    def _leader(self) -> Node | None:
        leading = [node for node in self._up() if node.raft.role is Role.LEADER]
        return self._random.choice(leading) if leading else None

    # --- what can happen ---

    def _deliver(self) -> None:
        flight = self._cluster.flight
        for _ in range(self._random.choice((1, 3, 10, 40))):
            if not flight:
                return
            place = 0 if self._random.random() < 0.9 else self._random.randrange(len(flight))
            flight.insert(0, flight.pop(place))
            self._cluster.deliver(count=1)

    def _repeat(self) -> None:
        if self._cluster.flight:
            self._cluster.flight.append(self._random.choice(self._cluster.flight))

    def _drop(self) -> None:
        if self._cluster.flight:
            del self._cluster.flight[self._random.randrange(len(self._cluster.flight))]

    def _pass_time(self) -> None:
        self._cluster.advance(self._random.choice((1, 50, 200, 200, 1000)), is_settling=False)

    def _propose(self) -> None:
        leader = self._leader()
        if leader is not None:
            count = self._random.randint(1, 3)
            leader.propose(*(f"{self._serial + number}" for number in range(count)))
            self._serial += count

    def _read(self) -> None:
        node = self._any()
        if node is not None:
            token = len(self._reads)
            self._reads[token] = self._applied_max
            node.read(token)

    def _hold(self) -> None:
        node = self._any()
        if node is not None:
            node.is_held = True

    def _sync(self) -> None:
        node = self._any()
        if node is not None and node.unsynced:
            if self._random.random() < 0.5:
                node.sync(self._random.randint(1, len(node.unsynced)))
            else:
                node.release()

    def _compact(self) -> None:
        node = self._any()
        if node is not None and not node.unsynced and node.applied > node.durable.base_index:
            node.compact(self._random.randint(node.durable.base_index, node.applied))

    def _offer(self) -> None:
        for node in self._up():
            for peer in list(node.wanted):
                node.offer(peer, identity=self._random.randrange(10**9))

    def _crash(self) -> None:
        node = self._any()
        if node is not None:
            node.crash()

    def _start(self) -> None:
        for node in self._cluster.nodes.values():
            if not node.is_up:
                self._start_one(node)
                return

    def _start_one(self, node: Node) -> None:
        must_rejoin = node.node == self._forgetful
        if must_rejoin and self._random.random() < 0.7:
            # What was once on its disk is there again, and what came later is not.
            state = node.durable.hard_state
            node.durable = self._random.choice(self._history).copy()
            node.durable.hard_state = replace(state)
        node.is_held = False
        node.start(must_rejoin=must_rejoin)

    def _change(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        numbers = list(range(1, NODES + 1))
        self._random.shuffle(numbers)
        voters = numbers[: self._random.randint(self._voters_min, NODES)]
        rest = numbers[len(voters) :]
        leader.change(voters, rest[: self._random.randint(0, len(rest))])

    def _transfer(self) -> None:
        leader = self._leader()
        if leader is not None:
            leader.transfer(self._random.randint(1, NODES))

    def _suspect(self) -> None:
        node = self._any()
        if node is not None:
            node.suspect(self._random.randint(1, NODES))

    def _fit(self) -> None:
        node = self._any()
        if node is not None:
            node.set_fit(self._random.random() < 0.6)

    def _cut(self) -> None:
        pair = (self._random.randint(1, NODES), self._random.randint(1, NODES))
        self._cluster.cut |= {pair, pair[::-1]} if self._random.random() < 0.5 else {pair}

    def _isolate(self) -> None:
        """Often the one that leads: it then has entries that nobody else has."""
        node = self._leader() or self._any()
        if node is not None:
            self._cluster.part({node.node}, set(self._cluster.nodes) - {node.node})

    def _heal(self) -> None:
        self._cluster.cut.clear()

    # --- the end ---

    def _recover(self) -> None:
        cluster = self._cluster
        cluster.cut.clear()
        for node in cluster.nodes.values():
            if not node.is_up:
                self._start_one(node)
            node.release()
            node.set_fit(True)
        for _ in range(60):
            for node in cluster.nodes.values():
                for other in cluster.nodes:
                    node.suspect(other)
            cluster.advance(1000)
            self._offer()
            cluster.settle()
            self._check()
            leader = self._leader()
            if leader is not None and self._is_whole(leader):
                return
        raise AssertionError(f"the group does not work: {self._state()}")

    def _is_whole(self, leader: Node) -> bool:
        """Whether a command gets through, and everybody has everything."""
        if leader.raft.members.is_joint or leader.propose("last") is None:
            return False
        self._cluster.settle()
        self._check()
        everyone = [self._cluster[number] for number in leader.raft.members.everyone]
        return self.commands[-1:] == ("last",) and all(one.commands == self.commands for one in everyone)

    def _state(self) -> list[str]:
        return [
            f"{node.node}: {node.raft.role.name} term {node.raft.term} leader {node.raft.leader} "
            f"last {node.raft.log.last} commit {node.raft.log.commit} rejoin {node.raft.must_rejoin} "
            f"quiet {node.raft.is_quiet} {node.raft.members}"
            for node in self._cluster.nodes.values()
        ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.raft.walk", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1000)
    chosen = parser.parse_args()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        try:
            Walk(seed).run()
        except Exception:
            print(f"seed {seed} fails: python -m tests.raft.walk --first {seed} --seeds 1")
            raise
    print(f"{chosen.seeds} seeds")


if __name__ == "__main__":
    main()
