"""A server that is killed while clients publish has everything that it acknowledged when it comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jetstream.kill import play

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("seed", [11, 12])
def test_nothing_that_was_acknowledged_is_lost_or_stored_twice(tmp_path: Path, seed: int) -> None:
    played = play(tmp_path, seed, rounds=5)
    assert played.acknowledged > 0
    assert played.repeated > 0
