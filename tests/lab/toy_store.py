"""A write-ahead log of a page, right or wrong in one way: what the laboratory is tried on.

Records go to `log/N`; every few records a new file is begun, with its name durable before the first record.
Every so often the whole is written to `checkpoint` by way of a temporary file, and the old log files go.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from edged.store.files import File, Files

_HEADER: Final = struct.Struct("<IIQ")


@dataclass(frozen=True, slots=True)
class Faults:
    """What this log does wrong."""

    is_sync_missing: bool = False
    is_directory_sync_missing: bool = False
    is_acknowledged_before_sync: bool = False
    is_checkpoint_sync_missing: bool = False
    is_checksum_missing: bool = False
    is_log_removed_too_early: bool = False


class ToyStore:
    """Keeps a list of byte strings."""

    def __init__(self, files: Files, faults: Faults, file_records: int = 3) -> None:
        self._files = files
        self._faults = faults
        self._file_records = file_records
        files.make_directory("log")
        files.sync_directory("")
        self.records = recover(files, faults)
        self._file: File | None = None
        self._offset = 0
        self._in_file = 0
        self._names = files.list("log")
        self._number = int(self._names[-1]) + 1 if self._names else 0

    def append(self, data: bytes) -> None:
        """Returns when the record is durable, or so it says."""
        if self._file is None or self._in_file == self._file_records:
            self._rotate()
        assert self._file is not None
        seq = len(self.records) + 1
        checksum = 0 if self._faults.is_checksum_missing else zlib.crc32(struct.pack("<Q", seq) + data)
        record = _HEADER.pack(checksum, len(data), seq) + data
        self._file.write_at(self._offset, record)
        self._offset += len(record)
        self._in_file += 1
        self.records.append(data)
        if not self._faults.is_sync_missing:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rotate(self) -> None:
        self.close()
        if self._number and self._number % 2 == 0:
            self._write_checkpoint()
        name = f"{self._number:06}"
        self._file = self._files.create(f"log/{name}")
        if not self._faults.is_directory_sync_missing:
            self._files.sync_directory("log")
        self._names.append(name)
        self._number += 1
        self._offset = self._in_file = 0

    def _write_checkpoint(self) -> None:
        blob = b"".join(struct.pack("<I", len(data)) + data for data in self.records)
        if "checkpoint.tmp" in self._files.list(""):
            self._files.remove("checkpoint.tmp")
        file = self._files.create("checkpoint.tmp")
        file.write_at(0, struct.pack("<II", zlib.crc32(blob), len(blob)) + blob)
        if not self._faults.is_checkpoint_sync_missing:
            file.sync()
        file.close()
        self._files.rename("checkpoint.tmp", "checkpoint")
        if not self._faults.is_log_removed_too_early:
            self._files.sync_directory("")
        for name in self._names:
            self._files.remove(f"log/{name}")
        self._names = []
        self._files.sync_directory("log")
        self._files.sync_directory("")


def recover(files: Files, faults: Faults) -> list[bytes]:
    """All records: those of the checkpoint, and those of the log that follow on."""
    records: list[bytes] = []
    if "checkpoint" in files.list(""):
        content = _read_all(files, "checkpoint")
        if len(content) >= 8:
            checksum, size = struct.unpack_from("<II", content)
            blob = content[8 : 8 + size]
            if zlib.crc32(blob) == checksum:
                records = _split(blob)
    for name in files.list("log"):
        content = _read_all(files, f"log/{name}")
        offset = 0
        while offset + _HEADER.size <= len(content):
            checksum, size, seq = _HEADER.unpack_from(content, offset)
            offset += _HEADER.size
            data = content[offset : offset + size]
            if seq == 0 or len(data) < size:
                break
            if not faults.is_checksum_missing and zlib.crc32(struct.pack("<Q", seq) + data) != checksum:
                break
            offset += size
            # A name that was to go may be back; what it holds is in the checkpoint already.
            if seq == len(records) + 1:
                records.append(data)
    return records


def _split(blob: bytes) -> list[bytes]:
    found = []
    offset = 0
    while offset < len(blob):
        (size,) = struct.unpack_from("<I", blob, offset)
        found.append(blob[offset + 4 : offset + 4 + size])
        offset += 4 + size
    return found


def _read_all(files: Files, path: str) -> bytes:
    file = files.open(path)
    content = file.read_at(0, file.size())
    file.close()
    return content
