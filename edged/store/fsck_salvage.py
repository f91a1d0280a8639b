"""`edged fsck --salvage`: writes a new store with everything that can be read of a damaged one.

How: the streams and their messages are found (fsck_found.py), the messages written to segments of the new
store under their own seqs, and then the store's own code writes the checkpoint that speaks of them. The new
journal begins behind all numbers of the old one. No command is made up, so nothing can be refused, counted
anew or get another seq; gaps stay gaps, and what is lost is recorded as lost.

Rules: the damaged store is never written to. The new one is made beside its final name and verified before it
gets it, so that a directory of that name is complete. Memory is bounded by what a start needs, for two
generations.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from edged.core import headers
from edged.core.commands import PutStream
from edged.core.expiry import message_expires_ns
from edged.core.message import Message, counted_bytes
from edged.core.stream_machine import MESSAGE_ID, StreamMachine
from edged.store.box import Keyring
from edged.store.checkpoint import CHECKPOINTS, GENERATIONS, Checkpoint, checkpoint_numbers, decode_checkpoint
from edged.store.errors import Damaged, StoreBroken
from edged.store.files import RealFiles
from edged.store.fsck import Plan, read_checkpoints, verify
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_found import (
    FoundStream,
    FoundStreams,
    chain_from,
    find_by_checkpoints,
    find_without_checkpoint,
    is_from_the_start,
)
from edged.store.fsck_journal import JournalFile, Use, read_journal_files, restore_headers
from edged.store.fsck_report import Severity
from edged.store.group import CATALOG, StreamEntry
from edged.store.journal import SMALL_FILE_BYTES
from edged.store.journal_file import HEADER_BYTES, JOURNAL, JournalHeader, file_path
from edged.store.options import StoreOptions
from edged.store.recovery import LOST_AND_FOUND
from edged.store.segment import Segment
from edged.store.segment_format import segment_path
from edged.store.segment_writer import USUAL, SegmentInfo, write_segment
from edged.store.store import Store
from edged.store.stream_log import StreamLog

PARTIAL: Final = ".partial"


class SalvageRefused(Exception):  # noqa: N818 - says what happened
    """It was not even begun, because of what was asked for."""


@dataclass(frozen=True, slots=True)
class SavedStream:
    """A stream of the new store. `lost` are the ranges in which messages are missing."""

    title: str
    messages: int
    first_seq: int
    last_seq: int
    consumers: int
    lost: list[tuple[int, int]]
    notes: list[str]


@dataclass(slots=True)
class Salvaged:
    """What became of it."""

    directory: str
    streams: list[SavedStream] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_incomplete: bool = False

    @property
    def status(self) -> Severity:
        """The exit status."""
        if self.is_incomplete or any(stream.lost or stream.notes for stream in self.streams):
            return Severity.LOSS
        return Severity.HARMLESS if self.notes else Severity.NOTE

    @property
    def summary(self) -> str:
        """The last line."""
        messages = sum(stream.messages for stream in self.streams)
        lost = sum(bool(stream.lost) for stream in self.streams)
        end = f"{lost} streams have lost messages" if lost else "no message is known to be lost"
        if self.is_incomplete and not lost:
            end = "commands are lost, see the notes"
        return f"verified; {len(self.streams)} streams with {messages} messages saved; {end}"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        streams = [asdict(stream) for stream in self.streams]
        head = {"directory": self.directory, "status": int(self.status), "summary": self.summary}
        return {**head, "notes": self.notes, "streams": streams}


def salvage(files: StoreFiles, target: str, keys: Keyring, plan: Plan = lambda total: None) -> Salvaged:
    """Write a new store at `target`. Raises SalvageRefused, StoreError, OSError."""
    place = _check_target(files.root, target)
    partial = place.with_name(place.name + PARTIAL)
    plan(sum(one.size for one in files.below()))
    salvaged = Salvaged(str(place))
    found = _find(files, keys, salvaged)
    try:
        partial.mkdir()
        try:
            _write(RealFiles(str(partial)), found, keys, _highest_number(files) + 1, salvaged)
            _check_new(partial, keys)
        except BaseException:
            # It is ours and of no use to anybody.
            shutil.rmtree(partial, ignore_errors=True)
            raise
        if place.exists():
            place.rmdir()
        partial.rename(place)
        _sync(place.parent)
    finally:
        found.close()
    return salvaged


def _check_new(partial: Path, keys: Keyring) -> None:
    report = verify(StoreFiles(str(partial), keys=keys), keys)
    if report.status != Severity.NOTE:
        raise StoreBroken(f"the new store is not right ({report.summary})", str(partial))


def _check_target(root: str, target: str) -> Path:
    place, store = Path(target).absolute().resolve(), Path(root).resolve()
    if place == store or store in place.parents or place in store.parents:
        raise SalvageRefused(f"{target} must be a directory apart from the store")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise SalvageRefused(f"{target} is there already: name a new directory")
    if place.with_name(place.name + PARTIAL).exists():
        raise SalvageRefused(f"{target}{PARTIAL} is left from an earlier attempt: remove it")
    if not place.parent.is_dir():
        raise SalvageRefused(f"{place.parent} is no directory")
    return place


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _highest_number(files: StoreFiles) -> int:
    journal = [one.number for one in read_journal_files(files)]
    return max([0, *journal, *checkpoint_numbers(files)])


def _find(files: StoreFiles, keys: Keyring, salvaged: Salvaged) -> FoundStreams:
    """Everything there is."""
    journal = read_journal_files(files)
    restored = restore_headers(files, journal)
    salvaged.notes += [f"{one.path}: its header is lost and was computed from its frames" for one in restored]
    for path in _lost_files(files, journal):
        salvaged.notes.append(f"{path}: the commands in it are lost")
        salvaged.is_incomplete = True
    checkpoints: list[Checkpoint | None] = []
    checkpoints += [found for _, found, _ in read_checkpoints(files) if found is not None]
    if not checkpoints:
        checkpoints += _put_aside(files)
    if is_from_the_start(chain_from(files, 0)):
        # A journal that is whole needs no checkpoint.
        checkpoints.append(None)
    if checkpoints:
        found = find_by_checkpoints(files, keys, checkpoints)
        # A lost command may have been a deletion, so what is there need not be what was there.
        if found.states[0].holes or found.states[0].contradictions:
            salvaged.is_incomplete = True
    else:
        found = find_without_checkpoint(files, keys)
        salvaged.is_incomplete = True
    salvaged.notes += found.notes
    return found


def _lost_files(files: StoreFiles, journal: list[JournalFile]) -> list[str]:
    """Journal files that a start needs and that nothing can be read of."""
    newest = next((number for number, found, _ in read_checkpoints(files) if found is not None), 0)
    lost = [
        one.path for one in journal if one.use is Use.HEADLESS and one.nonce is None and one.number >= newest
    ]
    there = {one.number for one in journal}
    lost += [file_path(number) for number in chain_from(files, newest).missing]
    if newest and newest not in there:
        lost.append(file_path(newest))
    return sorted(set(lost))


def _put_aside(files: StoreFiles) -> list[Checkpoint]:
    """Checkpoints in lost+found that can be read after all."""
    good = []
    for one in files.below(LOST_AND_FOUND):
        if CHECKPOINTS in one.path:
            try:
                good.append(decode_checkpoint(files.read_all(one.path), one.path, files.keys))
            except Damaged:
                continue
    return sorted(good, key=lambda checkpoint: checkpoint.next_file, reverse=True)


# --- writing ---


def _write(files: RealFiles, found: FoundStreams, keys: Keyring, generation: int, salvaged: Salvaged) -> None:
    _write_predecessor(files, generation)
    store = Store.open(files, StoreOptions(journal_file_bytes=SMALL_FILE_BYTES, keys=keys))
    try:
        _begin(store)
        for stream in found.streams:
            salvaged.streams.append(_save_stream(store, stream, keys, generation))
        for entry in found.in_memory:
            log = store.make_log(entry.stream_id, True)
            store.catalog.add(_put(entry), log, entry.group.applied)
            title = f"{entry.account}/{entry.name}"
            # Its messages go with every end of the daemon, so nothing is lost here.
            salvaged.streams.append(SavedStream(title, 0, 0, 0, 0, [], []))
        store.groups[CATALOG].applied = found.catalog_index
        store.catalog.highest_group = max(found.highest_group, store.catalog.highest_group)
        store.batch_number = max(found.last_batch, store.batch_number)
        for _ in range(GENERATIONS):
            _pass_border(store)
    finally:
        store.close()


def _write_predecessor(files: RealFiles, number: int) -> None:
    """Write a journal file with nothing in it, that follows on one which is not there.

    So the store begins its journal behind all old numbers, and that journal never passes for one that is
    there from the start: should all checkpoints be lost one day, nobody takes what is left for everything.
    """
    files.make_directory(JOURNAL)
    header = JournalHeader(number, secrets.randbits(64) | 1, 0, max(1, number - 1), HEADER_BYTES)
    file = files.create(file_path(number))
    try:
        file.write_at(0, header.encode())
        file.sync()
    finally:
        file.close()


def _pass_border(store: Store) -> None:
    """Let the journal turn to a new file, and write the checkpoint that stands before it."""
    store.journal.rotate()
    _begin(store)
    cycle = store.begin_cycle()
    cycle.run()
    store.end_cycle()
    if cycle.error is not None:
        raise cycle.error


def _begin(store: Store) -> None:
    """Write a batch without commands, so that there is a journal file."""
    batch = store.close_batch()
    store.write(batch)
    store.finish(batch)
    if batch.error is not None:
        raise batch.error


def _put(entry: StreamEntry) -> PutStream:
    return PutStream(entry.group.number, entry.stream_id, entry.account, entry.name, entry.config)


def _save_stream(store: Store, found: FoundStream, keys: Keyring, generation: int) -> SavedStream:
    entry = found.entry
    ids = _MessageIds(found)
    infos = list(_write_segments(store, entry.stream_id, ids.watch(found.messages()), keys, generation))
    last_ts_ns = infos[-1].last_ts_ns if infos else found.log.last_ts_ns
    lost = found.losses.left()
    snapshot = {
        "last_seq": found.last_seq,
        "last_ts_ns": max(last_ts_ns, found.log.last_ts_ns),
        "segments": [
            [info.path, [info.first_seq, info.last_seq], [info.count, info.message_bytes], [0, []]]
            for info in infos
        ],
        "lost": [list(one) for one in lost],
    }

    def open_segment(path: str) -> Segment:
        return Segment.open(store.files, path, store.cache, keys, message_expires_ns)

    log = StreamLog.restore(
        snapshot, open_segment, entry.stream_id, store.reads.read_hot, store.reads.decode_frame
    )
    added = store.catalog.add(_put(entry), log, entry.group.applied)
    machine = added.group.machine
    assert isinstance(machine, StreamMachine)
    machine.restore({**found.machine.snapshot(), "dedupe": ids.snapshot()})
    title = f"{entry.account}/{entry.name}"
    ranges = [(one.first_seq, one.last_seq) for one in lost]
    figures = (log.message_count, log.first_seq, log.last_seq, len(machine.consumers))
    return SavedStream(title, *figures, ranges, found.notes)


def _write_segments(
    store: Store, stream_id: bytes, messages: Iterator[Message], keys: Keyring, generation: int
) -> Iterator[SegmentInfo]:
    rest = _Peekable(messages)
    while rest.next is not None:
        path = segment_path(stream_id, rest.next.seq, generation)
        yield write_segment(store.files, path, stream_id, rest.take(), keys, message_expires_ns)


class _Peekable:
    """Messages, in portions of a segment; `next` is the one that comes."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self._messages = messages
        self.next: Message | None = next(messages, None)

    def take(self) -> Iterator[Message]:
        """The messages of one segment."""
        room = USUAL.bytes_max
        while self.next is not None and room > 0:
            message = self.next
            room -= counted_bytes(len(message.subject), message.header_bytes, len(message.data))
            self.next = next(self._messages, None)
            yield message


class _MessageIds:
    """The message ids of a stream: those that are known, and without a checkpoint those in the messages."""

    def __init__(self, found: FoundStream) -> None:
        self._dedupe = found.machine.dedupe
        self._is_watching = found.is_without_checkpoint
        self._seen: deque[tuple[int, bytes, int]] = deque()

    def watch(self, messages: Iterator[Message]) -> Iterator[Message]:
        """The same messages."""
        for message in messages:
            if self._is_watching and message.header_bytes:
                self._look(message)
            yield message

    def _look(self, message: Message) -> None:
        found = headers.value(message.data[: message.header_bytes], MESSAGE_ID)
        if found:
            self._seen.append((message.ts_ns, found, message.seq))
        while self._seen and self._seen[0][0] < message.ts_ns - self._dedupe.window_ns:
            self._seen.popleft()

    def snapshot(self) -> list[Any]:
        """As in Dedupe."""
        known = {message_id: [ts_ns, message_id, seq] for ts_ns, message_id, seq in self._seen}
        known.update((one[1], one) for one in self._dedupe.snapshot())
        return sorted(known.values(), key=lambda one: (one[0], one[2]))
