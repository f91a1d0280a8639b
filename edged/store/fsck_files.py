"""The files of a store that may be damaged: to be read as far as they go, and never written to.

Rules:
* Every call that would change something fails with EROFS before it reaches the system; files are opened for
  reading only, so a store on a disk that is mounted read-only can be looked at.
* A sector that the disk does not give is read as zeros and noted in `unreadable`: whoever reads meets it as
  damage, which the formats deal with.
* `heads` holds bytes that are to be read at the beginning of a file instead of those on the disk, such as a
  header that was computed again. Memory only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from edged.store.box import Keyring
from edged.store.errors import StoreBroken
from edged.store.files import Bytes, File, Names, OperatingSystem, RealFiles, SystemCalls

SECTOR_BYTES: Final = 512
LOCK: Final = "lock"
_CHANGING_FLAGS: Final = os.O_RDWR | os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_TRUNC


class ReadOnlyCalls:
    """The calls of the system, without those that change anything. `on_read` is told how much was read."""

    def __init__(
        self, calls: SystemCalls | None = None, on_read: Callable[[int], None] = lambda size: None
    ) -> None:
        self._calls: SystemCalls = OperatingSystem() if calls is None else calls
        self._on_read = on_read
        self._paths: dict[int, str] = {}
        # By the full path: what stands at the beginning of the file instead of what is on the disk.
        self.heads: dict[str, bytes] = {}
        # By the full path: ranges that the disk did not give, in the order in which they were met.
        self.unreadable: dict[str, list[tuple[int, int]]] = {}

    def open(self, path: str, flags: int, mode: int, /) -> int:
        """Open for reading, whatever was asked for."""
        descriptor = self._calls.open(path, flags & ~_CHANGING_FLAGS, mode)
        self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int, /) -> None:
        """See `os`."""
        self._paths.pop(descriptor, None)
        self._calls.close(descriptor)

    def pread(self, descriptor: int, size: int, offset: int, /) -> bytes:
        """What is there, with zeros for sectors that cannot be read."""
        try:
            data = self._calls.pread(descriptor, size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b"".join(self._read_halves(descriptor, size, offset))
        self._on_read(len(data))
        head = self.heads.get(self._paths.get(descriptor, ""))
        if head is not None and offset < len(head):
            wanted = head[offset : offset + len(data)]
            data = wanted + data[len(wanted) :]
        return data

    def _read_halves(self, descriptor: int, size: int, offset: int) -> Iterator[bytes]:
        """The same range in smaller and smaller pieces, down to the sectors that are bad."""
        size = min(size, max(0, self._calls.fstat(descriptor).st_size - offset))
        pieces = [(offset, offset + size)] if size else []
        while pieces:
            start, end = pieces.pop()
            try:
                yield self._calls.pread(descriptor, end - start, start)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                middle = (start + end) // 2 // SECTOR_BYTES * SECTOR_BYTES
                if start < middle < end:
                    pieces += (middle, end), (start, middle)
                else:
                    self._note(self._paths.get(descriptor, ""), start, end)
                    yield bytes(end - start)

    def _note(self, path: str, start: int, end: int) -> None:
        ranges = self.unreadable.setdefault(path, [])
        if ranges and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], end
        elif (start, end) not in ranges:
            ranges.append((start, end))

    def fstat(self, descriptor: int, /) -> os.stat_result:
        """See `os`."""
        return self._calls.fstat(descriptor)

    def flock(self, descriptor: int, operation: int, /) -> None:
        """See `fcntl`."""
        self._calls.flock(descriptor, operation)

    def listdir(self, path: str, /) -> Names:
        """See `os`."""
        return self._calls.listdir(path)

    def statvfs(self, path: str, /) -> os.statvfs_result:
        """See `os`."""
        return self._calls.statvfs(path)

    # --- what is refused ---

    def pwrite(self, descriptor: int, data: Bytes, offset: int, /) -> int:
        """Refused."""
        _refuse(self._paths.get(descriptor, ""))

    def fdatasync(self, descriptor: int, /) -> None:
        """Refused."""
        _refuse(self._paths.get(descriptor, ""))

    def fsync(self, descriptor: int, /) -> None:
        """Refused."""
        _refuse(self._paths.get(descriptor, ""))

    def posix_fallocate(self, descriptor: int, offset: int, size: int, /) -> None:
        """Refused."""
        _refuse(self._paths.get(descriptor, ""))

    def ftruncate(self, descriptor: int, size: int, /) -> None:
        """Refused."""
        _refuse(self._paths.get(descriptor, ""))

    def rename(self, old: str, new: str, /) -> None:
        """Refused."""
        _refuse(old)

    def unlink(self, path: str, /) -> None:
        """Refused."""
        _refuse(path)

    def mkdir(self, path: str, mode: int, /) -> None:
        """Refused."""
        _refuse(path)

    def rmdir(self, path: str, /) -> None:
        """Refused."""
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "this store is only being read", path)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below the store's root. A directory has no size."""

    path: str
    size: int
    is_directory: bool = False


class StoreFiles(RealFiles):
    """The files below a store's root, to be read, with the keys for what is encrypted."""

    def __init__(self, root: str, calls: ReadOnlyCalls | None = None, keys: Keyring | None = None) -> None:
        self.keys = keys or Keyring()
        self.calls = calls if calls is not None else ReadOnlyCalls()
        super().__init__(root, self.calls)
        self.root = os.path.abspath(root)  # noqa: PTH100 - as in RealFiles, to which it must be equal

    def found(self, directory: str = "") -> list[FoundFile]:
        """What is in a directory, by name; empty if there is no such directory."""
        found = []
        try:
            entries = sorted(os.scandir(f"{self.root}/{directory}"), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            size = 0 if is_directory else entry.stat(follow_symlinks=False).st_size
            found.append(FoundFile(path, size, is_directory))
        return found

    def below(self, directory: str = "") -> list[FoundFile]:
        """All files in a directory and in those within it."""
        files: list[FoundFile] = []
        for one in self.found(directory):
            files += self.below(one.path) if one.is_directory else [one]
        return files

    def list(self, directory: str) -> Names:
        """See `Files`; a directory that is gone has nothing in it."""
        try:
            return super().list(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read_head(self, path: str, size: int) -> tuple[bytes, int]:
        """The first bytes of a file, and how many it has in all."""
        file = self.open(path)
        try:
            return file.read_at(0, size), file.size()
        finally:
            file.close()

    def read_all(self, path: str) -> bytes:
        """All bytes of a file."""
        file = self.open(path)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def patch_head(self, path: str, head: bytes) -> None:
        """From now on a file begins with these bytes, for whoever reads it through here."""
        self.calls.heads[f"{self.root}/{path}"] = head

    def unreadable(self) -> Iterator[tuple[str, int, int]]:
        """Path, start and end of what the disk did not give."""
        for full, ranges in sorted(self.calls.unreadable.items()):
            for start, end in ranges:
                yield full.removeprefix(self.root + "/"), start, end

    def lock_if_there(self) -> File | None:
        """Keep others from opening the store; None if it has no lock file, so that nobody has it open.

        Raises StoreBroken if a process has it open.
        """
        try:
            return self.lock(LOCK)
        except FileNotFoundError:
            return None
        except BlockingIOError as error:
            raise StoreBroken("another process has the store open: stop it first", LOCK) from error


def shown(value: Any) -> Any:
    """A value for JSON: bytes become text where they are, else hex digits."""
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value).hex()
    if isinstance(value, dict):
        return {str(shown(key)): shown(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [shown(one) for one in value]
    return value
