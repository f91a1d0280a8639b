"""Brings the groups from a checkpoint to the end of the journal, and says what could not be brought.

Rules:
* The commands of a group are applied in the order of their indexes. A command that is there twice
  counts once.
* A gap in the indexes is a hole. What later batch records report of the group says which seqs the messages
  behind the hole have, and which commands had been refused; this is followed rather than decided again.
  Where reports end everything was taken, or nobody was told (edged/store/commit_line.py); only what is here
  already is not taken twice.
* The members of an atomic batch stand next to each other, and the last one decides. Where it is missing, the
  reports say what the others came to, and if they do not, the others are lost as well; at the end of the
  journal the batch was torn, and never was.
* Without a hole the reports must agree with what replaying gave. If they do not, the state cannot be trusted.
* Groups that several nodes have are different (edged/store/found_log.py): their entries wait until a report
  says that they were applied, and nothing behind damage is taken. Frames of a group may stand before the
  report of the catalog that makes it known: they wait for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from edged.core.atomic_rules import Member
from edged.core.batch_record import BatchRecord
from edged.core.commands import Command, Purge, Skip, decode
from edged.core.frame_twins import decode_append
from edged.core.frames import (
    APPEND,
    BATCH,
    COMMAND,
    CUT,
    HARD_STATE,
    INSTALL,
    MEMBERS,
    MORE,
    REPAIR,
    Frame,
    append_flags,
)
from edged.core.publish_headers import MESSAGE_ID, fields_of
from edged.core.repair_records import GivenUp, Repaired, decode_repaired
from edged.core.replica_records import HardRecord, MembersRecord
from edged.core.run_twins import run_of_frames, stretch_of
from edged.core.stream_machine import Duplicate, Refused, StreamMachine
from edged.store.errors import StoreBroken
from edged.store.files import Files
from edged.store.found_log import FoundLog
from edged.store.group import CATALOG, Catalog, Group
from edged.store.group_reports import GroupReports
from edged.store.install import GroupState
from edged.store.journal import START, Position
from edged.store.journal_file import file_path
from edged.store.journal_reader import Chain, Part, read_parts
from edged.store.mending import put_back
from edged.store.stretch import Stretch

# Lets a state take the place of a group's: its index, what it is, and the file that says so.
Install = Callable[[Group, int, GroupState, int], None]
_NOTHING_KNOWN: Final = GroupReports()


@dataclass(frozen=True, slots=True)
class Hole:
    """Commands that are lost, and the messages among them if `last_seq` >= `first_seq`."""

    group: int
    first_index: int
    last_index: int
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class ReplayReport:
    """What recovery found."""

    files: int = 0
    records: int = 0
    torn_bytes: int = 0
    holes: list[Hole] = field(default_factory=list)
    damage: list[tuple[str, int, int]] = field(default_factory=list)
    missing_files: list[int] = field(default_factory=list)
    ignored_records: int = 0
    end: Position = START
    last_batch: int = 0


class Replay:
    """One recovery. `run()` does it all. `known` are parts of the chain that were read already, by file.

    `last_batch` is the number of the last batch before, 0 if it is not known.
    """

    def __init__(
        self,
        files: Files,
        chain: Chain,
        groups: dict[int, Group],
        known: Mapping[int, Part] = MappingProxyType({}),
        last_batch: int = 0,
        install: Install | None = None,
    ) -> None:
        self._files = files
        self._install_state = install
        self._chain = chain
        self._known_parts = known
        self._groups = groups
        # Groups that have a hole behind them, and what the rest of the journal says about each of them.
        self._known: dict[int, GroupReports] = {}
        # The same of every group, once there is a hole in one: all are looked at in one pass.
        self._reports: dict[int, GroupReports] | None = None
        # The group whose atomic batch has not come to its end.
        self._unfinished: Group | None = None
        # Frames of groups that are not known yet, up to the next batch record: part and position.
        self._early: list[tuple[Part, int]] = []
        self.report = ReplayReport(missing_files=list(chain.missing), last_batch=last_batch)

    def run(self) -> ReplayReport:
        report = self.report
        for part in read_parts(self._files, self._chain, known=self._known_parts):
            report.files += 1
            report.torn_bytes += part.torn_bytes
            path = file_path(part.number)
            report.damage += [(path, start, stop) for start, stop in part.damage]
            if any(report.end.file < number < part.number for number in report.missing_files):
                self._stop_logs()
            report.end = Position(part.number, part.end)
            for group in self._incomplete(report.files):
                self._follow(group, part, 0)
            self._replay(part)
            # It is let go of before the next one is read: two of them take twice the memory.
            del part
        self._drop_torn()
        if any(number > report.end.file for number in report.missing_files):
            self._stop_logs()
        for group in self._groups.values():
            if group.found is not None:
                group.found.finish()
            else:
                group.next_index = group.applied + 1
        return report

    def _incomplete(self, files: int) -> list[Group]:
        """At the first file: the groups that have lost messages before, with a segment that is gone."""
        if files > 1:
            return []
        return [group for group in self._groups.values() if group.has_losses and group.found is None]

    def _replay(self, part: Part) -> None:
        data, frames = part.data, part.frames
        groups = self._groups
        position, count = 0, len(frames)
        damage = [start for start, _ in part.damage]
        while position < count:
            offset, kind, number, index, body_start, size = frames[position]
            position += 1
            if damage and offset >= damage[0]:
                self._stop_logs()
                damage = [start for start in damage if start > offset]
            if self._unfinished is not None:
                self._look_after_batch(frames[position - 1], part, position - 1)
            if kind == BATCH:
                self._check(BatchRecord.decode(data[body_start : body_start + size]), part, position - 1)
                self.report.last_batch = index
                continue
            group = groups.get(number)
            if kind > COMMAND or (self._is_catalog_shared if group is None else group.found is not None):
                position = self._take_shared(part, position - 1)
                continue
            if group is None:
                # Its stream was removed, or is known only from here on.
                self.report.ignored_records += 1
                continue
            if index <= group.applied:
                continue
            if index > group.applied + 1:
                self._pass_hole(group, index, part, position - 1)
            if kind == APPEND:
                taken = self._append_run(group, part, position - 1)
                if taken:
                    position += taken - 1
                    continue
                place = (part.number, offset, body_start + size - offset)
                self._append(group, index, data, body_start, size, place)
            elif kind == COMMAND:
                command = decode(data[body_start : body_start + size])
                group.machine.apply(command)
            group.applied = index
            self.report.records += 1
        if damage:
            self._stop_logs()
        for group in groups.values():
            if group.found is not None and group.lacks_messages:
                # Its entries wait: what else is in the file should not.
                group.found.let_go()

    def _append_run(self, group: Group, part: Part, position: int) -> int:
        """Store the messages from this frame on in one go; how many could be."""
        machine = group.machine
        assert isinstance(machine, StreamMachine), group.number
        if not machine.takes_runs or not self._is_decided_here(group):
            return 0
        run = run_of_frames(part.data, part.frames, position)
        if run is None:
            return 0
        count = len(machine.place_run(part.number, run))
        group.applied += count
        self.report.records += count
        return count

    def _is_decided_here(self, group: Group) -> bool:
        """Whether what becomes of messages follows from the state alone, and not from reports."""
        return group.number not in self._known

    def _append(
        self, group: Group, index: int, data: bytes, body_start: int, size: int, place: tuple[int, int, int]
    ) -> None:
        machine = group.machine
        assert isinstance(machine, StreamMachine), group.number
        known = self._known.get(group.number)
        if known is not None and known.is_refused(index):
            return
        ts_ns, subject, header_bytes, message = decode_append(data, body_start, size)
        flags = append_flags(data, body_start)
        is_reported = known is not None and index <= known.last_index
        if known is not None and not is_reported and not flags & MORE:
            member = Member(ts_ns, subject, header_bytes, message, place, fields_of(message[:header_bytes]))
            self._unfinished = None
            _believe(group, machine, index, member)
            return
        outcome = machine.append(ts_ns, subject, header_bytes | flags, message, place, force=is_reported)
        count = len(machine.take_decided()) or 1
        self._unfinished = group if outcome is None else None
        if isinstance(outcome, Refused | Duplicate):
            group.refused += range(index - count + 1, index + 1)

    # --- atomic batches without an end ---

    def _look_after_batch(self, frame: Frame, part: Part, position: int) -> None:
        """If this frame does not go on with the batch, its last message is lost."""
        group = self._unfinished
        assert group is not None
        _, kind, number, index, _, _ = frame
        if kind == APPEND and number == group.number and index == group.applied + 1:
            return
        machine = group.machine
        assert isinstance(machine, StreamMachine), group.number
        self._unfinished = None
        self._follow(group, part, position)
        known = self._known[group.number]
        members = machine.give_up_members()
        if not known.is_sure(group.applied):
            # Nobody tells what they came to: they are lost with the rest of the batch.
            group.applied -= len(members)
            return
        for index, member in enumerate(members, group.applied - len(members) + 1):
            if known.is_refused(index):
                group.refused.append(index)
            else:
                _take(machine, member)

    def _drop_torn(self) -> None:
        """At the end of the journal: a batch that a crash has cut was not written at all."""
        if self._unfinished is not None:
            machine = self._unfinished.machine
            assert isinstance(machine, StreamMachine), self._unfinished.number
            self._unfinished.applied -= len(machine.give_up_members())

    # --- reports of earlier outcomes ---

    def _check(self, record: BatchRecord, part: Part, position: int) -> None:
        """Compare what is reported with the state. What was lost since the report before shows here."""
        for report in record.applied:
            group = self._groups.get(report.group)
            if group is None or not group.is_reported:
                continue
            if group.found is not None:
                group.found.apply(report.index, _change)
                if group.number == CATALOG:
                    self._take_early()
                if group.found is None or group.found.is_broken or group.lacks_messages:
                    continue
            if report.index > group.applied:
                # Everything it speaks of stands before it in the journal: the rest is lost.
                self._follow(group, part, position)
                self._lose(group, report.index, report.last_seq)
            elif report.index == group.applied and group.last_seq != report.last_seq:
                raise StoreBroken(
                    f"replaying gave seq {group.last_seq} where {report.last_seq} was acknowledged"
                    f" (group {report.group}, index {report.index}); run edged fsck"
                )

        self._take_early()

    # --- groups that several nodes have ---

    @property
    def _is_catalog_shared(self) -> bool:
        """Whether groups become known only when a report says that the catalog was applied."""
        catalog = self._groups.get(CATALOG)
        return catalog is not None and catalog.found is not None

    def _take_shared(self, part: Part, position: int) -> int:
        """Take the frames of such a group from a position on; where others begin."""
        offset, kind, number, index, start, size = part.frames[position]
        stop, last = position + 1, index
        if kind in (APPEND, COMMAND):
            stop, last = stretch_of(part.frames, position)
        group = self._groups.get(number)
        if group is None:
            self._early.append((part, position))
            return stop
        body = part.data[start : start + size]
        if kind == MEMBERS:
            members = MembersRecord.decode(body)
            if group.found is None:
                # So a group begins that no command of the catalog makes known: the catalog itself.
                group.found = FoundLog(group, members, base_index=group.applied)
            tag_bytes = self._chain.tag_bytes(part.number)
            group.found.take_members(index, members, part.number, offset, start + size + tag_bytes)
        elif group.found is None:
            self.report.ignored_records += 1
        elif kind == HARD_STATE:
            group.found.take_hard(HardRecord.decode(body))
        elif kind == CUT:
            group.found.cut(index, body)
        elif kind == INSTALL:
            self._install(group, index, body, part.number)
        elif kind == REPAIR:
            self._repair(group, decode_repaired(body), part.number)
        else:
            tag_bytes = self._chain.tag_bytes(part.number)
            stretch = Stretch(part.data, part.frames, position, stop, index, last, tag_bytes)
            group.found.take_stretch(stretch, part.number)
            self.report.records += last - index + 1
        return stop

    def _install(self, group: Group, index: int, body: bytes, file: int) -> None:
        """The state of a group comes from another node."""
        assert group.found is not None
        if index <= group.applied:
            return
        if self._install_state is None:
            group.found.stop()
            return
        found = GroupState.decode(body)
        self._install_state(group, index, found, file)
        group.found.reset(index, found.term, found.members)

    def _repair(self, group: Group, record: Repaired, file: int) -> None:
        """Lost messages came back, or this node gave its copy up."""
        assert group.found is not None
        if not isinstance(record, GivenUp):
            put_back(group, record)
        elif self._install_state is not None:
            state = GroupState.empty(record.genesis)
            self._install_state(group, 0, state, file)
            group.found.reset(0, 0, state.members)
            group.found.hard = replace(group.found.hard, is_rejoining=True)

    def _take_early(self) -> None:
        """Take what came before its group was known."""
        early, self._early = self._early, []
        catalog = self._groups[CATALOG]
        for part, position in early:
            number = part.frames[position][2]
            if number in self._groups:
                self._take_shared(part, position)
                continue
            # Its stream was removed, or this node does not know of it any more.
            self.report.ignored_records += 1
            assert isinstance(catalog.machine, Catalog)
            if catalog.found is not None and catalog.found.is_broken:
                catalog.machine.left.add(number)

    def _stop_logs(self) -> None:
        """Something is damaged, and nobody can tell which group it belonged to."""
        for group in self._groups.values():
            if group.found is not None:
                group.found.stop()

    def _lose(self, group: Group, last_index: int, last_seq: int) -> None:
        """Commands up to an index are lost, and with them messages up to a seq."""
        first_index, first_seq = group.applied + 1, group.last_seq + 1
        if isinstance(group.machine, StreamMachine) and last_seq >= first_seq:
            group.machine.lose(first_seq, last_seq)
        self.report.holes.append(Hole(group.number, first_index, last_index, first_seq, last_seq))
        group.applied = last_index

    def _pass_hole(self, group: Group, index: int, part: Part, position: int) -> None:
        """Commands before `index` are lost. Find out how many of them were messages."""
        self._follow(group, part, position)
        last_seq = group.last_seq
        if isinstance(group.machine, StreamMachine):
            reported = self._known[group.number].last_seq_before(index)
            if reported is not None:
                last_seq = max(last_seq, reported)
            else:
                # Nothing tells: a seq that was never used does no harm, one used twice would.
                last_seq += index - 1 - group.applied
        self._lose(group, index - 1, last_seq)

    def _follow(self, group: Group, part: Part, position: int) -> None:
        """Something of this group is lost: from here on its outcomes are taken from the reports."""
        if group.number in self._known:
            return
        if self._reports is None:
            self._reports = self._read_reports(part, position)
        self._known[group.number] = self._reports.get(group.number, _NOTHING_KNOWN)

    def _read_reports(self, part: Part, position: int) -> dict[int, GroupReports]:
        """What the journal says about all groups from a position on."""
        found: defaultdict[int, GroupReports] = defaultdict(GroupReports)
        last_batch, gaps = self.report.last_batch, 0
        for data, (_, kind, number, index, start, size) in self._frames_after(part, position):
            if kind == APPEND:
                found[number].add_append(index)
            elif kind == COMMAND:
                if isinstance(decode(data[start : start + size]), Skip | Purge):
                    found[number].add_jump(index)
            elif kind == BATCH:
                gaps += last_batch > 0 and index > last_batch + 1
                last_batch = index
                for report in BatchRecord.decode(data[start : start + size]).applied:
                    found[report.group].add(report, gaps)
        return dict(found)

    def _frames_after(self, part: Part, position: int) -> Iterator[tuple[bytes, Frame]]:
        """The frames from a position on, through all files that follow."""
        for frame in islice(part.frames, position, None):
            yield part.data, frame
        for later in read_parts(self._files, self._chain, part.number, self._known_parts):
            for frame in later.frames:
                yield later.data, frame


def _change(group: Group, command: Command) -> None:
    group.machine.apply(command)


def _believe(group: Group, machine: StreamMachine, index: int, last: Member) -> None:
    """Take a message, or an atomic batch with its last one, of which nothing says that it was refused."""
    members = [*machine.give_up_members(), last]
    if not machine.rules.is_mirror and any(_is_here(machine, member) for member in members):
        group.refused += range(index - len(members) + 1, index + 1)
        return
    for member in members:
        _take(machine, member)


def _is_here(machine: StreamMachine, member: Member) -> bool:
    """Whether a message with this id was stored before."""
    message_id = member.fields.get(MESSAGE_ID)
    return message_id is not None and machine.dedupe.seen(message_id, member.ts_ns) is not None


def _take(machine: StreamMachine, member: Member) -> None:
    """Store a message that was stored once."""
    machine.append(*member[:5], force=True)


def without_torn_batch(data: bytes, frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames without those at the end that are messages of an atomic batch which a crash has cut."""
    end = len(frames)
    while end and frames[end - 1][1] == APPEND and append_flags(data, frames[end - 1][4]) & MORE:
        end -= 1
    return frames[:end]
