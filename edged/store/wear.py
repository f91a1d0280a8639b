"""What the flash has had to take: bytes written and syncs, in total and day by day.

CountedFiles stands before the files of a store, so that nothing is written that is not counted: records,
headers, notes, segments, checkpoints. What the file system adds of its own is not known here.

Rules: what failed is not counted. A day is one of UTC, by the clock of the device. Days are kept in the order
in which they came up, so a clock that was years off for a while leaves an odd day behind but pushes none out
early. The thread that commits and the one that seals count at the same time.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from edged.store.files import Bytes, File, Files, Names

DAYS_MAX: Final = 32
_DAY_NS: Final = 86_400 * 1_000_000_000


@dataclass(slots=True)
class DayOfWear:
    """One day; number 0 is 1970-01-01."""

    number: int
    bytes_written: int = 0
    syncs: int = 0


class WearCounter:
    """Counts for ever in total, and for the last DAYS_MAX days on which something was written."""

    def __init__(self) -> None:
        self.bytes_written = 0
        self.syncs = 0
        self._days: list[DayOfWear] = []
        # The one of them that something was counted for last.
        self._day: DayOfWear | None = None
        self._lock = threading.Lock()

    def add(self, bytes_written: int, syncs: int, now_ns: int) -> None:
        """Count what was written just now."""
        with self._lock:
            day = self._day
            if day is None or day.number != now_ns // _DAY_NS:
                day = self._day = self._find(now_ns // _DAY_NS)
            # As in _add(), which is not called here: this runs for every batch.
            day.bytes_written += bytes_written
            self.bytes_written += bytes_written
            if syncs:
                day.syncs += syncs
                self.syncs += syncs

    def days(self) -> list[DayOfWear]:
        """The days, in the order in which they came up."""
        with self._lock:
            return [DayOfWear(day.number, day.bytes_written, day.syncs) for day in self._days]

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values for a checkpoint."""
        with self._lock:
            return {
                "bytes": self.bytes_written,
                "syncs": self.syncs,
                "days": [[day.number, day.bytes_written, day.syncs] for day in self._days],
            }

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot; what was counted before this call comes on top."""
        with self._lock:
            since, self._days = self._days, [DayOfWear(*values) for values in snapshot["days"]]
            self._day = None
            self.bytes_written, self.syncs = snapshot["bytes"], snapshot["syncs"]
            for day in since:
                self._add(day.number, day.bytes_written, day.syncs)

    def _add(self, number: int, bytes_written: int, syncs: int) -> None:
        self.bytes_written += bytes_written
        self.syncs += syncs
        day = self._find(number)
        day.bytes_written += bytes_written
        day.syncs += syncs

    def _find(self, number: int) -> DayOfWear:
        day = next((day for day in reversed(self._days) if day.number == number), None)
        if day is None:
            day = DayOfWear(number)
            self._days.append(day)
            del self._days[:-DAYS_MAX]
        return day


class CountedFile:
    """A file that counts what is written to it."""

    __slots__ = ("_file", "_now_ns", "_wear")

    def __init__(self, file: File, wear: WearCounter, now_ns: Callable[[], int]) -> None:
        self._file = file
        self._wear = wear
        self._now_ns = now_ns

    def read_at(self, offset: int, size: int) -> bytes:
        """See `File`."""
        return self._file.read_at(offset, size)

    def write_at(self, offset: int, data: Bytes) -> None:
        """See `File`."""
        self._file.write_at(offset, data)
        self._wear.add(len(data), 0, self._now_ns())

    def sync(self) -> None:
        """See `File`."""
        self._file.sync()
        self._wear.add(0, 1, self._now_ns())

    def allocate(self, size: int) -> None:
        """See `File`."""
        self._file.allocate(size)

    def size(self) -> int:
        """See `File`."""
        return self._file.size()

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._file.truncate(size)

    def close(self) -> None:
        """See `File`."""
        self._file.close()


class CountedFiles:
    """The files of a store. The syncs of directories count as well: they are writes of the file system."""

    def __init__(self, files: Files, now_ns: Callable[[], int]) -> None:
        self.wear = WearCounter()
        self._files = files
        self._now_ns = now_ns

    def open(self, path: str) -> File:
        """See `Files`."""
        return CountedFile(self._files.open(path), self.wear, self._now_ns)

    def create(self, path: str) -> File:
        """See `Files`."""
        return CountedFile(self._files.create(path), self.wear, self._now_ns)

    def list(self, directory: str) -> Names:
        """See `Files`."""
        return self._files.list(directory)

    def make_directory(self, path: str) -> None:
        """See `Files`."""
        self._files.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        """See `Files`."""
        self._files.rename(old, new)

    def remove(self, path: str) -> None:
        """See `Files`."""
        self._files.remove(path)

    def remove_directory(self, path: str) -> None:
        """See `Files`."""
        self._files.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """See `Files`."""
        self._files.sync_directory(path)
        self.wear.add(0, 1, self._now_ns())

    def free_bytes(self) -> int:
        """See `Files`."""
        return self._files.free_bytes()

    def lock(self, path: str) -> File:
        """See `Files`."""
        return self._files.lock(path)
