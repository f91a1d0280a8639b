"""The store of one node: what is committed is here, and still here after a crash.

Commands are gathered into a batch (`add`, `add_appends`), which is closed, written by whoever may wait for
the disk, and finished: applied, and everybody told. `commit()` does all of it at once.

Rules:
* Nothing is applied before it is durable (or written, where a weaker mode was chosen by name).
* Everything but `write()` and a cycle's `run()` happens in one thread.
* When a batch could not be written, so is what gathered behind it: the indexes are given out anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from edged.core.batch_record import Applied, BatchRecord
from edged.core.commands import (
    Ack,
    Command,
    Delete,
    Dispatch,
    Expire,
    Purge,
    PutStream,
    RemoveStream,
    Shed,
    encode,
)
from edged.core.frame_twins import decode_append
from edged.core.frames import BATCH, COMMAND, HEADER_BYTES
from edged.core.stream_machine import MessageLog, Outcome, Refused, StreamMachine
from edged.core.wire import Publish
from edged.store.batch import Appends, Batch, Change, Done
from edged.store.block_cache import BlockCache
from edged.store.checkpoint import CHECKPOINTS
from edged.store.cycle import STREAMS, Border, Cycle
from edged.store.errors import StoreBroken, StoreError, StoreFull
from edged.store.files import File, Files
from edged.store.group import CATALOG, Catalog, Group, StreamEntry
from edged.store.journal import START, Journal, Position
from edged.store.journal_file import JOURNAL
from edged.store.journal_reader import JournalFile
from edged.store.memory_log import MemoryLog
from edged.store.options import SYNC_ALWAYS, StoreOptions
from edged.store.recovery import LOST_AND_FOUND, RecoveryReport, recover
from edged.store.room import Room
from edged.store.stream_log import StreamLog
from edged.store.tail import Tail

FREES_SPACE = (Delete, Purge, Expire, Shed, RemoveStream)
# Commands written once. All others are written twice: losing one of those to a bad sector would bring back
# what is gone, or forget a stream. A lost one of these costs a delivery too many.
SINGLE = (Ack, Dispatch)
CYCLE_RETRY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Append:
    """A message to be stored, for commit()."""

    subject: bytes
    header_bytes: int
    data: bytes


class Store:
    """Made by open()."""

    def __init__(self, files: Files, options: StoreOptions, lock: File) -> None:
        self.files = files
        self.options = options
        self.groups: dict[int, Group] = {}
        self.catalog = Catalog(self.groups, self.make_log)
        self.groups[CATALOG] = Group(CATALOG, self.catalog)
        self.cache = BlockCache(options.cache_bytes)
        self.tail = Tail(options.tail_bytes)
        self.room = Room(files, options.space, options.shed, options.memory_bytes_max)
        self.report: RecoveryReport
        self.journal: Journal
        self._lock = lock
        self._gathering = Batch(options.tag_bytes)
        self.batch_number = 0
        # A random number that all files of the journal carry.
        self.store_id = 0
        self.nonces: dict[int, int] = {}
        # Segments that are not in use, and before which checkpoint they were given up: [number, path].
        self.condemned: list[Any] = []
        # The file that is being applied, and the one from which on messages are in the journal only.
        self._applied_file = self._sealed_to = 0
        self._touched: set[Group] = set()
        self._border: Border | None = None
        self._cycle: Cycle | None = None
        self._cycle_not_before_ns = 0
        # Whether files wait to be sealed for which no border was taken.
        self.is_border_missed = False
        self._readers: dict[int, JournalFile] = {}

    @classmethod
    def open(cls, files: Files, options: StoreOptions | None = None) -> Store:
        """Recover what is there, or begin. Raises StoreBroken."""
        options = options or StoreOptions()
        try:
            for directory in (JOURNAL, CHECKPOINTS, STREAMS, LOST_AND_FOUND):
                files.make_directory(directory)
            files.sync_directory("")
            lock = files.lock("lock")
        except BlockingIOError as error:
            raise StoreBroken("another process has the store open", "lock") from error
        except OSError as error:
            raise StoreBroken(f"the store's directory cannot be used ({error})") from error
        store = cls(files, options, lock)
        try:
            store._begin()
        except BaseException as error:
            store._let_go()
            if isinstance(error, OSError):
                raise StoreBroken(f"the store cannot be opened ({error})") from error
            raise
        return store

    def _begin(self) -> None:
        self.report = recover(self)
        # The journal has been begun already when the end of the last one was brought over.
        self._applied_file = self.journal.number
        self._sealed_to = max(self.report.checkpoint, 1)
        # What the last batch records said may have been left behind: the next one says it again.
        self._touched.update(self.groups.values())
        for group, entry in self.catalog.streams.items():
            self.room.follow(group, entry)
        self.room.governor.start(self.options.now_ns())

    def _let_go(self) -> None:
        """Close what is open, without another word to the disk."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        journal = getattr(self, "journal", None)
        if journal is not None:
            journal.let_go()
        self._lock.close()

    def begin_journal(self, number: int, previous: Position, previous_nonce: int, spares: list[str]) -> None:
        """Write to a new file from now on."""
        options = self.options
        self.journal = Journal(
            self.files,
            options.journal_file_bytes,
            number,
            options.draw_nonce,
            options.now_ns,
            previous,
            previous_nonce,
            spares,
            options.keys,
            self.store_id,
        )

    # --- streams ---

    def stream(self, group: int) -> StreamEntry:
        """The stream of a group. KeyError without one."""
        return self.catalog.streams[group]

    def make_log(self, stream_id: bytes, is_in_memory: bool) -> MessageLog:
        """An empty log for a new stream."""
        return MemoryLog() if is_in_memory else StreamLog(stream_id, self.read_hot, self.decode_frame)

    def read_hot(self, file: int, offset: int, size: int) -> bytes:
        """The frame of a message that is still in the journal, not encrypted. Raises Damaged."""
        found = self.tail.find(file, offset, size)
        return self._read_frame(file, offset, size) if found is None else found

    def _read_frame(self, file: int, offset: int, size: int) -> bytes:
        reader = self._readers.get(file)
        if reader is None:
            reader = self._readers[file] = JournalFile(self.files, file, self.options.keys)
        return reader.frame(offset, size)

    @staticmethod
    def decode_frame(frame: bytes) -> tuple[int, bytes, int, bytes]:
        """Time, subject, header bytes and data of a message from its frame."""
        return decode_append(frame, HEADER_BYTES, len(frame) - HEADER_BYTES)

    # --- committing ---

    def add(self, group: int, command: Command, done: Done) -> None:
        """Let a command be part of the next batch. KeyError without such a group."""
        target = self.groups[group]
        if self._is_in_memory(group):
            done(self._apply(Change(group, target.applied + 1, command, done), START))
            return
        batch = self._gathering
        index = target.next_index
        target.next_index = index + 1
        body = encode(command)
        batch.buffer.add(COMMAND, group, index, body)
        if not isinstance(command, SINGLE):
            batch.buffer.add(COMMAND, group, index, body)
        batch.frees_space = batch.frees_space and isinstance(command, FREES_SPACE)
        batch.is_sync_needed = batch.is_sync_needed or self._is_sync_needed(group)
        batch.entries.append(Change(group, index, command, done))

    def add_appends(self, group: int, messages: Sequence[Publish], ts_ns: int, done: Done) -> None:
        """Let messages for one stream be part of the next batch; refused at once when there is no room."""
        target = self.groups[group]
        batch = self._gathering
        first_index = target.next_index
        size = sum([len(message[3]) for message in messages])
        try:
            self.room.admit(self.catalog.streams[group], size, len(batch.buffer), ts_ns)
        except StoreFull as error:
            done(error)
            return
        if self._is_in_memory(group):
            run = Appends(group, target.applied + 1, ts_ns, messages, range(len(messages)), done)
            done(self._apply(run, START))
            return
        offsets = batch.buffer.add_appends(group, first_index, ts_ns, messages)
        target.next_index = first_index + len(messages)
        batch.frees_space = False
        batch.is_sync_needed = batch.is_sync_needed or self._is_sync_needed(group)
        batch.entries.append(Appends(group, first_index, ts_ns, messages, offsets, done))

    @property
    def gathered_bytes(self) -> int:
        """How much waits for the next batch."""
        return len(self._gathering.buffer)

    @property
    def is_sync_needed(self) -> bool:
        """Whether what has gathered waits for the disk, not only for the operating system."""
        return self._gathering.is_sync_needed

    @property
    def has_gathered(self) -> bool:
        """Whether a command waits for the next batch."""
        return bool(self._gathering.entries)

    @property
    def has_unsynced(self) -> bool:
        """Whether something was written that is not durable yet. Asked while nobody writes."""
        return self.journal.synced < self.journal.end

    @property
    def unsealed_files(self) -> int:
        """How many journal files are complete and still hold messages that are read from there."""
        return self._applied_file - self._sealed_to

    def close_batch(self, is_sync_needed: bool = False) -> Batch:
        """Take what has gathered, after the batch before was written; batches are finished in this order."""
        batch, self._gathering = self._gathering, Batch(self.options.tag_bytes)
        batch.is_sync_needed = batch.is_sync_needed or is_sync_needed
        self._end_batch(batch)
        return batch

    def write(self, batch: Batch) -> None:
        """Write a batch and make it durable. May run in another thread."""
        try:
            batch.position = self._write(batch)
        except StoreFull as error:
            batch.error = error
            governor = self.room.governor
            had_reserve = governor.is_reserve_held
            governor.no_space(self.options.now_ns())
            if had_reserve and batch.frees_space:
                self._write_into_reserve(batch)
        except StoreError as error:
            batch.error = error

    def _write(self, batch: Batch) -> Position:
        place = self.journal.commit(batch.buffer, batch.is_sync_needed, is_small_file_ok=batch.frees_space)
        batch.nonce = self.journal.nonce
        return place

    def _write_into_reserve(self, batch: Batch) -> None:
        """Try once more: there is a little space now that was kept for this."""
        try:
            batch.position = self._write(batch)
            batch.error = None
        except StoreError as error:
            batch.error = error

    def finish(self, batch: Batch) -> None:
        """Apply a batch that was written, or refuse it; tell everybody."""
        if batch.error is not None:
            self._refuse(batch, batch.error)
            return
        self.nonces[batch.position.file] = batch.nonce
        if batch.position.file != self._applied_file:
            self._pass_border(batch.position.file)
        self.tail.add(batch.position.file, batch.position.offset, batch.buffer)
        self.room.wear.add(len(batch.buffer), int(batch.is_sync_needed), self.options.now_ns())
        for entry in batch.entries:
            entry.done(self._apply(entry, batch.position))

    def commit(self, proposals: Iterable[tuple[int, Command | Append]]) -> list[Outcome | StoreError]:
        """Commit some commands and wait for it. For programs that have nothing else to do."""
        outcomes: list[Outcome | StoreError] = []
        ts_ns = self.options.now_ns()
        for group, command in proposals:
            place = len(outcomes)
            outcomes.append(0)
            done = partial(_keep_outcome, outcomes, place)
            if isinstance(command, Append):
                message = (command.subject, None, command.header_bytes, command.data)
                self.add_appends(group, [message], ts_ns, done)
            else:
                self.add(group, command, done)
        batch = self.close_batch()
        self.write(batch)
        self.finish(batch)
        return outcomes

    def seal_tail(self) -> None:
        """Say in the journal that everything in it is durable, without a sync: called when it goes idle."""
        if self._touched and self.journal.position.file:
            batch = Batch(self.options.tag_bytes)
            self._end_batch(batch)
            self.journal.note(batch.buffer)

    def close(self) -> None:
        """End in order: nothing is replayed twice, nothing is torn. Raises StoreBroken."""
        try:
            self.seal_tail()
            self.journal.sync()
        finally:
            self._let_go()

    # --- maintenance: old journal files become segments and a checkpoint ---

    @property
    def is_cycle_due(self) -> bool:
        """Whether a journal file is complete and waits to be sealed."""
        is_free = self._border is not None and self._cycle is None
        return is_free and self.options.now_ns() >= self._cycle_not_before_ns

    def begin_cycle(self) -> Cycle:
        """Take the border that was passed last. Its run() may go on in another thread; then end_cycle()."""
        assert self._border is not None and self._cycle is None
        self._cycle = Cycle(self, self._border)
        self._border = None
        return self._cycle

    def end_cycle(self) -> None:
        """Take over what a cycle made. What it could not make is tried again before long."""
        cycle, self._cycle = self._cycle, None
        assert cycle is not None
        now_ns = self.options.now_ns()
        self.room.wear.add(cycle.bytes_written, 0, now_ns)
        self.room.governor.changed()
        if not cycle.is_saved:
            self._border = self._border or cycle.border
            self._cycle_not_before_ns = now_ns + CYCLE_RETRY_NS
        if cycle.error is None:
            self._sealed_to = cycle.border.next_file
        for number in cycle.adopt():
            self.nonces.pop(number, None)
            reader = self._readers.pop(number, None)
            if reader is not None:
                reader.close()

    def remove_condemned(self, oldest: int) -> None:
        """Remove the segments that no checkpoint from `oldest` on speaks of. Raises OSError."""
        for entry in list(self.condemned):
            if entry[0] <= oldest:
                with suppress(FileNotFoundError):
                    self.files.remove(entry[1])
                self.condemned.remove(entry)

    def tend(self, now_ns: int) -> None:
        """Look after the disk; called about every second while no batch is on its way.

        On a full disk the journal turns to a new file, so that a checkpoint lets older files go.
        """
        governor = self.room.governor
        governor.tend(now_ns)
        with suppress(OSError):
            # When the file is needed and still cannot be had, whoever needs it is told.
            self.journal.prepare()
        is_waiting = self._border is not None or self._cycle is not None
        if governor.is_full and not is_waiting and now_ns >= self._cycle_not_before_ns:
            self._cycle_not_before_ns = now_ns + CYCLE_RETRY_NS
            self.journal.rotate()

    def maintain(self) -> None:
        """Run a cycle here and now, if one is due."""
        if self.is_cycle_due:
            self.begin_cycle().run()
            self.end_cycle()

    # --- inside ---

    def _end_batch(self, batch: Batch) -> None:
        self.batch_number += 1
        if not self.journal.has_room(len(batch.buffer)):
            # Each file says first how far all groups are: should the one before be lost, so is known what.
            self._touched.update(self.groups.values())
        applied = tuple(self._report(group) for group in sorted(self._touched, key=lambda one: one.number))
        self._touched.clear()
        journal = self.journal
        record = BatchRecord(journal.number, journal.synced, self.options.now_ns(), applied)
        batch.buffer.add(BATCH, CATALOG, self.batch_number, record.encode())

    def _report(self, group: Group) -> Applied:
        refused, group.refused = tuple(group.refused), []
        return Applied(group.number, group.applied, group.last_seq, refused)

    def _apply(self, entry: Appends | Change, position: Position) -> Sequence[Outcome]:
        group = self.groups.get(entry.group)
        if group is None:
            # Its stream was removed by a command before this one.
            count = 1 if isinstance(entry, Change) else len(entry.messages)
            return [Refused("stream not found")] * count
        self._touched.add(group)
        if isinstance(entry, Change):
            return [self._change(group, entry)]
        machine = group.machine
        assert isinstance(machine, StreamMachine), entry.group
        messages, index = entry.messages, entry.first_index
        outcomes = machine.append_run(entry.ts_ns, messages, position.file, position.offset, entry.offsets)
        group.applied = index + len(messages) - 1
        self.room.count(self.catalog.streams[entry.group])
        if not isinstance(outcomes, range):
            group.refused += [
                at for at, outcome in enumerate(outcomes, index) if not isinstance(outcome, int)
            ]
        return outcomes

    def _change(self, group: Group, entry: Change) -> Outcome:
        group.applied = entry.first_index
        command = entry.command
        outcome = group.machine.apply(command)
        number = command.group if isinstance(command, PutStream | RemoveStream) else group.number
        self.room.follow(number, self.catalog.streams.get(number))
        return outcome

    def _is_in_memory(self, group: int) -> bool:
        entry = self.catalog.streams.get(group)
        return entry is not None and entry.is_in_memory

    def _is_sync_needed(self, group: int) -> bool:
        """Whether a command of this group waits for the disk. Which streams exist always does."""
        entry = self.catalog.streams.get(group)
        return entry is None or self.options.sync_of(entry.config) == SYNC_ALWAYS

    def _refuse(self, batch: Batch, error: StoreError) -> None:
        later, self._gathering = self._gathering, Batch(self.options.tag_bytes)
        for group in self.groups.values():
            group.next_index = group.applied + 1
        for entry in (*batch.entries, *later.entries):
            entry.done(error)

    def _pass_border(self, file: int) -> None:
        """Everything in the files before this one is applied, and nothing of this one."""
        if self._applied_file or self.report.replay.files:
            # While a cycle moves messages their places are about to change: a later border must do.
            self.is_border_missed = self._cycle is not None
            if self._cycle is None:
                self._border = Border.take(self, file)
        self._applied_file = file


def _keep_outcome(
    outcomes: list[Outcome | StoreError], place: int, result: Sequence[Outcome] | StoreError
) -> None:
    outcomes[place] = result if isinstance(result, StoreError) else result[0]
