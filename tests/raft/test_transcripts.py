"""Groups do what is written down: elections, conflicts, changes of members, snapshots, reads, silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.transcript import files, played


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_group_does_what_is_written(path: Path) -> None:
    text = path.read_text()
    assert played(text) == text


def test_there_are_transcripts() -> None:
    assert {path.stem for path in files()} >= {"election", "conflict", "members", "snapshot", "quiet"}


def test_a_transcript_that_says_something_else_is_noticed() -> None:
    text = "cluster 1 2 3\ntimeout 1\n    1 is leader in term 1\n"
    now = played(text)
    assert now != text
    assert "\n    1 is trial in term 0\n" in now
    assert played(now) == now
