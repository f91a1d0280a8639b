"""Appending with a sync for every batch, as a part of what the bare disk does with the same bytes.

The disk is not the same from one second to the next, so slices of a bare loop and of ours take turns: bare,
ours, bare, ours, ..., bare. Each slice of ours is compared with its two neighbours, and the median of that
counts. Files are recycled in the bare loop as in the journal; what empties the store in between is not on the
clock.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.store_disk import BareLog
from benchmarks.store_figures import Figure, at_least, pair_ratios
from benchmarks.store_load import STREAM, expect_stored, messages_of, open_store, recycle
from edged.committer import LocalCommitter
from edged.core.batch_record import Applied, BatchRecord
from edged.core.frame_twins import FrameBuffer
from edged.core.frames import BATCH
from edged.core.wire import Publish
from edged.store.files import RealFiles
from edged.store.journal import Journal
from edged.store.journal_file import JOURNAL
from edged.store.options import StoreOptions
from edged.store.store import Store

BATCH_MESSAGES: Final = 256
PAYLOAD_BYTES: Final = 128
OF_BARE_MIN: Final = 0.6
_SLICE_BATCHES: Final = 128
_PART: Final = "append"
_BARE: Final = "bare, a batch"


class UnsealedCommitter(LocalCommitter):
    """Leaves complete journal files alone: whoever measures says when they are sealed."""

    def _seal(self) -> None:
        pass


class ThreadCommitter(UnsealedCommitter):
    """Gives every batch to the thread, however fast the disk is."""

    def _is_inline(self) -> bool:
        return False


class InlineCommitter(UnsealedCommitter):
    """Writes every batch right here, however slow the disk is."""

    def _is_inline(self) -> bool:
        return True


class CommitLoop:
    """Stands for the event loop around a committer: submits, and waits to be woken."""

    def __init__(self, store: Store, kind: type[LocalCommitter] = LocalCommitter) -> None:
        self.store = store
        self._event = os.eventfd(0)
        self.committer = kind(store, lambda: os.eventfd_write(self._event, 1))
        self._under_way = 0

    def run(self, messages: Sequence[Publish], batches: int, at_a_time: int = 2) -> None:
        """Submit the messages so many times, with at most `at_a_time` of them not yet answered."""
        for _ in range(batches):
            while self._under_way >= at_a_time or self.committer.is_full:
                self._wait()
            self._under_way += 1
            self.committer.submit_appends(STREAM, messages, time.time_ns(), self._done)
            self.committer.flush()
        while self._under_way:
            self._wait()

    def close(self) -> None:
        self.committer.close()
        self.store.close()
        os.close(self._event)

    def _wait(self) -> None:
        os.eventfd_read(self._event)
        self.committer.collect()

    def _done(self, outcomes: object) -> None:
        expect_stored(outcomes)
        self._under_way -= 1


class Contender(Protocol):
    """One way to append."""

    def write(self, batches: int) -> None:
        """On the clock."""

    def rest(self) -> None:
        """Between slices, not on the clock."""

    def close(self) -> None: ...


class BareContender:
    """Writes and syncs bytes that are as many as those of a batch."""

    def __init__(self, folder: Path, batch_bytes: int, file_bytes: int) -> None:
        self._log = BareLog(folder, file_bytes, batch_bytes)
        self._data = os.urandom(batch_bytes)

    def write(self, batches: int) -> None:
        for _ in range(batches):
            self._log.write(self._data)

    def rest(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        self._log.close()


class JournalContender:
    """Frames and the journal, and nothing behind it. Files are free as soon as they are full."""

    def __init__(self, folder: Path, file_bytes: int, *, is_pipelined: bool) -> None:
        folder.mkdir()
        files = RealFiles(str(folder))
        files.make_directory(JOURNAL)
        draw = StoreOptions().draw_nonce
        self._journal = Journal(files, file_bytes, 1, draw, time.time_ns)
        self._messages = messages_of(BATCH_MESSAGES, PAYLOAD_BYTES)
        self._next_index = 1
        self._number = 0
        self._is_pipelined = is_pipelined
        self._work: queue.SimpleQueue[FrameBuffer | None] = queue.SimpleQueue()
        self._written: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()
        # Once around, so that files are used again from here on.
        while self._journal.number < 4:
            self.write(1)

    def write(self, batches: int) -> None:
        if not self._is_pipelined:
            for _ in range(batches):
                self._commit(self._gather())
            return
        for number in range(batches):
            buffer = self._gather()
            if number:
                self._wait_written()
            self._work.put(buffer)
        self._wait_written()

    def rest(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()
        self._journal.sync()
        self._journal.let_go()

    def _gather(self) -> FrameBuffer:
        buffer = FrameBuffer()
        buffer.add_appends(STREAM, self._next_index, time.time_ns(), self._messages)
        self._next_index += BATCH_MESSAGES
        index = self._next_index
        applied = (Applied(STREAM, index, index, ()),)
        record = BatchRecord(self._journal.number, self._journal.synced, time.time_ns(), applied)
        buffer.add(BATCH, 0, index, record.encode())
        return buffer

    def _commit(self, buffer: FrameBuffer) -> None:
        place = self._journal.commit(buffer)
        if place.file != self._number:
            self._number = place.file
            if place.file > 2:
                self._journal.reuse(place.file - 2)

    def _write_all(self) -> None:
        while (buffer := self._work.get()) is not None:
            try:
                self._commit(buffer)
            except Exception as error:
                self._written.put(error)
            else:
                self._written.put(None)

    def _wait_written(self) -> None:
        error = self._written.get()
        if error is not None:
            raise error


class StoreContender:
    """The whole store behind a committer: gathered, written, applied, and everybody told."""

    def __init__(self, folder: Path, file_bytes: int, kind: type[LocalCommitter]) -> None:
        store = open_store(folder, options=StoreOptions(journal_file_bytes=file_bytes))
        self._loop = CommitLoop(store, kind)
        self._messages = messages_of(BATCH_MESSAGES, PAYLOAD_BYTES)
        self._is_sealing = not issubclass(kind, UnsealedCommitter)
        self._number = 0
        self.rest()

    def write(self, batches: int) -> None:
        self._loop.run(self._messages, batches)

    def rest(self) -> None:
        """Empty the store when the journal has turned to the last file that is to be used again."""
        store = self._loop.store
        if not self._is_sealing and store.journal.number > self._number:
            recycle(store)
            self._number = store.journal.number

    def close(self) -> None:
        self._loop.close()


CASES: Final[dict[str, Callable[[Path, int], Contender]]] = {
    "journal, inline": lambda folder, size: JournalContender(folder, size, is_pipelined=False),
    "journal, pipelined": lambda folder, size: JournalContender(folder, size, is_pipelined=True),
    "store, inline": lambda folder, size: StoreContender(folder, size, InlineCommitter),
    "store, pipelined": lambda folder, size: StoreContender(folder, size, ThreadCommitter),
    "store, as it chooses": lambda folder, size: StoreContender(folder, size, UnsealedCommitter),
    "store, sealing beside it": lambda folder, size: StoreContender(folder, size, LocalCommitter),
}


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """How much of it."""

    slices: int = 24
    slice_batches: int = _SLICE_BATCHES
    file_bytes: int = StoreOptions().journal_file_bytes


def measure(folder: Path, plan: AppendPlan, progress: Callable[[str], None]) -> Iterator[Figure]:
    """Every case against the bare loop."""
    for number, (case, make) in enumerate(CASES.items()):
        place = folder / f"append-{number}"
        place.mkdir()
        with _closing(BareContender(place / "bare", batch_bytes(), plan.file_bytes)) as bare:
            bare.write(plan.slice_batches)
            with _closing(make(place / "ours", plan.file_bytes)) as ours:
                bare_s, ours_s = _take_turns(bare, ours, plan)
        each_s = [seconds / plan.slice_batches for seconds in ours_s]
        yield Figure(_PART, case, "of bare", pair_ratios(bare_s, ours_s), goal=at_least(OF_BARE_MIN))
        yield Figure(_PART, case, "of bare, sums", (sum(bare_s[1:]) / sum(ours_s),))
        bare_us = tuple(seconds / plan.slice_batches * 1e6 for seconds in bare_s)
        yield Figure(_PART, case, _BARE, bare_us, "µs")
        yield Figure(_PART, case, "messages", tuple(BATCH_MESSAGES / one for one in each_s), "/s")
        progress(case)


def disk_change(figures: Sequence[Figure]) -> float:
    """How many times slower the bare loop was in its slowest slice than in its fastest one."""
    bare_us = [value for figure in figures if figure.name == _BARE for value in figure.values]
    return max(bare_us) / min(bare_us) if bare_us else 1.0


def batch_bytes() -> int:
    """How many bytes the journal gets for a batch."""
    buffer = FrameBuffer()
    buffer.add_appends(STREAM, 1, time.time_ns(), messages_of(BATCH_MESSAGES, PAYLOAD_BYTES))
    record = BatchRecord(1, 1 << 24, time.time_ns(), (Applied(STREAM, 1 << 20, 1 << 20, ()),))
    buffer.add(BATCH, 0, 1, record.encode())
    return len(buffer)


def _take_turns(bare: Contender, ours: Contender, plan: AppendPlan) -> tuple[list[float], list[float]]:
    bare_s, ours_s = [], []
    for _ in range(plan.slices):
        bare_s.append(_time(bare, plan.slice_batches))
        ours.rest()
        ours_s.append(_time(ours, plan.slice_batches))
    bare_s.append(_time(bare, plan.slice_batches))
    return bare_s, ours_s


def _time(contender: Contender, batches: int) -> float:
    started_s = time.perf_counter()
    contender.write(batches)
    return time.perf_counter() - started_s


@contextmanager
def _closing(contender: Any) -> Iterator[Any]:
    try:
        yield contender
    finally:
        contender.close()
