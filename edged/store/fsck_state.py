"""What a start would make of a store's files, a checkpoint and the journal after it, without writing.

It differs from recovery in what it does about trouble: recovery stops at what cannot be right, this notes it
and goes on, so that everything there is to say is said at once.

Rules: nothing is written. Every command that takes messages away is remembered (`Removals`), for messages
that are found elsewhere later. With `is_following` the logs hold only what is in the journal, and limits are
not applied: what was refused is known from the batch records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from edged.core.batch_record import Applied, BatchRecord
from edged.core.commands import Command, Config, Delete, Expire, Purge, PutStream, Refill, Shed
from edged.core.expiry import message_expires_ns
from edged.core.frame_twins import decode_append
from edged.core.frames import HEADER_BYTES
from edged.core.message import Message
from edged.core.stream_machine import MessageLog, Outcome, StreamMachine
from edged.core.subjects import matches
from edged.store.block_cache import BlockCache
from edged.store.box import Keyring
from edged.store.checkpoint import Checkpoint
from edged.store.errors import Damaged, StoreBroken
from edged.store.files import Files
from edged.store.group import CATALOG, Catalog, Group, LogMaker, StreamEntry
from edged.store.journal_file import JournalHeader
from edged.store.journal_reader import Chain, JournalFile, Part
from edged.store.memory_log import MemoryLog
from edged.store.message_index import LostRange
from edged.store.replay import Hole, Replay, ReplayReport
from edged.store.segment import Segment
from edged.store.stream_log import StreamLog

CACHE_BYTES: Final = 16 * 1024 * 1024


@dataclass(slots=True)
class Removals:
    """The messages that commands have taken away, as far as the commands say which."""

    below_seq: int = 0
    seqs: set[int] = field(default_factory=set)
    # Below which seq, and of which subjects.
    purges: list[tuple[int, bytes]] = field(default_factory=list)

    def note(self, command: Command, last_seq: int) -> None:
        """A command is about to be applied to a stream that ends with this seq."""
        if isinstance(command, Delete):
            self.seqs.add(command.seq)
        elif isinstance(command, Shed):
            self.below_seq = max(self.below_seq, command.last_seq + 1)
        elif isinstance(command, Expire):
            self.below_seq = max(self.below_seq, command.to_seq)
            self.seqs.update(command.seqs)
        elif isinstance(command, Purge) and not command.keep:
            end = command.to_seq or last_seq + 1
            if command.subject in (b"", b">"):
                self.below_seq = max(self.below_seq, min(end, last_seq + 1))
            else:
                self.purges.append((end, command.subject))

    def __contains__(self, message: Message) -> bool:
        """Whether a message has been taken away."""
        seq = message.seq
        if seq < self.below_seq or seq in self.seqs:
            return True
        return any(seq < end and matches(message.subject, subject) for end, subject in self.purges)


class WatchedMachine(StreamMachine):
    """A stream whose removals are remembered."""

    __slots__ = ("_is_following", "refilled", "removals")

    def __init__(self, log: MessageLog, config: Config, runs: StreamLog | None, is_following: bool) -> None:
        self.removals = Removals()
        # Seqs of messages that had been lost and came back.
        self.refilled: list[int] = []
        self._is_following = is_following
        super().__init__(log, config, runs)

    def configure(self, config: Config) -> None:
        """Take over a configuration; without its limits, where those cannot be applied."""
        if self._is_following:
            config = {key: value for key, value in config.items() if key == "duplicate_window"}
        super().configure(config)

    def apply(self, command: Command) -> Outcome:
        """Remember, then apply."""
        self.removals.note(command, self.log.last_seq)
        if not isinstance(command, Refill):
            return super().apply(command)
        if self._is_following:
            # What was known to be lost stood in a checkpoint.
            self.log.skip_to(command.seq)
            self.log.lost.append(LostRange(command.seq, command.seq, "its record is damaged"))
        outcome = super().apply(command)
        if outcome == command.seq:
            self.refilled.append(command.seq)
        return outcome


class WatchedCatalog(Catalog):
    """A catalog of watched streams."""

    __slots__ = ("_is_following",)

    def __init__(self, groups: dict[int, Group], make_log: LogMaker, is_following: bool) -> None:
        super().__init__(groups, make_log)
        self._is_following = is_following

    def add(
        self,
        command: PutStream,
        log: MessageLog,
        applied: int = 0,
        genesis: tuple[int, ...] = (),
        config: dict[str, Any] | None = None,
    ) -> StreamEntry:
        """As in Catalog."""
        entry = super().add(command, log, applied, genesis, config)
        runs = log if isinstance(log, StreamLog) else None
        assert isinstance(entry.group.machine, StreamMachine)
        running = entry.group.machine.config
        entry.group.machine = WatchedMachine(log, running, runs, self._is_following)
        return entry


class FollowingReplay(Replay):
    """A replay that believes the reports, where they contradict it, and goes on.

    `refused` has the commands of each group that are known to have changed nothing.
    """

    def __init__(
        self, files: Files, chain: Chain, groups: dict[int, Group], refused: Mapping[int, set[int]]
    ) -> None:
        super().__init__(files, chain, groups)
        self._refused = refused
        # Group, index, seq that replaying gave, seq that was reported.
        self.contradictions: list[tuple[int, int, int, int]] = []
        self._doubted: set[int] = set()

    def _is_decided_here(self, group: Group) -> bool:
        return not self._refused.get(group.number) and super()._is_decided_here(group)

    def _append(
        self, group: Group, index: int, data: bytes, body_start: int, size: int, place: tuple[int, int, int]
    ) -> None:
        if index not in self._refused.get(group.number, ()):
            super()._append(group, index, data, body_start, size, place)

    def _check(self, record: BatchRecord, part: Part, position: int) -> None:
        believed = tuple(report for report in record.applied if not self._is_contradicted(report))
        super()._check(replace(record, applied=believed), part, position)

    def _is_contradicted(self, report: Applied) -> bool:
        """Whether a report and the state differ; what can be done about it is done here."""
        group = self._groups.get(report.group)
        if group is None or report.index != group.applied or group.last_seq == report.last_seq:
            return False
        if is_in_memory(group):
            return True
        last_seq = group.last_seq
        if group.number not in self._doubted:
            self._doubted.add(group.number)
            self.contradictions.append((group.number, report.index, last_seq, report.last_seq))
        if isinstance(group.machine, StreamMachine) and last_seq < report.last_seq:
            group.machine.lose(last_seq + 1, report.last_seq)
        return True


def is_in_memory(group: Group) -> bool:
    """Whether the messages of a group were in memory only, so that they are gone with the process."""
    return isinstance(group.machine, StreamMachine) and isinstance(group.machine.log, MemoryLog)


class ReadState:
    """The state of a store's files."""

    def __init__(self, files: Files, keys: Keyring, is_following: bool = False) -> None:
        self._files = files
        self._keys = keys
        self._readers: dict[int, JournalFile] = {}
        self._headers: dict[int, JournalHeader] = {}
        self.cache = BlockCache(CACHE_BYTES)
        self.groups: dict[int, Group] = {}
        self.catalog = WatchedCatalog(self.groups, self._make_log, is_following)
        self.groups[CATALOG] = Group(CATALOG, self.catalog)
        self.last_batch = 0
        # Segments that a checkpoint speaks of and that are of no use as they are, with the reason.
        self.bad_segments: dict[str, str] = {}
        # Of streams with such segments: the entries of the checkpoint for them.
        self.bad_entries: dict[int, list[Any]] = {}
        self.contradictions: list[tuple[int, int, int, int]] = []
        self.holes: list[Hole] = []
        # By group, all that was lost on the way here: a log forgets what lies before its first message.
        self.lost: dict[int, list[LostRange]] = {}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over a checkpoint. Raises StoreBroken for what a newer version wrote, WrongKey."""
        state = checkpoint.state
        try:
            self.groups[CATALOG].applied = state["catalog"]
            self.catalog.highest_group = state["highest_group"]
            self.last_batch = state["last_batch"]
            for number, stream_id, account, name, config, applied, machine, log in state["groups"]:
                command = PutStream(number, stream_id, account, name, config)
                found = (
                    self._make_log(stream_id, True) if log is None else self._restore(number, command, log)
                )
                entry = self.catalog.add(command, found, applied)
                if log is not None:
                    assert isinstance(entry.group.machine, StreamMachine)
                    entry.group.machine.restore(machine)
                    self._note_lost(number, getattr(found, "lost", ()))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StoreBroken(f"checkpoint {checkpoint.next_file} is not understood ({error!r})") from error

    def replay(self, chain: Chain, refused: Mapping[int, set[int]] | None = None) -> ReplayReport:
        """Apply the journal. Raises StoreBroken for what a newer version wrote."""
        self._headers.update((header.number, header) for header, _ in chain.files)
        replay = FollowingReplay(self._files, chain, self.groups, refused or {})
        try:
            report = replay.run()
        except ValueError as error:
            raise StoreBroken(f"a record of the journal is not understood ({error})") from error
        self.contradictions = replay.contradictions
        self.holes = report.holes
        for hole in report.holes:
            if hole.first_seq <= hole.last_seq:
                self._note_lost(
                    hole.group, [LostRange(hole.first_seq, hole.last_seq, "its record is damaged")]
                )
        self._note_refilled()
        self.last_batch = max(self.last_batch, report.last_batch)
        return report

    def close(self) -> None:
        """Let go of the files."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    # --- inside ---

    def _note_lost(self, group: int, lost: Iterable[LostRange]) -> None:
        known = self.lost.setdefault(group, [])
        known += [one for one in lost if one not in known]

    def _note_refilled(self) -> None:
        for number, lost in self.lost.items():
            group = self.groups.get(number)
            for seq in group.machine.refilled if group and isinstance(group.machine, WatchedMachine) else ():
                lost[:] = [part for one in lost for part in one.without(seq)]

    def _make_log(self, stream_id: bytes, is_in_memory: bool) -> MessageLog:
        return MemoryLog() if is_in_memory else StreamLog(stream_id, self._read_hot, _decode_frame)

    def make_log(self, stream_id: bytes) -> StreamLog:
        """An empty log that reads from the journal."""
        return StreamLog(stream_id, self._read_hot, _decode_frame)

    def _restore(self, number: int, command: PutStream, log: dict[str, Any]) -> StreamLog:
        def open_segment(path: str) -> Segment:
            try:
                return self._usable(path)
            except (Damaged, StoreBroken) as error:
                if isinstance(error, StoreBroken) and not isinstance(error.__cause__, OSError):
                    raise
                self.bad_segments[path] = error.what
                for entry in log["segments"]:
                    if entry[0] == path:
                        self.bad_entries.setdefault(number, []).append(entry)
                    if entry[0] == path and entry[2][0]:
                        self._note_lost(
                            number, [LostRange(entry[1][0], entry[1][1], "its segment is damaged")]
                        )
                raise Damaged(error.what, path) from error

        return StreamLog.restore(log, open_segment, command.stream_id, self._read_hot, _decode_frame)

    def _usable(self, path: str) -> Segment:
        """A segment whose columns can be read, without which its messages cannot be told apart."""
        segment = Segment.open(self._files, path, self.cache, self._keys, message_expires_ns)
        if segment.subjects:
            segment.codes()
        return segment

    def _read_hot(self, file: int, offset: int, size: int) -> bytes:
        reader = self._readers.get(file)
        if reader is None:
            reader = JournalFile(self._files, file, self._keys, self._headers[file])
            self._readers[file] = reader
        return reader.frame(offset, size)


def _decode_frame(frame: bytes) -> tuple[int, bytes, int, bytes]:
    return decode_append(frame, HEADER_BYTES, len(frame) - HEADER_BYTES)
