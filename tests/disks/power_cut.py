"""Power cuts at random moments of a mixed load, on ext4 or xfs, over and over on the same image.

The power is cut below the filesystem: what was not synced is gone, in the middle of whatever the kernel was
writing. Runs in the namespaces of run_isolated().
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.disks.loop_filesystem import SHUTDOWN_FLUSHING_LOG, SHUTDOWN_WITHOUT_LOG, LoopFilesystem
from tests.disks.trial import Course, Figures, Trial
from tests.disks.worker import Worker

_LOAD_S_MAX: Final = 0.6
# Mostly the filesystem's own log loses its end as well; sometimes it reaches the disk and only data are lost.
SHUTDOWNS: Final = (SHUTDOWN_WITHOUT_LOG,) * 3 + (SHUTDOWN_FLUSHING_LOG,)


def power_cuts(subject_name: str, filesystem_kind: str, course: Course) -> Figures:
    """Cut the power again and again. ViolationError if anything acknowledged was lost."""
    random = Random(f"power-cut {filesystem_kind} {course.seed}")
    with LoopFilesystem(filesystem_kind) as filesystem:
        root = filesystem.path / "store"

        def start() -> Worker:
            return Worker(subject_name, root)

        def crash(worker: Worker) -> None:
            filesystem.cut_power(random.choice(SHUTDOWNS))
            worker.kill()
            filesystem.unmount()
            filesystem.mount()

        trial = Trial(random, start, crash, late_replies_count=False)
        course.run(trial, root, _LOAD_S_MAX)
        return trial.figures
