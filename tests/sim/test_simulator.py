"""The consensus core in simulated clusters: nothing that must never happen happens, and runs are repeatable.

`python -m tests.sim` runs more of the same, for as long as one likes.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.sim.__main__ import COLLECT_AFTER, main
from tests.sim.world import run

SEEDS = 500
PORTION = 50
EVENTS = 2000


@pytest.fixture(autouse=True)
def _collect_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)
    yield
    gc.set_threshold(*before)


def test_a_few_seeds_are_well() -> None:
    for seed in range(20):
        result = run(seed, 1000)
        assert not result.trouble, (seed, result.trouble)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_seeds_are_well(first: int) -> None:
    acknowledged = 0
    for seed in range(first, first + PORTION):
        result = run(seed, EVENTS)
        assert not result.trouble, f"python -m tests.sim --events {EVENTS} --seed {seed}: {result.trouble}"
        acknowledged += result.acknowledged
    assert acknowledged > PORTION * 20


@pytest.mark.parametrize("seed", [3, 8, 18])
def test_same_seed_gives_the_same_run(seed: int) -> None:
    first, second = run(seed, 1500), run(seed, 1500)
    assert first == second
    assert first.acknowledged > 0


@pytest.mark.slow
def test_same_seed_gives_the_same_run_in_another_process() -> None:
    command = [sys.executable, "-m", "tests.sim", "--seed", "24", "--events", "2000"]
    found = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": number}, capture_output=True, check=True
        ).stdout
        for number in ("1", "2")
    }
    assert len(found) == 1
    assert f"digest={run(24, 2000).digest:x}".encode() in found.pop()


def test_another_seed_gives_another_run() -> None:
    assert len({run(seed, 300).digest for seed in range(20)}) == 20


def test_command_says_how_to_replay_what_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--seeds", "50", "--events", "1000", "--mutation", "never-writes-hard-state"]
    monkeypatch.setattr(sys, "argv", ["sim", *options])
    assert main() == 0
    found = capsys.readouterr().out
    assert "violation" in found
    seed = found.split("--seed ")[1].split()[0]
    monkeypatch.setattr(sys, "argv", ["sim", "--seed", seed, "--trace", *options[2:]])
    assert main() == 1
    replayed = capsys.readouterr().out
    assert found.splitlines()[0].split(": ", 1)[1] in replayed


def test_command_is_content_when_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", "--seeds", "5", "--events", "500", "--workers", "2"])
    assert main() == 0
    assert "seeds=5" in capsys.readouterr().out
