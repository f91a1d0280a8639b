"""Walks by seed: whatever happens to a group, it stays right, and works again once it is left in peace."""

from __future__ import annotations

import pytest

from tests.raft.walk import Walk


@pytest.mark.parametrize("seed", range(100))
def test_a_group_stays_right_and_recovers(seed: int) -> None:
    Walk(seed).run()


def test_a_seed_always_walks_the_same_way() -> None:
    ends = []
    for _ in range(2):
        walk = Walk(7)
        walk.run()
        ends.append((walk.commands, walk.leaders))
    assert ends[0] == ends[1]
    assert ends[0][0]
