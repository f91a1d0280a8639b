"""Power cuts: a right log comes back from every state, a wrong one does not, and states are found again."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.lab.__main__ import main
from tests.lab.store_crash import History, Offence
from tests.lab.tested_toy import opener
from tests.lab.toy_store import Faults

SEED = 11


def offences(faults: Faults, histories: int, states_max: int) -> tuple[int, list[Offence]]:
    count = 0
    found = []
    for number in range(histories):
        for offence in History(opener(faults), SEED, number, is_disk_troubled=False).check(states_max):
            count += 1
            if offence is not None:
                found.append(offence)
    return count, found


def test_right_log_comes_back_from_every_state() -> None:
    count, found = offences(Faults(), histories=3, states_max=400)
    assert found == []
    assert count > 800


# An early acknowledgement is a matter of who calls, and without checksums the toy believes any size.
FAULTS = sorted(Faults.__dataclass_fields__.keys() - {"is_acknowledged_before_sync", "is_checksum_missing"})


@pytest.mark.parametrize("name", FAULTS)
def test_log_with_one_fault_does_not(name: str) -> None:
    _, found = offences(Faults(**{name: True}), histories=1, states_max=1200)
    assert found


def test_offence_is_found_again_by_its_name() -> None:
    faults = Faults(is_sync_missing=True)
    _, found = offences(faults, histories=1, states_max=600)
    for offence in itertools.islice(found, 20):
        history = History(opener(faults), SEED, 0, is_disk_troubled=False)
        state, mark = history.replay(offence.identity)
        assert history.check_state(offence.identity, state, mark) == offence


def test_command_counts_states_and_says_that_all_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["crash", "--store", "toy", "--states", "500", "--seed", "b", "--processes", "2"]) == 0
    summary = capfd.readouterr().out
    assert " 0 wrong" in summary
    assert "seed b" in summary


def test_command_names_what_is_wrong_and_tries_it_again(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = ["crash", "--store", "toy:is_log_removed_too_early"]
    assert main([*store, "--states", "2000", "--processes", "1", "--offences-max", "1"]) == 1
    identity, _, what = capfd.readouterr().out.splitlines()[0].partition(": ")
    assert main([*store, "--replay", identity, "--dump", str(tmp_path)]) == 1
    assert f"{identity}: {what}" in capfd.readouterr().out.splitlines()
    assert (tmp_path / "log").is_dir()
