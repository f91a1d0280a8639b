"""The fuzzer itself: every target survives a small run, and a fault that is planted is found."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edged.core import _native, headers
from tests.fuzz import engine
from tests.fuzz.__main__ import main
from tests.fuzz.engine import fuzz, shares
from tests.fuzz.mutation import INPUT_BYTES_MAX, Mutator
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS, named, wire_twins

SEED = 20
INPUTS = 20_000
SHARES = {target.name: count for target, count in shares(TARGETS, INPUTS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARES)
def test_small_run_finds_nothing(name: str) -> None:
    failure = fuzz(named(name), SHARES[name], SEED)
    assert failure is None, str(failure)


def test_every_target_survives_its_seeds() -> None:
    for target in TARGETS:
        for data in target.seeds:
            assert engine.error_of(target, data) is None, (target.name, data)


def test_shares_add_up_to_all_inputs() -> None:
    assert INPUTS <= sum(SHARES.values()) <= INPUTS + len(TARGETS)


def test_same_seed_gives_the_same_inputs_and_another_gives_others() -> None:
    def inputs(seed: str) -> list[bytes]:
        mutator = Mutator(seed, (b"PUB a 5\r\nhello\r\n", b"PING\r\n"), (b"SUB ", b"\r\n"))
        return [mutator.next() for _ in range(200)]

    assert inputs("1") == inputs("1")
    assert inputs("1") != inputs("2")
    assert len(set(inputs("1"))) > 150
    assert all(len(data) <= INPUT_BYTES_MAX for data in inputs("1"))


# --- planted faults ---


def is_bad(data: bytes) -> None:
    assert b"\r\r" not in data


def test_planted_fault_is_found_made_short_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = Target("planted", is_bad, (b"PUB a 5\r\nhello\r\n",), (b"\r\n", b"\r"))
    monkeypatch.setattr("tests.fuzz.targets.TARGETS", (planted,))
    arguments = ["--inputs", "20000", "--seed", "3", "--failures", str(tmp_path)]
    assert main(arguments) == 1
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"\r\r"
    shown = capsys.readouterr().out
    assert "b'\\r\\r'" in shown and "seed 3" in shown and str(path) in shown
    assert main(["--replay", str(path)]) == 1
    path.write_bytes(b"fine")
    assert main(["--replay", str(path)]) == 0
    assert main([*arguments[:-1], str(tmp_path), "--target", "planted"]) == 1


class CarelessParser(_native.Parser):  # type: ignore[misc, unused-ignore]
    """A twin that forgets an operation whose verb was cut in two."""

    def feed(self, data: Any) -> list[Any]:
        return super().feed(b"" if bytes(data) == b"G\r\n" else data)


class EagerParser(_native.Parser):  # type: ignore[misc, unused-ignore]
    """A twin that takes one more byte of payload than is allowed."""

    def __init__(self, control_line_max: int, payload_max: int) -> None:
        self.payload_max = payload_max + 1


@pytest.mark.parametrize("parser", [CarelessParser, EagerParser])
def test_twin_that_differs_is_found(parser: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_twins._native, "Parser", parser)
    failure = fuzz(named("wire"), 20_000, SEED)
    assert failure is not None and "the twin" in failure.error


def test_header_that_can_be_forged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(block: bytes, key: bytes) -> bytes:
        start = block.find(b"\r\n" + key + b":")
        return block if start < 0 else block[:start] + block[block.find(b"\r\n", start + 2) :]

    monkeypatch.setattr(headers, "without", without)
    assert fuzz(named("headers"), 5000, SEED) is not None


def test_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(data: bytes) -> None:
        while b"\r\r" in data:
            data += b""

    monkeypatch.setattr(engine, "CPU_S_MAX", 0.02)
    failure = fuzz(Target("slow", hangs, (b"a\rb\r",), (b"\r",)), 10_000, SEED)
    assert failure is not None and "TookTooLong" in failure.error


def test_memory_that_is_never_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    monkeypatch.setattr(engine, "MEMORY_BYTES_MAX", 8 * 2**20)
    monkeypatch.setattr(engine, "WARM_UP_INPUTS", 1000)
    target = Target("leak", lambda data: kept.append(bytes(4096)), (b"a",))
    failure = fuzz(target, 20_000, SEED)
    assert failure is not None and "memory grew" in failure.error


def test_unknown_target_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(SystemExit, match="wire"):
        main(["--target", "none"])


@pytest.mark.slow
@pytest.mark.real
def test_engine_led_by_coverage_runs_or_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--engine", "atheris", "--target", "times"]
    command += ["--inputs", "2000", "--seed", "1", "--failures", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if importlib.util.find_spec("atheris") is None:
        assert done.returncode == 1 and b"pip install atheris" in done.stderr
    else:
        assert done.returncode == 0, done.stderr[-2000:]
        assert list((tmp_path / "corpus" / "times").iterdir())
