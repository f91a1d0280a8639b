"""The segments of a store, for `edged fsck`: every byte of each, and whether the right ones are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from edged.core.expiry import message_expires_ns
from edged.store.block_cache import BlockCache
from edged.store.box import Keyring
from edged.store.checkpoint import Checkpoint, checkpoint_numbers
from edged.store.errors import Damaged, StoreBroken
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_report import Finding, Report, Severity
from edged.store.fsck_state import ReadState, Removals, WatchedMachine
from edged.store.segment import Segment
from edged.store.segment_check import Problem
from edged.store.segment_format import EXPIRIES, STREAMS, segment_name
from edged.store.stream_log import StreamLog

_CACHE_BYTES: Final = 1024 * 1024
_COPIES: Final = "edged fsck STORE_DIR --salvage NEW_DIR looks for copies in older files"
_REWRITE: Final = "nothing: it is read repaired; --salvage writes it anew"
_EXPIRIES_LOST: Final = f"column {EXPIRIES} is lost"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A segment that the newest checkpoint speaks of."""

    group: int
    title: str
    log: StreamLog
    removals: Removals
    entry: list[Any]  # path, [first, last seq], [live messages, live bytes], dead ones


def check_segments(
    files: StoreFiles,
    keys: Keyring,
    state: ReadState,
    newest: Checkpoint | None,
    older: Checkpoint | None,
    report: Report,
) -> dict[str, int]:
    """Look at all segments. How many messages each stream has lost."""
    return _SegmentCheck(files, keys, state, newest, older, report).run()


class _SegmentCheck:
    """One run. `state` is what the newest checkpoint and the journal came to."""

    def __init__(
        self,
        files: StoreFiles,
        keys: Keyring,
        state: ReadState,
        newest: Checkpoint | None,
        older: Checkpoint | None,
        report: Report,
    ) -> None:
        self._files = files
        self._keys = keys
        self._state = state
        self._report = report
        self._generation = newest.next_file if newest is not None else 0
        self._wanted = _wanted(newest, state)
        self._older = _paths(older)
        self._condemned = {path for _, path in (newest.state["condemned"] if newest is not None else ())}
        self._has_bad_checkpoints = len(checkpoint_numbers(files)) > sum(
            checkpoint is not None for checkpoint in (newest, older)
        )
        self._losses: dict[str, int] = {}

    def run(self) -> dict[str, int]:
        there = {one.path for one in self._files.below(STREAMS)}
        for path, wanted in sorted(self._wanted.items()):
            if path not in there:
                self._add_whole(wanted, "a segment is missing")
        for path in sorted(self._older - there - self._wanted.keys()):
            self._add(Severity.HARMLESS, "a segment of the older generation is missing", path)
        for path in sorted(there):
            name = segment_name(path)
            if path in self._wanted or path in self._older or path in self._condemned:
                self._report.segments += 1
                self._check(path)
            elif path.endswith(".tmp"):
                self._add(Severity.NOTE, "an unfinished file", path)
            elif name is None:
                self._add(Severity.NOTE, "not from edged", path)
            elif self._has_bad_checkpoints:
                self._add(Severity.NOTE, "a segment that only a lost checkpoint may speak of", path)
            elif name.generation > self._generation:
                self._add(Severity.NOTE, "what an unfinished cycle has left", path)
            else:
                self._add(Severity.NOTE, "a segment that no checkpoint speaks of", path)
        return self._losses

    def _check(self, path: str) -> None:
        wanted = self._wanted.get(path)
        try:
            segment = Segment.open(
                self._files, path, BlockCache(_CACHE_BYTES), self._keys, message_expires_ns
            )
            problems = segment.verify()
        except (Damaged, StoreBroken) as error:
            if isinstance(error, StoreBroken) and not isinstance(error.__cause__, OSError):
                raise
            if wanted is None:
                self._add(Severity.HARMLESS, f"a segment is lost: {error.what}", path, error.offset)
            else:
                self._add_whole(wanted, f"a segment is lost: {error.what}")
            return
        if wanted is not None and path in self._state.bad_segments:
            self._add_whole(wanted, f"a segment is of no use: {self._state.bad_segments[path]}")
            wanted = None
        for problem in problems:
            self._add_problem(path, problem, wanted)

    def _add_problem(self, path: str, problem: Problem, wanted: _Wanted | None) -> None:
        is_harmless = problem.costs_nothing or problem.what.startswith(_EXPIRIES_LOST)
        if is_harmless or wanted is None:
            advice = _REWRITE if wanted is not None else "nothing"
            self._add(Severity.HARMLESS, problem.what, path, problem.offset, advice)
            return
        log = wanted.log
        first = problem.first_seq
        last = problem.last_seq or (wanted.entry[1][1] if first else 0)
        count = _live_between(log, first, last) if first else 0
        if first and not count and not _is_lost(log, first, last):
            self._add(
                Severity.HARMLESS,
                f"{problem.what}; its messages are gone by now anyway",
                path,
                problem.offset,
            )
            return
        cost = f"messages {first} to {last}" if first else "perhaps messages of this segment"
        self._lose(wanted, problem.what, problem.offset, cost, (first, last), count)

    def _add_whole(self, wanted: _Wanted, what: str) -> None:
        """Nothing of a segment can be used."""
        first, last = wanted.entry[1]
        # Some may have come back from elsewhere since.
        count = max(wanted.entry[2][0] - _live_between(wanted.log, first, last), 0)
        if not count or last < wanted.removals.below_seq:
            self._add(Severity.HARMLESS, f"{what}; its messages are gone by now anyway", wanted.entry[0])
            return
        cost = f"{count} messages from {first} to {last}"
        self._lose(wanted, what, None, cost, (first, last), count)

    def _lose(
        self, wanted: _Wanted, what: str, offset: int | None, cost: str, seqs: tuple[int, int], count: int
    ) -> None:
        self._losses[wanted.title] = self._losses.get(wanted.title, 0) + count
        self._report.add(
            Finding(
                *(Severity.LOSS, what, wanted.entry[0], offset, cost, _COPIES, wanted.title), *seqs, count
            )
        )

    def _add(
        self, severity: Severity, what: str, path: str, offset: int | None = None, advice: str = "nothing"
    ) -> None:
        self._report.add(Finding(severity, what, path, offset, "nothing", advice))


def _wanted(newest: Checkpoint | None, state: ReadState) -> dict[str, _Wanted]:
    """The segments that count, of streams that are still there."""
    found: dict[str, _Wanted] = {}
    for number, *_, log in newest.state["groups"] if newest is not None else ():
        entry = state.catalog.streams.get(number)
        if log is None or entry is None or not isinstance(entry.log, StreamLog):
            continue
        assert isinstance(entry.group.machine, WatchedMachine)
        for one in log["segments"]:
            removals = entry.group.machine.removals
            found[one[0]] = _Wanted(number, f"{entry.account}/{entry.name}", entry.log, removals, one)
    return found


def _paths(checkpoint: Checkpoint | None) -> set[str]:
    groups = checkpoint.state["groups"] if checkpoint is not None else ()
    return {segment[0] for *_, log in groups if log is not None for segment in log["segments"]}


def _live_between(log: StreamLog, first: int, last: int) -> int:
    return log.count_matching((), first) - log.count_matching((), last + 1)


def _is_lost(log: StreamLog, first: int, last: int) -> bool:
    """Whether a range is known to be lost already, so that its messages are no longer counted as live."""
    return any(lost.first_seq <= last and first <= lost.last_seq for lost in log.lost)
