"""A store whose process is killed again and again does not pile up journal files."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from edged.committer import LocalCommitter
from edged.core import commands
from edged.core.limits import UNSEALED_FILES_MAX
from edged.store.files import RealFiles
from edged.store.options import StoreOptions
from edged.store.store import Append, Store

STARTS = 2 * UNSEALED_FILES_MAX
DEADLINE_S = 20


def test_after_many_kills_messages_are_still_taken(tmp_path: Path) -> None:
    options = StoreOptions(journal_file_bytes=64 * 1024)
    directory = tmp_path / "0"
    for number in range(STARTS):
        directory.mkdir(exist_ok=True)
        store = Store.open(RealFiles(str(directory)), options)
        if not number:
            store.commit([(0, commands.PutStream(1, b"s" * 16, "A", "S", {}))])
        store.commit([(1, Append(b"a", 0, b"x"))])
        woken = threading.Semaphore(0)
        committer = LocalCommitter(store, woken.release)
        committer.tend(options.now_ns())
        while store.unsealed_files > UNSEALED_FILES_MAX // 2:
            assert woken.acquire(timeout=DEADLINE_S), store.unsealed_files
            committer.collect()
        assert not committer.is_full
        # What a process that is killed here leaves behind.
        directory = tmp_path / str(number + 1)
        shutil.copytree(tmp_path / str(number), directory)
        committer.close()
        store.close()
    store = Store.open(RealFiles(str(directory)), options)
    assert store.stream(1).log.message_count == STARTS
    store.close()
