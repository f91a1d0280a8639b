"""What is done to a cluster while clients work: the six findings of Jepsen's analysis of NATS.

A scenario is a function of a stage; it breaks and repairs, and leaves healing and judging to the round. Its
chance comes from the stage, so that a seed gives the same faults again; the moments depend on the machine.
Damage to files and wiped disks stay with a minority of nodes: what no majority has, no cluster can keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.jepsen import damage
from tests.jepsen.cluster import Cluster
from tests.jepsen.connection import NoAnswerError
from tests.jepsen.load import Load
from tests.jepsen.network import Network
from tests.jepsen.nodes import Node, NodeError

REPLICATED_S_MAX: Final = 90.0
_REMOVED_S_MAX: Final = 10.0
_ACKNOWLEDGED_MIN: Final = 200
_PATIENT_SHARE: Final = 0.8
# Longer than an election of nats-server that succeeds at once.
_PATIENCE_S: Final = 12.0
_POLL_S: Final = 0.02
_CALM_S: Final = 1.5
_KILLS: Final = 6
_CYCLES: Final = 3
_WRITES_S: Final = (1.0, 2.5)
_PARTITION_WRITES_S: Final = (2.0, 4.0)


@dataclass(slots=True)
class Stage:
    """A running cluster with clients at work. `number` is that of the round: kinds of damage take turns."""

    cluster: Cluster
    load: Load
    random: Random
    number: int
    tell: Callable[[str], None]
    """Told of each event as it happens."""
    events: list[str] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)

    @property
    def nodes(self) -> list[Node]:
        return self.cluster.nodes

    @property
    def network(self) -> Network:
        assert self.cluster.network is not None
        return self.cluster.network

    @property
    def minority(self) -> int:
        """The most nodes that leave a majority."""
        return (len(self.nodes) - 1) // 2

    def note(self, text: str) -> None:
        """For whoever looks for the reason of a finding."""
        moment_s = time.monotonic() - self._began_s
        self.events.append(f"{moment_s:6.1f} s, {self.load.acknowledged} acknowledged: {text}")
        self.tell(self.events[-1])

    def work(self, between_s: tuple[float, float] = _WRITES_S) -> None:
        """Let clients work for a while, most often one in which the cluster works as well.

        A few faults come while it is still busy with the last one.
        """
        wanted = self.load.acknowledged + _ACKNOWLEDGED_MIN
        is_patient = self.random.random() < _PATIENT_SHARE
        length_s = self.random.uniform(*between_s)
        deadline_s = time.monotonic() + _PATIENCE_S
        while is_patient and self.load.acknowledged < wanted and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        time.sleep(length_s)

    def some(self, count: int, of: Sequence[Node] | None = None) -> list[Node]:
        """So many nodes."""
        return self.random.sample(list(self.nodes if of is None else of), count)

    def start(self, nodes: Sequence[Node]) -> None:
        """Start them; one that cannot be started is a fact for the end, where all are looked at."""
        if not nodes:
            return
        try:
            self.cluster.start(nodes)
        except NodeError as error:
            self.note(str(error))
        self.note(f"{names(nodes)} started")

    def divide(self, *parts: Sequence[Node]) -> None:
        """Nothing passes between the parts."""
        self.network.divide(*([node.place.number for node in part] for part in parts))
        self.note("divided " + " | ".join(names(part) for part in parts))


def names(nodes: Sequence[Node]) -> str:
    return " ".join(sorted(node.name for node in nodes)) or "nobody"


def kill(stage: Stage) -> None:
    """J1: kill -9 of one, of a majority or of all, again and again. No stream may be forgotten."""
    for _ in range(_KILLS):
        stage.work()
        count = stage.random.choice((1, stage.minority + 1, len(stage.nodes)))
        victims = stage.some(count)
        for node in victims:
            node.kill()
        stage.note(f"killed {names(victims)}")
        time.sleep(stage.random.uniform(0.0, 1.0))
        stage.start(victims)


def partition(stage: Stage) -> None:
    """One node alone, halves, and one direction only."""
    for _ in range(_CYCLES):
        stage.work()
        victims = stage.some(stage.random.randint(1, stage.minority))
        rest = [node for node in stage.nodes if node not in victims]
        if stage.random.random() < 0.5:
            stage.divide(victims, rest)
        else:
            stage.network.cut([node.place.number for node in victims], [node.place.number for node in rest])
            stage.note(f"{names(victims)} are not heard by the rest")
        stage.work(_PARTITION_WRITES_S)
        stage.network.heal()
        stage.note("healed")


def damage_messages(stage: Stage) -> None:
    """J2: files with messages are damaged on a minority."""
    _damage(stage, "messages")


def damage_state(stage: Stage) -> None:
    """J3: checkpoints, snapshots and what else a node knows are damaged on a minority."""
    _damage(stage, "state")


def _damage(stage: Stage, target: str) -> None:
    """Always the same victims: damage to others before it is repaired would take a majority."""
    patterns = damage.LAYOUTS[stage.cluster.plan.server].patterns(target)
    victims = stage.some(stage.random.randint(1, stage.minority))
    others = [node for node in stage.nodes if node not in victims]
    kind = damage.KINDS[stage.number % len(damage.KINDS)]
    stage.work()
    before = {node.name: damage.copies_of(node.store, patterns) for node in victims}
    for cycle in range(_CYCLES):
        stage.work()
        # In the end all of them: then the damaged ones may be asked who leads.
        stopped = [
            *victims,
            *(others if cycle == _CYCLES - 1 else stage.some(stage.random.randint(0, 1), others)),
        ]
        is_killed = stage.random.random() < 0.5
        if is_killed:
            for node in stopped:
                node.kill()
        else:
            # In a calm moment, after which logs are cut short: then a damaged copy cannot be made from them.
            stage.load.hold(True)
            time.sleep(_CALM_S)
            stage.cluster.stop(stopped)
        stage.note(f"{'killed' if is_killed else 'stopped'} {names(stopped)}")
        for node in victims:
            done = damage.damage(node.store, patterns, kind, before[node.name], stage.random)
            stage.note(f"{node.name}: {kind} in {len(done)} files: {'; '.join(done[:4])}")
        late = stage.some(
            min(stage.minority, len(stopped) - len(victims)), [n for n in stopped if n in others]
        )
        stage.start([node for node in stopped if node not in late])
        stage.load.hold(False)
        stage.work()
        stage.start(late)


def power_cut_all(stage: Stage) -> None:
    """J4: the power of all nodes is cut at the same time."""
    for _ in range(2):
        stage.work(_PARTITION_WRITES_S)
        stage.cluster.power_cut(stage.nodes)
        stage.note("power cut of all")
        stage.start(stage.nodes)
        stage.work()


def power_cut_with_partition(stage: Stage) -> None:
    """J5: a minority is cut off; one of the rest loses power; then it is alone with those who saw nothing."""
    behind, victim, ahead = _three_parts(stage)
    stage.work()
    stage.divide(behind, [victim, *ahead])
    stage.work(_PARTITION_WRITES_S)
    stage.cluster.power_cut([victim])
    stage.note(f"power cut of {victim.name}")
    stage.divide([victim, *behind], ahead)
    stage.start([victim])
    stage.work(_PARTITION_WRITES_S)
    stage.network.heal()
    stage.note("healed")
    stage.work()


def power_cut_with_pause(stage: Stage) -> None:
    """J5, with pauses in the place of partitions."""
    behind, victim, ahead = _three_parts(stage)
    stage.work()
    for node in behind:
        node.pause()
    stage.note(f"paused {names(behind)}")
    stage.work(_PARTITION_WRITES_S)
    stage.cluster.power_cut([victim])
    stage.note(f"power cut of {victim.name}")
    for node in ahead:
        node.pause()
    for node in behind:
        node.resume()
    stage.note(f"paused {names(ahead)}, resumed {names(behind)}")
    stage.start([victim])
    stage.work(_PARTITION_WRITES_S)
    for node in ahead:
        node.resume()
    stage.note("all resumed")
    stage.work()


def _three_parts(stage: Stage) -> tuple[list[Node], Node, list[Node]]:
    """A minority, one node, and as many as the minority."""
    mixed = stage.some(len(stage.nodes))
    return mixed[: stage.minority], mixed[stage.minority], mixed[stage.minority + 1 :]


def membership(stage: Stage) -> None:
    """J6: nodes leave for good, with their disks, and new ones join, between partitions and kills.

    The next one leaves only when every copy is whole again: no cluster survives two lost disks of three.
    """
    for _ in range(_CYCLES):
        stage.work()
        leaver, killed = stage.some(2)
        apart = stage.some(
            stage.random.randint(1, stage.minority), [n for n in stage.nodes if n is not leaver]
        )
        rest = [node for node in stage.nodes if node not in apart]
        stage.divide(apart, rest)
        leaver.kill()
        leaver.wipe()
        stage.note(f"{leaver.name} is gone with its disk")
        is_removed = _remove(stage, leaver, [node for node in rest if node is not leaver])
        stage.start([stage.cluster.replace(leaver)])
        killed.kill()
        stage.note(f"killed {killed.name}")
        stage.work()
        stage.network.heal()
        stage.note("healed")
        if killed is not leaver:
            stage.start([killed])
        deadline_s = time.monotonic() + REPLICATED_S_MAX
        # Without a majority nobody could hear it: an operator says it again.
        while not is_removed and time.monotonic() < deadline_s:
            is_removed = _remove(stage, leaver)
        try:
            stage.cluster.wait_replicated(max(_REMOVED_S_MAX, deadline_s - time.monotonic()))
            stage.note("the stream has all its copies")
        except NoAnswerError as error:
            stage.note(f"the stream did not get its copies back: {error}")


def _remove(stage: Stage, leaver: Node, through: Sequence[Node] = ()) -> bool:
    try:
        stage.cluster.remove_peer(leaver, _REMOVED_S_MAX, through)
    except NoAnswerError as error:
        stage.note(f"{leaver.name} was not removed: {error}")
        return False
    stage.note(f"{leaver.name} was removed")
    return True


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is needed for it: `nodes` and `replicas` unless told otherwise, and whether power is cut."""

    play: Callable[[Stage], None]
    nodes: int = 3
    replicas: int = 3
    is_power_cut: bool = False


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "kill": Scenario(kill),
    "partition": Scenario(partition),
    "damage-messages": Scenario(damage_messages),
    "damage-state": Scenario(damage_state),
    "power-cut-all": Scenario(power_cut_all, is_power_cut=True),
    "power-cut-partition": Scenario(power_cut_with_partition, is_power_cut=True),
    "power-cut-pause": Scenario(power_cut_with_pause, is_power_cut=True),
    "membership": Scenario(membership, nodes=5),
}
