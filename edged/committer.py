"""The door of the edge: commands go to the journal in batches, and come back as outcomes.

Everything that one turn of the event loop produced is one batch. While the disk works on it the next one
gathers. On a disk that syncs fast a small batch is written right here, which spares two switches between
threads; others are written by a thread that waits for the disk, and wakes the event loop when it is done. Old
journal files are sealed in one more thread, and the next one is made ready in another.

Rules: all methods are called in the event loop's thread. At most two batches are on their way: the second one
is there for the moment when the thread has written the first, so that a fast disk does not wait for the loop.
`wake` is called in the other threads and must only make the loop call `collect()` soon.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from edged.core.limits import COMMIT_QUEUE_BYTES_MAX, UNSEALED_FILES_MAX

if TYPE_CHECKING:
    from edged.core.commands import Command
    from edged.core.wire import Publish
    from edged.store.batch import Batch, Done
    from edged.store.cycle import Cycle
    from edged.store.store import Store

INLINE_S: Final = 0.000_250
"""A disk that takes less than this for a small batch is not worth a thread: there and back is 50-100 µs."""
SLOW_S: Final = 0.002
"""A disk that took this long gets the thread for a while, so that the loop does not stand still again."""
SMALL_BATCH_BYTES: Final = 64 * 1024
AHEAD_BYTES: Final = 32 * 1024
"""So much is a batch worth a sync of its own: it need not wait for more until the one before is written, and
it is worth the thread on any disk, as the loop has work to do for it meanwhile."""
AHEAD_S: Final = 0.001
"""On a disk that takes longer, the time between two batches is nothing, and one sync for more is worth it."""
PATIENCE_BATCHES: Final = 256
"""How many batches the thread keeps after the disk was slow."""


class LocalCommitter:
    """Commits to the store of this node alone."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake
        self._on_their_way: deque[Batch] = deque()
        self._written: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        self._sealed: queue.SimpleQueue[Cycle] = queue.SimpleQueue()
        self._sealing: threading.Thread | None = None
        # Why old journal files could not be sealed when that was last tried.
        self.sealing_error: Exception | None = None
        self._upkeep: threading.Thread | None = None
        # The journal file in use when the one after it was last made ready.
        self._prepared_in = -1
        self._waiting_for_room: list[Callable[[], None]] = []
        self._work: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._synced_ns = store.options.now_ns()
        # When the batch that gathers is to be written at the latest; None while nothing waits for that.
        self.flush_due_ns: int | None = None
        self._thread_batches_left = 0
        # The measured time of a small batch, as a moving average; None before the first.
        self.commit_s: float | None = None
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
        store = self._store
        waiting_bytes = store.gathered_bytes + store.held_bytes
        if len(self._on_their_way) > 1:
            # The first one is at the disk; the second waits like what gathers.
            waiting_bytes += self._on_their_way[1].gathered_bytes
        return waiting_bytes >= COMMIT_QUEUE_BYTES_MAX or store.unsealed_files > UNSEALED_FILES_MAX

    def when_there_is_room(self, call: Callable[[], None]) -> None:
        """Call back once the queue has been taken."""
        self._waiting_for_room.append(call)

    def flush(self) -> None:
        """Start writing what has gathered, unless the disk is busy enough. Called at the end of every turn.

        With a group_commit_delay it waits for more; then flush() is called again at `flush_due_ns`.
        """
        store = self._store
        store.work()
        while store.has_gathered:
            if self._on_their_way or not self._is_inline() or self._is_waiting_for_more():
                self._send_more()
                break
            self._write_here(store.close_batch())
            store.work()
        if self._waiting_for_room:
            self._make_room()

    def collect(self) -> None:
        """Finish what the threads have done, and give them more. Called soon after each wake()."""
        while not self._written.empty():
            batch = self._written.get()
            self._on_their_way.popleft()
            if batch.error is None:
                # The disk goes on while this one is applied. After an error what gathered is refused as well.
                self._send_more()
            self._store.finish(batch)
        while not self._sealed.empty():
            self.sealing_error = self._sealed.get().error
            self._sealing = None
            self._store.end_cycle()
        self.flush()
        self._seal()
        self._catch_up()
        self._prepare()

    def tend(self, now_ns: int) -> None:
        """Whatever is due by the clock; called about every second."""
        self._seal()
        self._catch_up()
        is_turn_worth_it = self._store.turn_if_full(now_ns)
        if self._store.is_disk_waiting(now_ns):
            self._look_after_disk(now_ns)
        if not self.is_idle:
            return
        if is_turn_worth_it:
            # Publishes are refused, so nothing else may come that makes the journal turn.
            self._send(self._store.close_batch(is_sync_needed=True))
            return
        options = self._store.options
        if self._store.has_unsynced and now_ns - self._synced_ns >= options.sync_interval_ns:
            self._synced_ns = now_ns
            self._send(self._store.close_batch(is_sync_needed=True))
            return
        self._store.seal_tail()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is on its way."""
        return not self._on_their_way and not self._store.has_gathered

    def close(self) -> None:
        """Finish everything that was submitted, and end the threads."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        for thread in (self._sealing, self._upkeep):
            if thread is not None:
                thread.join()
        while not self._written.empty():
            self._store.finish(self._written.get())
        self._on_their_way.clear()
        while self._store.has_gathered:
            self._write_here(self._store.close_batch())
        if self._sealing is not None:
            self._sealing = None
            self._store.end_cycle()

    # --- inside ---

    def _is_ready(self) -> bool:
        """Whether there is a batch, and it need not wait for more."""
        return self._store.has_gathered and not self._is_waiting_for_more()

    def _send_more(self) -> None:
        """Give the thread what it may have."""
        while self._is_thread_free() and not self._is_inline() and self._is_ready():
            self._send(self._store.close_batch())

    def _is_thread_free(self) -> bool:
        if not self._on_their_way:
            return True
        is_fast = self.commit_s is not None and self.commit_s < AHEAD_S
        return len(self._on_their_way) == 1 and is_fast and self._store.gathered_bytes >= AHEAD_BYTES

    def _is_waiting_for_more(self) -> bool:
        options = self._store.options
        if not options.group_commit_delay_ns or not self._store.is_sync_needed:
            return False
        now_ns = options.now_ns()
        if self.flush_due_ns is None:
            self.flush_due_ns = now_ns + options.group_commit_delay_ns
        if now_ns < self.flush_due_ns and self._store.gathered_bytes < options.group_commit_bytes:
            return True
        self.flush_due_ns = None
        return False

    def _make_room(self) -> None:
        if not self.is_full:
            waiting, self._waiting_for_room = self._waiting_for_room, []
            for call in waiting:
                call()

    def _is_inline(self) -> bool:
        store = self._store
        if not store.is_sync_needed:
            return True
        if self.commit_s is None or self._thread_batches_left > 0:
            return False
        return self.commit_s < INLINE_S and store.gathered_bytes < AHEAD_BYTES

    def _send(self, batch: Batch) -> None:
        self._on_their_way.append(batch)
        self._thread_batches_left -= 1
        self.thread_batches += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
            self._thread.start()
        self._work.put(batch)

    def _write_here(self, batch: Batch) -> None:
        store = self._store
        if batch.is_sync_needed:
            started = perf_counter()
            store.write(batch)
            self._measure(perf_counter() - started, len(batch.buffer))
        else:
            # It says nothing about the disk, and whether such a batch is written here does not depend on it.
            store.write(batch)
        self.inline_batches += 1
        store.finish(batch)
        # What a new file brings; asked here as this runs for every small batch.
        if store.journal.number != self._prepared_in or store.is_cycle_due:
            self._seal()
            self._prepare()

    def _measure(self, took_s: float, size: int) -> None:
        if took_s > SLOW_S:
            self._thread_batches_left = PATIENCE_BATCHES
        if size <= SMALL_BATCH_BYTES:
            self.commit_s = took_s if self.commit_s is None else 0.9 * self.commit_s + 0.1 * took_s

    def _write_all(self) -> None:
        while True:
            batch = self._work.get()
            if batch is None:
                return
            started = perf_counter()
            self._store.write(batch)
            self._measure(perf_counter() - started, len(batch.buffer))
            self._written.put(batch)
            self._wake()

    def _seal(self) -> None:
        """Seal the next journal file if one is complete."""
        if self._sealing is None and self._store.is_cycle_due:
            cycle = self._store.begin_cycle()
            self._sealing = threading.Thread(target=self._run, args=(cycle,), name="sealing", daemon=True)
            self._sealing.start()

    def _catch_up(self) -> None:
        """Files were completed while others were being sealed, and nothing comes that completes another."""
        if self._sealing is None and self._store.is_border_missed and self.is_idle:
            self._store.journal.rotate()
            self._send(self._store.close_batch(is_sync_needed=True))

    def _prepare(self) -> None:
        """Have a file ready before the one in use is full."""
        journal = self._store.journal
        number = journal.number
        if number == self._prepared_in:
            return
        if journal.is_prepared or self._look_after_disk(self._store.options.now_ns()):
            self._prepared_in = number

    def _look_after_disk(self, now_ns: int) -> bool:
        """Do in a thread of its own what may take long and nobody waits for; False if one is still at it."""
        if self._upkeep is not None and self._upkeep.is_alive():
            return False
        target = self._store.look_after_disk
        self._upkeep = threading.Thread(target=target, args=(now_ns,), name="upkeep", daemon=True)
        self._upkeep.start()
        return True

    def _run(self, cycle: Cycle) -> None:
        cycle.run()
        self._sealed.put(cycle)
        self._wake()
