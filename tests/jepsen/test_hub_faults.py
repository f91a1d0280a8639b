"""A cluster of hubs under faults of Jepsen's analysis. The bounded part, for CI.

`make jepsen` does the same for longer, and with all faults.
"""

from __future__ import annotations

import subprocess
import time
from typing import Final

import pytest

from tests.disks.loop_filesystem import run_isolated
from tests.disks.needs import needs_filesystems

ROUNDS: Final = 1
# Damage, members that change and power cuts of single nodes take minutes each.
BOUNDED: Final = ("kill", "partition", "power-cut-all")
TIMEOUT_S: Final = 900.0

pytestmark = [pytest.mark.real, pytest.mark.slow, needs_filesystems]


def run(scenario: str, rounds: int) -> subprocess.CompletedProcess[str]:
    """Rounds of a scenario in namespaces of their own."""
    seed = str(time.time_ns() % 2**31)
    arguments = (
        scenario,
        "--server",
        "edged-hub",
        "--rounds",
        str(rounds),
        "--seed",
        seed,
        "--isolated",
    )
    return run_isolated(arguments, TIMEOUT_S, module="tests.jepsen", has_network=True)


@pytest.mark.parametrize("scenario", BOUNDED)
def test_nothing_acknowledged_is_lost_and_all_nodes_agree(scenario: str) -> None:
    done = run(scenario, ROUNDS)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
