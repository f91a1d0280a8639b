"""Rounds of load and crash on one store, and what is known about it from outside.

A round: a worker opens the store and says what it holds; that is checked against all that was acknowledged
in all rounds before; then the load goes on until the crash. What is in flight then may or may not be there
in the next round. In some rounds the crash comes while the store is still recovering from the one before.

Replies that are in the pipe when a process is killed count, for it had said them. After a power cut they do
not, for nobody would have read them; and in the very moment of the cut ext4 lets a sync succeed whose data
are lost.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.disks.load import Load
from tests.disks.model import Model, ViolationError, differences, recovered_model
from tests.disks.operations import UNKNOWN, Operation, Outcome, Refused, packed, unpacked
from tests.disks.worker import Worker, WorkerError, unpacked_states

# So many batches are under way at a time: the worker always has something to do.
_BATCHES_UNDER_WAY: Final = 2
_OPENING_ROUNDS_SHARE: Final = 0.12
_ROTATIONS_SHARE: Final = 0.03


@dataclass(slots=True)
class Figures:
    """What a trial has seen so far."""

    rounds: int = 0
    acknowledged: int = 0
    in_flight: int = 0
    survivors: int = 0
    """Streams that came back with more than was acknowledged."""
    rotations: int = 0
    opening_s_max: float = 0.0
    acknowledged_late: int = 0
    """Acknowledgements that were in the pipe, unread, when the crash came: they count as well."""

    def __str__(self) -> str:
        return (
            f"{self.rounds:,} rounds, {self.acknowledged:,} operations acknowledged, {self.in_flight:,} in"
            f" flight at the crash, {self.rotations:,} rotations,"
            f" slowest opening {self.opening_s_max * 1000:.0f} ms"
        )


class Trial:
    """One store through many rounds. `start` makes a worker, `crash` makes it end in the way under test."""

    def __init__(
        self,
        random: Random,
        start: Callable[[], Worker],
        crash: Callable[[Worker], None],
        *,
        late_replies_count: bool,
    ) -> None:
        self._random = random
        self._start = start
        self._crash = crash
        self._late_replies_count = late_replies_count
        self._load = Load(random)
        self._acknowledged = Model()
        self._in_flight: deque[Operation] = deque()
        """Operations without an outcome, in the order in which they were asked for."""
        self._requests: deque[int] = deque()
        """For each reply that is awaited, how many outcomes it brings."""
        self._uncertain: list[Operation] = []
        """Operations of which the store said that it does not know."""
        self.figures = Figures()

    def round(self, load_s_max: float) -> None:
        """Open, check, load, crash. ViolationError if the store broke its promise."""
        random = self._random
        with self._start() as worker:
            if random.random() < _OPENING_ROUNDS_SHARE:
                opened = worker.receive(time.monotonic() + random.uniform(0.0, 0.25))
            else:
                opened = worker.wait_reply()
            if opened is not None:
                self._take_opened(opened)
                self._load_until(worker, time.monotonic() + random.uniform(0.0, load_s_max))
            self._crash(worker)
            worker.kill()
            if self._late_replies_count:
                for reply in worker.rest():
                    self._take_late(reply)
        self._requests.clear()
        self.figures.rounds += 1
        self.figures.in_flight += len(self._in_flight)

    def finish(self) -> None:
        """Open, check, close in peace, and check once more."""
        for _ in range(2):
            with self._start() as worker:
                self._take_opened(worker.wait_reply())
                self._ask(worker, self._load.probes())
                self._take(worker.wait_reply())
                worker.answer("close")

    def _take_opened(self, reply: list[Any]) -> None:
        kind, states, opening_s = reply
        assert kind == "opened", kind
        found = unpacked_states(states)
        model = recovered_model(self._acknowledged, [*self._uncertain, *self._in_flight], found)
        self.figures.survivors += sum(
            differences(self._acknowledged.streams.get(number), state) is not None
            for number, state in model.streams.items()
        )
        self.figures.opening_s_max = max(self.figures.opening_s_max, opening_s)
        self._acknowledged = model
        self._load.submitted = model.copy()
        self._in_flight.clear()
        self._uncertain.clear()

    def _load_until(self, worker: Worker, moment_s: float) -> None:
        self._ask(worker, self._load.probes())
        while time.monotonic() < moment_s:
            while len(self._requests) < _BATCHES_UNDER_WAY:
                if self._random.random() < _ROTATIONS_SHARE:
                    worker.ask("rotate")
                    self._requests.append(0)
                self._ask(worker, self._load.batch())
            reply = worker.receive(moment_s)
            if reply is not None:
                self._take(reply)

    def _ask(self, worker: Worker, operations: list[Operation]) -> None:
        self._in_flight += operations
        self._requests.append(len(operations))
        worker.ask("commit", packed(operations))

    def _take(self, reply: list[Any]) -> None:
        """A reply while nothing is wrong: every outcome is the one that the model says."""
        expected = self._requests.popleft()
        if reply[0] == "rotated":
            assert expected == 0
            self.figures.rotations += 1
            return
        outcomes: list[Outcome] = unpacked(reply[1])
        assert len(outcomes) == expected, (len(outcomes), expected)
        for outcome in outcomes:
            self._acknowledge(outcome)

    def _acknowledge(self, outcome: Outcome) -> None:
        operation = self._in_flight.popleft()
        try:
            wanted = self._acknowledged.apply(operation)
        except KeyError:
            raise ViolationError(f"{_short(operation)} was answered with {outcome} without a base") from None
        if outcome != wanted:
            raise ViolationError(f"{_short(operation)} was answered with {outcome} and not with {wanted}")
        self.figures.acknowledged += 1

    def _take_late(self, reply: list[Any]) -> None:
        """A reply that was under way when the crash came: it may be a refusal, and if not, it counts."""
        if reply[0] == "opened":
            self._take_opened(reply)
        elif reply[0] == "outcomes":
            for outcome in unpacked(reply[1]):
                self._take_late_outcome(outcome)

    def _take_late_outcome(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Refused):
            # It was given the place of what is uncertain, which is void by that.
            self._uncertain.clear()
            self.figures.acknowledged_late += 1
            self._acknowledge(outcome)
            return
        operation = self._in_flight.popleft()
        if outcome.reason == UNKNOWN:
            self._uncertain.append(operation)


def _short(operation: Operation) -> str:
    text = repr(operation)
    return text if len(text) < 300 else text[:300] + "..."


@dataclass(frozen=True, slots=True)
class Course:
    """How long a trial goes on, who is told, and where a store that failed is copied to."""

    rounds: int
    seed: int
    progress: Callable[[Figures], None]
    kept: Path | None = None

    def run(self, trial: Trial, root: Path, load_s_max: float) -> None:
        """So many rounds, and a peaceful end."""
        try:
            for _ in range(self.rounds):
                trial.round(load_s_max)
                self.progress(trial.figures)
            trial.finish()
        except (ViolationError, WorkerError) as error:
            if self.kept is not None:
                shutil.copytree(root, self.kept, dirs_exist_ok=True)
            raise ViolationError(f"in round {trial.figures.rounds + 1}: {error}") from error
