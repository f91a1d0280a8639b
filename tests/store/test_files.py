"""The store's files: the same behaviours over the real ones and the fake disk, and failing system calls."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edged.store.files import Files, OperatingSystem, RealFiles
from tests.lab.failing_calls import KINDS, FailingCalls, Failure
from tests.lab.fake_disk import FakeDisk


@pytest.fixture(params=["real", "fake"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    yield RealFiles(str(tmp_path)) if request.param == "real" else FakeDisk()


# --- behaviours ---


def test_what_is_written_is_read_back_and_the_end_is_short(files: Files) -> None:
    file = files.create("a")
    file.write_at(0, b"hello")
    file.write_at(5, bytearray(b" world"))
    file.write_at(3, memoryview(b"LO"))
    assert file.read_at(0, 100) == b"helLO world"
    assert file.read_at(6, 3) == b"wor"
    assert file.read_at(11, 1) == b""
    assert file.read_at(100, 1) == b""
    assert file.read_at(0, 0) == b""
    assert file.size() == 11
    file.close()


def test_write_beyond_the_end_leaves_zeros_between(files: Files) -> None:
    file = files.create("a")
    file.write_at(3, b"x")
    file.write_at(9, b"")
    assert file.read_at(0, 100) == b"\0\0\0x"
    file.close()


def test_read_of_a_forged_size_takes_memory_for_what_is_there_only(files: Files) -> None:
    file = files.create("a")
    file.write_at(0, b"hello")
    assert file.read_at(1, 1 << 60) == b"ello"
    assert file.read_at(9, 1 << 60) == b""
    file.close()


def test_truncate_cuts_and_grows_with_zeros(files: Files) -> None:
    file = files.create("a")
    file.write_at(0, b"hello")
    file.truncate(2)
    file.truncate(4)
    assert file.read_at(0, 100) == b"he\0\0"
    file.close()


def test_allocate_grows_and_never_shrinks(files: Files) -> None:
    file = files.create("a")
    file.allocate(0)
    assert file.size() == 0
    file.write_at(0, b"hello")
    file.allocate(4096)
    assert file.size() == 4096
    file.allocate(100)
    assert file.size() == 4096
    assert file.read_at(0, 6) == b"hello\0"
    file.sync()
    file.close()


def test_create_refuses_a_name_that_is_taken_and_open_one_that_is_not(files: Files) -> None:
    files.create("a").close()
    with pytest.raises(FileExistsError):
        files.create("a")
    with pytest.raises(FileNotFoundError):
        files.open("b")
    with pytest.raises(FileNotFoundError):
        files.create("nowhere/b")
    with pytest.raises(FileNotFoundError):
        files.remove("b")
    with pytest.raises(FileNotFoundError):
        files.rename("b", "c")
    with pytest.raises(FileNotFoundError):
        files.list("nowhere")
    with pytest.raises(FileNotFoundError):
        files.sync_directory("nowhere")


def test_directories_are_made_with_parents_and_listed_in_order(files: Files) -> None:
    files.make_directory("x/y")
    files.make_directory("x/y")
    files.make_directory("")
    for name in ("c", "a", "b"):
        files.create(f"x/{name}").close()
    assert files.list("x") == ["a", "b", "c", "y"]
    assert files.list("") == ["x"]
    files.sync_directory("x")
    files.sync_directory("")


def test_directory_cannot_be_where_a_file_is(files: Files) -> None:
    files.create("a").close()
    with pytest.raises((FileExistsError, NotADirectoryError)):
        files.make_directory("a")


def test_directory_goes_when_it_is_empty(files: Files) -> None:
    files.make_directory("d")
    files.create("d/a").close()
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory("d")
    files.remove("d/a")
    files.remove_directory("d")
    assert files.list("") == []


def test_rename_replaces_and_open_files_stay_valid(files: Files) -> None:
    files.make_directory("d")
    first, second = files.create("a"), files.create("d/b")
    first.write_at(0, b"first")
    second.write_at(0, b"second")
    files.rename("a", "d/b")
    assert files.list("") == ["d"]
    assert first.read_at(0, 9) == b"first"
    assert second.read_at(0, 9) == b"second"
    first.write_at(0, b"FIRST")
    again = files.open("d/b")
    assert again.read_at(0, 9) == b"FIRST"
    files.remove("d/b")
    assert again.read_at(0, 9) == b"FIRST"
    for file in (first, second, again):
        file.close()


def test_closed_file_does_nothing_but_close(files: Files) -> None:
    file = files.create("a")
    file.close()
    file.close()
    with pytest.raises(OSError, match="descriptor"):
        file.write_at(0, b"x")
    with pytest.raises(OSError, match="descriptor"):
        file.read_at(0, 1)


def test_lock_is_held_by_one_until_closed(files: Files) -> None:
    lock = files.lock("lock")
    with pytest.raises(BlockingIOError):
        files.lock("lock")
    lock.close()
    files.lock("lock").close()


def test_free_bytes_are_counted(files: Files) -> None:
    assert files.free_bytes() > 0


def test_readers_see_whole_writes_of_the_writing_thread(files: Files) -> None:
    file = files.create("a")
    file.write_at(0, b"0" * 64)
    mixed: list[bytes] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for place in range(0, 64, 8):
                part = file.read_at(place, 8)
                if len(set(part)) != 1:
                    mixed.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        for place in range(0, 64, 8):
            file.write_at(place, b"%d" % (number % 10) * 8)
    is_over.set()
    reader.join()
    file.close()
    assert not mixed


# --- real files ---


def test_root_is_made_with_what_is_above_it(tmp_path: Path) -> None:
    files = RealFiles(str(tmp_path / "x" / "y"))
    files.make_directory("journal")
    assert (tmp_path / "x/y/journal").is_dir()
    assert (tmp_path / "x/y").stat().st_mode & 0o777 == 0o700
    files.create("journal/1").close()
    assert (tmp_path / "x/y/journal/1").stat().st_mode & 0o777 == 0o600


def test_path_out_of_the_root_is_our_bug(tmp_path: Path) -> None:
    files = RealFiles(str(tmp_path))
    for path in ("/etc/passwd", "../x", "a/../../x"):
        with pytest.raises(AssertionError):
            files.open(path)


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("EIO", 10**9))
    file = RealFiles(str(tmp_path), calls).create("a")
    (descriptor,) = calls.open_descriptors
    assert not os.get_inheritable(descriptor)
    file.close()


class _CannotAllocate(OperatingSystem):
    def __init__(self, number: int) -> None:
        self._number = number

    def posix_fallocate(self, descriptor: int, offset: int, size: int, /) -> None:  # type: ignore[override]
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_allocate_grows_where_space_cannot_be_set_aside(tmp_path: Path, number: int) -> None:
    file = RealFiles(str(tmp_path), _CannotAllocate(number)).create("a")
    file.write_at(0, b"hello")
    file.allocate(100)
    file.allocate(50)
    assert file.read_at(0, 200) == b"hello".ljust(100, b"\0")
    file.close()


def test_allocate_says_when_the_disk_is_full(tmp_path: Path) -> None:
    file = RealFiles(str(tmp_path), _CannotAllocate(errno.ENOSPC)).create("a")
    with pytest.raises(OSError, match="No space left"):
        file.allocate(100)
    file.close()


def use_everything(files: Files) -> bytes:
    """A little of everything; returns what was read back."""
    files.make_directory("d/e")
    with closing(files.lock("lock")), closing(files.create("d/a")) as file:
        file.allocate(64)
        file.write_at(0, b"0123456789" * 3)
        file.sync()
        found = file.read_at(0, 30) + file.read_at(60, file.size())
        file.truncate(10)
    files.rename("d/a", "d/b")
    files.sync_directory("d")
    files.remove("d/b")
    files.remove_directory("d/e")
    assert files.free_bytes() > 0
    return found + b",".join(name.encode() for name in files.list(""))


WHOLE = b"0123456789" * 3 + b"\0" * 4 + b"d,lock"


@pytest.mark.parametrize("kind", ["short", "EINTR"])
def test_interrupted_and_short_calls_are_finished(tmp_path: Path, kind: str) -> None:
    at = 0
    is_hit = True
    while is_hit:
        at += 1
        calls = FailingCalls(Failure(kind, at))
        root = tmp_path / str(at)
        assert use_everything(RealFiles(str(root), calls)) == WHOLE, (at, calls.hit_call)
        is_hit = calls.is_hit
    assert at > 2


def test_every_write_short_for_ever_still_writes_everything(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("short", 1, is_lasting=True))
    assert use_everything(RealFiles(str(tmp_path), calls)) == WHOLE
    assert calls.count > 8


@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "EMFILE"])
def test_every_failing_call_is_told_and_leaks_nothing(tmp_path: Path, kind: str, is_lasting: bool) -> None:
    hit_calls = set()
    at = 0
    while True:
        at += 1
        calls = FailingCalls(Failure(kind, at, is_lasting))
        try:
            use_everything(RealFiles(str(tmp_path / str(at)), calls))
        except OSError as error:
            assert error.errno == getattr(errno, kind), calls.hit_call
        else:
            assert not calls.is_hit, calls.hit_call
            break
        assert not calls.open_descriptors, (at, calls.hit_call)
        assert not calls.synced_again
        hit_calls.add(calls.hit_call)
    assert hit_calls == KINDS[kind]


def test_failed_sync_stays_failed_and_the_system_is_not_asked_again(tmp_path: Path) -> None:
    calls = FailingCalls(Failure("EIO", 1, only=frozenset(("fdatasync",))))
    file = RealFiles(str(tmp_path), calls).create("a")
    file.write_at(0, b"x")
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            file.sync()
        assert caught.value.errno == errno.EIO
    assert calls.count == 1
    assert not calls.synced_again
    file.close()


def test_write_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    class _Stuck(OperatingSystem):
        @staticmethod
        def pwrite(descriptor: int, data: object, offset: int, /) -> int:
            return 0

    file = RealFiles(str(tmp_path), _Stuck()).create("a")
    with pytest.raises(OSError, match="nothing was written"):
        file.write_at(0, b"x")
    file.close()
