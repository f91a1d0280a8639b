"""Every difference that the comparison allows is written down for users, and nothing else is."""

from __future__ import annotations

from pathlib import Path

from tests.differential import kept_in_clusters
from tests.differential.allowed import KEPT

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_reasons_of_kept_differences_are_those_of_the_page() -> None:
    table = PAGE.read_text().split("## On the wire")[1].split("\n\n")[1]
    rows = [line.strip("| ").split(" | ")[1] for line in table.splitlines()[2:]]
    assert sorted(rows) == sorted({kept.reason for kept in KEPT})


def test_the_reasons_of_differences_in_clusters_are_on_the_page() -> None:
    section = PAGE.read_text().split("## In a cluster")[1].split("\n## ")[0]
    rows = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| ")]
    assert {kept.reason for kept in kept_in_clusters.KEPT} <= set(rows)
