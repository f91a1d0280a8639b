"""One round: a fresh cluster, clients, a scenario, healing, a look at every node, a verdict.

A round depends on the scenario, the seed and its number only, so that one of them can be played again alone.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.jepsen.checkers import judge
from tests.jepsen.cluster import Cluster, Plan
from tests.jepsen.connection import NoAnswerError
from tests.jepsen.history import Finding, History, counts
from tests.jepsen.load import RATE_PER_S, Load
from tests.jepsen.nodes import NodeError
from tests.jepsen.reading import USABLE_S_MAX, inspect
from tests.jepsen.scenarios import SCENARIOS, Stage


@dataclass(frozen=True, slots=True)
class Course:
    """Which rounds are played, and on what."""

    scenario: str
    plan: Plan
    seed: int
    rate: float = RATE_PER_S
    usable_s: float = USABLE_S_MAX
    keep: Path | None = None
    """Where the folders of a round with findings are copied to."""
    tell: Callable[[str], None] = lambda event: None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen in a round, what was done in it, and how much there was."""

    number: int
    findings: list[Finding]
    events: list[str]
    counts: Mapping[str, int]
    seconds: float


def play_round(course: Course, number: int) -> Verdict:
    """Raises NodeError or NoAnswerError only if the cluster did not come up at all."""
    began_s = time.monotonic()
    random = Random(f"{course.scenario} {course.seed} {number}")
    history = History()
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as folder,
        Cluster(course.plan, Path(folder)) as cluster,
    ):
        cluster.start()
        cluster.create()
        load = Load(cluster, random, course.rate)
        stage = Stage(cluster, load, random, number, course.tell)
        with load.running(history):
            SCENARIOS[course.scenario].play(stage)
            _heal(stage)
            stage.work()
        inspect(cluster, history, stage.note, course.usable_s)
        findings = judge(history)
        if findings and course.keep is not None:
            _keep(cluster, course.keep / f"{course.scenario}-{course.seed}-{number}", stage.events, findings)
    return Verdict(number, findings, stage.events, counts(history), time.monotonic() - began_s)


def _heal(stage: Stage) -> None:
    try:
        stage.cluster.heal()
    except NodeError as error:
        stage.note(f"not healed: {error}")
    stage.note("all faults have ended")


def _keep(cluster: Cluster, folder: Path, events: list[str], findings: list[Finding]) -> None:
    """Copy what may explain it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [*events, *map(str, findings)]
    (folder / "events.txt").write_text("\n".join(lines) + "\n")
    for node in cluster.nodes:
        node.kill()
        shutil.copytree(node.folder, folder / node.name, dirs_exist_ok=True)
        if node.filesystem is not None and node.store.exists():
            shutil.copytree(node.store, folder / node.name / "store", dirs_exist_ok=True)


def course_for(course: Course, nodes: int | None, replicas: int | None, filesystem: str | None) -> Course:
    """With what the scenario needs, where nothing else was asked for."""
    scenario = SCENARIOS[course.scenario]
    count = nodes or scenario.nodes
    wanted = replicas or (scenario.replicas if nodes is None else min(count, 5))
    disk = filesystem or ("ext4" if scenario.is_power_cut else None)
    return replace(course, plan=replace(course.plan, nodes=count, replicas=wanted, filesystem=disk))


__all__ = ["Course", "NoAnswerError", "NodeError", "Verdict", "course_for", "play_round"]
