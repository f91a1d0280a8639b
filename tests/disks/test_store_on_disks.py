"""edged's store on real disks: power cuts, kills, full and failing filesystems. The bounded part, for CI.

`python -m tests.disks` does the same for longer. Figures depend on the machine; what is asserted does not.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.disks.disk_full import SCENARIOS
from tests.disks.kill import kills
from tests.disks.load import Load
from tests.disks.loop_filesystem import IMAGE_BYTES, run_isolated
from tests.disks.model import Model
from tests.disks.needs import needs_filesystems
from tests.disks.subject import EDGED, EDGED_SERIAL, open_subject
from tests.disks.trial import Course

POWER_CUTS: Final = 50
KILLS: Final = 50
FAULTLESS_BATCHES: Final = 300

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def seed() -> int:
    """Another one for every run; it is in what a failing run prints."""
    return time.time_ns() % 2**31


@pytest.mark.parametrize("subject_name", [EDGED, EDGED_SERIAL])
def test_load_without_any_fault_is_answered_as_the_model_says(
    subject_name: str, seed: int, tmp_path: Path
) -> None:
    load, model = Load(Random(seed)), Model()
    subject, _ = open_subject(subject_name, tmp_path / "store")
    for number in range(FAULTLESS_BATCHES):
        operations = load.batch()
        assert subject.commit(operations) == [model.apply(one) for one in operations], (seed, number)
        if number % 20 == 0:
            subject.rotate()
            assert subject.states() == model.streams, (seed, number)
    subject.close()


@needs_filesystems
@pytest.mark.parametrize("filesystem", IMAGE_BYTES)
def test_power_cuts_take_nothing_that_was_acknowledged(filesystem: str, seed: int) -> None:
    arguments = ("--filesystem", filesystem, "--rounds", str(POWER_CUTS), "--seed", str(seed))
    done = run_isolated(("power-cut", "--subject", EDGED, *arguments, "--isolated"), timeout_s=600)
    assert done.returncode == 0, done.stdout
    print(done.stdout)


def test_kills_take_nothing_that_was_acknowledged(seed: int) -> None:
    figures = kills(EDGED, Course(KILLS, seed, progress=lambda figures: None))
    assert figures.rounds == KILLS
    print(f"seed {seed}: {figures}")


@needs_filesystems
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_failing_disks_cost_nothing_that_was_acknowledged(scenario: str) -> None:
    done = run_isolated(
        ("disk-full", "--subject", EDGED, "--scenario", scenario, "--isolated"), timeout_s=300
    )
    assert done.returncode == 0, done.stdout
    print(done.stdout)
