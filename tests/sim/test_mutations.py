"""Every fault that is put in on purpose is found, by seeds with which the core as it is has no trouble."""

from __future__ import annotations

import pytest

from tests.sim.mutations import MUTATIONS, mutated
from tests.sim.world import run

EVENTS = 2000
SEEDS_MAX = 1500


def first_seed_in_trouble(name: str) -> int | None:
    for seed in range(SEEDS_MAX):
        with mutated(name):
            result = run(seed, EVENTS)
        if result.trouble:
            return seed
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_fault_is_found(name: str) -> None:
    seed = first_seed_in_trouble(name)
    assert seed is not None
    well = run(seed, EVENTS)
    assert not well.trouble, (seed, well.trouble)


def test_fault_is_gone_afterwards() -> None:
    before = run(0, 500)
    with mutated("sends-before-sync"):
        assert run(0, 500) != before
    assert run(0, 500) == before
