"""From journal files to segments and a checkpoint.

At a border, when the journal has turned to a new file and everything before is applied, the state of all
groups is taken. A cycle then moves the messages that are alive to segments, merges small segments and
rewrites mostly dead ones, and writes the checkpoint; after that the journal files before the border are free.

Rules: take() and adopt() run in the store's thread and touch its state; run() may run in another one and
touches only files and what take() copied. Until adopt() everybody reads from the old places. A cycle that
fails leaves files behind that nobody refers to, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from edged.core.expiry import message_expires_ns
from edged.core.message import Message
from edged.core.row_twins import rows_of_frames
from edged.core.rows import Rows
from edged.core.stream_machine import StreamMachine
from edged.store.box import Keyring
from edged.store.checkpoint import Checkpoint, remove_older, save_checkpoint
from edged.store.errors import OutcomeUnknown, StoreError
from edged.store.group import CATALOG
from edged.store.hot_places import LivePlaces
from edged.store.journal_file import JOURNAL, file_numbers
from edged.store.journal_reader import JournalFile, is_strange
from edged.store.sealed_part import DeadSeqs, SealedMessages
from edged.store.segment import Segment
from edged.store.segment_format import segment_path
from edged.store.segment_writer import BLOCK_BYTES, ROW_BYTES, blocks_of, write_blocks
from edged.store.stream_log import SegmentFigures, StreamLog, moved_snapshot

if TYPE_CHECKING:
    from edged.store.store import Store

STREAMS: Final = "streams"
MERGE_FACTOR: Final = 4
"""A new segment takes in the one before, if that is at most so many times larger: few files, few copies."""
SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A segment with this much in it is not merged any more."""
LIVE_PART_MIN: Final = 0.5
"""A segment of which less is alive is rewritten."""


@dataclass(slots=True)
class Move:
    """Some journal files and segments of a stream, which are neighbours, become one segment, or nothing."""

    log: StreamLog
    stream_id: bytes
    place: int
    files: list[int]
    # The messages to move from each of the files.
    hot: list[tuple[int, list[LivePlaces]]]
    old: list[tuple[SealedMessages, DeadSeqs]]
    new: Segment | None = None

    @property
    def old_segments(self) -> list[SealedMessages]:
        """The segments that go."""
        return [segment for segment, _ in self.old]


@dataclass(slots=True)
class Border:
    """The state of the store before journal file `next_file`."""

    next_file: int
    state: dict[str, Any]
    moves: list[Move]
    # Streams that were removed before.
    removed: list[bytes]

    @classmethod
    def take(cls, store: Store, next_file: int) -> Border:
        groups: list[list[Any]] = []
        moves: list[Move] = []
        for number, entry in sorted(store.catalog.streams.items()):
            machine = entry.group.machine
            assert isinstance(machine, StreamMachine)
            stream = [number, entry.stream_id, entry.account, entry.name, entry.config, entry.group.applied]
            if isinstance(entry.log, StreamLog):
                moves += _plan(entry.log, entry.stream_id, len(groups), next_file, store.options.keys)
                groups.append([*stream, machine.snapshot(), entry.log.snapshot()])
            else:
                groups.append([*stream, None, None])
        state = {
            "catalog": store.groups[CATALOG].applied,
            "highest_group": store.catalog.highest_group,
            "last_batch": store.batch_number,
            "wear": store.room.wear.snapshot(),
            "nonce": store.nonces[next_file],
            "store_id": store.store_id,
            "groups": groups,
        }
        return cls(next_file, state, moves, list(store.catalog.removed))


def _abandoned(store: Store, removed: list[bytes]) -> list[str]:
    directories = {stream_id.hex() for stream_id in removed} & set(store.files.list(STREAMS))
    return [
        f"{STREAMS}/{directory}/{name}"
        for directory in sorted(directories)
        for name in store.files.list(f"{STREAMS}/{directory}")
    ]


def _plan(
    log: StreamLog, stream_id: bytes, place: int, next_file: int, keys: Keyring | None
) -> Iterator[Move]:
    """What is to be done for a stream: its hot messages, with small segments before them; then the dead.

    One segment at a time that is not encrypted with the current key is written anew.
    """
    files = [file for file in log.hot_files() if file < next_file]
    hot = [(file, log.live_in_file(file)) for file in files]
    figures = log.segment_figures()
    bytes_new = sum(places.live_bytes for _, found in hot for places in found)
    old: list[tuple[SealedMessages, DeadSeqs]] = []
    while figures and bytes_new and _is_merged(figures[-1], bytes_new):
        last = figures.pop()
        bytes_new += last.live_bytes
        old.insert(0, (last.segment, log.deleted_in(last.segment)))
    if files:
        yield Move(log, stream_id, place, files, hot, old)
    has_old_key = False
    for one in figures:
        is_dead = one.live_bytes < LIVE_PART_MIN * one.segment.message_bytes or not one.live_count
        is_old = not has_old_key and not _is_current(one.segment, keys)
        has_old_key = has_old_key or is_old
        if is_dead or is_old:
            yield Move(log, stream_id, place, [], [], [(one.segment, log.deleted_in(one.segment))])


def _is_current(segment: SealedMessages, keys: Keyring | None) -> bool:
    return not isinstance(segment, Segment) or (keys or Keyring()).is_current(segment.label)


def _is_merged(last: SegmentFigures, bytes_new: int) -> bool:
    return last.live_bytes + bytes_new <= SEGMENT_BYTES_MAX and last.live_bytes <= MERGE_FACTOR * bytes_new


@dataclass(slots=True)
class Cycle:
    """One passage from a border to a checkpoint. `error` says why it did not get there."""

    store: Store
    border: Border
    error: Exception | None = None
    bytes_written: int = 0
    is_saved: bool = False
    # Segments that nobody refers to once the checkpoint of this cycle is the older one.
    condemned: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Write segments and the checkpoint. May run in another thread."""
        try:
            self.condemned = _abandoned(self.store, self.border.removed)
            for move in self.border.moves:
                self._write(move)
            self._save()
        except OutcomeUnknown as error:
            # The checkpoint may count after a crash, and what it names must be there then.
            self.error = error
        except (OSError, StoreError) as error:
            self.error = error
            self._undo()

    def adopt(self) -> list[int]:
        """Let everybody read from the new places; the journal files that are free now."""
        if self.error is not None:
            return []
        for move in self.border.moves:
            move.log.adopt(move.files, move.old_segments, move.new)
        return self._free() if self.is_saved else []

    # --- inside ---

    def _write(self, move: Move) -> None:
        store = self.store
        first_seq = _first_seq(move)
        if first_seq is None:
            return
        path = segment_path(move.stream_id, first_seq, self.border.next_file)
        keys = store.options.keys
        info = write_blocks(
            store.files, path, move.stream_id, self._blocks(move), keys, expires_ns=message_expires_ns
        )
        if info.count:
            self.bytes_written += info.file_bytes
            move.new = Segment.open(store.files, path, store.cache, keys, expires_ns=message_expires_ns)

    def _blocks(self, move: Move) -> Iterator[Rows]:
        yield from blocks_of(_from_segments(move))
        for file, found in move.hot:
            places = [one for one in found if len(one)]
            if places:
                yield from _from_journal(self.store, file, places)

    def _undo(self) -> None:
        """Give the space of half the work back. What cannot be removed now is removed after a restart."""
        for move in self.border.moves:
            if move.new is not None and not self.is_saved:
                with suppress(OSError):
                    self.store.files.remove(move.new.path)
                move.new = None

    def _save(self) -> None:
        groups = [list(group) for group in self.border.state["groups"]]
        for move in self.border.moves:
            group = groups[move.place]
            group[7] = moved_snapshot(group[7], move.old_segments, move.new)
            self.condemned += [segment.path for segment in move.old_segments]
        state = {**self.border.state, "groups": groups}
        condemned = [*self.store.condemned, *([self.border.next_file, path] for path in self.condemned)]
        state["condemned"] = condemned
        checkpoint = Checkpoint(self.border.next_file, state)
        self.bytes_written += save_checkpoint(self.store.files, checkpoint, self.store.options.keys)
        self.is_saved = True

    def _free(self) -> list[int]:
        """Remove what no checkpoint needs any more. An error leaves the rest for the next time."""
        store = self.store
        store.condemned += [[self.border.next_file, path] for path in self.condemned]
        store.catalog.removed = store.catalog.removed[len(self.border.removed) :]
        freed: list[int] = []
        try:
            oldest = remove_older(store.files)
            for number in file_numbers(store.files.list(JOURNAL)):
                if number < oldest and not is_strange(store.files, number, oldest):
                    store.journal.reuse(number)
                    freed.append(number)
            store.remove_condemned(oldest)
        except OSError as error:
            self.error = error
        return freed


def _first_seq(move: Move) -> int | None:
    """The smallest seq that the new segment can hold; None when there is nothing to hold."""
    for segment, dead in move.old:
        if len(dead) < segment.count:
            return segment.first_seq
    firsts = (next(iter(places), None) for _, found in move.hot for places in found)
    return next((first[0] for first in firsts if first is not None), None)


def _from_segments(move: Move) -> Iterator[Message]:
    for segment, dead in move.old:
        assert isinstance(segment, Segment)
        for message in segment.messages():
            if message.seq not in dead:
                yield message


def _from_journal(store: Store, file: int, places: Sequence[LivePlaces]) -> Iterator[Rows]:
    """Messages of a journal file, checked once more. Those that went bad are left out, and so are lost."""
    first, last = places[0].span[0], places[-1].span[1]
    reader = JournalFile(store.files, file, store.options.keys)
    try:
        data, frames = reader.frames(first, last - first)
    finally:
        reader.close()
    frame = 0
    for one in places:
        columns, position = one.columns(), 0
        while position < len(columns.offsets):
            rows, position, frame = rows_of_frames(
                data, frames, first, columns, position, frame, BLOCK_BYTES, ROW_BYTES
            )
            if rows is not None:
                yield rows
