"""The toy log behind the face of a store: what the checks of the laboratory are tried on."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable

from tests.lab.fake_disk import FakeDisk
from tests.lab.toy_store import Faults, ToyStore
from tests.lab.workload import Batch, StoreModel


class TestedToy:
    """A batch is a record; the state is what applying all records gives."""

    def __init__(self, disk: FakeDisk, faults: Faults) -> None:
        self._disk = disk
        self._store = ToyStore(disk, faults)
        self._model = StoreModel()
        for record in self._store.records:
            self._apply(pickle.loads(record))

    def _apply(self, batch: Batch) -> None:
        for step in batch.steps:
            self._model.apply(step, batch.now_ns)

    def commit(self, batch: Batch) -> None:
        self._store.append(pickle.dumps(batch))
        self._apply(batch)

    def maintain(self) -> None:
        """Rotation is part of append."""

    def idle(self) -> None:
        """Nothing is left to do."""

    def observe(self) -> StoreModel:
        return copy.deepcopy(self._model)

    def complaints(self) -> list[str]:
        return []

    def close(self) -> None:
        self._store.close()


def opener(faults: Faults) -> Callable[[FakeDisk, random.Random], TestedToy]:
    return lambda disk, chance: TestedToy(disk, faults)
