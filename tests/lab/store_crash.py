"""Power cuts during the life of a store: what comes back must be what was acknowledged, and nothing strange.

A history is the life of a store on a recording disk (see `life`). For each crash state of it the store is
opened and compared with the models: it must hold what it held after some number of steps, at least all that
were acknowledged before the cut and at most all that were begun. Recovery must not speak of damage, since
there was none. Of some states the store is used further, closed and opened again; of a few, the power goes
once more, during recovery or soon after.

A state is named `seed.history/state` or, for a second cut, `seed.history/state/state`.
"""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.crash_states import CrashState, CrashStates
from tests.lab.fake_disk import FakeDisk
from tests.lab.life import Life, OpenedStore, OpenStore, trouble_for
from tests.lab.workload import BATCH_NS, Batch, Publish, StoreModel, Workload, difference, models_of

# Of so many states one is used further, and of so many one crashes again.
USED_FURTHER_EVERY: Final = 16
CRASHED_AGAIN_EVERY: Final = 64
SECOND_STATES_MAX: Final = 24
# How many operations on files a history has, roughly: the trouble is at one of them.
OPERATIONS_ABOUT: Final = 250


@dataclass(frozen=True, slots=True)
class Offence:
    """A state from which the store did not come back right."""

    identity: str
    what: str

    def __str__(self) -> str:
        return f"{self.identity}: {self.what}"


def described(error: BaseException) -> str:
    """An exception and where it came from, in a line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


class History:
    """One workload on one disk, and everything that was to be true meanwhile."""

    def __init__(
        self,
        open_store: OpenStore,
        seed: int,
        number: int,
        batch_count: int = 24,
        is_disk_troubled: bool = True,
    ) -> None:
        self.name = f"{seed:x}.{number:x}"
        chance = random.Random(self.name)
        self.batches = Workload(chance, batch_count, chance.choice((300, 700, 1500))).batches
        self.sector_bytes = chance.choice((512, 512, 64))
        self.trouble = trouble_for(chance, OPERATIONS_ABOUT) if is_disk_troubled else None
        self._open_store = open_store
        disk = FakeDisk(is_recording=True)
        life = Life(open_store, disk, self.batches, models_of(self.batches), chance, self.trouble)
        life.run()
        self._promises = life.promises
        assert disk.operations is not None
        self.crashes = CrashStates(FakeDisk(), disk.operations, self.sector_bytes)

    def check(self, states_max: int, per_operation_max: int = 96) -> Iterator[Offence | None]:
        """Look at the states; what is wrong with each, or None."""
        chance = random.Random(f"{self.name} states")
        first = self.crashes.states(chance, per_operation_max)
        for count, state in enumerate(itertools.islice(first, states_max), 1):
            identity = f"{self.name}/{state.identity}"
            offence = self.check_state(identity, state, state.mark)
            yield offence
            if offence is None and count % CRASHED_AGAIN_EVERY == 0:
                yield from self._check_again(identity, state, chance)

    def _check_again(
        self, identity: str, state: CrashState, chance: random.Random
    ) -> Iterator[Offence | None]:
        try:
            crashes = self._second_history(state)
        except Exception as error:
            yield Offence(identity, f"maintained: {described(error)}")
            return
        for again in itertools.islice(crashes.states(chance, 8), SECOND_STATES_MAX):
            yield self.check_state(f"{identity}/{again.identity}", again, state.mark)

    def replay(self, identity: str) -> tuple[CrashState, int]:
        """The state with this name, and the promise that holds."""
        _, first, *second = identity.split("/")
        state = self.crashes.replay(first)
        if not second:
            return state, state.mark
        return self._second_history(state).replay(second[0]), state.mark

    def _second_history(self, state: CrashState) -> CrashStates:
        """What happens when the power goes during recovery, or soon after."""
        disk = state.disk.copy(is_recording=True)
        chance = random.Random(f"{self.name}/{state.identity}")
        store = self._open_store(disk, chance)
        store.maintain()
        store.close()
        assert disk.operations is not None
        return CrashStates(state.disk, disk.operations, self.sector_bytes)

    def check_state(
        self, identity: str, state: CrashState, acknowledged: int | None = None
    ) -> Offence | None:
        """Open the store on what is left, and compare."""
        mark = state.mark if acknowledged is None else acknowledged
        chance = random.Random(identity)
        is_used = chance.randrange(USED_FURTHER_EVERY) == 0
        disk = state.disk.copy()
        try:
            what = self._wrong(disk, mark, chance, is_used)
        except Exception as error:
            what = described(error)
        return Offence(identity, what) if what else None

    def _wrong(self, disk: FakeDisk, mark: int, chance: random.Random, is_used: bool) -> str:
        store = self._open_store(disk, chance)
        found = store.observe()
        complaints = store.complaints()
        if complaints:
            return f"damage is reported where there is none: {'; '.join(complaints)}"
        what = self._unlike_all(found, mark)
        if not what and is_used:
            what = self._wrong_when_used(disk, store, found, chance)
        else:
            store.close()
        if not what and disk.open_count:
            what = f"{disk.open_count} files are left open"
        return what

    def _unlike_all(self, found: StoreModel, mark: int) -> str:
        if found in self._promises[mark]:
            return ""
        return f"after promise {mark}: {difference(found, self._promises[mark][0])}"

    def _wrong_when_used(
        self, disk: FakeDisk, store: OpenedStore, found: StoreModel, chance: random.Random
    ) -> str:
        """Go on with a recovered store: it must take messages, with the next seqs, and keep them."""
        now_ns = self.batches[-1].now_ns + BATCH_NS
        steps = tuple(Publish(group, b"a", b"after:" + chance.randbytes(300)) for group in found.streams)
        for step in steps:
            found.apply(step, now_ns)
        store.commit(Batch(steps, now_ns))
        store.maintain()
        wrong = difference(store.observe(), found)
        store.close()
        if wrong:
            return f"used further: {wrong}"
        store = self._open_store(disk, chance)
        wrong = difference(store.observe(), found)
        store.close()
        return f"used further and opened again: {wrong}" if wrong else ""
