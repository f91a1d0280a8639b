"""Which streams a damaged store has, and where their messages are: with a checkpoint, and without one.

With a checkpoint its state and the journal after it are as exact as a start would have them. The generation
before serves as a copy: its segments and journal files hold the same messages in other places.

Without one, streams are found by the journal's records of them and by the directories of segments. All
segments count, and the commands of the journal on top of them. What only a checkpoint knew is not known:
which messages of segments had been deleted before the journal begins, consumers made before, and, where the
journal does not tell either, names and configurations. A group of the journal that is not known to belong to
a stream is matched with a directory by its messages: those of the last files are in both.

Rules: nothing is written; what had to be guessed is said in `notes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from edged.core.commands import STREAM_ID_BYTES, PutStream
from edged.core.message import Message
from edged.store.block_cache import BlockCache
from edged.store.box import Keyring
from edged.store.checkpoint import Checkpoint
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_sources import (
    ColdSegments,
    Copy,
    DeadMessages,
    Losses,
    live_messages,
    merged,
    rescued_messages,
)
from edged.store.fsck_state import CACHE_BYTES, ReadState, WatchedMachine
from edged.store.fsck_survey import Survey, survey
from edged.store.group import CATALOG, StreamEntry
from edged.store.journal_file import JOURNAL, file_numbers
from edged.store.journal_reader import Chain, read_chain
from edged.store.message_index import LostRange
from edged.store.segment_format import STREAMS, segment_name
from edged.store.stream_log import StreamLog

RECOVERED_ACCOUNT: Final = "$G"
_SAMPLES: Final = 64


@dataclass(slots=True)
class FoundStream:
    """A stream, and where its messages are."""

    entry: StreamEntry
    log: StreamLog
    lost: list[LostRange] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    cold: ColdSegments | None = None
    # What the checkpoint says of the segments in `cold`.
    dead: list[DeadMessages] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    notes: list[str] = field(default_factory=list)
    is_without_checkpoint: bool = False

    @property
    def machine(self) -> WatchedMachine:
        """Its consumers and message ids."""
        machine = self.entry.group.machine
        assert isinstance(machine, WatchedMachine)
        return machine

    @property
    def last_seq(self) -> int:
        """The highest seq that was given to a message, as far as is known."""
        return max(self.log.last_seq, self.cold.last_seq if self.cold is not None else 0)

    def messages(self) -> Iterator[Message]:
        """All messages that can be read. `losses` is complete afterwards."""
        sources = []
        if self.cold is not None:
            # Of a checkpoint's segment only what the checkpoint counts as lost is wanted.
            losses = self.losses if self.is_without_checkpoint else Losses()
            sources.append(self.cold.messages(losses, self._is_gone))
        sources.append(live_messages(self.log, self.copies, self.losses))
        sources.append(rescued_messages(list(self._lost_still()), self.copies, self.losses))
        for message in merged(sources):
            self.losses.found(message.seq)
            yield message

    def _lost_still(self) -> Iterator[LostRange]:
        """What was lost, and would not have been taken away since then."""
        below_seq = self.machine.removals.below_seq
        for one in sorted({*self.lost, *self.log.lost}):
            if one.last_seq >= below_seq:
                yield one._replace(first_seq=max(one.first_seq, below_seq))

    def _is_gone(self, message: Message) -> bool:
        return message in self.machine.removals or any(message in dead for dead in self.dead)


@dataclass(slots=True)
class FoundStreams:
    """Everything that is to be saved."""

    streams: list[FoundStream]
    in_memory: list[StreamEntry]
    catalog_index: int
    highest_group: int
    last_batch: int
    notes: list[str]
    states: list[ReadState]

    def close(self) -> None:
        """Let go of the files."""
        for state in self.states:
            state.close()


def chain_from(files: StoreFiles, first: int) -> Chain:
    """The journal from a file on, or from the oldest there is."""
    oldest = min(file_numbers(files.list(JOURNAL)), default=0)
    return read_chain(files, max(first, oldest), files.keys)


def is_from_the_start(chain: Chain) -> bool:
    """Whether the journal goes back to the very first file, so that no checkpoint is needed."""
    return bool(chain.files) and chain.files[0][0].previous_number == 0 and not chain.missing


# --- with a checkpoint ---


def find_by_checkpoints(
    files: StoreFiles, keys: Keyring, checkpoints: list[Checkpoint | None]
) -> FoundStreams:
    """The streams by the first of some checkpoints; the second one serves as a copy.

    None stands for the beginning of a journal that is there from its first file on.
    """
    notes: list[str] = []
    state = _state_from(files, keys, checkpoints[0], notes)
    copies = [_state_from(files, keys, one, []) for one in checkpoints[1:2]]
    streams = []
    for number, entry in sorted(state.catalog.streams.items()):
        if not isinstance(entry.log, StreamLog):
            continue
        found = FoundStream(entry, entry.log, state.lost.get(number, []))
        for copy in copies:
            other = copy.catalog.streams.get(number)
            if other is not None and isinstance(other.log, StreamLog) and other.stream_id == entry.stream_id:
                found.copies.append(Copy(other.log, copy.lost.get(number, [])))
        entries: list[Any] = state.bad_entries.get(number, [])
        if entries:
            found.cold = ColdSegments(files, keys, BlockCache(CACHE_BYTES), [one[0] for one in entries])
            found.dead = [DeadMessages(one) for one in entries]
        streams.append(found)
    return _everything(state, streams, notes, [state, *copies])


def _state_from(
    files: StoreFiles, keys: Keyring, checkpoint: Checkpoint | None, notes: list[str]
) -> ReadState:
    state = ReadState(files, keys)
    if checkpoint is not None:
        state.restore(checkpoint)
    chain = chain_from(files, checkpoint.next_file if checkpoint is not None else 0)
    known = survey(files, chain)
    _add_nameless(state, known, state.catalog.highest_group, notes)
    # What was refused then is refused again, also where a lost segment would make room for it.
    report = state.replay(chain, known.refused)
    if report.torn_bytes:
        notes.append(
            f"the last {report.torn_bytes} bytes of the journal look like a batch that a crash cut off"
        )
    notes += [
        f"group {hole.group}: {hole.last_index - hole.first_index + 1} commands are lost"
        for hole in report.holes
    ]
    notes += [
        f"group {number}: replaying gave seq {found} where {reported} was acknowledged; the latter counts"
        for number, _, found, reported in state.contradictions
    ]
    return state


# --- without ---


def find_without_checkpoint(files: StoreFiles, keys: Keyring) -> FoundStreams:
    """The streams by the journal and by the segments that are there."""
    notes = [
        "no checkpoint can be read: messages deleted long ago may be back, and of consumers and "
        "configurations only what the journal still tells is known"
    ]
    state = ReadState(files, keys, is_following=True)
    chain = chain_from(files, 0)
    known = survey(files, chain)
    cold = _cold_by_stream(files, keys, state.cache, notes)
    for _, put in sorted(known.streams.items()):
        state.catalog.add(put, state.make_log(put.stream_id))
    nameless = _add_nameless(state, known, CATALOG, notes)
    for group, entry in state.catalog.streams.items():
        segments = cold.get(entry.stream_id)
        if group in known.first_index and group not in known.reported and segments is not None:
            # Nothing tells which seqs its messages have: they follow on those that are there.
            entry.log.skip_to(segments.last_seq)
            entry.group.applied = known.first_index[group] - 1
    state.replay(chain, known.refused)
    streams = []
    removed = set(state.catalog.removed)
    cold = {stream_id: one for stream_id, one in cold.items() if stream_id not in removed}
    unknown = {
        stream_id: one
        for stream_id, one in cold.items()
        if stream_id not in {entry.stream_id for entry in state.catalog.streams.values()}
    }
    for is_by_content in (True, False):
        for group in sorted(nameless & state.catalog.streams.keys()):
            if state.catalog.streams[group].stream_id not in cold:
                _match(state.catalog.streams[group], unknown, is_by_content)
    for _, entry in sorted(state.catalog.streams.items()):
        if not isinstance(entry.log, StreamLog):
            continue
        found = FoundStream(entry, entry.log, cold=cold.get(entry.stream_id), is_without_checkpoint=True)
        _note_gap(found)
        if found.cold is not None or entry.group.number not in nameless or entry.log.message_count:
            streams.append(found)
    group = max([state.catalog.highest_group, *known.first_index])
    for stream_id, segments in sorted(unknown.items()):
        group += 1
        entry = state.catalog.add(_recovered(group, stream_id), state.make_log(stream_id))
        assert isinstance(entry.log, StreamLog)
        streams.append(FoundStream(entry, entry.log, cold=segments, is_without_checkpoint=True))
    for one in streams:
        if one.entry.name.startswith("RECOVERED_"):
            one.notes.append("its name and configuration are lost; it has a default configuration")
        one.notes += [
            f"a segment cannot be read: {what}" for what in (one.cold.unreadable if one.cold else ())
        ]
    return _everything(state, streams, notes, [state])


def _cold_by_stream(
    files: StoreFiles, keys: Keyring, cache: BlockCache, notes: list[str]
) -> dict[bytes, ColdSegments]:
    paths: dict[bytes, list[str]] = {}
    for one in files.below(STREAMS):
        name = segment_name(one.path)
        if name is not None:
            paths.setdefault(name.stream_id, []).append(one.path)
    return {stream_id: ColdSegments(files, keys, cache, some) for stream_id, some in paths.items()}


def _match(entry: StreamEntry, unknown: dict[bytes, ColdSegments], is_by_content: bool) -> None:
    """Find the directory of a group's stream, by messages that are in both or by the last seq; take it."""
    log = entry.log
    assert isinstance(log, StreamLog)
    samples = list(islice(live_messages(log, (), Losses()), _SAMPLES)) if is_by_content else []
    for stream_id, segments in list(unknown.items()):
        is_same = any(segments.get(message.seq) == message for message in samples)
        if is_same or (not is_by_content and segments.last_seq == log.last_seq):
            put = _recovered(entry.group.number, stream_id)
            entry.stream_id, entry.name, entry.config = put.stream_id, put.name, put.config
            log.stream_id = stream_id
            del unknown[stream_id]
            return


def _note_gap(found: FoundStream) -> None:
    """Between the last segment and the first message of the journal there may have been more."""
    cold_last = found.cold.last_seq if found.cold is not None else 0
    if found.log.message_count and cold_last and cold_last + 1 < found.log.first_seq:
        reason = "neither a segment nor the journal has it"
        found.losses.add(cold_last + 1, found.log.first_seq - 1, reason)


# --- both ---


def _add_nameless(state: ReadState, known: Survey, highest: int, notes: list[str]) -> set[int]:
    """Add streams for groups of the journal that nobody has made."""
    nameless = {
        group
        for group in known.first_index
        if group > highest and group not in state.groups and group not in known.words
    }
    for group in sorted(nameless):
        stream_id = sha256(b"edged: stream of group %d" % group).digest()[:STREAM_ID_BYTES]
        state.catalog.add(_recovered(group, stream_id), state.make_log(stream_id))
        notes.append(f"group {group} of the journal: the record of its stream is lost")
    return nameless


def _recovered(group: int, stream_id: bytes) -> PutStream:
    """A stream of which nothing is known but its messages."""
    name = f"RECOVERED_{stream_id.hex()[:12]}"
    config = {"name": name, "subjects": [name], "retention": "limits", "storage": "file", "discard": "old"}
    return PutStream(group, stream_id, RECOVERED_ACCOUNT, name, config)


def _everything(
    state: ReadState, streams: list[FoundStream], notes: list[str], states: list[ReadState]
) -> FoundStreams:
    in_memory = [entry for entry in state.catalog.streams.values() if not isinstance(entry.log, StreamLog)]
    return FoundStreams(
        streams,
        in_memory,
        state.groups[CATALOG].applied,
        state.catalog.highest_group,
        state.last_batch,
        notes,
        states,
    )
