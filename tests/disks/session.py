"""One request at a time to a worker, with the model beside it: for scenarios that follow a script."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.disks.model import Model, ViolationError, differences, recovered_model
from tests.disks.operations import UNKNOWN, Operation, Outcome, Refused, packed, unpacked
from tests.disks.worker import Worker, unpacked_states


@dataclass(slots=True)
class Knowledge:
    """What is known about a store from outside, while workers come and go."""

    acknowledged: Model = field(default_factory=Model)
    uncertain: list[Operation] = field(default_factory=list)
    """Asked for with an unknown outcome."""


class Session:
    """A store that is open in a worker. What it holds is checked when it opens."""

    def __init__(self, subject_name: str, root: Path, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._worker = Worker(subject_name, root)
        self.commits_s: list[float] = []
        """How long each commit took, at the store's edge."""

    def __enter__(self) -> Self:
        try:
            kind, states, _ = self._worker.wait_reply()
            assert kind == "opened", kind
            known = self._knowledge
            known.acknowledged = recovered_model(known.acknowledged, known.uncertain, unpacked_states(states))
            known.uncertain = []
        except BaseException as error:
            self._worker.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    @property
    def model(self) -> Model:
        return self._knowledge.acknowledged

    def commit(self, *operations: Operation) -> list[Outcome]:
        """Commit; what is acknowledged is held against the model."""
        kind, lists, commit_s = self._worker.answer("commit", packed(list(operations)))
        assert kind == "outcomes", kind
        self.commits_s.append(commit_s)
        outcomes: list[Outcome] = unpacked(lists)
        for operation, outcome in zip(operations, outcomes, strict=True):
            self._take(operation, outcome)
        return outcomes

    def _take(self, operation: Operation, outcome: Outcome) -> None:
        known = self._knowledge
        if isinstance(outcome, Refused):
            if outcome.reason == UNKNOWN:
                known.uncertain.append(operation)
            return
        # What follows was given the place of what is uncertain, which is void by that.
        known.uncertain.clear()
        wanted = known.acknowledged.apply(operation)
        if outcome != wanted:
            raise ViolationError(f"{repr(operation)[:200]} was answered with {outcome} and not with {wanted}")

    def rotate(self) -> None:
        self._worker.answer("rotate")

    def check_readable(self) -> None:
        """All that was acknowledged can be read from the store that is open, and nothing else."""
        found = unpacked_states(self._worker.answer("states")[1])
        for number in self.model.streams.keys() | found.keys():
            difference = differences(self.model.streams.get(number), found.get(number))
            if difference is not None:
                raise ViolationError(f"stream {number} of the open store: {difference}")

    def sync_counts(self) -> tuple[int, int]:
        """How many syncs failed, and how many syncs there were on a file of which one had failed."""
        _, failures, repetitions = self._worker.answer("syncs")
        return failures, repetitions

    def close(self) -> None:
        """Close the store in order."""
        self._worker.answer("close")

    def kill(self) -> None:
        self._worker.kill()
