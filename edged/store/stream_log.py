"""The messages of a stream that are in files: first in the journal (hot), later in segments (cold).

A message is appended with its place in the journal. When a journal file is complete, somebody asks what
is alive in it, writes that to a segment and calls adopt() (or seal()): from then on it is read there. The
same way segments are merged and rewritten. Whatever is removed in between stays removed.

Rules: see message_index.py; what is written to a segment is everything that live_in_file() and
deleted_in() said was alive, and a file is complete when live_in_file() is asked. A message that should be
in the new segment and is not is lost, and said so in `lost`.
Invariant: what is hot is behind what is cold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edged.core.message import Message, counted_bytes
from edged.core.run_twins import enter_subjects
from edged.core.runs import Run
from edged.store.column_cache import ColumnCache
from edged.store.deleted import DeletedPositions
from edged.store.errors import Damaged
from edged.store.hot_places import DecodeFrame, HotPlaces, LivePlaces, ReadHot, ReadSpan
from edged.store.log_part import LogPart
from edged.store.losses import Losses
from edged.store.message_index import LostRange
from edged.store.sealed_part import DeadSeqs, SavedPart, SealedMessages, SealedPart

UNREADABLE: Final = "it could not be read when it was to be moved"

_LOST_RANGES_MAX: Final = 1024
_LOST_SPAN_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentFigures:
    """A segment of a log and how much of it is alive: whether it is worth a rewrite."""

    segment: SealedMessages
    live_count: int
    live_bytes: int


class StreamLog(Losses):
    """A log whose messages are in the journal and in segments."""

    def __init__(
        self,
        stream_id: bytes,
        read_hot: ReadHot,
        decode: DecodeFrame,
        columns: ColumnCache | None = None,
        read_span: ReadSpan | None = None,
    ) -> None:
        super().__init__()
        self.stream_id = stream_id
        self._read_hot = read_hot
        self._read_span = read_span
        self._decode = decode
        self._columns = columns or ColumnCache()
        self._tail: HotPlaces | None = None

    # --- messages come in ---

    @staticmethod
    def counted_bytes(subject_bytes: int, header_bytes: int, data_bytes: int) -> int:
        """What a message counts for."""
        return counted_bytes(subject_bytes, header_bytes, data_bytes)

    def keep(self, message: Message, message_bytes: int, place: tuple[int, int, int]) -> None:
        """Store a message that the journal has at this place: file, offset, frame bytes."""
        self.append(message.seq, message.ts_ns, message.subject, message_bytes, *place)

    def append(
        self,
        seq: int,
        ts_ns: int,
        subject: bytes,
        message_bytes: int,
        file: int,
        offset: int,
        frame_bytes: int,
    ) -> None:
        """Store a message behind all others; the journal has it at this place. Seqs may be left out."""
        assert seq > self.last_seq, (seq, self.last_seq)
        tail = self._tail
        # What follows is written out instead of called: it runs for every message.
        if tail is None or file != tail.file or (seq != tail.last_seq + 1 and not tail.has_holes):
            tail = self._begin_tail(file, seq)
        table = self.table
        number = table.numbers.get(subject)
        if number is None:
            number = table.add(subject)
        tail.append(seq, ts_ns, number, message_bytes, offset, frame_bytes)
        if table.unsure[number] or not table.counts[number]:
            table.append(number, seq)
        else:
            table.counts[number] += 1
            table.lasts[number] = seq
        if not self.message_count:
            self.first_seq = seq
        self.message_count += 1
        self.bytes += message_bytes
        self.last_seq = seq
        self.last_ts_ns = ts_ns

    def append_run(self, first_seq: int, file: int, run: Run) -> None:
        """Store messages with consecutive seqs, as append() does one by one."""
        subjects, times_ns, offsets, sizes, message_bytes = run
        if not subjects:
            return
        assert first_seq > self.last_seq, (first_seq, self.last_seq)
        tail = self._tail
        if tail is None or file != tail.file or (first_seq != tail.last_seq + 1 and not tail.has_holes):
            tail = self._begin_tail(file, first_seq)
        numbers = enter_subjects(self.table, subjects, range(first_seq, first_seq + len(subjects)))
        tail.append_run(first_seq, times_ns, numbers, offsets, sizes, message_bytes)
        if not self.message_count:
            self.first_seq = first_seq
        self.message_count += len(subjects)
        self.bytes += message_bytes
        self.last_seq = tail.last_seq
        self.last_ts_ns = tail.last_ts_ns

    def _begin_tail(self, file: int, seq: int) -> HotPlaces:
        tail = self._tail
        assert tail is None or file >= tail.file, (file, seq)
        has_holes = tail is not None and file == tail.file
        self._tail = HotPlaces(file, seq, self._read_hot, self._decode, has_holes, self._read_span)
        self._add_part(self._tail)
        return self._tail

    # --- messages move ---

    @property
    def segments(self) -> list[SealedMessages]:
        """The segments, in the order of their seqs."""
        return [part.segment for part in self._parts if isinstance(part, SealedPart)]

    def segment_figures(self) -> list[SegmentFigures]:
        """The segments and how much of each is alive."""
        return [
            SegmentFigures(part.segment, part.live_count, part.live_bytes)
            for part in self._parts
            if isinstance(part, SealedPart)
        ]

    def hot_files(self) -> list[int]:
        """The journal files that messages are read from, alive or not."""
        return sorted({part.file for part in self._parts if isinstance(part, HotPlaces)})

    def live_in_file(self, file: int) -> list[LivePlaces]:
        """Where the messages of a complete journal file are that are alive, to be moved."""
        found: list[LivePlaces] = []
        for part in self._parts_of([file], ()):
            assert isinstance(part, HotPlaces)
            part.removed_since = []
            found.append(part.places())
        return found

    def deleted_in(self, segment: SealedMessages) -> DeadSeqs:
        """The messages of a segment that are gone, for a copy without them. Any thread may ask the result."""
        (part,) = self._parts_of((), [segment])
        assert isinstance(part, SealedPart)
        part.removed_since = []
        return DeadSeqs(part)

    def seal(self, file: int, segment: SealedMessages | None) -> None:
        """The live messages of a journal file are in this segment now; None: there are none."""
        self.adopt([file], (), segment)

    def replace_segments(self, old: Sequence[SealedMessages], new: SealedMessages | None) -> None:
        """The live messages of some segments, neighbours, are in a new one now; None: there are none."""
        self.adopt((), old, new)

    def refilled(self) -> list[Message]:
        """The messages that were put back and are in no segment yet, to be moved."""
        if self._refilled is None:
            return []
        self._refilled.removed_since = set()
        return self._refilled.messages()

    def adopt(
        self,
        files: Collection[int],
        old: Sequence[SealedMessages],
        new: SealedMessages | None,
        refilled: Collection[int] = (),
    ) -> list[LostRange]:
        """The live messages of these journal files and segments are in a new segment now.

        Files and segments are neighbours. `refilled` are those of refilled() that lie between or beside them.
        Messages that are missing in the new segment are lost: removed, and returned.
        """
        parts = self._parts_of(files, old)
        if not parts and new is None:
            return []
        index = self._parts.index(parts[0]) if parts else self._index_of_new(new)
        assert self._parts[index : index + len(parts)] == parts, "parts that are not neighbours"
        lost: list[LostRange] = []
        sealed = None if new is None else SealedPart.adopted(new, self._columns, self.table)
        if sealed is not None:
            self._remove_since(parts, sealed)
        left = self._take_refilled(refilled, sealed)
        live_count = sum(part.live_count for part in parts) + len(left)
        if live_count != (0 if sealed is None else sealed.live_count):
            lost = self._reconcile(parts, sealed, left)
        put = [] if sealed is None else [sealed]
        self._parts[index : index + len(parts)] = put
        self._starts[index : index + len(parts)] = [part.first_seq for part in put]
        for part in parts:
            self._filters.forget_part(part)
            if isinstance(part, SealedPart):
                self._columns.forget(part)
            elif part is self._tail:
                self._tail = None
        if lost:
            self._note_lost(lost)
        return lost

    def _parts_of(self, files: Collection[int], segments: Sequence[SealedMessages]) -> list[LogPart]:
        return [
            part
            for part in self._parts
            if (isinstance(part, HotPlaces) and part.file in files)
            or (isinstance(part, SealedPart) and any(part.segment is segment for segment in segments))
        ]

    def _remove_since(self, parts: Sequence[LogPart], sealed: SealedPart) -> None:
        """Remove from a new part what was removed while it was being written."""
        sealed.remove_below(sealed.position_from(self.first_seq))
        for part in parts:
            for seq in part.removed_since or ():
                position = sealed.find_live(seq)
                if position >= 0:
                    sealed.remove(position, sealed.bytes_at(position))

    def _index_of_new(self, new: SealedMessages | None) -> int:
        """Where a segment belongs that takes the place of nothing."""
        assert new is not None
        return bisect_left(self._starts, new.first_seq)

    def _take_refilled(self, refilled: Collection[int], sealed: SealedPart | None) -> list[int]:
        """Read what had been put back from the new part; the seqs of those that are still there."""
        if self._refilled is None or not refilled:
            return []
        assert sealed is not None, refilled
        for seq in self._refilled.removed_since or ():
            position = sealed.find_live(seq) if seq in refilled else -1
            if position >= 0:
                sealed.remove(position, sealed.bytes_at(position))
        left = [seq for seq in refilled if self._refilled.find(seq) is not None]
        self._refilled.forget(left)
        if not self._refilled.seqs:
            self._refilled = None
        return left

    def _reconcile(
        self, parts: Sequence[LogPart], sealed: SealedPart | None, refilled: Collection[int]
    ) -> list[LostRange]:
        """Make the index and a new part agree, when they differ in what is alive."""
        lost: list[LostRange] = []
        there: set[int] = set()
        if sealed is not None:
            there = {sealed.seq_at(position) for position in sealed.live_positions()}
            there.difference_update(refilled)
        for part in parts:
            for position in list(part.live_positions()):
                seq = part.seq_at(position)
                if seq in there:
                    there.discard(seq)
                    continue
                size = part.bytes_at(position)
                number = part.number_of(part.column()[position])
                part.remove(position, size)
                self.table.remove(number, seq)
                self.message_count -= 1
                self.bytes -= size
                lost.append(LostRange(seq, seq, UNREADABLE))
        for seq in there:
            assert sealed is not None
            position = sealed.find_live(seq)
            sealed.remove(position, sealed.bytes_at(position))
        return joined(lost)

    def _note_lost(self, lost: Sequence[LostRange]) -> None:
        self.lost.extend(lost)
        self.lost.sort()
        self.missing_count += sum(one.last_seq - one.first_seq + 1 for one in lost)
        self._advance(self.first_seq)

    # --- checkpoints ---

    def snapshot(self) -> dict[str, Any]:
        """The state at a border between journal files, for a checkpoint: all but what is hot.

        What is hot is missing in it until moved_snapshot() says which segment has it.
        """
        return {
            "last_seq": self.last_seq,
            "last_ts_ns": self.last_ts_ns,
            "segments": [
                [
                    part.segment.path,
                    [part.first_seq, part.last_seq],
                    [part.live_count, part.live_bytes],
                    part.dump_deleted(),
                ]
                for part in self._parts
                if isinstance(part, SealedPart)
            ],
            "lost": [list(lost) for lost in self.lost],
            **({"missing": self.missing_count} if self.missing_count else {}),
        }

    @classmethod
    def restore(
        cls,
        snapshot: dict[str, Any],
        open_segment: Callable[[str], SealedMessages],
        stream_id: bytes,
        read_hot: ReadHot,
        decode: DecodeFrame,
        columns: ColumnCache | None = None,
        read_span: ReadSpan | None = None,
    ) -> StreamLog:
        """The log as it was. A segment that open_segment() finds Damaged is lost; the log goes on without."""
        log = cls(stream_id, read_hot, decode, columns, read_span)
        lost = [LostRange(*one) for one in snapshot["lost"]]
        log.missing_count = snapshot.get("missing", 0)
        for path, seqs, live, deleted in sorted(snapshot["segments"], key=lambda entry: entry[1][0]):
            saved = SavedPart((seqs[0], seqs[1]), (live[0], live[1]), deleted)
            try:
                part = log._restore_part(open_segment(path), saved)
            except Damaged:
                if live[0]:
                    lost += _lost_of(saved, None, "its segment is damaged")
                    log.missing_count += live[0]
                continue
            if part.live_count < live[0]:
                lost += _lost_of(saved, part, "a part of its segment is damaged")
                log.missing_count += live[0] - part.live_count
        log.last_seq = snapshot["last_seq"]
        log.last_ts_ns = snapshot["last_ts_ns"]
        log.lost = sorted(lost)
        log._advance(0)
        return log

    def _restore_part(self, segment: SealedMessages, saved: SavedPart) -> SealedPart:
        try:
            part = SealedPart.restored(segment, self._columns, self.table, saved)
        except Damaged:
            # Its columns are bad and so are some of its blocks: what there still is of it the others say.
            part = SealedPart.restored(segment.rebuilt(), self._columns, self.table, saved)
        self._add_part(part)
        self.message_count += part.live_count
        self.bytes += part.live_bytes
        return part


def moved_snapshot(
    snapshot: dict[str, Any],
    old: Sequence[SealedMessages],
    new: SealedMessages | None,
    lost: Sequence[LostRange] = (),
) -> dict[str, Any]:
    """A snapshot in which a segment stands for older ones, and for what was hot or put back then.

    `lost` is what could not be brought into the segment.
    """
    gone = {segment.path for segment in old}
    segments = [entry for entry in snapshot["segments"] if entry[0] not in gone]
    if new is not None:
        untouched = [0, []]
        seqs, live = [new.first_seq, new.last_seq], [new.count, new.message_bytes]
        segments.append([new.path, seqs, live, untouched])
    all_lost = sorted([*snapshot["lost"], *map(list, lost)])
    found = {**snapshot, "segments": segments, "lost": all_lost}
    if lost:
        missing_count = sum(one.last_seq - one.first_seq + 1 for one in lost)
        found["missing"] = snapshot.get("missing", 0) + missing_count
    return found


def _lost_of(saved: SavedPart, part: SealedPart | None, reason: str) -> list[LostRange]:
    """The seqs of a segment that are lost: those that are not in the part and had not been deleted.

    When these are many ranges, or spread wide, one that covers them all must do.
    """
    first, last = saved.seqs
    gone = DeletedPositions.load(saved.deleted)
    whole = [LostRange(min(first + gone.floor, last), last, reason)]
    if last - first > _LOST_SPAN_MAX:
        return whole
    missing = [range(first, last + 1)]
    if part is not None:
        missing = [
            range(first, part.first_seq),
            *part.missing(part.first_seq),
            range(part.last_seq + 1, last + 1),
        ]
    lost: list[LostRange] = []
    for seqs in missing:
        flags = gone.live_flags(seqs.start - first, seqs.stop - first)
        start = flags.find(1)
        while start >= 0:
            stop = flags.find(0, start)
            stop = len(flags) if stop < 0 else stop
            lost.append(LostRange(seqs.start + start, seqs.start + stop - 1, reason))
            start = flags.find(1, stop)
    lost = joined(lost)
    return lost if 0 < len(lost) <= _LOST_RANGES_MAX else whole


def joined(lost: Sequence[LostRange]) -> list[LostRange]:
    """Ranges of one seq each, in order, as few ranges."""
    joined: list[LostRange] = []
    for one in lost:
        if joined and joined[-1].last_seq + 1 == one.first_seq:
            joined[-1] = joined[-1]._replace(last_seq=one.last_seq)
        else:
            joined.append(one)
    return joined
