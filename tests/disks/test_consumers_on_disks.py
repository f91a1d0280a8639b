"""A daemon whose disk loses power while clients fetch and acknowledge. The bounded part, for CI.

`python -m tests.disks power-cut-consumers` does the same for longer.
"""

from __future__ import annotations

import time
from typing import Final

import pytest

from tests.disks.loop_filesystem import IMAGE_BYTES, run_isolated
from tests.disks.needs import needs_filesystems

POWER_CUTS: Final = 3

pytestmark = [pytest.mark.real, pytest.mark.slow]


@needs_filesystems
@pytest.mark.parametrize("filesystem", IMAGE_BYTES)
def test_power_cuts_take_no_confirmed_acknowledgement_and_no_open_message(filesystem: str) -> None:
    arguments = (
        "--filesystem",
        filesystem,
        "--rounds",
        str(POWER_CUTS),
        "--seed",
        str(time.time_ns() % 2**31),
    )
    done = run_isolated(("power-cut-consumers", *arguments, "--isolated"), timeout_s=300)
    assert done.returncode == 0, done.stdout
    print(done.stdout)


@needs_filesystems
def test_a_daemon_that_confirms_what_is_not_durable_is_found_out() -> None:
    settings = ("--settings", "sync: os")
    done = run_isolated(("power-cut-consumers", "--rounds", "5", *settings, "--isolated"), timeout_s=300)
    assert done.returncode == 1, done.stdout
    assert "FAILED" in done.stdout
