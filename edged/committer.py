"""The door of the edge: commands go to the journal in batches, and come back as outcomes.

Everything that one turn of the event loop produced is one batch. While the disk works on it the next one
gathers. On a disk that syncs fast the batch is written right here, which spares two switches between threads;
on others a thread of its own waits for the disk, and wakes the event loop when it is done.

Rules: all methods are called in the event loop's thread. One batch is on its way at a time. `wake` is called
in the other thread and must only make the loop call `collect()` soon.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from edged.core.limits import COMMIT_QUEUE_BYTES_MAX

if TYPE_CHECKING:
    from edged.core.commands import Command
    from edged.core.wire import Publish
    from edged.store.batch import Batch, Done
    from edged.store.store import Store

INLINE_S: Final = 0.000_250
"""A disk that takes less than this for a small batch is not worth a thread: there and back is 50-100 µs."""
SLOW_S: Final = 0.002
"""A disk that took this long gets the thread for a while, so that the loop does not stand still again."""
SMALL_BATCH_BYTES: Final = 64 * 1024
PATIENCE_BATCHES: Final = 256
"""How many batches the thread keeps after the disk was slow."""


class LocalCommitter:
    """Commits to the store of this node alone."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake
        self._on_its_way: Batch | None = None
        self._written: Batch | None = None
        self._waiting_for_room: list[Callable[[], None]] = []
        self._work: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # The measured time of a small batch, as a moving average; None before the first.
        self.commit_s: float | None = None
        self._thread_batches_left = 0
        self.inline_batches = 0
        self.thread_batches = 0

    # --- what the server calls ---

    def submit(self, group: int, command: Command, done: Done) -> None:
        """Commit a command; `done` is told the outcome."""
        self._store.add(group, command, done)

    def submit_appends(self, group: int, messages: Sequence[Publish], ts_ns: int, done: Done) -> None:
        """Commit messages for one stream; `done` is told an outcome for each."""
        self._store.add_appends(group, messages, ts_ns, done)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that whoever submits should stop reading until there is room."""
        return self._store.gathered_bytes >= COMMIT_QUEUE_BYTES_MAX

    def when_there_is_room(self, call: Callable[[], None]) -> None:
        """Call back once the queue has been taken."""
        self._waiting_for_room.append(call)

    def flush(self) -> None:
        """Start writing what has gathered, unless a batch is on its way. Called at the end of every turn."""
        store = self._store
        while self._on_its_way is None and store.has_gathered:
            batch = store.close_batch()
            for call in self._take_waiting():
                call()
            if self._is_inline(len(batch.buffer)):
                self._write_here(batch)
            else:
                self._on_its_way = batch
                self._start_thread()
                self.thread_batches += 1
                self._work.put(batch)

    def collect(self) -> None:
        """Finish the batch that the thread has written, and go on with the next."""
        batch, self._written = self._written, None
        if batch is None:
            return
        self._on_its_way = None
        self._store.finish(batch)
        self.flush()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is on its way."""
        return self._on_its_way is None and not self._store.has_gathered

    def close(self) -> None:
        """Finish what is on its way, and end the thread. What gathers afterwards is not written."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        self.collect_last()

    def collect_last(self) -> None:
        """Finish everything that was submitted, here and now."""
        store = self._store
        batch, self._written, self._on_its_way = self._written, None, None
        if batch is not None:
            store.finish(batch)
        while store.has_gathered:
            self._write_here(store.close_batch())

    # --- inside ---

    def _take_waiting(self) -> list[Callable[[], None]]:
        waiting, self._waiting_for_room = self._waiting_for_room, []
        return waiting

    def _is_inline(self, size: int) -> bool:
        if not self._store.is_sync_needed:
            return True
        if self.commit_s is None or self._thread_batches_left > 0:
            self._thread_batches_left -= 1
            return False
        return self.commit_s < INLINE_S and size <= SMALL_BATCH_BYTES

    def _write_here(self, batch: Batch) -> None:
        started = perf_counter()
        self._store.write(batch)
        self._measure(perf_counter() - started, len(batch.buffer))
        self.inline_batches += 1
        self._store.finish(batch)

    def _measure(self, took_s: float, size: int) -> None:
        if took_s > SLOW_S:
            self._thread_batches_left = PATIENCE_BATCHES
        if size <= SMALL_BATCH_BYTES:
            self.commit_s = took_s if self.commit_s is None else 0.9 * self.commit_s + 0.1 * took_s

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
            self._thread.start()

    def _write_all(self) -> None:
        while True:
            batch = self._work.get()
            if batch is None:
                return
            started = perf_counter()
            self._store.write(batch)
            self._measure(perf_counter() - started, len(batch.buffer))
            self._written = batch
            self._wake()
