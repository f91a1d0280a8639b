"""A store whose process is killed again and again does not pile up journal files for ever."""

from __future__ import annotations

import threading
from itertools import count

from edged.committer import LocalCommitter
from edged.core import commands
from edged.core.limits import UNSEALED_FILES_MAX
from edged.store.options import StoreOptions
from edged.store.store import Append, Store
from tests.lab.fake_disk import FakeDisk

KILLS = 2 * UNSEALED_FILES_MAX
DEADLINE_S = 10


def test_after_many_kills_the_files_are_sealed_and_messages_are_taken() -> None:
    nonces = count(5)
    options = StoreOptions(draw_nonce=lambda: next(nonces) << 33 | 1, journal_file_bytes=64 * 1024)
    disk = FakeDisk()
    for number in range(KILLS):
        store = Store.open(disk, options)
        if not number:
            store.commit([(0, commands.PutStream(1, b"s" * 16, "A", "S", {}))])
        store.commit([(1, Append(b"a", 0, b"x"))])
        # What a process leaves behind that ends here.
        disk = disk.copy()
    store = Store.open(disk, options)
    assert store.unsealed_files > UNSEALED_FILES_MAX
    woken = threading.Semaphore(0)
    committer = LocalCommitter(store, woken.release)
    # What is done every second.
    committer.tend(options.now_ns())
    while committer.is_full:
        assert woken.acquire(timeout=DEADLINE_S), "nothing will ever be sealed"
        committer.collect()
    committer.close()
    assert store.stream(1).log.message_count == KILLS
    store.close()
