"""The real store through power cuts, failing disks and kills: a bounded part of what `make crash` does."""

from __future__ import annotations

import pytest

from tests.lab.__main__ import main

STATES = 50_000


@pytest.mark.slow
def test_store_comes_back_from_every_state(capfd: pytest.CaptureFixture[str]) -> None:
    status = main(["crash", "--states", str(STATES), "--seed", "5", "--offences-max", "5"])
    assert status == 0, capfd.readouterr().out
