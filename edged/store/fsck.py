"""`edged fsck`: looks at every byte of a store that counts, and says what is wrong and what it costs.

What is checked: the checkpoints of both generations, the header of every journal file and the chain that they
make, every frame and batch record, the indexes of every group (a gap is a hole), that replaying the journal
on each checkpoint agrees with the outcomes that were reported then, that the segments which checkpoints speak
of are there, whole and of the right stream; and what nobody speaks of.

Rules: nothing is written. The caller has the store's lock. Memory is bounded by what a start needs, and one
journal file. What a finding costs is said for the store as a start would find it: the newest good checkpoint
with the journal after it. Damage in what only the other generation needs costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from edged.core.stream_machine import StreamMachine
from edged.store.box import Keyring
from edged.store.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    checkpoint_numbers,
    checkpoint_path,
    decode_checkpoint,
)
from edged.store.errors import Damaged, StoreBroken, StoreError
from edged.store.fsck_files import LOCK, StoreFiles
from edged.store.fsck_found import chain_from, is_from_the_start
from edged.store.fsck_journal import JournalFile, Use, read_journal_files
from edged.store.fsck_report import Finding, Report, Severity, StreamFigures
from edged.store.fsck_segments import check_segments
from edged.store.fsck_state import ReadState, is_in_memory
from edged.store.guard import unguard
from edged.store.journal_file import HEADER_BYTES, JOURNAL, file_path, spare_names
from edged.store.journal_reader import Chain, read_header, read_parts
from edged.store.message_index import LostRange
from edged.store.recovery import LOST_AND_FOUND
from edged.store.replay import Hole, ReplayReport
from edged.store.segment_format import STREAMS

SALVAGE: Final = "edged fsck STORE_DIR --salvage NEW_DIR keeps everything that can be read"
SALVAGE_COPIES: Final = f"{SALVAGE}, and looks for copies in older files"
NEXT_CHECKPOINT: Final = "nothing: the next checkpoint replaces it"
DISK_ADVICE: Final = "watch the disk: bytes on it have changed"
_KNOWN_NAMES: Final = frozenset((JOURNAL, CHECKPOINTS, STREAMS, LOST_AND_FOUND, LOCK, "reserve"))

# Told how many bytes there are to read, about.
Plan = Callable[[int], None]


def verify(files: StoreFiles, keys: Keyring, plan: Plan = lambda total: None) -> Report:
    """Everything that is to be said about a store."""
    report = Report(files.root)
    try:
        _Verification(files, keys, report, plan).run()
    except (StoreError, OSError) as error:
        path = error.path if isinstance(error, StoreError) else str(error.filename or "")
        what = error.what if isinstance(error, StoreError) else str(error.strerror or error)
        advice = "see the reason; a newer version or another key may be needed"
        report.add(Finding(Severity.UNREADABLE, what, path, None, "nothing is known", advice))
    return report


def read_checkpoints(files: StoreFiles) -> Iterator[tuple[int, Checkpoint | None, str]]:
    """All checkpoints, the newest first: number, what is in it, and what is wrong with it if anything is.

    Raises StoreBroken for what a newer version wrote.
    """
    for number in reversed(checkpoint_numbers(files)):
        path = checkpoint_path(number)
        blob = files.read_all(path)
        try:
            found = decode_checkpoint(blob, path, files.keys)
        except Damaged as error:
            yield number, None, error.what
            continue
        if found.next_file != number:
            yield number, None, "its name does not fit its content"
        elif not _belongs(files, found):
            yield number, None, "the journal file after it is not the one that it was made for"
        else:
            yield number, found, "it was repaired" if unguard(blob, thorough=True).repaired else ""


def _belongs(files: StoreFiles, checkpoint: Checkpoint) -> bool:
    header = read_header(files, checkpoint.next_file)
    return header is None or header.nonce == checkpoint.state.get("nonce", header.nonce)


class _Verification:
    """One run."""

    def __init__(self, files: StoreFiles, keys: Keyring, report: Report, plan: Plan) -> None:
        self._files = files
        self._keys = keys
        self._report = report
        self._plan = plan
        self._journal: list[JournalFile] = []
        self._lost_of: dict[str, int] = {}

    def run(self) -> None:
        report, files = self._report, self._files
        self._check_layout()
        everything = files.below()
        journal_bytes = sum(one.size for one in everything if one.path.startswith(JOURNAL))
        # The journal is read once for each generation.
        self._plan(sum(one.size for one in everything) + journal_bytes)
        checkpoints = self._check_checkpoints()
        self._journal = read_journal_files(files)
        report.journal_files = sum(one.use is not Use.READY for one in self._journal)
        newest, older = (*checkpoints, None, None)[:2]
        chain = chain_from(files, newest.next_file if newest else 0)
        if newest is None and any(True for _ in checkpoint_numbers(files)) and not is_from_the_start(chain):
            self._add(
                Severity.LOSS,
                "no checkpoint can be read",
                CHECKPOINTS,
                None,
                "the store does not open",
                SALVAGE,
            )
        report.checkpoint = newest.next_file if newest else 0
        state = self._read_state(newest)
        try:
            replay = state.replay(chain)
            self._check_chain(chain, report.checkpoint)
            self._check_replay(state, replay, newest)
            losses = check_segments(files, self._keys, state, newest, older, report)
            self._check_lost(state, newest)
            self._list_streams(state, losses)
            figures = _figures(state)
        finally:
            state.close()
        if newest is not None:
            self._check_older(older, figures, replay)
        self._check_rest()

    def _add(
        self,
        severity: Severity,
        what: str,
        path: str,
        offset: int | None = None,
        cost: str = "nothing",
        advice: str = "nothing",
    ) -> None:
        self._report.add(Finding(severity, what, path, offset, cost, advice))

    # --- names ---

    def _check_layout(self) -> None:
        names = {one.path for one in self._files.found()}
        if not names & {JOURNAL, CHECKPOINTS, STREAMS}:
            raise StoreBroken("this is no store: it has neither a journal nor checkpoints nor streams")
        for name in (JOURNAL, CHECKPOINTS, STREAMS):
            if name not in names:
                cost = "everything that was in it"
                self._add(Severity.LOSS, "a directory is missing", name, None, cost, SALVAGE)
        for name in sorted(names - _KNOWN_NAMES):
            self._add(Severity.NOTE, "not from edged", name, None, "nothing: it is never touched")

    def _check_rest(self) -> None:
        """What nobody refers to, and what the disk did not give."""
        known = {file_path(one.number) for one in self._journal}
        known |= {f"{JOURNAL}/{name}" for name in spare_names(self._files.list(JOURNAL))}
        known |= {checkpoint_path(number) for number in checkpoint_numbers(self._files)}
        for one in self._files.found(JOURNAL) + self._files.found(CHECKPOINTS):
            if one.path not in known:
                is_unfinished = one.path.endswith(".tmp")
                what = "an unfinished file" if is_unfinished else "a name that edged does not know"
                self._add(Severity.NOTE, what, one.path)
        for one in self._files.below(LOST_AND_FOUND):
            what = f"{one.size} bytes that a start did not expect were put aside"
            advice = "edged inspect file shows what it is; edged does not need it"
            self._add(Severity.NOTE, what, one.path, None, "nothing by itself", advice)
        for path, start, end in self._files.unreadable():
            what = f"the disk does not give bytes {start} to {end - 1}"
            cost = "what the other findings about this file say"
            self._add(Severity.HARMLESS, what, path, start, cost, "replace the disk")

    # --- checkpoints ---

    def _check_checkpoints(self) -> list[Checkpoint]:
        everything = list(read_checkpoints(self._files))
        good = [found for _, found, _ in everything if found is not None]
        for number, found, trouble in everything:
            path = checkpoint_path(number)
            if found is not None and trouble:
                self._add(Severity.HARMLESS, trouble, path, None, "nothing", NEXT_CHECKPOINT)
            elif found is None:
                cost = "nothing: another checkpoint is good" if good else "see what follows"
                self._add(
                    Severity.HARMLESS, f"a checkpoint is lost: {trouble}", path, None, cost, DISK_ADVICE
                )
        return good

    def _read_state(self, checkpoint: Checkpoint | None) -> ReadState:
        state = ReadState(self._files, self._keys)
        if checkpoint is not None:
            state.restore(checkpoint)
        return state

    def _check_older(
        self, older: Checkpoint | None, newest: dict[str, tuple[int, ...]], replay: ReplayReport
    ) -> None:
        """Whether the other generation would come to the same state, should the newest be lost."""
        chain = chain_from(self._files, older.next_file if older is not None else 0)
        if older is None and not is_from_the_start(chain):
            return
        path = CHECKPOINTS if older is None else checkpoint_path(older.next_file)
        state = self._read_state(older)
        try:
            again = state.replay(chain)
            figures = _figures(state)
        finally:
            state.close()
        cost = "nothing while the newest checkpoint is good"
        for one in again.damage:
            if one not in replay.damage:
                what = f"bytes {one[1]} to {one[2] - 1} of the journal are damaged"
                self._add(Severity.HARMLESS, what, one[0], one[1], cost, DISK_ADVICE)
        for number in sorted(set(again.missing_files) - set(replay.missing_files)):
            what = "a file of the journal is missing, or its header is"
            self._add(Severity.HARMLESS, what, file_path(number), None, cost, NEXT_CHECKPOINT)
        # With something missing the two cannot be the same, and that has been said already.
        if figures != newest and self._report.status < Severity.LOSS:
            names = sorted(name for name in figures | newest if figures.get(name) != newest.get(name))
            what = f"from the generation before, these streams would not be the same: {', '.join(names)}"
            self._add(Severity.HARMLESS, what, path, None, cost, NEXT_CHECKPOINT)

    # --- the journal ---

    def _check_chain(self, chain: Chain, first: int) -> None:
        for one in self._journal:
            for offset in one.bad_copies if one.use is Use.USED else ():
                what = "one of two copies of a header is damaged"
                self._add(Severity.HARMLESS, what, one.path, offset, "nothing", DISK_ADVICE)
            if one.use is Use.HEADLESS and (one.number < first or one.number not in chain.missing):
                self._add_headless(one, chain, first)
        by_number = {one.number: one for one in self._journal}
        missing = list(chain.missing)
        if first and first not in by_number:
            # It was there when the checkpoint before it was made.
            missing.append(first)
        for number in sorted(set(missing)):
            lost = by_number.get(number)
            what = "a file of the journal is missing" if lost is None else "the header of a file is lost"
            readable = lost.frames if lost is not None else 0
            advice = SALVAGE if not readable else f"{SALVAGE}; {readable} frames of it can be read"
            self._add(Severity.LOSS, what, file_path(number), 0, "every command that was in it", advice)

        if chain.files and chain.files[0][0].number == first and not self._has_frames(chain):
            # The checkpoint was made after its first batch.
            what = "the journal file after the checkpoint has nothing in it"
            cost = "every command that was in it"
            self._add(Severity.LOSS, what, file_path(first), HEADER_BYTES, cost, SALVAGE)

    def _has_frames(self, chain: Chain) -> bool:
        """Whether something is in the first file of the chain."""
        return any(part.frames for part in islice(read_parts(self._files, chain), 1))

    def _add_headless(self, one: JournalFile, chain: Chain, first: int) -> None:
        what = "the header of a file is lost"
        is_last = one.number > chain.last and one.number >= first
        if is_last and (one.is_proven_durable or one.number == first):
            advice = f"{SALVAGE}; {one.frames} frames of it can be read"
            self._add(Severity.LOSS, what, one.path, 0, "every command that was in it", advice)
        elif is_last:
            what = "a file without a header, as a crash leaves it that cuts off its first batch"
            cost = "nothing if it was a crash, for then it was not acknowledged"
            self._add(Severity.HARMLESS, what, one.path, 0, cost, SALVAGE)
        else:
            self._add(Severity.HARMLESS, what, one.path, 0, "nothing: no start needs it", NEXT_CHECKPOINT)

    def _check_replay(self, state: ReadState, replay: ReplayReport, newest: Checkpoint | None) -> None:
        cost = "what is listed as missing in the journal" if replay.holes else "nothing: it was there twice"
        for path, start, stop in replay.damage:
            what = f"bytes {start} to {stop - 1} of the journal are damaged"
            self._add(Severity.HARMLESS, what, path, start, cost, DISK_ADVICE)
        if replay.torn_bytes:
            what = f"the last {replay.torn_bytes} bytes of the journal were cut off by a crash"
            self._add(
                Severity.NOTE,
                what,
                file_path(replay.end.file),
                replay.end.offset,
                "nothing: they were not acknowledged",
            )
        place = replay.damage[0] if len(replay.damage) == 1 else (JOURNAL, None, None)
        for hole in replay.holes:
            self._add_hole(state, hole, place[0], place[1])
        for number, index, found, reported in state.contradictions:
            what = f"replaying gives seq {found} where {reported} was acknowledged, at index {index}"
            cost = "the store does not open"
            self._report.add(
                Finding(
                    Severity.LOSS, what, JOURNAL, None, cost, SALVAGE, _title(state, number), reported, found
                )
            )

    def _add_hole(self, state: ReadState, hole: Hole, path: str, offset: int | None) -> None:
        group = state.groups.get(hole.group)
        if group is not None and is_in_memory(group):
            return
        count = hole.last_index - hole.first_index + 1
        what = (
            f"{count} commands are missing in the journal (indexes {hole.first_index} to {hole.last_index})"
        )
        title = _title(state, hole.group)
        messages = max(0, hole.last_seq - hole.first_seq + 1)
        log = group.machine.log if group is not None and isinstance(group.machine, StreamMachine) else None
        if messages and log is not None and hole.last_seq < log.first_seq:
            cost = f"nothing: messages {hole.first_seq} to {hole.last_seq} are gone by now anyway"
            self._report.add(Finding(Severity.HARMLESS, what, path, offset, cost, DISK_ADVICE, title))
            return
        cost = f"messages {hole.first_seq} to {hole.last_seq}" if messages else "what they said"
        if not messages and hole.group:
            cost = "no message; perhaps an acknowledgement, so that something is delivered once more"
        found = Finding(Severity.LOSS, what, path, offset, cost, SALVAGE_COPIES, title)
        if messages:
            found = replace(found, first_seq=hole.first_seq, last_seq=hole.last_seq, messages=messages)
        self._lost_of[title] = self._lost_of.get(title, 0) + messages
        self._report.add(found)

    # --- streams ---

    def _check_lost(self, state: ReadState, newest: Checkpoint | None) -> None:
        """What was lost before, and is known to be."""
        groups = newest.state["groups"] if newest is not None else []
        for number, *_, log in groups:
            entry = state.catalog.streams.get(number)
            if entry is None or log is None:
                continue
            there = {LostRange(*one) for one in log["lost"]}
            for lost in getattr(entry.log, "lost", ()):
                if any(one.first_seq <= lost.last_seq and lost.first_seq <= one.last_seq for one in there):
                    what = f"messages {lost.first_seq} to {lost.last_seq} were lost before: {lost.reason}"
                    self._report.add(
                        Finding(
                            Severity.NOTE,
                            what,
                            checkpoint_path(newest.next_file if newest else 0),
                            stream=f"{entry.account}/{entry.name}",
                            first_seq=lost.first_seq,
                            last_seq=lost.last_seq,
                        )
                    )

    def _list_streams(self, state: ReadState, losses: dict[str, int]) -> None:
        for _, entry in sorted(state.catalog.streams.items()):
            log, machine = entry.log, entry.group.machine
            assert isinstance(machine, StreamMachine)
            title = f"{entry.account}/{entry.name}"
            self._report.streams.append(
                StreamFigures(
                    entry.account,
                    entry.name,
                    entry.stream_id.hex(),
                    log.message_count,
                    log.bytes,
                    log.first_seq,
                    log.last_seq,
                    len(machine.consumers),
                    self._lost_of.get(title, 0) + losses.get(title, 0),
                )
            )


def _title(state: ReadState, group: int) -> str:
    entry = state.catalog.streams.get(group)
    if entry is not None:
        return f"{entry.account}/{entry.name}"
    return "the catalog of streams" if group == 0 else f"group {group}"


def _figures(state: ReadState) -> dict[str, tuple[int, ...]]:
    """What two states that are the same have in common, by stream."""
    found: dict[str, tuple[int, ...]] = {}
    for _, entry in state.catalog.streams.items():
        machine: Any = entry.group.machine
        if not is_in_memory(entry.group):
            log = entry.log
            figures = (log.first_seq, log.last_seq, log.message_count, log.bytes)
            found[f"{entry.account}/{entry.name}"] = (*figures, len(machine.consumers), entry.group.applied)
    return found
