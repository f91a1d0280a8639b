"""Every file operation in the life of a store fails once, or from some operation on: none is forgotten.

The same life is lived again and again, with the first operation failing, the second, and so on until a run
has no failure any more: on a fake disk, and through real files down to the system calls, with errors, short
writes and interruptions. `life` says what must be true meanwhile and afterwards. Besides, a file whose sync
failed is never synced again, and a store that could not be opened has let go of everything.

A trial is named `where:kind:once|lasting:number`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from edged.store.files import RealFiles
from tests.lab.failing_calls import FailingCalls, Failure
from tests.lab.fake_disk import FailedSync, FakeDisk, Sync
from tests.lab.life import Life, Refused, Trouble
from tests.lab.store_crash import Offence, described
from tests.lab.tested_store import TestedStore
from tests.lab.workload import Batch, StoreModel, Workload, models_of

BATCHES: Final = 20
JOURNAL_FILE_BYTES: Final = 5500
PAYLOAD_BYTES_MAX: Final = 700
# No life takes nearly so long. One that does waits for something.
LIFE_S_MAX: Final = 20
REAL: Final = "real"
FAKE: Final = "fake"
# Where, how, and whether it goes on failing. Who is interrupted for ever tries for ever.
SERIES: Final = (
    *(
        (REAL, kind, is_lasting)
        for kind in ("EIO", "ENOSPC", "EMFILE", "short")
        for is_lasting in (False, True)
    ),
    (REAL, "EINTR", False),
    *((FAKE, kind, is_lasting) for kind in ("EIO", "ENOSPC", "EMFILE") for is_lasting in (False, True)),
    (FAKE, "KILL", False),
)


class Stuck(BaseException):
    """A life does not end. Not an Exception, so that nobody deals with it."""


class Trial(NamedTuple):
    """One life with one failure."""

    where: str
    kind: str
    is_lasting: bool
    at: int

    def __str__(self) -> str:
        return f"{self.where}:{self.kind}:{'lasting' if self.is_lasting else 'once'}:{self.at}"

    @classmethod
    def named(cls, identity: str) -> Trial:
        where, kind, duration, at = identity.split(":")
        return cls(where, kind, duration == "lasting", int(at))


class RealDisk:
    """A directory of the system, with failing calls in front."""

    def __init__(self, root: str, failure: Failure) -> None:
        self.calls = FailingCalls(failure)
        self.files = RealFiles(root, self.calls)

    @property
    def fault(self) -> Any:
        return self.calls.failure

    @fault.setter
    def fault(self, failure: Any) -> None:
        self.calls.failure = failure

    @property
    def open_count(self) -> int:
        return len(self.calls.open_descriptors)

    def mark(self, value: int) -> None:
        """Nobody asks for the states in between."""

    def end_process(self) -> None:
        for descriptor in list(self.calls.open_descriptors):
            self.calls.close(descriptor)


class Lives:
    """The same life with a failure at each place in turn."""

    def __init__(self, seed: int, opened: type[TestedStore] = TestedStore) -> None:
        self._opened = opened
        self._name = f"failures {seed:x}"
        chance = random.Random(self._name)
        self._batches: list[Batch] = Workload(chance, BATCHES, PAYLOAD_BYTES_MAX).batches
        self._models: list[StoreModel] = models_of(self._batches)

    def run(self, trial: Trial) -> tuple[bool, Offence | None]:
        """Whether anything failed, and what was wrong."""
        previous = signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, LIFE_S_MAX)
        try:
            is_hit, what = self._on_real_files(trial) if trial.where == REAL else self._on_fake_disk(trial)
        except Stuck:
            is_hit, what = True, f"no end after {LIFE_S_MAX} s"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        return is_hit, Offence(str(trial), what) if what else None

    def _on_real_files(self, trial: Trial) -> tuple[bool, str]:
        root = tempfile.mkdtemp(prefix="edged-lab-", dir=_fast_directory())
        disk = RealDisk(f"{root}/store", Failure(trial.kind, trial.at, trial.is_lasting))
        try:
            what = self._live(disk, None)
        finally:
            disk.end_process()
            shutil.rmtree(root)
        calls = disk.calls
        if not what and calls.synced_again:
            names = sorted({Path(path).name for path in calls.synced_again})
            what = f"synced again after a failed sync: {', '.join(names)}"
        return calls.is_hit, f"{calls.hit_call} failed: {what}" if what else ""

    def _on_fake_disk(self, trial: Trial) -> tuple[bool, str]:
        disk = FakeDisk(is_recording=True)
        trouble = Trouble(trial.kind, trial.at, trial.is_lasting)
        what = self._live(disk, trouble)
        failed = set()
        for operation in disk.operations or ():
            if isinstance(operation, FailedSync):
                failed.add(operation.node)
            elif isinstance(operation, Sync) and operation.node in failed and not what:
                what = f"file {operation.node} is synced again after a failed sync"
        return trouble.is_hit, what

    def _live(self, disk: Any, trouble: Trouble | None) -> str:
        chance = random.Random(f"{self._name} life")
        fault = disk.fault if trouble is None else trouble
        try:
            Life(self._open, disk, self._batches, self._models, chance, fault).run()
        except Exception as error:
            return described(error)
        return f"{disk.open_count} files are left open" if disk.open_count else ""

    def series(self, where: str, kind: str, is_lasting: bool, stride: int = 1) -> Iterator[Offence | None]:
        """Each place, or every so many, until a run has no failure any more."""
        at = 1
        is_hit = True
        while is_hit:
            is_hit, offence = self.run(Trial(where, kind, is_lasting, at))
            yield offence
            at += stride

    def _open(self, disk: Any, chance: random.Random) -> TestedStore:
        files = disk.files if isinstance(disk, RealDisk) else disk
        try:
            return self._opened(files, chance, JOURNAL_FILE_BYTES)
        except Refused as refusal:
            assert not disk.open_count, f"{disk.open_count} files are left open after {refusal}"
            raise


def _give_up(number: int, frame: object) -> None:
    raise Stuck


def _fast_directory() -> str | None:
    """Memory, if there is such a directory: it is the calls that matter."""
    with suppress(OSError):
        if os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return None
