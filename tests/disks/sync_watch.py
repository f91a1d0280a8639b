"""The system calls that make a store durable, watched for the one thing nobody may do.

After a failed sync Linux marks the pages clean: the next sync of the same file says that all is well, and the
data are gone. So a file whose sync failed must never be synced again.
"""

from __future__ import annotations

import os
from typing import Any


class SyncWatch:
    """Passes every call on to `calls` (the module os, or what has the same functions) and remembers syncs."""

    def __init__(self, calls: Any = os) -> None:
        self._calls = calls
        self._failed: set[tuple[int, int]] = set()
        self.failures = 0
        """How many syncs have failed."""
        self.repetitions = 0
        """How many syncs followed on a file of which one had failed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    def open(self, path: str, flags: int, *arguments: Any, **options: Any) -> int:
        descriptor: int = self._calls.open(path, flags, *arguments, **options)
        if flags & os.O_EXCL or flags & os.O_TRUNC:
            # A new file may have the number of one that was removed.
            self._failed.discard(_identity(descriptor))
        return descriptor

    def fsync(self, descriptor: int) -> None:
        self._sync(self._calls.fsync, descriptor)

    def fdatasync(self, descriptor: int) -> None:
        self._sync(self._calls.fdatasync, descriptor)

    def _sync(self, call: Any, descriptor: int) -> None:
        identity = _identity(descriptor)
        self.repetitions += identity in self._failed
        try:
            call(descriptor)
        except OSError:
            self.failures += 1
            self._failed.add(identity)
            raise


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
