"""The life of a store on one disk: a workload, ends and beginnings, and perhaps one trouble with the disk.

While it runs, marks on the disk say what may be found from there on if the power goes: `promises[mark]` lists
the models, one of which it must be. The troubles:
* An operation fails once, or all do for a while (EIO, ENOSPC): a batch is then stored, refused, or its
  outcome unknown, and the store says which. When the disk is well again, so is the store, at the latest when
  opened again.
* The program is killed in the middle of an operation and started again. What was written and not synced is
  then still to be seen, and what a store shows after it was opened must survive the next power cut.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

from tests.lab.workload import Batch, StoreModel, difference

# After so many refusals the disk is made well; after so many the store is opened again; then it must work.
REFUSALS_UNTIL_HEALED: Final = 2
REFUSALS_UNTIL_REOPENED: Final = 4


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The store says that nothing of the batch is there or will be, but for its first `stored` steps."""

    def __init__(self, reason: str, stored: int = 0) -> None:
        super().__init__(reason)
        self.stored = stored


class Unknown(Refused):
    """The store cannot say whether the batch is there, but for its first `stored` steps."""


class Killed(BaseException):
    """The program has ended here. Not an Exception, so that nobody deals with it."""


class OpenedStore(Protocol):
    """An open store, as the laboratory needs it."""

    def commit(self, batch: Batch) -> Any:
        """Returns when all of it is durable. Raises Refused, Unknown."""
        ...

    def maintain(self) -> None:
        """Do now what is done in the background otherwise. Failing is no reason to raise."""
        ...

    def idle(self) -> None:
        """Do what is done when nothing is to do."""
        ...

    def observe(self) -> StoreModel:
        """Everything that is in it."""
        ...

    def complaints(self) -> list[str]:
        """What recovery found wrong."""
        ...

    def close(self) -> None:
        """End in order. Raises Refused if the disk does not let it."""
        ...


class Disk(Protocol):
    """What a store lives on."""

    # What makes operations fail; None while the disk is well.
    fault: Any
    open_count: int

    def mark(self, value: int) -> None:
        """From here on the promise with this number holds."""
        ...

    def end_process(self) -> None:
        """A program has ended: its files are closed, its locks are free."""
        ...


# Opens a store on a disk, or raises Refused. `chance` is for nonces and the like.
OpenStore = Callable[[Any, random.Random], OpenedStore]


class Trouble:
    """What happens to the disk: `kind` is EIO, ENOSPC, EMFILE or KILL, at the `at`-th operation."""

    def __init__(self, kind: str, at: int, is_lasting: bool = False) -> None:
        self.kind = kind
        self.is_hit = False
        self._at = at
        self._is_lasting = is_lasting
        self._count = 0

    def __str__(self) -> str:
        return f"{self.kind} at operation {self._at}{' and later' * self._is_lasting}"

    def __call__(self, operation: str, path: str) -> OSError | None:
        if self.kind == "ENOSPC" and operation in ("read", "open", "list", "remove", "truncate"):
            return None
        if self.kind == "EMFILE" and operation not in ("open", "create", "list"):
            return None
        self._count += 1
        is_due = self._count >= self._at if self._is_lasting else self._count == self._at
        if self.kind == "KILL":
            if self._count < self._at:
                return None
            self.is_hit = True
            raise Killed
        if not is_due:
            return None
        self.is_hit = True
        number = getattr(errno, self.kind)
        return OSError(number, os.strerror(number), path)


def trouble_for(chance: random.Random, operations_about: int) -> Trouble | None:
    """None for some, something for others."""
    kind = chance.choice((None, "KILL", "EIO", "ENOSPC"))
    if kind is None:
        return None
    return Trouble(kind, chance.randrange(1, operations_about), kind != "KILL" and chance.random() < 0.5)


class Life:
    """One run. `models[n]` is what is true after n steps."""

    def __init__(
        self,
        open_store: OpenStore,
        disk: Disk,
        batches: list[Batch],
        models: list[StoreModel],
        chance: random.Random,
        trouble: Trouble | None,
    ) -> None:
        self._open_store = open_store
        self._disk = disk
        self._batches = batches
        self._models = models
        self._chance = chance
        self._store: OpenedStore | None = None
        self._done = 0
        self._begun = 0
        self.promises: list[list[StoreModel]] = [[models[0]]]
        disk.fault = trouble

    def run(self) -> None:
        """All batches. AssertionError if the store is wrong even without a power cut."""
        for batch in self._batches:
            end = self._begun + len(batch.steps)
            while self._done < end:
                try:
                    self._commit(batch, end)
                    self._rest()
                except Killed:
                    self._restart()
        self._disk.fault = None
        store = self._opened()
        self._expect([self._models[-1]], "at the end")
        store.close()

    def _promise(self, first: int, last: int) -> None:
        """From here on the disk holds what is true after one of these numbers of steps."""
        models = self._models[first : last + 1]
        if models != self.promises[-1]:
            self.promises.append(models)
            self._disk.mark(len(self.promises) - 1)

    def _commit(self, batch: Batch, end: int) -> None:
        """Commit what is not done yet of a batch, however often it takes."""
        refusals = 0
        while self._done < end:
            store = self._opened()
            if self._done == end:
                break  # It was there after all.
            self._begun = end
            self._promise(self._done, end)
            try:
                store.commit(Batch(batch.steps[self._done - end :], batch.now_ns))
            except Unknown as refusal:
                self._done += refusal.stored
                self._promise(self._done, end)
                self._disk.fault = None
                self._close()
            except Refused as refusal:
                self._done += refusal.stored
                self._promise(self._done, self._done)
                self._expect([self._models[self._done]], f"after {refusal}")
                refusals += 1
                assert refusals <= REFUSALS_UNTIL_REOPENED, f"the disk is well, and still: {refusal}"
                if refusals >= REFUSALS_UNTIL_HEALED:
                    self._disk.fault = None
                if refusals == REFUSALS_UNTIL_REOPENED:
                    self._close()
            else:
                self._done = end
                self._promise(end, end)

    def _rest(self) -> None:
        """What happens between two batches."""
        store = self._opened()
        if self._chance.random() < 0.8:
            store.maintain()
        if self._chance.random() < 0.1:
            store.idle()
        if self._chance.random() < 0.06:
            self._close()

    def _opened(self) -> OpenedStore:
        """The store, opened if it was not. What it shows from now on is a promise."""
        if self._store is None:
            try:
                self._store = self._open_store(self._disk, self._chance)
            except Refused:
                # Nobody can be blamed while the disk fails. With a good one there is no excuse.
                assert self._disk.fault is not None
                self._disk.fault = None
                self._forget()
                self._store = self._open_store(self._disk, self._chance)
            self._done = self._expect(self._models[self._done : self._begun + 1], "opened") + self._done
            self._promise(self._done, self._done)
        return self._store

    def _close(self) -> None:
        assert self._store is not None
        try:
            self._store.close()
        except Refused:
            self._disk.fault = None
        self._forget()

    def _restart(self) -> None:
        self._disk.fault = None
        self._forget()
        self._opened()

    def _forget(self) -> None:
        """A program has ended: its files are closed, its locks are free."""
        self._store = None
        self._disk.end_process()

    def _expect(self, wanted: list[StoreModel], when: str) -> int:
        """Which of these the store holds; it must be one of them."""
        assert self._store is not None
        fault, self._disk.fault = self._disk.fault, None
        found = self._store.observe()
        self._disk.fault = fault
        for place, model in enumerate(wanted):
            if found == model:
                return place
        raise AssertionError(f"{when}: {difference(found, wanted[0])}")
