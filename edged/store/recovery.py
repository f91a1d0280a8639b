"""From the files of a store to its state: newest good checkpoint, then the journal after it.

Rules: nothing is deleted because it was not expected; it is moved to lost+found/ and reported. Only what an
unfinished cycle left, which no checkpoint ever spoke of, goes. Time and memory are bounded by the checkpoint,
the segments' footers and the journal after the checkpoint, whatever the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from edged.core.commands import PutStream
from edged.core.frame_twins import FrameBuffer
from edged.core.frames import BATCH, Frame
from edged.core.stream_machine import StreamMachine
from edged.store.anew import begin_anew, is_under_way
from edged.store.checkpoint import CHECKPOINTS, REFUSED, Checkpoint, checkpoint_numbers, load_newest
from edged.store.errors import StoreBroken
from edged.store.files import Files
from edged.store.found_log import FoundLog
from edged.store.group import CATALOG, Assignment, Group
from edged.store.install import GroupState, install, prepare
from edged.store.journal import START, Position
from edged.store.journal_file import HEADER_BYTES, JOURNAL, file_path, spare_names
from edged.store.journal_reader import (
    Chain,
    Part,
    frames_before,
    read_chain,
    read_header,
    read_last,
    store_id_of,
    written_part,
)
from edged.store.replay import Replay, ReplayReport, without_torn_batch
from edged.store.restore import expect_expiries, restore_log
from edged.store.segment_format import STREAMS, segment_name
from edged.store.stream_log import StreamLog

if TYPE_CHECKING:
    from edged.store.store import Store

LOST_AND_FOUND: Final = "lost+found"


@dataclass(slots=True)
class RecoveryReport:
    """What was found, and what was not."""

    replay: ReplayReport = field(default_factory=ReplayReport)
    checkpoint: int = 0
    bad_checkpoints: list[tuple[str, str]] = field(default_factory=list)
    damaged_segments: list[tuple[str, str]] = field(default_factory=list)
    moved_aside: list[str] = field(default_factory=list)
    copied_bytes: int = 0
    # At a hub: nothing could be read, and the node rejoins its cluster without a state.
    has_begun_anew: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether everything that was ever acknowledged is there."""
        replay = self.replay
        trouble = (replay.holes, replay.damage, replay.missing_files, self.damaged_segments)
        return not any(trouble) and not self.bad_checkpoints


def recover(store: Store) -> RecoveryReport:
    """Bring an empty store to the state of its files. Raises StoreBroken."""
    report = store.report = RecoveryReport()
    files, keys = store.files, store.options.keys
    if store.replication is not None and is_under_way(files):
        return _begin_anew(store, report)
    checkpoint, report.bad_checkpoints = load_newest(files, partial(_belongs, files), keys)
    if checkpoint is not None:
        report.checkpoint = checkpoint.next_file
        _restore(store, checkpoint)
    oldest = min(checkpoint_numbers(files), default=0)
    store.store_id = _store_id(store, checkpoint)
    chain = read_chain(files, report.checkpoint, keys, oldest, store.store_id)
    if checkpoint is None and not _is_from_the_start(chain):
        if store.replication is not None and (report.bad_checkpoints or chain.files):
            return _begin_anew(store, report)
        if report.bad_checkpoints:
            raise StoreBroken("no checkpoint can be read; run edged fsck", CHECKPOINTS)
    if checkpoint is not None and not chain.files:
        # A file was begun, and durable, before the checkpoint was written.
        chain.missing.append(report.checkpoint)
    if chain.missing and any(reason == REFUSED for _, reason in report.bad_checkpoints):
        raise StoreBroken("the disk does not give the checkpoint that is needed", CHECKPOINTS)
    strange = chain.strange
    last = read_last(files, chain)
    chain, known = _begin_journal(store, chain, last, report)
    replay = Replay(files, chain, store.groups, known, store.batch_number, partial(_install, store))
    report.replay = replay.run()
    # When its good end was copied, the last file ends there, and what a crash cut off is not seen any more.
    report.replay.torn_bytes = 0 if last is None else last.torn_bytes
    # Should the last batch record be what is damaged, its number is not used again.
    store.batch_number = report.replay.last_batch + bool(report.replay.damage)
    for path, _ in report.bad_checkpoints:
        _move_aside(store, path, report)
    for number in strange:
        _move_aside(store, file_path(number), report)
    _tidy_segments(store, checkpoint, report)
    return report


def _store_id(store: Store, checkpoint: Checkpoint | None) -> int:
    if checkpoint is not None:
        return int(checkpoint.state["store_id"])
    found = store_id_of(store.files)
    return store.options.draw_nonce() if found is None else found


def _belongs(files: Files, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint fits the journal file after it; also when that file is not there to tell."""
    header = read_header(files, checkpoint.next_file)
    return header is None or header.nonce == checkpoint.state["nonce"]


def _begin_journal(
    store: Store, chain: Chain, last: Part | None, report: RecoveryReport
) -> tuple[Chain, dict[int, Part]]:
    """Open the journal for writing, and bring what may not be durable to its new file.

    Returns the chain as it is then, and those parts of it that need not be read any more.
    """
    files = store.files
    tail: Sequence[Frame] = ()
    if last is not None:
        tail = without_torn_batch(last.data, last.frames[frames_before(last.frames, last.durable_to) :])
    is_tail_copied = any(frame[1] != BATCH for frame in tail)
    previous, previous_nonce = START, 0
    if last is not None:
        header = chain.files[-1][0]
        previous, previous_nonce = Position(last.number, last.durable_to), header.nonce
        if last.durable_to == HEADER_BYTES:
            # Not even that the file exists is certain: the new one follows on the one before.
            previous = Position(header.previous_number, header.previous_end)
            previous_nonce = header.previous_nonce
    number = max(chain.highest, report.checkpoint) + 1
    for unused in chain.unused:
        files.remove(file_path(unused))
    store.begin_journal(number, previous, previous_nonce, spare_names(files.list(JOURNAL)))
    known = {} if last is None else {last.number: last}
    if last is None or not is_tail_copied:
        return chain, known
    buffer = FrameBuffer(store.options.tag_bytes)
    for _, kind, group, index, start, size in tail:
        buffer.add(kind, group, index, last.data[start : start + size])
    store.journal.take_over(buffer)
    report.copied_bytes = len(buffer)
    journal = store.journal
    if not store.options.tag_bytes:
        frames = buffer.bytes_at(0, len(buffer))
        known[journal.number] = written_part(journal.number, journal.nonce, frames)
    chain = read_chain(files, report.checkpoint, store.options.keys, store_id=store.store_id)
    return chain, known


def _is_from_the_start(chain: Chain) -> bool:
    """Whether the journal goes back to the very first file, so that no checkpoint is needed."""
    return bool(chain.files) and chain.files[0][0].previous_number == 0 and not chain.missing


def _begin_anew(store: Store, report: RecoveryReport) -> RecoveryReport:
    begin_anew(store, lambda path: _move_aside(store, path, report))
    report.has_begun_anew = True
    report.checkpoint = store.journal.number
    return report


def _restore(store: Store, checkpoint: Checkpoint) -> None:
    state = checkpoint.state
    store.groups[CATALOG].applied = state["catalog"]
    store.catalog.highest_group = state["highest_group"]
    store.batch_number = state["last_batch"]
    store.condemned = state["condemned"]
    store.room.wear.resume(state["wear"])
    genesis = _restore_catalog(store, state)
    configs = dict(state.get("configs", ()))
    for number, stream_id, account, name, config, applied, machine, log in state["groups"]:
        command = PutStream(number, stream_id, account, name, config)
        if log is None:
            store.catalog.add(command, store.make_log(stream_id, is_in_memory=True), applied)
            continue
        restored = restore_log(store, stream_id, log)
        began_with = genesis.get(number, ())
        entry = store.catalog.add(command, restored, applied, began_with, configs.get(number))
        assert isinstance(entry.group.machine, StreamMachine)
        entry.group.machine.restore(machine)
        expect_expiries(entry.group.machine, restored)
    for saved in state.get("replicas", ()):
        group = store.groups[saved[0]]
        group.found = FoundLog.restored(group, saved)


def _restore_catalog(store: Store, state: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    """What the catalog of a hub knows beside the streams of its node; with which nodes groups began."""
    catalog = store.catalog
    if state.get("node", catalog.node) != catalog.node:
        raise StoreBroken("the store belongs to another node of a cluster, or is opened as that of none")
    catalog.left = set(state.get("left", ()))
    for number, stream_id, account, name, config, genesis in state.get("elsewhere", ()):
        catalog.elsewhere[number] = Assignment(stream_id, account, name, config, tuple(genesis))
    return {number: tuple(genesis) for number, genesis in state.get("genesis", ())}


def _install(store: Store, group: Group, index: int, found: GroupState, file: int) -> None:
    install(store, group, index, prepare(store, group.number, found), file)


def _tidy_segments(store: Store, checkpoint: Checkpoint | None, report: RecoveryReport) -> None:
    """Remove what unfinished cycles left; move aside what nobody knows."""
    known = {path for _, path in store.condemned}
    for entry in store.catalog.streams.values():
        if isinstance(entry.log, StreamLog):
            known.update(segment.path for segment in entry.log.segments)
    if checkpoint is not None:
        for *_, log in checkpoint.state["groups"]:
            known.update(segment[0] for segment in (log["segments"] if log else ()))
    for directory in store.files.list(STREAMS):
        for name in store.files.list(f"{STREAMS}/{directory}"):
            path = f"{STREAMS}/{directory}/{name}"
            if path in known:
                continue
            found = segment_name(path.removesuffix(".tmp"))
            is_unfinished = found is not None and found.generation > report.checkpoint
            if path.endswith(".tmp") or (is_unfinished and not report.bad_checkpoints):
                store.files.remove(path)
            else:
                _move_aside(store, path, report)


def _move_aside(store: Store, path: str, report: RecoveryReport) -> None:
    name = path.replace("/", "_")
    taken = store.files.list(LOST_AND_FOUND)
    target = name
    for number in range(1, len(taken) + 1):
        if target not in taken:
            break
        target = f"{name}.{number}"
    store.files.rename(path, f"{LOST_AND_FOUND}/{target}")
    report.moved_aside.append(path)
