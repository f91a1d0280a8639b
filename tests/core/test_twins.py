"""The choice between the reference and its native twin: one for a whole process, loaded when used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import edged.core
from edged.core.twins import NATIVE

# Every module that has twins to offer; whatever the choice, it is the same in all of them.
TWINS = {
    "edged.core.twins": "Fanout",
    "edged.core.frame_twins": "FrameBuffer",
    "edged.core.run_twins": "run_of_messages",
    "edged.core.row_twins": "pack_rows",
    "edged.core.code_twins": "find_number",
    "edged.core.s2_twins": "highway_hash",
    "edged.core.ack_twins": "plain_acks",
}
SHOW = f"""
import importlib, json, sys
TWINS = {TWINS}
homes = [getattr(importlib.import_module(module), name).__module__ for module, name in TWINS.items()]
from edged.core.twins import PURE
print(json.dumps([PURE, homes]))
"""


def run_python(code: str, environ: dict[str, str] | None = None) -> str:
    """What a new process prints, without the choice of the one that runs the tests."""
    inherited = {key: value for key, value in os.environ.items() if key != "EDGED_PURE"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | (environ or {}),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def homes_of_twins(code: str = "", environ: dict[str, str] | None = None) -> tuple[bool, list[str]]:
    is_pure, homes = json.loads(run_python(code + SHOW, environ))
    return is_pure, [home.removeprefix("edged.core.") for home in homes]


def test_every_native_module_that_can_be_built_counts() -> None:
    (folder,) = edged.core.__path__
    assert {path.stem for path in Path(folder).glob("*.pyx")} == set(NATIVE)


def test_modules_with_twins_are_all_tested_here() -> None:
    (folder,) = edged.core.__path__
    assert {path.stem for path in Path(folder).glob("*twins.py")} == {
        name.rpartition(".")[2] for name in TWINS
    }


def test_a_complete_build_is_native_everywhere() -> None:
    assert homes_of_twins() == (False, list(NATIVE))


def test_the_environment_selects_pure_python_everywhere() -> None:
    assert homes_of_twins(environ={"EDGED_PURE": "1"}) == (
        True,
        ["fanout", "frames", "runs", "rows", "codes", "highway_hash", "acks"],
    )


@pytest.mark.parametrize("missing", NATIVE)
def test_a_half_built_set_of_native_modules_is_pure_python_everywhere(missing: str) -> None:
    hide = f"import sys; sys.modules['edged.core.{missing}'] = None"
    assert homes_of_twins(hide) == (
        True,
        ["fanout", "frames", "runs", "rows", "codes", "highway_hash", "acks"],
    )


def test_a_daemon_without_streams_loads_no_native_module_of_theirs() -> None:
    code = """
import sys, edged.daemon
print(*(name.removeprefix("edged.core.") for name in sys.modules if name.startswith("edged.core._")))
"""
    assert run_python(code).split() == ["_native"]
