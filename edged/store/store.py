"""The store of one node: what is committed is here, and still here after a crash.

Commands are gathered into a batch (`add`, `add_appends`), which is closed, written by whoever may wait for
the disk, and finished: applied, and everybody told. `commit()` does all of it at once.

Rules:
* Nothing is applied before it is durable (or written, where a weaker mode was chosen by name).
* Everything but `write()`, `look_after_disk()` and a cycle's `run()` happens in one thread.
* Batches are written and finished in the order in which they were closed; edged/store/commit_line.py has
  what happens when one could not be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from edged.core.api_errors import STREAM_NOT_FOUND
from edged.core.commands import Command, PutStream, RemoveStream
from edged.core.limits import UNSEALED_FILES_AT_START_MAX
from edged.core.runs import FRAME_BYTES, PLAIN_BYTES
from edged.core.stream_machine import Duplicate, MessageLog, Outcome, Refused, StreamMachine
from edged.core.wire import Publish
from edged.store.anew import end_anew
from edged.store.batch import Appends, Batch, Change, Done, Mend
from edged.store.block_cache import BlockCache
from edged.store.checkpoint import CHECKPOINTS
from edged.store.column_cache import ColumnCache
from edged.store.commit_line import CommitLine
from edged.store.cycle import Border, Cycle
from edged.store.errors import NotLeader, StoreBroken, StoreError, StoreFull
from edged.store.files import File, Files
from edged.store.group import CATALOG, Catalog, Group, StreamEntry
from edged.store.journal import START, Journal, Position
from edged.store.journal_file import JOURNAL
from edged.store.journal_reads import JournalReads
from edged.store.memory_log import MemoryLog
from edged.store.mending import Mending
from edged.store.options import SYNC_ALWAYS, StoreOptions
from edged.store.recovery import LOST_AND_FOUND, RecoveryReport, recover
from edged.store.room import Room
from edged.store.segment_format import STREAMS
from edged.store.stream_log import StreamLog
from edged.store.stretch import Stretch, apply_stretch
from edged.store.tail import Tail
from edged.store.upkeep import Upkeep
from edged.store.wear import CountedFiles

if TYPE_CHECKING:
    from edged.ports import GroupReplica, Replication


@dataclass(frozen=True, slots=True)
class Append:
    """A message to be stored, for commit()."""

    subject: bytes
    header_bytes: int
    data: bytes


class Store(Upkeep, Mending):
    """Made by open()."""

    def __init__(
        self, files: CountedFiles, options: StoreOptions, lock: File, replication: Replication | None
    ) -> None:
        self.files = files
        self.options = options
        # At a hub: who agrees with other nodes about what is applied, and when.
        self.replication = replication
        self.groups: dict[int, Group] = {}
        self.catalog = Catalog(self.groups, self.make_log)
        self.catalog.node = 0 if replication is None else replication.node
        self.groups[CATALOG] = Group(CATALOG, self.catalog)
        self.cache = BlockCache(options.cache_bytes)
        self.columns = ColumnCache()
        self.tail = Tail(options.tail_bytes)
        self.reads = JournalReads(files, options.keys, self.tail)
        self.room = Room(files, options.space, options.shed, options.memory_bytes_max)
        self.report: RecoveryReport
        self.journal: Journal
        self._lock = lock
        self._line = CommitLine(self.groups, options, self.room.governor)
        # What the frame of a message is longer than what the message counts for.
        self._frame_surplus_bytes = FRAME_BYTES + options.tag_bytes - PLAIN_BYTES
        # A random number that all files of the journal carry.
        self.store_id = 0
        # Segments that are not in use, and before which checkpoint they were given up: [number, path].
        self.condemned: list[Any] = []
        # The file that is being applied, and the one from which on messages are in the journal only.
        self._applied_file = self._sealed_to = 0
        self._border: Border | None = None
        self._cycle: Cycle | None = None
        self._cycle_not_before_ns = 0
        # Whether somebody waits for a checkpoint.
        self._is_turn_wanted = False
        # Whether files wait to be sealed for which no border was taken.
        self.is_border_missed = False

    @classmethod
    def open(
        cls, files: Files, options: StoreOptions | None = None, replication: Replication | None = None
    ) -> Store:
        """Recover what is there, or begin. Raises StoreBroken."""
        options = options or StoreOptions()
        files = CountedFiles(files, options.now_ns)
        try:
            for directory in (JOURNAL, CHECKPOINTS, STREAMS, LOST_AND_FOUND):
                files.make_directory(directory)
            files.sync_directory("")
            lock = files.lock("lock")
        except BlockingIOError as error:
            raise StoreBroken("another process has the store open", "lock") from error
        except OSError as error:
            raise StoreBroken(f"the store's directory cannot be used ({error})") from error
        store = cls(files, options, lock, replication)
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
        self.is_border_missed = self.unsealed_files > UNSEALED_FILES_AT_START_MAX
        # What the last batch records said may have been left behind: the next one says it again.
        self._line.touch_all()
        for group, entry in self.catalog.streams.items():
            self.room.follow(group, entry)
        self.room.governor.start(self.options.now_ns())
        if self.replication is not None:
            self.replication.start(self)
            if self.report.has_begun_anew:
                end_anew(self)
        elif any(group.found is not None for group in self.groups.values()):
            raise StoreBroken("the store is one of a cluster: open it with edged-hub")
        if any(group.refused for group in self.groups.values()):
            # Before anybody sees what follows on it.
            self._line.owe_report(is_durable=True)
            self.settle()

    def _let_go(self) -> None:
        """Close what is open, without another word to the disk."""
        self.reads.close()
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

    def sync_of(self, group: int) -> str:
        """How durable what a stream acknowledges is: always, interval or os. KeyError without a stream."""
        entry = self.catalog.streams[group]
        entry.sync = entry.sync or self.options.sync_of(entry.config)
        return entry.sync

    def make_log(self, stream_id: bytes, is_in_memory: bool) -> MessageLog:
        """An empty log for a new stream."""
        reads = self.reads
        return (
            MemoryLog()
            if is_in_memory
            else StreamLog(stream_id, reads.read_hot, reads.decode_frame, self.columns, reads.read_span)
        )

    # --- committing ---

    def add(self, group: int, command: Command, done: Done) -> None:
        """Let a command be part of the next batch. KeyError without such a group."""
        target = self.groups[group]
        if self._is_in_memory(group):
            done(self.apply(Change(group, target.applied + 1, command, done), START))
            return
        batch = self._line.gathering
        if target.replica is not None:
            if not self._propose(target.replica, batch, Change(group, 0, command, done)):
                return
        else:
            index = target.next_index
            target.next_index = index + 1
            batch.add(Change(group, index, command, done))
        batch.is_sync_needed = batch.is_sync_needed or self.waits_for_disk(group)

    def add_appends(self, group: int, messages: Sequence[Publish], ts_ns: int, done: Done) -> None:
        """Let messages for one stream be part of the next batch; refused at once when there is no room."""
        target = self.groups[group]
        stream = self.catalog.streams[group]
        if stream.is_in_memory:
            self._append_in_memory(stream, messages, ts_ns, done)
            return
        batch = self._line.gathering
        replica = target.replica
        first_index = target.next_index if replica is None else replica.next_index()
        if first_index is None:
            done(NotLeader(0 if replica is None else replica.leader))
            return
        buffer = batch.buffer
        before = len(buffer)
        offsets = buffer.add_appends(group, first_index, ts_ns, messages)
        size = len(buffer) - before - len(messages) * self._frame_surplus_bytes
        try:
            self.room.admit(stream, size, before + self._line.closed_bytes, ts_ns)
        except StoreFull as error:
            buffer.cut(before)
            done(error)
            return
        target.next_index = first_index + len(messages)
        batch.frees_space = False
        if not batch.is_sync_needed:
            batch.is_sync_needed = (stream.sync or self.sync_of(group)) == SYNC_ALWAYS
        entry = Appends(group, first_index, ts_ns, messages, offsets, done)
        if replica is None:
            batch.entries.append(entry)
        else:
            replica.take(entry, before, len(buffer))

    def _propose(self, replica: GroupReplica, batch: Batch, change: Change) -> bool:
        """Let a command be part of the next batch, for other nodes to agree; False if it was refused."""
        index = replica.next_index()
        if index is None:
            change.done(NotLeader(replica.leader))
            return False
        start = len(batch.buffer)
        change = change._replace(first_index=index)
        batch.write(change)
        replica.take(change, start, len(batch.buffer))
        return True

    @property
    def gathering(self) -> Batch:
        """The batch that gathers."""
        return self._line.gathering

    @property
    def batch_number(self) -> int:
        """The number of the batch closed last."""
        return self._line.batch_number

    @batch_number.setter
    def batch_number(self, number: int) -> None:
        self._line.batch_number = number

    @property
    def gathered_bytes(self) -> int:
        """How much waits for the next batch."""
        return len(self._line.gathering.buffer)

    @property
    def is_sync_needed(self) -> bool:
        """Whether what has gathered waits for the disk, not only for the operating system."""
        return self._line.is_sync_needed

    @property
    def has_gathered(self) -> bool:
        """Whether a command waits for the next batch, or an answer for its record."""
        gathering, replication = self._line.gathering, self.replication
        if gathering.entries or gathering.work or self._line.is_report_owed:
            return True
        return replication is not None and (replication.has_work or self._is_turn_wanted)

    @property
    def held_bytes(self) -> int:
        """How much of what was taken here waits for other nodes."""
        return 0 if self.replication is None else self.replication.held_bytes

    def work(self) -> None:
        """At a hub: do what needs no disk."""
        if self.replication is not None:
            self.replication.work()

    @property
    def has_unsynced(self) -> bool:
        """Whether something was written that is not durable yet. Asked while nobody writes."""
        return self.journal.synced < self.journal.end

    @property
    def unsealed_files(self) -> int:
        """How many journal files are complete and still hold messages that are read from there."""
        # After a start no file is being applied until the first batch.
        return max(self._applied_file - self._sealed_to, 0)

    def close_batch(self, is_sync_needed: bool = False) -> Batch:
        """Take what has gathered; batches are written and finished in this order."""
        if self.replication is None:
            return self._line.close(self.journal, is_sync_needed)
        self.replication.work()
        if self._is_turn_wanted:
            self._is_turn_wanted = False
            self.journal.ask_to_turn()
            is_sync_needed = True
        return self._line.close(self.journal, is_sync_needed, self.replication.carry)

    def want_checkpoint(self) -> None:
        """Let there be a new checkpoint soon: the next batch begins a file, unless one is being sealed."""
        self._is_turn_wanted = self._border is None and self._cycle is None

    def write(self, batch: Batch) -> None:
        """Write a batch and make it durable. May run in another thread, but only in one at a time."""
        self._line.write(self.journal, batch)

    def finish(self, batch: Batch) -> None:
        """Apply a batch that was written, or refuse it; tell everybody who may know."""
        line = self._line
        line.finish(batch)
        if batch.error is not None:
            refused = line.refuse(batch, batch.error)
            if self.replication is not None:
                self.replication.failed(refused, batch.error, is_last=len(refused) > 1)
            return
        if batch.is_void:
            return
        if batch.position.file != self._applied_file:
            self._pass_border(batch)
        self.tail.add(batch.position.file, batch.position.offset, batch.buffer)
        for entry in batch.entries:
            if isinstance(entry, Mend):
                outcomes = self.mend(entry, batch.position.file)
            else:
                outcomes = self.apply(entry, batch.position)
            if line.is_withholding:
                line.withhold(entry.done, outcomes)
            else:
                entry.done(outcomes)
        if self.replication is not None:
            self.replication.finished(batch)

    def settle(self) -> None:
        """Write what has gathered, and wait for it."""
        while self.has_gathered:
            batch = self.close_batch()
            self.write(batch)
            self.finish(batch)

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
        self.settle()
        return outcomes

    def seal_tail(self) -> None:
        """Say in the journal that everything in it is durable, without a sync: called when it goes idle."""
        self._line.note(self.journal)

    def close(self) -> None:
        """End in order: nothing is replayed twice, nothing is torn. Raises StoreBroken."""
        has_news, end = bool(self._line.touched), self.journal.end
        try:
            self.seal_tail()
            if has_news and self.journal.end == end:
                # The file has no room for that. The header of the next one says the same. Should it fail,
                # the next start takes damage at the end for a crash; nothing else is different.
                self.write(self.close_batch(is_sync_needed=True))
            self.journal.sync()
            if self.replication is not None:
                self.replication.closed()
        finally:
            self._let_go()

    # --- inside ---

    def apply(self, entry: Appends | Change, position: Position) -> Sequence[Outcome]:
        """Apply a command that is durable; its frames are at their offsets behind this position."""
        group = self.groups.get(entry.group)
        if group is None:
            # Its stream was removed by a command before this one.
            count = 1 if isinstance(entry, Change) else len(entry.messages)
            return [Refused(STREAM_NOT_FOUND)] * count
        if group.is_reported:
            self._line.touched.add(group)
        if isinstance(entry, Change):
            group.applied = entry.first_index
            return [self._change(group, entry.command)]
        machine = group.machine
        assert isinstance(machine, StreamMachine), entry.group
        messages, index = entry.messages, entry.first_index
        outcomes = machine.append_run(entry.ts_ns, messages, position.file, position.offset, entry.offsets)
        group.applied = index + len(messages) - 1
        self.room.count(self.catalog.streams[entry.group])
        if group.is_reported and group.replica is None and not isinstance(outcomes, range):
            refused = [
                at for at, outcome in enumerate(outcomes, index) if isinstance(outcome, Refused | Duplicate)
            ]
            if refused:
                group.refused += refused
                self._line.owe_report(self.waits_for_disk(entry.group))
        return outcomes

    def apply_frames(self, group: Group, stretch: Stretch, place: Position) -> None:
        """Apply entries that other nodes proposed; their data begins at this place."""
        self._line.touched.add(group)
        apply_stretch(group, stretch, place.file, place.offset, self._change)
        if group.number in self.catalog.streams:
            self.room.count(self.catalog.streams[group.number])

    def pass_over(self, group: Group, index: int) -> None:
        """An entry that changes nothing in the store counts as applied."""
        self._line.touched.add(group)
        group.applied = index

    def _change(self, group: Group, command: Command) -> Outcome:
        outcome = group.machine.apply(command)
        number = command.group if isinstance(command, PutStream | RemoveStream) else group.number
        self.room.follow(number, self.catalog.streams.get(number))
        if number != group.number and self.replication is not None:
            self.replication.changed(number)
        return outcome

    def _append_in_memory(
        self, stream: StreamEntry, messages: Sequence[Publish], ts_ns: int, done: Done
    ) -> None:
        try:
            self.room.admit(stream, sum([len(message[3]) for message in messages]), 0, ts_ns)
        except StoreFull as error:
            done(error)
            return
        group = stream.group
        run = Appends(group.number, group.applied + 1, ts_ns, messages, range(len(messages)), done)
        done(self.apply(run, START))

    def _is_in_memory(self, group: int) -> bool:
        entry = self.catalog.streams.get(group)
        return entry is not None and entry.is_in_memory

    def waits_for_disk(self, group: int) -> bool:
        """Whether a command of this group waits for the disk. Which streams exist always does."""
        return group not in self.catalog.streams or self.sync_of(group) == SYNC_ALWAYS

    def _pass_border(self, batch: Batch) -> None:
        """A batch begins a file: everything in the files before is applied, and nothing of this one."""
        if self._applied_file or self.report.replay.files:
            # While a cycle moves messages their places are about to change: a later border must do.
            is_strewn = (
                self.replication is not None and not batch.begins_file and self.replication.has_unapplied
            )
            if is_strewn:
                # Entries that are to be applied later must not be in files before a border.
                self.journal.ask_to_turn()
            self.is_border_missed = self._cycle is not None or is_strewn
            if not self.is_border_missed:
                before, self._border = self._border, Border.take(self, batch)
                self._border.follow(before)
        self._applied_file = batch.position.file


def _keep_outcome(
    outcomes: list[Outcome | StoreError], place: int, result: Sequence[Outcome] | StoreError
) -> None:
    outcomes[place] = result if isinstance(result, StoreError) else result[0]
