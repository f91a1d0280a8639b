"""Stores to be damaged, and what is in a store: for the tests of fsck and inspect."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edged.core.commands import Ack, Delete, Dispatch, Purge, PutConsumer, PutStream, RemoveStream
from edged.core.message import Message
from edged.core.stream_machine import StreamMachine
from edged.store.files import RealFiles
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_found import chain_from
from edged.store.group import CATALOG
from edged.store.journal_file import file_path
from edged.store.journal_reader import read_last
from edged.store.options import StoreOptions
from edged.store.store import Append, Store

START_NS = 1_700_000_000_000_000_000
ORDERS, LOGS, GONE = 1, 2, 3
ORDERS_ID, LOGS_ID, GONE_ID = b"\x01" * 16, b"\x02" * 16, b"\x03" * 16
LOGS_MAX = 30


class Clock:
    """A thousandth of a second passes with every look."""

    def __init__(self) -> None:
        self.now_ns = START_NS

    def __call__(self) -> int:
        self.now_ns += 1_000_000
        return self.now_ns


def open_store(root: Path, now_ns: Callable[[], int] | None = None) -> Store:
    """A store with small files, and with a clock and a chance of its own."""
    chance = random.Random(7)
    options = StoreOptions(
        journal_file_bytes=12_000, now_ns=now_ns or Clock(), draw_nonce=lambda: chance.getrandbits(64) | 1
    )
    return Store.open(RealFiles(str(root)), options)


def fill(store: Store, count: int) -> None:
    """Two streams and a consumer, with messages, ids, deletions and refusals, over many journal files."""
    store.commit(
        [
            (CATALOG, PutStream(ORDERS, ORDERS_ID, "A", "ORDERS", {"subjects": ["o.>"]})),
            (CATALOG, PutStream(LOGS, LOGS_ID, "A", "LOGS", {"max_msgs": LOGS_MAX, "discard": "new"})),
            (CATALOG, PutStream(GONE, GONE_ID, "A", "GONE", {})),
        ]
    )
    store.commit([(ORDERS, PutConsumer(1, "worker", {"ack_policy": "explicit"}))])
    for number in range(count):
        headers = b"NATS/1.0\r\nNats-Msg-Id: id-%d\r\n\r\n" % number
        order = Append(b"o.%d" % (number % 5), len(headers), headers + b"order %d " % number * 8)
        store.commit([(ORDERS, order), (LOGS, Append(b"l.x", 0, b"log %d" % number))])
        if number % 7 == 3:
            store.commit([(ORDERS, Delete(number, False))])
        if number % 10 == 5:
            store.commit([(ORDERS, Dispatch(1, START_NS, (number,), 0)), (ORDERS, Ack(1, 0, (number,)))])
        if number == 20:
            store.commit([(GONE, Append(b"g", 0, b"gone")), (CATALOG, RemoveStream(GONE))])
        if number == 40:
            store.commit([(ORDERS, Purge(6, b"", 0))])
        store.maintain()


def build(root: Path, count: int = 150) -> Path:
    """A store that was closed in order, with two checkpoints, some segments and some journal files."""
    store = open_store(root)
    fill(store, count)
    store.close()
    return root


def contents(root: Path, scratch: Path) -> dict[str, dict[str, Any]]:
    """What a start finds, by the id of each stream. Opens a copy, since a start writes."""
    if scratch.exists():
        shutil.rmtree(scratch)
    shutil.copytree(root, scratch)
    store = Store.open(RealFiles(str(scratch)))
    try:
        return {entry.stream_id.hex(): _stream(entry) for entry in store.catalog.streams.values()}
    finally:
        store.close()


def _stream(entry: Any) -> dict[str, Any]:
    log = entry.log
    messages: dict[int, Message] = {}
    seq = log.next_matching((), 1)
    while seq is not None:
        messages[seq] = log.get(seq)
        seq = log.next_matching((), seq + 1)
    machine = entry.group.machine
    assert isinstance(machine, StreamMachine)
    return {
        "name": entry.name,
        "account": entry.account,
        "config": entry.config,
        "applied": entry.group.applied,
        "last_seq": log.last_seq,
        "messages": messages,
        "ids": machine.dedupe.snapshot(),
        "consumers": {number: state.snapshot() for number, state in machine.consumers.items()},
    }


def files_of(root: Path) -> dict[str, bytes]:
    """All files of a directory, to see that nothing was changed."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def newest(root: Path, pattern: str) -> Path:
    """The last file of a kind, by name."""
    return sorted(root.glob(pattern))[-1]


def last_record(root: Path) -> tuple[Path, int]:
    """The journal file with the last record, and where in it that is.

    It proves that the others are durable. Without it they look like a batch that a crash cut off.
    """
    files = StoreFiles(str(root))
    last = read_last(files, chain_from(files, 0))
    assert last is not None
    return root / file_path(last.number), last.frames[-1][0]


def spoil(path: Path, start: int = 0, end: int | None = None) -> None:
    """Write nonsense over a part of a file, or over all of it."""
    data = bytearray(path.read_bytes())
    end = len(data) if end is None else end
    data[start:end] = b"\xee" * (end - start)
    path.write_bytes(data)
