"""The collection of scripts in this folder."""

from __future__ import annotations

from pathlib import Path

from tests.differential.script import parse_file
from tests.differential.steps import Case

FOLDER = Path(__file__).parent
SCRIPTS = FOLDER / "scripts"
CONFIGS = FOLDER / "configs"


def cases() -> list[Case]:
    """Every case of every script, by file name and then in the order of the file."""
    return [case for path in sorted(SCRIPTS.glob("*.txt")) for case in parse_file(path, CONFIGS)]
