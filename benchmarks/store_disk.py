"""The disk under the store: what it is, how long it takes to sync, and the log that nothing can beat on it.

`BareLog` writes the bytes of a batch and syncs them, and does nothing else; its files are set aside and used
again as the journal's are.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROBE_BYTES: Final = 4096
_PROBES: Final = 200
_FILES: Final = 3


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A file system, and how long writing and syncing 4 KiB in a file of it takes."""

    device: str
    kind: str
    sync_p50_us: float
    sync_p99_us: float

    def __str__(self) -> str:
        return (
            f"{self.kind} on {self.device}; pwrite and fdatasync of 4 KiB: "
            f"median {self.sync_p50_us:,.0f} µs, 99th percentile {self.sync_p99_us:,.0f} µs"
        )


def disk_facts(folder: Path) -> DiskFacts:
    """Measure the disk that a folder is on, in a file whose space is written already, as the journal's is."""
    path = folder / "probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.pwrite(descriptor, os.urandom(_PROBE_BYTES * _PROBES), 0)
        os.fsync(descriptor)
        data = os.urandom(_PROBE_BYTES)
        times_s = []
        for number in range(_PROBES):
            started_s = time.perf_counter()
            os.pwrite(descriptor, data, number * _PROBE_BYTES)
            os.fdatasync(descriptor)
            times_s.append(time.perf_counter() - started_s)
    finally:
        os.close(descriptor)
        path.unlink()
    times_s.sort()
    device, kind = _mount_of(folder)
    return DiskFacts(device, kind, times_s[_PROBES // 2] * 1e6, times_s[_PROBES * 99 // 100] * 1e6)


def _mount_of(folder: Path) -> tuple[str, str]:
    """Device and kind of the file system that a folder is on."""
    best, found = "", ("?", "?")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        inside = folder.resolve() == Path(point) or Path(point) in folder.resolve().parents
        if inside and len(point) >= len(best):
            kind, device = after.split()[:2]
            best, found = point, (device, kind)
    return found


class BareLog:
    """Batches of bytes, one behind the other, each synced. The oldest of three files is used again."""

    def __init__(self, folder: Path, file_bytes: int, batch_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._number = _FILES
        folder.mkdir()
        for number in range(1, _FILES + 1):
            descriptor = os.open(self._path(number), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.posix_fallocate(descriptor, 0, file_bytes)
            # Written once, so that it is as a file that was in use before. In pieces of the size of a batch:
            # the page cache remembers in which pieces a file was written, and goes on in these.
            for offset in range(0, file_bytes, batch_bytes):
                os.pwrite(descriptor, bytes(min(batch_bytes, file_bytes - offset)), offset)
            os.fsync(descriptor)
            os.close(descriptor)
        self._descriptor = os.open(self._path(self._number), os.O_RDWR)
        self._end = 0

    def write(self, data: bytes) -> None:
        """Append and sync."""
        if self._end + len(data) > self._file_bytes:
            self._turn()
        os.pwrite(self._descriptor, data, self._end)
        os.fdatasync(self._descriptor)
        self._end += len(data)

    def close(self) -> None:
        os.close(self._descriptor)

    def _turn(self) -> None:
        os.close(self._descriptor)
        self._number += 1
        path = self._path(self._number)
        self._path(self._number - _FILES).rename(path)
        directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(directory)
        os.close(directory)
        self._descriptor = os.open(path, os.O_RDWR)
        self._end = 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.log"


def drop_from_cache(folder: Path) -> None:
    """Let the files of a folder be read from the disk next time."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
