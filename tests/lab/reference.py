"""Stores to be damaged: one by seed, closed in order or killed, with all that is known about it.

There are several streams, consumers, ids, deletes, journal files, segments and both checkpoints in it. In the
last part of its life nothing is sealed any more, so that a good deal is in the journal only.

`expected()` is the naive model once more, with some commands forgotten: what a store must come to that has
lost these records and says so. The seqs of all messages stay, and what was a duplicate stays one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.lab.fake_disk import FakeDisk
from tests.lab.tested_store import TestedStore
from tests.lab.workload import (
    Batch,
    DropStream,
    Publish,
    PublishTogether,
    PutStream,
    Step,
    StoreModel,
    Workload,
)

CATALOG: Final = 0
SMALL: Final = ".small"
BATCHES: Final = 44
PAYLOAD_BYTES_MAX: Final = 120
JOURNAL_FILE_BYTES: Final = 5500
# From this batch on nothing is sealed.
SEALED_BATCHES: Final = 30
# Of a store of which every bit is tried.
SMALL_BATCHES: Final = 13
SMALL_SEALED_BATCHES: Final = 9
# Journal file number and offset.
Line = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was acknowledged: the `index`-th of its group; the seq of a message that is new."""

    step: Step
    now_ns: int
    group: int
    index: int
    seq: int | None


@dataclass(slots=True)
class Reference:
    """A store on a disk that nobody has open. `doubtful`: where the last write began if it was killed."""

    name: str
    disk: FakeDisk
    done: list[Done]
    last_batch_steps: int
    doubtful: Line | None
    # What was on the disk after each batch, oldest first; and the journal file each batch is in, with the
    # number of steps before it.
    earlier: list[FakeDisk]
    files: list[tuple[int, int]]
    _expected: dict[tuple[frozenset[tuple[int, int]], int], StoreModel] = field(default_factory=dict)

    def expected(self, forgotten: Collection[tuple[int, int]] = (), count: int | None = None) -> StoreModel:
        """What is true after the first `count` steps, all if not given, without those (group, index)."""
        key = (frozenset(forgotten), len(self.done) if count is None else count)
        found = self._expected.get(key)
        if found is None:
            found = self._expected[key] = self._replayed(*key)
            if len(self._expected) > 5000:
                self._expected.clear()
        return found

    def _replayed(self, forgotten: frozenset[tuple[int, int]], count: int) -> StoreModel:
        model = StoreModel()
        # A stream whose making was forgotten is made by its next configuration. Its seqs are known all the
        # same.
        last_seqs: dict[int, int] = {}
        for done in self.done[:count]:
            step = done.step
            stream = model.streams.get(step.group)
            is_forgotten = (done.group, done.index) in forgotten
            if isinstance(step, Publish):
                if done.seq is None:
                    continue
                if is_forgotten:
                    last_seqs[step.group] = done.seq
                if stream is not None and is_forgotten:
                    stream.last_seq = done.seq
                elif stream is not None:
                    stream.store(step, done.seq, done.now_ns)
            elif not is_forgotten and (stream is not None or isinstance(step, PutStream)):
                model.apply(step, done.now_ns)
                if stream is None:
                    model.streams[step.group].last_seq = last_seqs.get(step.group, 0)
        return model

    @property
    def last_file(self) -> int:
        """The journal file that was written last."""
        return self.files[-1][0]

    def steps_before(self, file: int) -> int:
        """How many steps are in the journal files before this one."""
        return min((steps for number, steps in self.files if number >= file), default=len(self.done))

    def message(self, group: int, seq: int) -> tuple[int, bytes, int, bytes] | None:
        """What was once stored under this seq."""
        for done in self.done:
            if done.step.group == group and done.seq == seq and isinstance(done.step, Publish):
                step = done.step
                return done.now_ns, step.subject, len(step.headers), step.headers + step.payload
        return None


def _done(batches: list[Batch]) -> list[Done]:
    model = StoreModel()
    indexes: Counter[int] = Counter()
    found = []
    for batch in batches:
        for step in batch.steps:
            group = CATALOG if isinstance(step, PutStream | DropStream) else step.group
            stream = model.streams.get(step.group)
            before = stream.last_seq if stream is not None else 0
            model.apply(step, batch.now_ns)
            is_new = stream is not None and stream.last_seq > before
            # Each message of an atomic batch has a record, and can be lost, of its own.
            for number, one in enumerate(_records_of(step), 1):
                indexes[group] += 1
                seq = before + number if is_new and isinstance(one, Publish) else None
                found.append(Done(one, batch.now_ns, group, indexes[group], seq))
    return found


def _records_of(step: Step) -> Sequence[Step]:
    return step.publishes if isinstance(step, PublishTogether) else (step,)


def _record_count(batch: Batch) -> int:
    return sum(len(_records_of(step)) for step in batch.steps)


def make_reference(seed: int, is_killed: bool, is_small: bool = False) -> Reference:
    """The store of a seed. The same seed gives the same bytes. A small one has less of everything."""
    name = f"{seed:x}.{'killed' if is_killed else 'closed'}{SMALL if is_small else ''}"
    chance = random.Random(f"reference {seed:x}")
    batches = Workload(chance, SMALL_BATCHES if is_small else BATCHES, PAYLOAD_BYTES_MAX).batches
    sealed_batches = SMALL_SEALED_BATCHES if is_small else SEALED_BATCHES
    disk = FakeDisk()
    store = TestedStore(disk, chance, JOURNAL_FILE_BYTES)
    line: Line = (0, 0)
    earlier = []
    files = []
    steps = 0
    for number, batch in enumerate(batches):
        store.commit(batch)
        line = (store.last_write.file, store.last_write.offset)
        files.append((store.store.journal.number, steps))
        steps += _record_count(batch)
        if number < sealed_batches:
            store.maintain()
        earlier.append(disk.copy())
    place = store.store.journal.position
    if place.file != line[0]:
        # The last batch began a file, whose header proves all before it.
        line = (place.file, 0)
    if not is_killed:
        store.close()
    image = disk.copy()
    return Reference(
        name,
        image,
        _done(batches),
        _record_count(batches[-1]),
        line if is_killed else None,
        earlier,
        files,
    )
