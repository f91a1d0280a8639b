"""The only door from the store to the file system: what the store asks of files, and the real ones.

Rules:
* Paths are relative to the store's root, with slashes; "" is the root itself.
* Errors are `OSError` as the system gave them. Who knows what was being done translates them.
* A short write or an interrupted call is finished here. An error in the middle of `write_at` leaves the range
  undefined: some of it may have been written.
* `File.sync` makes the bytes and the size of the file durable, and nothing else. That a name exists, is gone
  or points to another file becomes durable by `sync_directory` on the directory that holds the name; so does
  a new directory in its parent. Some file systems promise more; the store must not need it.
* After a failed sync the kernel may have forgotten which pages were not written, and a second sync would
  succeed without them. So a file whose sync failed stays failed: later syncs raise without asking the system.
* Reads and writes give their position, so one writing thread and many reading threads may share a `File`.
  Closing is for an owner who knows that nobody is inside. An open file stays valid when it is renamed or
  removed.

`SystemCalls` lies below, so that a test can fail the n-th call or cut a write short.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar

Bytes: TypeAlias = bytes | bytearray | memoryview
# `Files.list` hides the built-in name inside its class.
Names: TypeAlias = list[str]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Up to here a read is tried with the size asked for. Above, the file's size is looked up first, because
# memory is set aside before the system says how little there is to read, and a damaged file may have given us
# the size.
_READ_UNCHECKED_BYTES: Final = 1 << 20
# What file systems that cannot set space aside answer; POSIX allows both.
_CANNOT_ALLOCATE: Final = frozenset((errno.EOPNOTSUPP, errno.EINVAL))


class File(Protocol):
    """An open file."""

    def read_at(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer than asked for only at the end of the file."""
        ...

    def write_at(self, offset: int, data: Bytes) -> None:
        """Write all of it, or raise."""
        ...

    def sync(self) -> None:
        """Make bytes and size durable."""
        ...

    def allocate(self, size: int) -> None:
        """Set space aside for the first `size` bytes; a smaller file grows to that size, with zeros."""
        ...

    def size(self) -> int:
        """The size now."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or grow it with zeros, to exactly this size."""
        ...

    def close(self) -> None:
        """Give the file back. Closing twice is harmless; nothing else works afterwards."""
        ...


class Files(Protocol):
    """The directory tree of one store."""

    def open(self, path: str) -> File:
        """An existing file, to read and write."""
        ...

    def create(self, path: str) -> File:
        """A new, empty file; FileExistsError if the name is taken."""
        ...

    def list(self, directory: str) -> Names:
        """The names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; fine if it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of the file that had it."""
        ...

    def remove(self, path: str) -> None:
        """Take away a file's name."""
        ...

    def remove_directory(self, path: str) -> None:
        """Take away an empty directory."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable: those added, taken away and renamed."""
        ...

    def free_bytes(self) -> int:
        """The room left for us on the file system."""
        ...

    def lock(self, path: str) -> File:
        """Open a file, made if missing, that nobody else has locked; BlockingIOError if somebody has.

        The lock ends with `close` or with the process, whatever way it ends.
        """
        ...


class SystemCalls(Protocol):
    """The calls of the system that real files are made of, as in `os`."""

    def open(self, path: str, flags: int, mode: int, /) -> int: ...
    def close(self, descriptor: int, /) -> None: ...
    def pread(self, descriptor: int, size: int, offset: int, /) -> bytes: ...
    def pwrite(self, descriptor: int, data: Bytes, offset: int, /) -> int: ...
    def fdatasync(self, descriptor: int, /) -> None: ...
    def fsync(self, descriptor: int, /) -> None: ...
    def posix_fallocate(self, descriptor: int, offset: int, size: int, /) -> None: ...
    def ftruncate(self, descriptor: int, size: int, /) -> None: ...
    def fstat(self, descriptor: int, /) -> os.stat_result: ...
    def flock(self, descriptor: int, operation: int, /) -> None: ...
    def rename(self, old: str, new: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def mkdir(self, path: str, mode: int, /) -> None: ...
    def rmdir(self, path: str, /) -> None: ...
    def listdir(self, path: str, /) -> Names: ...
    def statvfs(self, path: str, /) -> os.statvfs_result: ...


class OperatingSystem:
    """The calls themselves."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    fdatasync = staticmethod(os.fdatasync)
    fsync = staticmethod(os.fsync)
    posix_fallocate = staticmethod(os.posix_fallocate)
    ftruncate = staticmethod(os.ftruncate)
    fstat = staticmethod(os.fstat)
    flock = staticmethod(fcntl.flock)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    listdir = staticmethod(os.listdir)
    statvfs = staticmethod(os.statvfs)


def _finish(
    call: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """Call until it is not interrupted. Python does this below `os`, but not below another `SystemCalls`."""
    while True:
        try:
            return call(*arguments, **named)
        except InterruptedError:
            continue


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_calls", "_descriptor", "_is_sync_failed", "_path")

    def __init__(self, calls: SystemCalls, descriptor: int, path: str) -> None:
        self._calls = calls
        self._descriptor = descriptor
        self._path = path
        self._is_sync_failed = False

    def read_at(self, offset: int, size: int) -> bytes:
        """See `File`."""
        if size > _READ_UNCHECKED_BYTES:
            size = min(size, self.size() - offset)
        if size <= 0:
            return b""
        data = _finish(self._calls.pread, self._descriptor, size, offset)
        if len(data) == size:
            return data
        parts = []
        while data:
            parts.append(data)
            offset += len(data)
            size -= len(data)
            data = _finish(self._calls.pread, self._descriptor, size, offset) if size else b""
        return b"".join(parts)

    def write_at(self, offset: int, data: Bytes) -> None:
        """See `File`."""
        while data:
            try:
                written = self._calls.pwrite(self._descriptor, data, offset)
            except InterruptedError:
                continue
            if written == len(data):
                return
            if written == 0:
                raise OSError(errno.EIO, "nothing was written", self._path)
            data = memoryview(data)[written:]
            offset += written

    def sync(self) -> None:
        """See `File`."""
        if self._is_sync_failed:
            raise OSError(errno.EIO, "an earlier sync failed", self._path)
        try:
            _finish(self._calls.fdatasync, self._descriptor)
        except OSError:
            self._is_sync_failed = True
            raise

    def allocate(self, size: int) -> None:
        """See `File`. Where the file system cannot set space aside, the file only grows."""
        if size <= 0:
            return
        try:
            _finish(self._calls.posix_fallocate, self._descriptor, 0, size)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
            if self.size() < size:
                self.truncate(size)

    def size(self) -> int:
        """See `File`."""
        return _finish(self._calls.fstat, self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """See `File`."""
        _finish(self._calls.ftruncate, self._descriptor, size)

    def close(self) -> None:
        """See `File`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        _close(self._calls, descriptor)


def _close(calls: SystemCalls, descriptor: int) -> None:
    try:
        calls.close(descriptor)
    except InterruptedError:
        # Linux has released the descriptor already; by now it may belong to somebody else.
        return


class RealFiles:
    """The files below a directory of the operating system."""

    def __init__(self, root: str, calls: SystemCalls | None = None) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100 - the calls below take strings
        self._calls: SystemCalls = OperatingSystem() if calls is None else calls

    def _full(self, path: str) -> str:
        if not path:
            return self._root
        assert not path.startswith("/") and ".." not in path.split("/"), path
        return f"{self._root}/{path}"

    def _open(self, path: str, flags: int) -> RealFile:
        full = self._full(path)
        descriptor = _finish(self._calls.open, full, flags, _FILE_MODE)
        return RealFile(self._calls, descriptor, full)

    def open(self, path: str) -> RealFile:
        """See `Files`."""
        return self._open(path, _OPEN_FLAGS)

    def create(self, path: str) -> RealFile:
        """See `Files`."""
        return self._open(path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL)

    def list(self, directory: str) -> Names:
        """See `Files`."""
        full = self._full(directory)
        return sorted(_finish(self._calls.listdir, full))

    def make_directory(self, path: str) -> None:
        """See `Files`. The root itself is made too; no path names its parent, so it is made durable here."""
        full = self._full(path)
        missing: Names = []
        while not self._is_directory(full):
            missing.append(full)
            full = os.path.dirname(full)  # noqa: PTH120
        for full in reversed(missing):
            try:
                _finish(self._calls.mkdir, full, _DIRECTORY_MODE)
            except FileExistsError:
                # Made by somebody else meanwhile, or it is a file.
                if not self._is_directory(full):
                    raise
            if len(full) <= len(self._root):
                self._sync(os.path.dirname(full))  # noqa: PTH120

    def rename(self, old: str, new: str) -> None:
        """See `Files`."""
        full_old, full_new = self._full(old), self._full(new)
        _finish(self._calls.rename, full_old, full_new)

    def remove(self, path: str) -> None:
        """See `Files`."""
        full = self._full(path)
        _finish(self._calls.unlink, full)

    def remove_directory(self, path: str) -> None:
        """See `Files`."""
        full = self._full(path)
        _finish(self._calls.rmdir, full)

    def sync_directory(self, path: str) -> None:
        """See `Files`."""
        self._sync(self._full(path))

    def free_bytes(self) -> int:
        """See `Files`."""
        answer = _finish(self._calls.statvfs, self._root)
        return answer.f_bavail * answer.f_frsize

    def lock(self, path: str) -> RealFile:
        """See `Files`."""
        full = self._full(path)
        descriptor = _finish(self._calls.open, full, _OPEN_FLAGS | os.O_CREAT, _FILE_MODE)
        try:
            _finish(self._calls.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _close(self._calls, descriptor)
            raise
        return RealFile(self._calls, descriptor, full)

    def _is_directory(self, full: str) -> bool:
        """Whether it is there; NotADirectoryError if it is something else."""
        try:
            descriptor = _finish(self._calls.open, full, _DIRECTORY_FLAGS, 0)
        except FileNotFoundError:
            return False
        _close(self._calls, descriptor)
        return True

    def _sync(self, full: str) -> None:
        descriptor = _finish(self._calls.open, full, _DIRECTORY_FLAGS, 0)
        try:
            _finish(self._calls.fsync, descriptor)
        finally:
            _close(self._calls, descriptor)
