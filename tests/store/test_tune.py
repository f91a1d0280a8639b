"""`edged tune`: measures what the disk does, within its time, leaves nothing behind, and says it readably."""

import errno
import json
from pathlib import Path

import pytest

from edged.cli import main
from edged.config.load import load_text
from edged.core.disk_advice import DiskMeasurement
from edged.store.errors import StoreFull
from edged.store.files import Bytes, OperatingSystem, RealFiles
from edged.store.tune import BATCH_SIZES, FILE_BYTES_MAX, measure
from edged.tune_command import TuneArguments, TuneError, parse_arguments

MIB = 1024 * 1024
SYNC_S = 0.004


class TimedDisk(OperatingSystem):
    """A disk by its own clock: a sync takes SYNC_S, twice that where the file grows, a byte 10 ns."""

    def __init__(self, free_bytes: int = 10**10) -> None:
        self.now_s = 100.0
        self.free_bytes = free_bytes
        self.size_max = 0
        self.has_grown = False
        self.fails_at_s: float | None = None

    def clock(self) -> float:
        return self.now_s

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:  # type: ignore[override]
        if self.fails_at_s is not None and self.now_s >= self.fails_at_s:
            raise OSError(errno.EIO, "broken")
        size = self.fstat(descriptor).st_size
        self.has_grown = self.has_grown or offset + len(data) > size
        self.size_max = max(self.size_max, offset + len(data))
        self.now_s += len(data) * 1e-8
        # Only the size matters here; writing all of it would take real time.
        self.ftruncate(descriptor, max(size, offset + len(data)))
        return len(data)

    def fdatasync(self, descriptor: int) -> None:  # type: ignore[override]
        self.now_s += SYNC_S * (2 if self.has_grown else 1)
        self.has_grown = False


class RoomyFiles(RealFiles):
    def __init__(self, root: Path, disk: TimedDisk) -> None:
        super().__init__(str(root), disk)
        self.disk = disk

    def free_bytes(self) -> int:
        return self.disk.free_bytes


def run(
    root: Path, disk: TimedDisk, seconds: float = 10.0
) -> tuple[DiskMeasurement, list[tuple[str, float]]]:
    told: list[tuple[str, float]] = []
    measured = measure(
        RoomyFiles(root, disk), "probe", seconds, disk.clock, lambda what, done: told.append((what, done))
    )
    return measured, told


def test_every_batch_size_is_measured_on_preallocated_and_growing_files(tmp_path: Path) -> None:
    measured, _ = run(tmp_path, TimedDisk())
    kinds = [(one.is_preallocated, one.batch_bytes) for one in measured.samples]
    assert kinds == [(kind, size) for kind in (True, False) for size in BATCH_SIZES]
    for one in measured.samples:
        assert one.sync_s == pytest.approx([SYNC_S * (1 if one.is_preallocated else 2)] * len(one.sync_s))
        assert one.write_s[0] == pytest.approx(one.batch_bytes * 1e-8)
        assert len(one.write_s) == len(one.sync_s) > 50
    # Four chunks of a MiB take 10 ns a byte, and a sync.
    assert measured.throughput_bytes_per_s == pytest.approx(4 * MIB / (4 * MIB * 1e-8 + SYNC_S), rel=0.01)


@pytest.mark.parametrize("seconds", [0.5, 10.0, 60.0])
def test_measuring_takes_about_the_time_it_was_given_and_little_space(tmp_path: Path, seconds: float) -> None:
    disk = TimedDisk()
    run(tmp_path, disk, seconds)
    assert disk.now_s - 100.0 <= seconds + 1.0
    assert disk.size_max <= FILE_BYTES_MAX


def test_without_any_time_every_phase_still_makes_one_measurement(tmp_path: Path) -> None:
    measured, _ = run(tmp_path, TimedDisk(), 1e-6)
    assert [len(one.sync_s) for one in measured.samples] == [1] * 2 * len(BATCH_SIZES)


def test_progress_only_grows_and_ends_at_one(tmp_path: Path) -> None:
    _, told = run(tmp_path, TimedDisk())
    done = [fraction for _, fraction in told]
    assert done == sorted(done)
    assert 0 <= done[0] < 0.1
    assert told[-1] == ("done", 1.0)
    assert len({what for what, _ in told}) == 2 + 2 * len(BATCH_SIZES)


def test_file_is_removed_after_success_failure_and_interruption(tmp_path: Path) -> None:
    run(tmp_path, TimedDisk())
    assert list(tmp_path.iterdir()) == []
    disk = TimedDisk()
    disk.fails_at_s = 105.0
    with pytest.raises(OSError, match="broken"):
        run(tmp_path, disk)
    assert list(tmp_path.iterdir()) == []

    disk = TimedDisk()

    def interrupt(what: str, _done: float) -> None:
        if "growing" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(RoomyFiles(tmp_path, disk), "probe", 10.0, disk.clock, interrupt)
    assert list(tmp_path.iterdir()) == []


def test_small_disk_is_measured_in_a_small_file_and_a_full_one_not_at_all(tmp_path: Path) -> None:
    disk = TimedDisk(free_bytes=40 * MIB)
    run(tmp_path, disk)
    assert disk.size_max == 5 * MIB
    with pytest.raises(StoreFull, match="32 MiB of free space"):
        run(tmp_path, TimedDisk(free_bytes=31 * MIB))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], TuneArguments()),
        (["d"], TuneArguments("d")),
        (["--json", "d", "--seconds", "2.5"], TuneArguments("d", 2.5, True)),
        (["-seconds=3", "-json"], TuneArguments(".", 3.0, True)),
    ],
)
def test_arguments_come_in_any_order(arguments: list[str], expected: TuneArguments) -> None:
    assert parse_arguments(arguments) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["a", "b"],
        ["--fast"],
        ["--json=1"],
        ["--seconds"],
        ["--seconds", "x"],
        ["--seconds=0"],
        ["--seconds=nan"],
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(TuneError):
        parse_arguments(arguments)


def test_report_is_readable_and_its_settings_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(tmp_path), "--seconds", "0.2"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith(f"Disk of {tmp_path}: ")
    assert "1024 KiB, growing file" in said.out
    assert "up to" in said.out
    assert "#" in said.out
    assert max(len(line) for line in said.out.splitlines() if not line.startswith(("*", "Disk"))) < 100
    settings = said.out.partition("jetstream block:\n")[2].partition("\n\n")[0]
    loaded = load_text(f"jetstream {{\n{settings}\n}}", {})
    assert loaded.options.jetstream is not None
    assert loaded.warnings == ()
    assert list(tmp_path.iterdir()) == []


def test_json_has_the_same_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--json", "--seconds", "0.2", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["syncs"]) == 2 * len(BATCH_SIZES)
    one = found["syncs"][0]
    assert (one["preallocated"], one["batch_bytes"]) == (True, 4096)
    assert one["p50_s"] <= one["p99_s"] <= one["max_s"]
    assert sum(bar["count"] for bar in one["histogram"]) == one["count"]
    assert found["recommended"]["sync"] == "always"
    assert found["throughput_bytes_per_s"] > 0


def test_what_cannot_be_measured_is_one_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for wrong in (str(tmp_path / "missing"), str(tmp_path / "file"), "--fast"):
        assert main(["tune", wrong]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("edged: ")
        assert said.err.count("\n") == 1
