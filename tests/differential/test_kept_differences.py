"""Every difference that the comparison allows is written down for users, and nothing else is."""

from __future__ import annotations

from pathlib import Path

from tests.differential.allowed import KEPT

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_reasons_of_kept_differences_are_those_of_the_page() -> None:
    table = PAGE.read_text().split("## On the wire")[1].split("\n\n")[1]
    rows = [line.strip("| ").split(" | ")[1] for line in table.splitlines()[2:]]
    assert sorted(rows) == sorted({kept.reason for kept in KEPT})
