"""What the store's benchmarks have in common: a store with one stream, and messages for it.

`recycle()` brings a store to where it is in long use: nothing in it, and journal files to be used again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edged.core.commands import Purge, PutStream
from edged.core.wire import Publish
from edged.store.errors import StoreError
from edged.store.files import RealFiles
from edged.store.group import CATALOG
from edged.store.journal_file import JOURNAL, file_numbers, file_path, spare_names
from edged.store.options import StoreOptions
from edged.store.store import Store

STREAM: Final = 1
_STREAM_ID: Final = bytes(range(16))
_CHUNK_BYTES: Final = 1 << 20


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
    """Empty the store, and go on in a journal file that was in use before, as is the one that comes next."""
    while True:
        empty(store)
        _overwrite_free_files(store)
        _fill_file(store)
        if spare_names(store.files.list(JOURNAL)):
            return
        _fill_file(store)


def _overwrite_free_files(store: Store) -> None:
    """In long use every file was written to its end once. A sync is slower where nothing was ever written."""
    names = store.files.list(JOURNAL)
    ahead = [file_path(number) for number in file_numbers(names) if number > store.journal.number]
    for path in (*ahead, *(f"{JOURNAL}/{name}" for name in spare_names(names))):
        file = store.files.open(path)
        for offset in range(0, file.size(), _CHUNK_BYTES):
            file.write_at(offset, bytes(min(_CHUNK_BYTES, file.size() - offset)))
        file.sync()
        file.close()


def _fill_file(store: Store) -> None:
    """Append until the journal turns to its next file."""
    number = store.journal.number
    messages = messages_of(256, 128)
    while store.journal.number == number:
        store.add_appends(STREAM, messages, store.options.now_ns(), expect_stored)
        store.settle()


def empty(store: Store) -> None:
    """Remove all messages, and seal until nothing is left of them but files to be used again."""
    # Two checkpoints are kept, with the journal behind the older one: only the second makes files free. And
    # what waits to be sealed now was alive when its border was passed.
    for _ in range(3):
        purge(store)
        store.journal.rotate()
        purge(store)
        store.maintain()


def purge(store: Store) -> None:
    """Remove all messages."""
    for outcome in store.commit([(STREAM, Purge(0, b"", 0))]):
        assert isinstance(outcome, int), outcome
