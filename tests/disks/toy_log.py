"""The smallest store that keeps its promises, and flawed ones that break them: they prove the harness.

A log of batches, each with size and checksum, synced before the answer; the state is the model. It is as slow
and as hungry as it looks. With a Flaw it does one thing wrong, which the harness has to find out.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Any, Final

import msgpack

from tests.disks.model import Model, StreamState
from tests.disks.operations import (
    BROKEN,
    FULL,
    UNKNOWN,
    Acknowledge,
    Operation,
    Outcome,
    Publish,
    Refused,
    packed,
    unpacked,
)

_HEAD: Final = Struct("<II")
_RESERVE_BYTES: Final = 1 << 20


class Flaw(Enum):
    """What a toy does wrong."""

    NONE = "toy"
    NEVER_SYNCS = "toy-never-syncs"
    FORGETS_ACKS = "toy-forgets-acks"
    FORGETS_IDS = "toy-forgets-ids"
    SYNCS_AGAIN = "toy-syncs-again"
    STAYS_FULL = "toy-stays-full"


class ToyLog:
    """A store in a folder: `0001.log`, `0002.log` and so on, and a reserve for when the disk is full."""

    def __init__(self, root: Path, flaw: Flaw, calls: Any) -> None:
        self._root = root
        self._flaw = flaw
        self._calls = calls
        self._model = Model()
        self._is_broken = False
        self._size = self._end = 0
        root.mkdir(exist_ok=True)
        for path in sorted(root.glob("*.log")):
            self._replay(path)
        if flaw is Flaw.FORGETS_IDS:
            for stream in self._model.streams.values():
                stream.message_ids.clear()
        self._number = len(list(root.glob("*.log")))
        self._make_reserve()
        self._start_file()

    def commit(self, operations: Sequence[Operation]) -> list[Outcome]:
        if self._is_broken:
            return [Refused(BROKEN, "a sync has failed")] * len(operations)
        try:
            self._write(self._frame(operations))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                return self._break(operations, error)
            if self._flaw is Flaw.STAYS_FULL:
                self._is_broken = True
            if any(isinstance(operation, Publish) for operation in operations) or not self._release_reserve():
                return [Refused(FULL, str(error))] * len(operations)
            return self.commit(operations)
        try:
            self._sync()
        except OSError as error:
            return self._break(operations, error)
        self._size = self._end
        return [self._model.apply(operation) for operation in operations]

    def states(self) -> dict[int, StreamState]:
        return self._model.streams

    def rotate(self) -> None:
        if not self._is_broken:
            self._calls.close(self._file)
            self._start_file()

    def close(self) -> None:
        self._calls.close(self._file)

    def _frame(self, operations: Sequence[Operation]) -> bytes:
        kept = list(operations)
        if self._flaw is Flaw.FORGETS_ACKS:
            kept = [operation for operation in kept if not isinstance(operation, Acknowledge)]
        body: bytes = msgpack.packb(packed(kept))
        return _HEAD.pack(len(body), zlib.crc32(body)) + body

    def _write(self, frame: bytes) -> None:
        done = 0
        try:
            while done < len(frame):
                done += self._calls.pwrite(self._file, frame[done:], self._size + done)
        except OSError:
            self._calls.ftruncate(self._file, self._size)
            raise
        self._end = self._size + len(frame)

    def _sync(self) -> None:
        if self._flaw is Flaw.NEVER_SYNCS:
            return
        try:
            self._calls.fdatasync(self._file)
        except OSError:
            if self._flaw is not Flaw.SYNCS_AGAIN:
                raise
            self._calls.fdatasync(self._file)

    def _break(self, operations: Sequence[Operation], error: OSError) -> list[Outcome]:
        self._is_broken = True
        return [Refused(UNKNOWN, str(error))] * len(operations)

    def _replay(self, path: Path) -> None:
        data, place = path.read_bytes(), 0
        while place + _HEAD.size <= len(data):
            size, checksum = _HEAD.unpack_from(data, place)
            body = data[place + _HEAD.size : place + _HEAD.size + size]
            if size == 0 or len(body) < size or zlib.crc32(body) != checksum:
                break
            for operation in unpacked(msgpack.unpackb(body)):
                self._model.apply(operation)
            place += _HEAD.size + size

    def _start_file(self) -> None:
        self._number += 1
        path = self._root / f"{self._number:04}.log"
        self._file = self._calls.open(str(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = self._end = 0
        self._sync_folder(self._root)
        self._sync_folder(self._root.parent)

    def _sync_folder(self, path: Path) -> None:
        if self._flaw is Flaw.NEVER_SYNCS:
            return
        folder = self._calls.open(str(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._calls.fsync(folder)
        self._calls.close(folder)

    def _make_reserve(self) -> None:
        path = self._root / "reserve"
        if not path.exists():
            path.write_bytes(bytes(_RESERVE_BYTES))

    def _release_reserve(self) -> bool:
        path = self._root / "reserve"
        is_there = path.exists()
        path.unlink(missing_ok=True)
        return is_there
