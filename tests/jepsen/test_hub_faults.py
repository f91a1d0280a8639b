"""Clusters of the hub under the faults of Jepsen's analysis: two rounds of each.

`make jepsen` does the same for longer. Scenarios run beside each other; every test waits for one of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Final

import pytest

from tests.disks.needs import needs_filesystems
from tests.jepsen.beside import SHARED_RATE_PER_S, Done, all_running
from tests.jepsen.scenarios import SCENARIOS

ROUNDS: Final = 2
TIMEOUT_S: Final = 1200.0

pytestmark = [pytest.mark.real, pytest.mark.slow, needs_filesystems]

Running = Mapping[str, Future[Done]]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    numbers = {"--rounds": ROUNDS, "--rate": SHARED_RATE_PER_S, "--seed": time.time_ns() % 2**31}
    options = [word for name, value in numbers.items() for word in (name, str(value))]
    with all_running(options, TIMEOUT_S) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_acknowledged_is_lost_and_all_nodes_agree(running: Running, scenario: str) -> None:
    done = running[scenario].result()
    print(done.stdout)
    assert done.returncode == 0, done.stdout
