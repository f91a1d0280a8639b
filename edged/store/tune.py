"""Measures a disk: how long a sync takes on growing and on preallocated files, and how fast it writes.

One file is written from end to end for the throughput, and then, as the journal does with its recycled files,
written over in batches of several sizes, each synced. The same is done on files that grow.
Rules: what is written is random, so that no controller compresses it away. The time is bounded as a whole:
every phase gets an even share of what is left, and makes one measurement at least. The files are removed
whatever happens. Clock and files are arguments.
"""

import os
from collections.abc import Callable
from typing import Final

from edged.core.disk_advice import DiskMeasurement, SyncSamples
from edged.store.errors import StoreFull
from edged.store.files import File, Files

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
BATCH_SIZES: Final = (4 * _KIB, 64 * _KIB, 256 * _KIB, _MIB)
SAMPLES_MAX: Final = 2000
FILE_BYTES_MAX: Final = 64 * _MIB
FILE_BYTES_MIN: Final = 4 * _MIB
FREE_SHARE: Final = 8  # of the free space, one part in so many is written to
_CHUNK_BYTES: Final = _MIB

Progress = Callable[[str, float], None]
"""What is being measured, and how much of everything is done, from 0 to 1."""


def measure(
    files: Files, name: str, seconds: float, clock: Callable[[], float], progress: Progress
) -> DiskMeasurement:
    """Measure for about so many seconds in a file called `name`. StoreFull without room; OSError else."""
    free_bytes = files.free_bytes()
    file_bytes = min(FILE_BYTES_MAX, free_bytes // FREE_SHARE // _CHUNK_BYTES * _CHUNK_BYTES)
    if file_bytes < FILE_BYTES_MIN:
        raise StoreFull(f"measuring needs {FREE_SHARE * FILE_BYTES_MIN // _MIB} MiB of free space")
    one = _Measurement(files, name, file_bytes, clock, progress, clock() + seconds, seconds)
    try:
        return one.run(free_bytes)
    finally:
        one.close()


class _Measurement:
    def __init__(
        self,
        files: Files,
        name: str,
        file_bytes: int,
        clock: Callable[[], float],
        progress: Progress,
        deadline_s: float,
        seconds: float,
    ) -> None:
        self._files = files
        self._name = name
        self._file_bytes = file_bytes
        self._clock = clock
        self._progress = progress
        self._deadline_s = deadline_s
        self._seconds = seconds
        self._file: File | None = None
        self._phases_left = 1 + 2 * len(BATCH_SIZES)
        self._data = os.urandom(_CHUNK_BYTES)

    def run(self, free_bytes: int) -> DiskMeasurement:
        throughput = self._sustained()
        samples = [self._batches(True, size) for size in BATCH_SIZES]
        samples += [self._batches(False, size) for size in BATCH_SIZES]
        self._progress("done", 1.0)
        return DiskMeasurement(tuple(samples), throughput, free_bytes)

    def close(self) -> None:
        """Remove the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._files.remove(self._name)

    def _fresh_file(self) -> File:
        self.close()
        self._file = self._files.create(self._name)
        return self._file

    def _begin(self) -> float:
        """When the phase that begins now must end."""
        now_s = self._clock()
        share_s = max(self._deadline_s - now_s, 0.0) / self._phases_left
        self._phases_left -= 1
        return now_s + share_s

    def _tell(self, what: str) -> None:
        left_s = max(self._deadline_s - self._clock(), 0.0)
        self._progress(what, 1.0 - left_s / self._seconds)

    def _sustained(self) -> float:
        """Bytes per second, from one end of a file to the other and again, with the syncs that it takes."""
        file = self._fresh_file()
        file.allocate(self._file_bytes)
        file.sync()
        end_s = self._begin()
        start_s = self._clock()
        written = 0
        while True:
            file.write_at(written % self._file_bytes, self._data)
            written += _CHUNK_BYTES
            if written % (4 * _CHUNK_BYTES) == 0:
                # In steps, or the last sync would take as long as all of the writing.
                file.sync()
                self._tell("throughput")
                if self._clock() >= end_s:
                    break
        return written / max(self._clock() - start_s, 1e-9)

    def _batches(self, is_preallocated: bool, batch_bytes: int) -> SyncSamples:
        # The preallocated file is the one of the throughput, written all over like a recycled journal file.
        file = self._file if is_preallocated else self._fresh_file()
        assert file is not None
        what = f"sync of {batch_bytes // _KIB} KiB, {'preallocated' if is_preallocated else 'growing'}"
        data = memoryview(self._data)[:batch_bytes]
        write_s: list[float] = []
        sync_s: list[float] = []
        end_s = self._begin()
        offset = 0
        while True:
            self._tell(what)
            started_s = self._clock()
            file.write_at(offset, data)
            written_s = self._clock()
            file.sync()
            synced_s = self._clock()
            write_s.append(written_s - started_s)
            sync_s.append(synced_s - written_s)
            if synced_s >= end_s or len(sync_s) >= SAMPLES_MAX:
                return SyncSamples(is_preallocated, batch_bytes, tuple(write_s), tuple(sync_s))
            offset += batch_bytes
            if offset + batch_bytes > self._file_bytes:
                offset = 0
                if not is_preallocated:
                    file = self._fresh_file()
