"""Failing operations: a store that lies is caught, and the real one does not lie, hang or sync in vain."""

from __future__ import annotations

import pytest

from tests.lab.__main__ import main
from tests.lab.failures import FAKE, REAL, Lives, Trial
from tests.lab.life import Refused
from tests.lab.tested_store import TestedStore
from tests.lab.workload import Batch

SEED = 1


class Liar(TestedStore):
    """Says that all is well."""

    def commit(self, batch: Batch) -> list[object]:
        try:
            return super().commit(batch)
        except Refused:
            return []


def test_store_that_lies_is_caught() -> None:
    assert any(Lives(SEED, Liar).series(FAKE, "ENOSPC", is_lasting=True, stride=4))


@pytest.mark.parametrize("where", [REAL, FAKE])
def test_series_ends_when_nothing_fails_any_more(where: str) -> None:
    kind = "EINTR" if where == REAL else "KILL"
    lives = list(Lives(SEED).series(where, kind, is_lasting=False, stride=150))
    assert len(lives) >= 3
    assert lives[-1] is None
    assert lives == [None] * len(lives)


def test_trial_is_found_again_by_its_name() -> None:
    for trial in (Trial(REAL, "EIO", True, 7), Trial(FAKE, "KILL", False, 12)):
        assert Trial.named(str(trial)) == trial


@pytest.mark.slow
def test_store_survives_failing_operations(capfd: pytest.CaptureFixture[str]) -> None:
    status = main(["failures", "--stride", "3"])
    assert status == 0, capfd.readouterr().out
