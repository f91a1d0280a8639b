"""System calls of which the n-th fails, once or from then on: what a bad disk or a full one does.

A run with `at` beyond the last call fails nothing; that is how a loop over all calls knows its end:

    for at in itertools.count(1):
        calls = FailingCalls(Failure("EIO", at))
        run(RealFiles(root, calls))
        if not calls.is_hit:
            break

Only calls that can fail in that way are counted. A write that fails with EIO or ENOSPC has written half of
its bytes, as disks do. A sync that failed is remembered with the file it was for: `synced_again` names the
files that were synced once more. That must not be: the second sync succeeds without the lost bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from edged.store.files import Bytes, OperatingSystem, SystemCalls

_EVERY_CALL: Final = frozenset(
    (
        *("open", "pread", "pwrite", "fdatasync", "fsync", "posix_fallocate", "ftruncate", "fstat"),
        *("rename", "unlink", "mkdir", "rmdir", "listdir", "statvfs"),
    )
)
# Which calls fail in which way.
KINDS: Final[dict[str, frozenset[str]]] = {
    "EIO": _EVERY_CALL,
    "ENOSPC": frozenset(("open", "pwrite", "fdatasync", "fsync", "posix_fallocate", "mkdir", "rename")),
    "EMFILE": frozenset(("open", "listdir")),
    "EINTR": _EVERY_CALL,
    "short": frozenset(("pwrite", "pread")),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The `at`-th call fails, counted from 1; with `is_lasting` all later ones as well.

    `only` narrows the calls that are counted.
    """

    kind: str
    at: int
    is_lasting: bool = False
    only: frozenset[str] = _EVERY_CALL

    def __post_init__(self) -> None:
        # Somebody who is interrupted for ever tries for ever.
        assert not (self.kind == "EINTR" and self.is_lasting)


class FailingCalls:
    """The calls of the system, with one failure among them."""

    def __init__(self, failure: Failure, inner: SystemCalls | None = None) -> None:
        self._inner: SystemCalls = OperatingSystem() if inner is None else inner
        self.failure: Failure | None = failure
        self._counted = KINDS[failure.kind] & failure.only
        self.count = 0
        self.is_hit = False
        self.hit_call = ""
        self.synced_again: list[str] = []
        self.open_descriptors: dict[int, str] = {}
        self._failed_syncs: set[tuple[int, int]] = set()

    def heal(self) -> None:
        """From now on nothing fails."""
        self.failure = None

    def _is_due(self, name: str, is_possible: bool = True) -> bool:
        if self.failure is None or name not in self._counted or not is_possible:
            return False
        self.count += 1
        is_due = self.count == self.failure.at or (self.failure.is_lasting and self.count > self.failure.at)
        if is_due:
            self.is_hit = True
            self.hit_call = self.hit_call or name
        return is_due

    def _error(self, path: str = "") -> OSError:
        assert self.failure is not None
        number = getattr(errno, self.failure.kind)
        return OSError(number, os.strerror(number), path)

    def _call(self, name: str, call: Callable[..., Any], *arguments: Any, path: str = "") -> Any:
        if self._is_due(name):
            raise self._error(path)
        return call(*arguments)

    def open(self, path: str, flags: int, mode: int, /) -> int:
        # Opening what is there takes no space.
        is_possible = self.failure is None or self.failure.kind != "ENOSPC" or bool(flags & os.O_CREAT)
        if self._is_due("open", is_possible):
            raise self._error(path)
        descriptor = self._inner.open(path, flags, mode)
        self.open_descriptors[descriptor] = path
        return descriptor

    def close(self, descriptor: int, /) -> None:
        self.open_descriptors.pop(descriptor, None)
        self._inner.close(descriptor)

    def pread(self, descriptor: int, size: int, offset: int, /) -> bytes:
        if self._is_due("pread", size > 1 or self._counted != KINDS["short"]):
            if self.failure is not None and self.failure.kind == "short":
                return self._inner.pread(descriptor, max(1, size // 2), offset)
            raise self._error()
        return self._inner.pread(descriptor, size, offset)

    def pwrite(self, descriptor: int, data: Bytes, offset: int, /) -> int:
        if not self._is_due("pwrite"):
            return self._inner.pwrite(descriptor, data, offset)
        assert self.failure is not None
        half = memoryview(data)[: max(1, len(data) // 2)]
        if self.failure.kind == "short":
            return self._inner.pwrite(descriptor, half, offset)
        if self.failure.kind != "EINTR":
            self._inner.pwrite(descriptor, half, offset)
        raise self._error()

    def fdatasync(self, descriptor: int, /) -> None:
        self._sync("fdatasync", self._inner.fdatasync, descriptor)

    def fsync(self, descriptor: int, /) -> None:
        self._sync("fsync", self._inner.fsync, descriptor)

    def _sync(self, name: str, call: Callable[[int], None], descriptor: int) -> None:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        # A directory holds no bytes of ours; a failed sync of one may be tried again.
        is_file = name == "fdatasync"
        if is_file and identity in self._failed_syncs:
            self.synced_again.append(self.open_descriptors[descriptor])
        if self._is_due(name):
            error = self._error(self.open_descriptors[descriptor])
            if is_file and error.errno != errno.EINTR:
                self._failed_syncs.add(identity)
            raise error
        call(descriptor)

    def unlink(self, path: str, /) -> None:
        status = os.lstat(path) if os.path.lexists(path) else None
        self._call("unlink", self._inner.unlink, path, path=path)
        if status is not None:
            # The number of a removed file may be given to another one.
            self._failed_syncs.discard((status.st_dev, status.st_ino))

    def posix_fallocate(self, descriptor: int, offset: int, size: int, /) -> None:
        self._call("posix_fallocate", self._inner.posix_fallocate, descriptor, offset, size)

    def ftruncate(self, descriptor: int, size: int, /) -> None:
        self._call("ftruncate", self._inner.ftruncate, descriptor, size)

    def fstat(self, descriptor: int, /) -> os.stat_result:
        return self._call("fstat", self._inner.fstat, descriptor)

    def flock(self, descriptor: int, operation: int, /) -> None:
        self._inner.flock(descriptor, operation)

    def rename(self, old: str, new: str, /) -> None:
        self._call("rename", self._inner.rename, old, new, path=old)

    def mkdir(self, path: str, mode: int, /) -> None:
        self._call("mkdir", self._inner.mkdir, path, mode, path=path)

    def rmdir(self, path: str, /) -> None:
        self._call("rmdir", self._inner.rmdir, path, path=path)

    def listdir(self, path: str, /) -> list[str]:
        return self._call("listdir", self._inner.listdir, path, path=path)

    def statvfs(self, path: str, /) -> os.statvfs_result:
        return self._call("statvfs", self._inner.statvfs, path, path=path)
