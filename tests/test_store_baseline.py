"""The measurement of restarts after a kill: it fills, kills, finds every message again, and cleans up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.store_baseline import main


@pytest.mark.real
@pytest.mark.slow
def test_every_message_is_found_again_and_nothing_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--messages", "3001", "--rounds", "1", "--folder", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "3,001 messages of 128 bytes" in output
    assert len(re.findall(r"after +\d+\.\d{3} s", output)) == 2
    assert list(tmp_path.iterdir()) == []
