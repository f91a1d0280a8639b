"""SIGKILL at random moments of a mixed load, on whatever filesystem the temporary folder is on.

The kernel keeps what was written, so this is milder than a power cut; it is cheap and needs no root.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Final

from tests.disks.trial import Course, Figures, Trial
from tests.disks.worker import Worker

_LOAD_S_MAX: Final = 0.3


def kills(subject_name: str, course: Course) -> Figures:
    """Kill the store's process again and again. ViolationError if anything acknowledged was lost."""
    random = Random(f"kill {course.seed}")
    with tempfile.TemporaryDirectory(prefix="edged-kill-") as folder:
        root = Path(folder) / "store"
        trial = Trial(random, lambda: Worker(subject_name, root), Worker.kill, late_replies_count=True)
        course.run(trial, root, _LOAD_S_MAX)
        return trial.figures
