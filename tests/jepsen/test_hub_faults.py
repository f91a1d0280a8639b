"""Clusters of the hub under the faults of Jepsen's analysis: two rounds of each.

`make jepsen` does the same for longer. Rounds wait most of the time, so a few scenarios run at once, each in
namespaces of its own; every test waits for one of them.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pytest

from tests.disks.loop_filesystem import run_isolated
from tests.disks.needs import needs_filesystems
from tests.jepsen.scenarios import SCENARIOS

ROUNDS: Final = 2
AT_ONCE: Final = 3
TIMEOUT_S: Final = 1200.0
# A third of what `make jepsen` does: three clusters share the machine.
RATE_PER_S: Final = 500.0

pytestmark = [pytest.mark.real, pytest.mark.slow, needs_filesystems]

Running = Mapping[str, "Future[subprocess.CompletedProcess[str]]"]


def play(scenario: str) -> subprocess.CompletedProcess[str]:
    """The rounds of a scenario in namespaces of their own."""
    numbers = {"--rounds": ROUNDS, "--rate": RATE_PER_S, "--seed": time.time_ns() % 2**31}
    options = [word for name, value in numbers.items() for word in (name, str(value))]
    arguments = (scenario, "--server", "edged-hub", *options, "--isolated")
    return run_isolated(arguments, TIMEOUT_S, module="tests.jepsen", has_network=True)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # The longest comes last in the list, and begins first.
        yield {scenario: pool.submit(play, scenario) for scenario in reversed(SCENARIOS)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_acknowledged_is_lost_and_all_nodes_agree(running: Running, scenario: str) -> None:
    done = running[scenario].result()
    print(done.stdout)
    assert done.returncode == 0, done.stdout
