"""From journal files to segments and a checkpoint.

At a border, when the journal has turned to a new file and everything before is applied, the state of all
groups is taken. A cycle then moves the messages that are alive to segments, merges small segments and
rewrites mostly dead ones, and writes the checkpoint; after that the journal files before the border are free.

Rules: take() and adopt() run in the store's thread and touch its state; run() may run in another one and
touches only files and what take() copied. Until adopt() everybody reads from the old places. A cycle that
fails leaves files behind that nobody refers to, and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from edged.config.jetstream_options import SegmentOptions
from edged.core.expiry import message_expires_ns
from edged.core.message import Message, counted_bytes
from edged.core.rows import Rows
from edged.core.stream_machine import StreamMachine
from edged.store.batch import Batch
from edged.store.block_copies import blocks_of_segments, messages_of_segments
from edged.store.box import Keyring
from edged.store.checkpoint import Checkpoint, remove_older, save_checkpoint
from edged.store.errors import OutcomeUnknown, StoreError
from edged.store.group import CATALOG
from edged.store.hot_places import LivePlaces
from edged.store.journal_file import JOURNAL, file_numbers
from edged.store.journal_reader import is_strange
from edged.store.journal_rows import rows_in_journal
from edged.store.message_index import LostRange
from edged.store.sealed_part import DeadSeqs, SealedMessages
from edged.store.segment import Segment
from edged.store.segment_format import STREAMS, segment_path
from edged.store.segment_writer import Draft, PackedBlock, blocks_of, finish_drafts, sync_names
from edged.store.stream_log import UNREADABLE, SegmentFigures, StreamLog, joined, moved_snapshot

if TYPE_CHECKING:
    from edged.store.options import StoreOptions
    from edged.store.store import Store

MERGE_COUNT: Final = 4
"""So many segments of about the same size become one: a message is copied once while that grows fourfold."""
SAME_SIZE: Final = 2
"""What is at most so many times larger is of about the same size."""
DRAFTS_MAX: Final = 32
"""How many segments are written before they are synced: each is an open file until then."""


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
    # Messages that had been lost and were put back, between these or beside them.
    refilled: list[Message] = field(default_factory=list)
    new: Segment | None = None
    # What could not be read when it was to be moved.
    lost: list[LostRange] = field(default_factory=list)

    @property
    def old_segments(self) -> list[SealedMessages]:
        """The segments that go."""
        return [segment for segment, _ in self.old]

    def sealed(self) -> Iterator[tuple[Segment, DeadSeqs]]:
        """The segments that go and have something alive, with what is dead in them."""
        for segment, dead in self.old:
            assert isinstance(segment, Segment)
            if len(dead) < segment.count:
                yield segment, dead


@dataclass(slots=True)
class Border:
    """The state of the store before journal file `next_file`."""

    next_file: int
    state: dict[str, Any]
    moves: list[Move]
    # Streams that were removed before.
    removed: list[bytes]
    # Whether a checkpoint of this border may be on the disk, and so the segments that it names must stay.
    may_be_saved: bool = False
    # Segments of earlier borders that a checkpoint may name which nobody has heard of since.
    left_behind: list[str] = field(default_factory=list)

    @classmethod
    def take(cls, store: Store, batch: Batch) -> Border:
        """The state before a batch that begins a file."""
        next_file = batch.position.file
        groups: list[list[Any]] = []
        moves: list[Move] = []
        for number, entry in sorted(store.catalog.streams.items()):
            machine = entry.group.machine
            assert isinstance(machine, StreamMachine)
            stream = [number, entry.stream_id, entry.account, entry.name, entry.config, entry.group.applied]
            if isinstance(entry.log, StreamLog):
                moves += _plan(entry.log, entry.stream_id, len(groups), next_file, store.options)
                groups.append([*stream, machine.snapshot(), entry.log.snapshot()])
            else:
                groups.append([*stream, None, None])
        state = {
            "catalog": store.groups[CATALOG].applied,
            "highest_group": store.catalog.highest_group,
            "last_batch": batch.number - 1,
            "nonce": batch.nonce,
            "store_id": store.store_id,
            "groups": groups,
            **_shared_state(store),
        }
        return cls(next_file, state, moves, list(store.catalog.removed))

    def follow(self, before: Border | None) -> None:
        """Take the place of a border that did not come to a checkpoint, as far as anybody knows."""
        if before is not None:
            made = [move.new.path for move in before.moves if move.new is not None]
            self.left_behind = [*before.left_behind, *(made if before.may_be_saved else ())]


def _shared_state(store: Store) -> dict[str, Any]:
    """What a checkpoint keeps of groups that several nodes have; nothing without them."""
    catalog = store.catalog
    if not catalog.node:
        return {}
    groups = sorted(store.groups.items())
    return {
        "node": catalog.node,
        "replicas": [group.replica.saved() for _, group in groups if group.replica is not None],
        "genesis": [
            [number, entry.genesis] for number, entry in sorted(catalog.streams.items()) if entry.genesis
        ],
        "elsewhere": [
            [number, one.stream_id, one.account, one.name, one.config, one.genesis]
            for number, one in sorted(catalog.elsewhere.items())
        ],
        "left": sorted(catalog.left),
        "configs": [
            [number, entry.group.machine.config]
            for number, entry in sorted(catalog.streams.items())
            if entry.genesis and isinstance(entry.group.machine, StreamMachine)
        ],
    }


def _abandoned(store: Store, removed: list[bytes]) -> list[str]:
    directories = {stream_id.hex() for stream_id in removed} & set(store.files.list(STREAMS))
    found = {directory: store.files.list(f"{STREAMS}/{directory}") for directory in sorted(directories)}
    # A stream that was given up may be here again, and has new files then. Looked at last: were they listed
    # above, it is known here.
    again = {entry.stream_id.hex() for entry in list(store.catalog.streams.values())}
    return [
        f"{STREAMS}/{directory}/{name}" for directory in found.keys() - again for name in found[directory]
    ]


def _plan(
    log: StreamLog, stream_id: bytes, place: int, next_file: int, options: StoreOptions
) -> Iterator[Move]:
    """What is to be done for a stream: its hot messages, with small segments before them; then the dead.

    One segment at a time that is not encrypted with the current key is written anew. Messages that were put
    back are written with the segment whose span they are in, or with the one behind them if that is small.
    """
    files = [file for file in log.hot_files() if file < next_file]
    hot = [(file, log.live_in_file(file)) for file in files]
    figures = log.segment_figures()
    *put_back, behind = _by_segment(log.refilled(), figures)
    bytes_new = sum(places.live_bytes for _, found in hot for places in found) + _bytes_of(behind)
    old: list[tuple[SealedMessages, DeadSeqs]] = []
    for _ in range(merged_count(figures, bytes_new, options.segment)):
        last = figures.pop()
        behind = put_back.pop() + behind
        old.insert(0, (last.segment, log.deleted_in(last.segment)))
    if files or behind:
        yield Move(log, stream_id, place, files, hot, old, behind)
    has_old_key = False
    for one, messages in zip(figures, put_back, strict=True):
        is_dead = _is_dead(one, options.segment)
        is_old = not has_old_key and not _is_current(one.segment, options.keys)
        has_old_key = has_old_key or is_old
        is_filled = bool(messages) and (
            messages[-1].seq > one.segment.first_seq or _is_alike(one, _bytes_of(messages), options.segment)
        )
        if is_dead or is_old or is_filled:
            dead = log.deleted_in(one.segment)
            yield Move(log, stream_id, place, [], [], [(one.segment, dead)], messages)
        elif messages:
            yield Move(log, stream_id, place, [], [], [], messages)


def _by_segment(messages: Sequence[Message], figures: Sequence[SegmentFigures]) -> list[list[Message]]:
    """The messages within or before each segment, and at the end those behind all of them."""
    last_seqs = [one.segment.last_seq for one in figures]
    found: list[list[Message]] = [[] for _ in range(len(figures) + 1)]
    for message in messages:
        found[bisect_left(last_seqs, message.seq)].append(message)
    return found


def _bytes_of(messages: Sequence[Message]) -> int:
    return sum(
        counted_bytes(len(message.subject), message.header_bytes, len(message.data)) for message in messages
    )


def _is_current(segment: SealedMessages, keys: Keyring | None) -> bool:
    return not isinstance(segment, Segment) or (keys or Keyring()).is_current(segment.label)


def _is_dead(one: SegmentFigures, options: SegmentOptions) -> bool:
    """Whether so much of a segment is deleted that it is worth writing the rest anew."""
    return not one.live_count or one.live_bytes * 100 < options.live_percent_min * one.segment.message_bytes


def merged_count(figures: Sequence[SegmentFigures], bytes_new: int, options: SegmentOptions) -> int:
    """How many of the last segments become one with what is new."""
    count = 0
    while bytes_new:
        bytes_merged, place = bytes_new, len(figures) - count
        while (
            place
            and figures[place - 1].live_bytes <= SAME_SIZE * bytes_new
            and figures[place - 1].live_bytes + bytes_merged <= options.bytes_max
        ):
            place -= 1
            bytes_merged += figures[place].live_bytes
        if len(figures) - count - place < MERGE_COUNT - 1:
            break
        count, bytes_new = len(figures) - place, bytes_merged
    return count


def _is_alike(one: SegmentFigures, bytes_new: int, options: SegmentOptions) -> bool:
    """Whether a segment is so small that it may as well be written anew with what is put back before it."""
    return one.live_bytes + bytes_new <= options.bytes_max and one.live_bytes <= MERGE_COUNT * bytes_new


@dataclass(slots=True)
class Cycle:
    """One passage from a border to a checkpoint. `error` says why it did not get there."""

    store: Store
    border: Border
    error: Exception | None = None
    is_saved: bool = False
    # Segments that nobody refers to once the checkpoint of this cycle is the older one.
    condemned: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Write segments and the checkpoint. May run in another thread."""
        try:
            abandoned = _abandoned(self.store, self.border.removed)
            self.condemned = [*abandoned, *self.border.left_behind]
            self._write_all()
            self._save()
        except OutcomeUnknown as error:
            # The checkpoint may count after a crash, and what it names must be there then.
            self.border.may_be_saved = True
            self.error = error
        except (OSError, StoreError) as error:
            self.error = error
            self._undo()
        except Exception as error:
            # A fault of ours. Nobody knows how far it came, so nothing is undone; the next try may go better.
            self.border.may_be_saved = True
            self.error = error

    def adopt(self) -> list[int]:
        """Let everybody read from the new places; the journal files that are free now."""
        if self.error is not None:
            return []
        for move in self.border.moves:
            refilled = {message.seq for message in move.refilled}
            move.log.adopt(move.files, move.old_segments, move.new, refilled)
        self._condemn_orphans()
        return self._free() if self.is_saved else []

    def _condemn_orphans(self) -> None:
        """Segments of logs that others took the place of meanwhile go after the next checkpoint."""
        store = self.store
        logs = {id(entry.log) for entry in store.catalog.streams.values()}
        alive = {entry.stream_id for entry in store.catalog.streams.values()}
        for move in self.border.moves:
            if move.new is not None and id(move.log) not in logs and move.stream_id in alive:
                store.condemned.append([self.border.next_file + 1, move.new.path])

    # --- inside ---

    def _write_all(self) -> None:
        """Write the segments of all moves, some of them at a time, and make them durable."""
        waiting = [move for move in self.border.moves if move.new is None]
        for start in range(0, len(waiting), DRAFTS_MAX):
            self._write(waiting[start : start + DRAFTS_MAX])
        made = [move.new.path for move in self.border.moves if move.new is not None]
        sync_names(self.store.files, made)

    def _write(self, moves: Sequence[Move]) -> None:
        store, drafts = self.store, list[tuple[Move, Draft]]()
        try:
            for move in moves:
                first_seq = _first_seq(move)
                if first_seq is not None:
                    drafts.append((move, self._draft(move, first_seq)))
        except BaseException:
            for _, draft in drafts:
                draft.drop()
            raise
        finish_drafts([draft for _, draft in drafts])
        for move, draft in drafts:
            path, keys = draft.info.path, store.options.keys
            if draft.info.count:
                move.new = Segment.open(store.files, path, store.cache, keys, expires_ns=message_expires_ns)
            move.lost = _lost(move)

    def _draft(self, move: Move, first_seq: int) -> Draft:
        store = self.store
        return Draft.write(
            store.files,
            segment_path(move.stream_id, first_seq, self.border.next_file),
            move.stream_id,
            self._blocks(move),
            store.options.keys,
            expires_ns=message_expires_ns,
            compression_level=store.options.segment.compression_level,
        )

    def _blocks(self, move: Move) -> Iterator[Rows | PackedBlock]:
        block_bytes = self.store.options.segment.block_bytes
        if move.refilled:
            messages = merge(self._messages(move), move.refilled, key=attrgetter("seq"))
            yield from blocks_of(messages, block_bytes)
            return
        yield from blocks_of_segments(move.sealed(), block_bytes)
        for file, found in move.hot:
            places = [one for one in found if len(one)]
            if places:
                yield from self._from_journal(file, places)

    def _messages(self, move: Move) -> Iterator[Message]:
        yield from messages_of_segments(move.sealed())
        for file, found in move.hot:
            places = [one for one in found if len(one)]
            for rows in self._from_journal(file, places) if places else ():
                yield from rows.messages()

    def _from_journal(self, file: int, places: Sequence[LivePlaces]) -> Iterator[Rows]:
        options = self.store.options
        return rows_in_journal(self.store.files, options.keys, file, places, options.segment.block_bytes)

    def _undo(self) -> None:
        """Give the space of half the work back. What cannot be removed now is removed after a restart."""
        if self.border.may_be_saved:
            return
        for move in self.border.moves:
            if move.new is not None:
                with suppress(OSError):
                    self.store.files.remove(move.new.path)
                move.new = None

    def _save(self) -> None:
        groups = [list(group) for group in self.border.state["groups"]]
        for move in self.border.moves:
            group = groups[move.place]
            group[7] = moved_snapshot(group[7], move.old_segments, move.new, move.lost)
            self.condemned += [segment.path for segment in move.old_segments]
        state = {**self.border.state, "groups": groups}
        condemned = [*self.store.condemned, *([self.border.next_file, path] for path in self.condemned)]
        state["condemned"] = condemned
        state["wear"] = self.store.room.wear.snapshot()
        checkpoint = Checkpoint(self.border.next_file, state)
        save_checkpoint(self.store.files, checkpoint, self.store.options.keys)
        self.is_saved = True

    def _free(self) -> list[int]:
        """Remove what no checkpoint needs any more. An error leaves the rest for the next time."""
        store = self.store
        store.condemned += [[self.border.next_file, path] for path in self.condemned]
        store.catalog.removed = [one for one in store.catalog.removed if one not in self.border.removed]
        freed: list[int] = []
        try:
            oldest = remove_older(store.files)
            needed = oldest
            if store.replication is not None:
                needed = min(oldest, store.replication.needed_file(oldest))
            for number in file_numbers(store.files.list(JOURNAL)):
                if number < needed and not is_strange(store.files, number, needed):
                    store.journal.reuse(number)
                    freed.append(number)
            store.remove_condemned(oldest)
        except OSError as error:
            self.error = error
        return freed


def _first_seq(move: Move) -> int | None:
    """The smallest seq that the new segment can hold; None when there is nothing to hold."""
    firsts = [message.seq for message in move.refilled[:1]]
    firsts += [segment.first_seq for segment, dead in move.old if len(dead) < segment.count][:1]
    hot = (next(iter(places), None) for _, found in move.hot for places in found)
    firsts += islice((first[0] for first in hot if first is not None), 1)
    return min(firsts, default=None)


def _lost(move: Move) -> list[LostRange]:
    """The messages that should be in the new segment of a move and are not."""
    expected = sum(segment.count - len(dead) for segment, dead in move.old) + len(move.refilled)
    expected += sum(len(places) for _, found in move.hot for places in found)
    new = move.new
    if expected == (0 if new is None else new.count):
        return []
    there = set(() if new is None else new.codes()[0])
    seqs = [seq for segment, dead in move.old for seq in _live_seqs(segment, dead)]
    seqs += [place[0] for _, found in move.hot for places in found for place in places]
    return joined([LostRange(seq, seq, UNREADABLE) for seq in seqs if seq not in there])


def _live_seqs(segment: SealedMessages, dead: DeadSeqs) -> Iterator[int]:
    seq = dead.next_live(segment.first_seq)
    while seq is not None:
        yield seq
        seq = dead.next_live(seq + 1)
