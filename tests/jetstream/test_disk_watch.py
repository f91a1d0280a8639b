"""What goes wrong with the store is told to the operator, once, and so is its end."""

from __future__ import annotations

import io
import threading

from edged.committer import LocalCommitter
from edged.config.options import LoggingOptions
from edged.server.jetstream.disk_watch import DiskWatch
from edged.server.log import Log
from edged.store.store import Store
from tests.store.test_cycle import RETRY_NS, FaultyDisk, until_cycle_is_due
from tests.store.test_store import Clock, options_with, put_stream

WAIT_S = 20.0


def test_a_store_that_cannot_seal_says_so_until_it_can() -> None:
    disk, clock, shown, woken = FaultyDisk(), Clock(), io.StringIO(), threading.Event()
    store = Store.open(disk, options_with(clock))
    put_stream(store, 1)
    committer = LocalCommitter(store, woken.set)
    watch = DiskWatch(store, committer, Log(LoggingOptions(), shown))

    def seal() -> None:
        committer.tend(clock.now_ns)
        # Whatever else is written wakes as well.
        while committer._sealing is not None:
            assert woken.wait(WAIT_S)
            woken.clear()
            committer.collect()
        watch.look()
        watch.look()

    watch.look()
    assert not shown.getvalue()
    until_cycle_is_due(store)
    disk.is_faulty = True
    seal()
    (line,) = shown.getvalue().splitlines()
    assert "cannot be sealed" in line and "a fault" in line
    disk.is_faulty = False
    clock.now_ns += RETRY_NS
    seal()
    assert [line.split("] ")[-1][:5] for line in shown.getvalue().splitlines()] == ["old f", "over:"]
    committer.close()
    store.close()
