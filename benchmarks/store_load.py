"""What the store's benchmarks have in common: a store with one stream, messages for it, and its maintenance.

`Sealing` moves complete journal files to segments in a thread beside the commits, as a daemon does.
`recycle()` brings a store to where it is in long use: nothing in it, and journal files to be used again.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from edged.core.commands import Purge, PutStream
from edged.core.wire import Publish
from edged.store.cycle import Cycle
from edged.store.errors import StoreError
from edged.store.files import RealFiles
from edged.store.group import CATALOG
from edged.store.store import Store, StoreOptions

STREAM: Final = 1
_STREAM_ID: Final = bytes(range(16))


def open_store(folder: Path, *, is_new: bool = True, options: StoreOptions | None = None) -> Store:
    """The store in a folder, with its stream."""
    folder.mkdir(exist_ok=not is_new)
    store = Store.open(RealFiles(str(folder)), options or StoreOptions())
    if is_new:
        outcomes = store.commit([(CATALOG, PutStream(STREAM, _STREAM_ID, "BENCH", "STREAM", {}))])
        assert outcomes == [0], outcomes
    return store


def messages_of(count: int, payload_bytes: int, subjects: int = 10, first: int = 0) -> list[Publish]:
    """Messages whose subjects take turns."""
    payload = b"x" * payload_bytes
    return [(b"bench.%d" % (number % subjects), None, -1, payload) for number in range(first, first + count)]


def expect_stored(outcomes: object) -> None:
    """Told what a batch came to: figures of one that was refused would be worth nothing."""
    if isinstance(outcomes, StoreError):
        raise outcomes


def recycle(store: Store) -> None:
    """Empty the store, and fill a journal file until the next one is a file that was in use before."""
    # Two checkpoints are kept, with the journal behind the older one: only the second makes files free.
    for _ in range(2):
        purge(store)
        store.journal.rotate()
        purge(store)
        store.maintain()
    number = store.journal.number
    messages = messages_of(256, 128)
    while store.journal.number == number:
        store.add_appends(STREAM, messages, store.options.now_ns(), expect_stored)
        batch = store.close_batch()
        store.write(batch)
        store.finish(batch)


def purge(store: Store) -> None:
    """Remove all messages."""
    for outcome in store.commit([(STREAM, Purge(0, b"", 0))]):
        assert isinstance(outcome, int), outcome


class Sealing:
    """Runs the cycles of a store in the background, one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: tuple[Cycle, threading.Thread] | None = None
        self.cycles = 0
        self.bytes_written = 0

    def advance(self) -> None:
        """Take over what was sealed, and seal the next file if there is one. Called after each batch."""
        if self._running is not None and self._running[1].is_alive():
            return
        self.wait()
        if self._store.is_cycle_due:
            cycle = self._store.begin_cycle()
            thread = threading.Thread(target=cycle.run, daemon=True)
            self._running = cycle, thread
            thread.start()

    def wait(self) -> None:
        """Until the cycle under way is done."""
        if self._running is None:
            return
        cycle, thread = self._running
        thread.join()
        self._running = None
        self._store.end_cycle()
        if cycle.error is not None:
            raise cycle.error
        self.cycles += 1
        self.bytes_written += cycle.bytes_written
