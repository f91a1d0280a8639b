"""Scenarios beside each other: rounds wait most of the time, so a few run at once, each isolated."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from tests.disks.loop_filesystem import run_isolated
from tests.jepsen.load import RATE_PER_S
from tests.jepsen.scenarios import SCENARIOS

AT_ONCE: Final = 3
# They share the machine.
SHARED_RATE_PER_S: Final = RATE_PER_S / AT_ONCE
ISOLATED_FLAG: Final = "--isolated"

Done = subprocess.CompletedProcess[str]


def play(scenario: str, options: Sequence[str], timeout_s: float | None = None) -> Done:
    """The rounds of a scenario, as the command plays them."""
    arguments = (scenario, *options, ISOLATED_FLAG)
    return run_isolated(arguments, timeout_s, module="tests.jepsen", has_network=True)


@contextmanager
def all_running(
    options: Sequence[str], timeout_s: float | None = None
) -> Iterator[Mapping[str, Future[Done]]]:
    """All scenarios, until the end of the block. The longest come last in the list, and begin first."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, name, options, timeout_s) for name in reversed(SCENARIOS)}
        pool.shutdown(cancel_futures=True)
