"""The disk governor on a small disk: the reserve comes and goes, publishes are refused and taken again."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edged.config.jetstream_options import ShedClass, ShedOptions
from edged.core.space_rules import Shed, SpaceLimits, SpaceRules, StreamSpace
from edged.store.errors import StoreFull
from edged.store.files import OperatingSystem, RealFiles
from edged.store.space import POLL_NS, RESERVE, DiskGovernor

MIB = 1024 * 1024
FLOOR_BYTES = 4 * MIB
CAPACITY_BYTES = 20 * MIB


class SmallDisk(OperatingSystem):
    """A disk of CAPACITY_BYTES, of which others use `filled_bytes` and our reserve the rest it has."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.filled_bytes = 0
        self.polls = 0
        self.failing: dict[str, int] = {}

    def free(self) -> int:
        own = sum(entry.stat().st_size for entry in self.root.iterdir())
        return CAPACITY_BYTES - self.filled_bytes - own

    def statvfs(self, path: str) -> Any:  # type: ignore[override]
        self.polls += 1
        return SimpleNamespace(f_bavail=max(self.free(), 0), f_frsize=1)

    def _fail(self, call: str) -> None:
        if call in self.failing:
            raise OSError(self.failing[call], os.strerror(self.failing[call]))

    def posix_fallocate(self, descriptor: int, offset: int, size: int) -> None:
        self._fail("fallocate")
        if size > self.free():
            raise OSError(errno.ENOSPC, "disk full")
        os.ftruncate(descriptor, size)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        self._fail("unlink")
        Path(path).unlink()


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path)


def governor(disk: SmallDisk, now_ns: int = 0, reserve_bytes: int = MIB, **shed: Any) -> DiskGovernor:
    rules = SpaceRules(SpaceLimits(10 * MIB, FLOOR_BYTES, reserve_bytes), ShedOptions(**shed))
    made = DiskGovernor(RealFiles(str(disk.root), disk), rules)
    made.start(now_ns)
    return made


def reserve_size(disk: SmallDisk) -> int | None:
    path = disk.root / RESERVE
    return path.stat().st_size if path.exists() else None


def test_reserve_is_allocated_at_start(disk: SmallDisk) -> None:
    made = governor(disk)
    assert made.is_reserve_held
    assert reserve_size(disk) == MIB
    made.admit(100, 0, 0)


def test_reserve_of_the_last_run_is_kept_and_one_of_another_size_is_made_anew(disk: SmallDisk) -> None:
    governor(disk)
    before = (disk.root / RESERVE).stat().st_ino
    governor(disk)
    assert (disk.root / RESERVE).stat().st_ino == before
    governor(disk, reserve_bytes=2 * MIB)
    assert reserve_size(disk) == 2 * MIB
    (disk.root / RESERVE).write_bytes(b"torn")
    governor(disk)
    assert reserve_size(disk) == MIB


def test_no_reserve_is_wanted_when_its_size_is_zero(disk: SmallDisk) -> None:
    assert not governor(disk, reserve_bytes=0).is_reserve_held
    assert reserve_size(disk) is None
    governor(disk)
    assert not governor(disk, reserve_bytes=0).is_reserve_held
    assert reserve_size(disk) is None


def test_start_on_a_full_disk_gives_up_the_reserve_and_refuses(disk: SmallDisk) -> None:
    governor(disk)
    disk.filled_bytes = CAPACITY_BYTES
    made = governor(disk)
    assert reserve_size(disk) is None
    with pytest.raises(StoreFull):
        made.admit(1, 0, 0)


def test_start_without_room_for_the_reserve_goes_without_it(disk: SmallDisk) -> None:
    disk.filled_bytes = CAPACITY_BYTES - FLOOR_BYTES - MIB // 2
    made = governor(disk)
    assert not made.is_reserve_held
    assert made.problem is None
    made.admit(100, 0, 0)


def test_crossed_floor_gives_up_the_reserve_and_returned_space_takes_it_back(disk: SmallDisk) -> None:
    made = governor(disk)
    disk.filled_bytes = CAPACITY_BYTES - FLOOR_BYTES - MIB + 1
    now_ns = POLL_NS
    with pytest.raises(StoreFull, match="insufficient storage"):
        made.admit(1, 0, now_ns)
    assert made.tend(now_ns)
    assert reserve_size(disk) is None
    # What the reserve has given back is not taken for space that has returned.
    with pytest.raises(StoreFull):
        made.admit(1, 0, now_ns)
    assert not made.tend(now_ns)
    disk.filled_bytes -= 2 * MIB
    now_ns += POLL_NS
    made.admit(1, 0, now_ns)
    assert made.tend(now_ns)
    assert reserve_size(disk) == MIB
    made.admit(1, 0, now_ns)


def test_full_disk_gives_up_the_reserve_at_once_and_writing_resumes_within_a_second(disk: SmallDisk) -> None:
    made = governor(disk)
    made.no_space(0)
    assert reserve_size(disk) is None
    with pytest.raises(StoreFull):
        made.admit(1, 0, 0)
    made.admit(1, 0, 1_000_000_000)
    assert made.tend(1_000_000_000)
    assert made.is_reserve_held


def test_file_system_is_asked_every_100_ms_and_after_an_allocation(disk: SmallDisk) -> None:
    made = governor(disk)
    made.admit(1, 0, 0)
    asked = disk.polls
    for now_ns in range(0, POLL_NS, POLL_NS // 10):
        made.admit(1, 0, now_ns)
    assert disk.polls == asked
    made.admit(1, 0, POLL_NS)
    assert disk.polls == asked + 1
    made.changed()
    made.admit(1, 0, POLL_NS)
    assert disk.polls == asked + 2
    # A clock that was set back does not silence the question.
    made.admit(1, 0, POLL_NS - 1)
    assert disk.polls == asked + 3


def test_what_the_reserve_gave_back_is_known_at_once(disk: SmallDisk) -> None:
    made = governor(disk)
    made.poll(0)
    before_bytes = made.free_bytes
    made.no_space(0)
    with pytest.raises(StoreFull, match=f"{before_bytes + MIB} bytes free"):
        made.admit(1, 0, 0)


def test_bound_of_the_store_is_refused_without_touching_the_reserve(disk: SmallDisk) -> None:
    made = governor(disk)
    with pytest.raises(StoreFull, match="max_file_store"):
        made.admit(1, 10 * MIB, 0)
    assert not made.is_full
    assert made.is_reserve_held


def test_reserve_that_cannot_be_removed_is_told_and_stops_nothing(disk: SmallDisk) -> None:
    made = governor(disk)
    disk.failing["unlink"] = errno.EROFS
    made.no_space(0)
    assert made.is_reserve_held
    assert made.problem is not None
    assert "cannot be removed" in made.problem
    disk.failing.clear()
    assert made.tend(0)
    assert made.problem is None


def test_reserve_removed_by_hand_counts_as_given_up(disk: SmallDisk) -> None:
    made = governor(disk)
    (disk.root / RESERVE).unlink()
    made.no_space(0)
    assert not made.is_reserve_held
    assert made.problem is None


@pytest.mark.parametrize(("code", "is_told"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_reserve_that_cannot_be_made_leaves_nothing_behind(disk: SmallDisk, code: int, is_told: bool) -> None:
    disk.failing["fallocate"] = code
    made = governor(disk)
    assert not made.is_reserve_held
    assert reserve_size(disk) is None
    assert (made.problem is not None) is is_told
    disk.failing.clear()
    assert made.tend(0)
    assert (made.is_reserve_held, made.problem) == (True, None)


def test_plan_uses_what_the_file_system_says(disk: SmallDisk) -> None:
    made = governor(disk, classes=(ShedClass("bulk", ("*",)),))
    stream = StreamSpace("A", "S", 9 * MIB + 100)
    assert made.plan(stream.bytes, 0, [stream], 0) == [Shed("A", "S", MIB + 100, "bulk", False)]
    disk.filled_bytes = CAPACITY_BYTES - FLOOR_BYTES - MIB
    small = StreamSpace("A", "S", MIB)
    assert made.plan(small.bytes, 0, [small], POLL_NS) == [Shed("A", "S", 209_716, "bulk", False)]


def test_disk_that_fills_and_empties_a_hundred_times_never_wedges(disk: SmallDisk) -> None:
    made = governor(disk)
    now_ns = 0
    for _ in range(100):
        disk.filled_bytes = CAPACITY_BYTES
        made.no_space(now_ns)
        now_ns += 700_000_000
        made.tend(now_ns)
        with pytest.raises(StoreFull):
            made.admit(1, 0, now_ns)
        disk.filled_bytes = 0
        now_ns += 700_000_000
        made.admit(1, 0, now_ns)
        made.tend(now_ns)
        assert made.is_reserve_held
