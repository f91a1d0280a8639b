"""The failing calls do fail, as often as they should, and see who syncs again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from edged.store.files import RealFiles
from tests.lab.failing_calls import FailingCalls, Failure

WRITES = frozenset(("pwrite",))
SYNCS = frozenset(("fdatasync",))


def test_only_the_call_asked_for_fails_once(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("EIO", 2, only=WRITES))
    file = RealFiles(str(tmp_path), calls).create("a")
    file.write_at(0, b"11")
    with pytest.raises(OSError, match="Input/output"):
        file.write_at(2, b"22")
    assert (calls.is_hit, calls.hit_call) == (True, "pwrite")
    file.write_at(2, b"33")
    assert file.read_at(0, 9) == b"1133"
    file.close()


def test_lasting_failure_lasts_until_healed(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("ENOSPC", 1, is_lasting=True, only=WRITES))
    file = RealFiles(str(tmp_path), calls).create("a")
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            file.write_at(0, b"1")
        assert caught.value.errno == errno.ENOSPC
    calls.heal()
    file.write_at(0, b"1")
    file.close()


def test_failed_write_leaves_half_of_its_bytes(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("EIO", 1, only=WRITES))
    file = RealFiles(str(tmp_path), calls).create("a")
    with pytest.raises(OSError, match="Input/output"):
        file.write_at(0, b"12345678")
    assert file.read_at(0, 9) == b"1234"
    file.close()


def test_second_sync_through_another_descriptor_is_seen(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("EIO", 1, only=SYNCS))
    files = RealFiles(str(tmp_path), calls)
    file = files.create("a")
    file.write_at(0, b"1")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert not calls.synced_again
    files.rename("a", "b")
    again = files.open("b")
    again.sync()
    assert calls.synced_again == [str(tmp_path / "b")]
    again.close()
    file.close()


def test_sync_of_a_new_file_after_a_failed_one_is_right(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("EIO", 1, only=SYNCS))
    files = RealFiles(str(tmp_path), calls)
    file = files.create("a")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.close()
    files.remove("a")
    fresh = files.create("a")
    fresh.sync()
    assert not calls.synced_again
    fresh.close()


def test_space_is_needed_only_by_who_makes_something(tmp_path: Path) -> None:
    files = RealFiles(str(tmp_path), FailingCalls(Failure("ENOSPC", 1, is_lasting=True)))
    (tmp_path / "a").write_bytes(b"x")
    files.open("a").close()
    assert files.list("") == ["a"]
    with pytest.raises(OSError, match="No space"):
        files.create("b")
    files.remove("a")
