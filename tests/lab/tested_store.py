"""The real store behind the face that the laboratory knows. The only file here that knows its names."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from edged.core import commands
from edged.core.frames import MORE
from edged.core.stream_machine import Duplicate, Outcome, StreamMachine
from edged.store.batch import Done
from edged.store.errors import Damaged, OutcomeUnknown, StoreError, StoreFull
from edged.store.files import Files
from edged.store.group import CATALOG, StreamEntry
from edged.store.journal import START
from edged.store.options import StoreOptions
from edged.store.store import Store
from edged.store.stream_log import StreamLog
from tests.lab.life import Refused, Unknown
from tests.lab.workload import (
    START_NS,
    AckMessages,
    Batch,
    ConsumerModel,
    DeleteMessage,
    Deliver,
    DropConsumer,
    DropStream,
    Publish,
    PublishTogether,
    PurgeStream,
    PutConsumer,
    PutStream,
    Step,
    StoreModel,
    StreamModel,
    publishes_of,
)

ACCOUNT: Final = "A"
ACKED: Final = 0
# After this a full disk is asked again, and a cycle that failed is tried again.
LATER_NS: Final = 3_600_000_000_000
# Small enough that a dozen commands fill some files.
JOURNAL_FILE_BYTES: Final = (5000, 6500, 12000)


def _command(step: Step, now_ns: int, stream_id: bytes) -> tuple[int, commands.Command]:
    if isinstance(step, PutStream):
        return CATALOG, commands.PutStream(step.group, stream_id, ACCOUNT, step.name, step.config)
    if isinstance(step, DropStream):
        return CATALOG, commands.RemoveStream(step.group)
    group = step.group
    assert not isinstance(step, Publish | PublishTogether)
    if isinstance(step, DeleteMessage):
        return group, commands.Delete(step.seq, False)
    if isinstance(step, PurgeStream):
        return group, commands.Purge(step.to_seq, step.subject, step.keep)
    if isinstance(step, PutConsumer):
        return group, commands.PutConsumer(step.consumer, step.name, step.config)
    if isinstance(step, DropConsumer):
        return group, commands.RemoveConsumer(step.consumer)
    if isinstance(step, Deliver):
        return group, commands.Dispatch(step.consumer, now_ns, step.seqs, 0)
    assert isinstance(step, AckMessages)
    return group, commands.Ack(step.consumer, ACKED, step.seqs)


class TestedStore:
    """An open `Store`, with a clock that stands still between batches."""

    __test__ = False  # The name is not meant for pytest.

    def __init__(self, disk: Files, chance: random.Random, journal_file_bytes: int | None = None) -> None:
        self._now_ns = START_NS
        self._chance = chance
        self.unreadable: set[tuple[int, int]] = set()
        # Where the journal was before something was written to it for the last time.
        self.last_write = START
        options = StoreOptions(
            journal_file_bytes=journal_file_bytes or chance.choice(JOURNAL_FILE_BYTES),
            now_ns=lambda: self._now_ns,
            draw_nonce=lambda: chance.getrandbits(64) | 1,
        )
        try:
            self.store = Store.open(disk, options)
        except (OSError, StoreError) as error:
            raise Refused(str(error)) from error

    def commit(self, batch: Batch) -> list[Any]:
        self._now_ns = batch.now_ns
        self._wait_for_room(batch)
        results: list[Sequence[Outcome] | StoreError] = []
        # Sometimes in two batches, of which the second is closed before the first one is written.
        cut = random.Random(batch.now_ns).randrange(2 * len(batch.steps) or 1)
        closed = []
        for place, step in enumerate(batch.steps):
            if place == cut:
                closed.append(self.store.close_batch())
            self._propose(step, batch.now_ns, results.append)
        closed.append(self.store.close_batch())
        for one in closed:
            self.last_write = self.store.journal.position
            self.store.write(one)
        for one in closed:
            self.store.finish(one)
        if self.store.has_gathered:
            # What was refused is told when the record of one more batch says so.
            self.last_write = self.store.journal.position
            self.store.settle()
        outcomes: list[Any] = []
        for step, result in zip(batch.steps, results, strict=True):
            if isinstance(result, OutcomeUnknown):
                raise Unknown(str(result), len(outcomes))
            if isinstance(result, StoreError):
                raise Refused(str(result), len(outcomes))
            # Only an atomic batch can be refused: it has an id that is not new.
            is_done = isinstance(step, PublishTogether) or isinstance(result[0], int | Duplicate)
            assert is_done, f"{step} was refused: {result}"
            outcomes.append(result[0])
        return outcomes

    def _propose(self, step: Step, now_ns: int, done: Done) -> None:
        messages = [
            (one.subject, None, len(one.headers) | (MORE if is_followed else 0), one.headers + one.payload)
            for one, is_followed in publishes_of(step)
        ]
        if messages:
            self.store.add_appends(step.group, messages, now_ns, done)
        else:
            group, command = _command(step, now_ns, self._stream_id(step))
            self.store.add(group, command, done)

    def _stream_id(self, step: Step) -> bytes:
        """Of the stream that is there, or a new one: no two stores have the same."""
        entry = self.store.catalog.streams.get(step.group)
        if entry is None and isinstance(step, PutStream):
            return self._chance.randbytes(commands.STREAM_ID_BYTES)
        return b"" if entry is None else entry.stream_id

    def _wait_for_room(self, batch: Batch) -> None:
        """A full store refuses messages and takes the rest. Here a batch is taken whole or not at all."""
        for step in batch.steps:
            entry = self.store.catalog.streams.get(step.group)
            size = sum(len(one.payload) for one, _ in publishes_of(step))
            if isinstance(step, Publish | PublishTogether) and entry is not None:
                try:
                    self.store.room.admit(entry, size, 0, batch.now_ns)
                except StoreFull as error:
                    self.store.tend(batch.now_ns + LATER_NS)
                    raise Refused(str(error)) from error

    def maintain(self) -> None:
        # What failed is tried again after a while.
        self._now_ns += LATER_NS
        self.store.maintain()
        self._now_ns -= LATER_NS

    def idle(self) -> None:
        self.store.seal_tail()

    def observe(self) -> StoreModel:
        found = self.observe_damaged()
        assert not self.unreadable, f"cannot be read: {self.unreadable}"
        return found

    def observe_damaged(self) -> StoreModel:
        """Everything that can be read; `unreadable` lists what cannot, by group and seq."""
        self.unreadable.clear()
        return StoreModel(
            {
                group: _observe(entry, self.unreadable, group)
                for group, entry in self.store.catalog.streams.items()
            }
        )

    def complaints(self) -> list[str]:
        report = self.store.report
        found = {
            "bad checkpoints": report.bad_checkpoints,
            "damaged segments": report.damaged_segments,
            "holes": report.replay.holes,
            "damage": report.replay.damage,
            "missing files": report.replay.missing_files,
        }
        found |= {
            f"lost of stream {group}": list(entry.log.lost)
            for group, entry in self.store.catalog.streams.items()
        }
        return [f"{what} {things}" for what, things in found.items() if things]

    def is_trouble_noticed(self) -> bool:
        """Whether somebody who looks finds that something was wrong with the disk, or is made good."""
        report = self.store.report
        if self.complaints() or self.unreadable or report.moved_aside or report.replay.torn_bytes:
            return True
        logs = [entry.log for entry in self.store.catalog.streams.values()]
        return any(
            segment.repaired_offsets for log in logs if isinstance(log, StreamLog) for segment in log.segments
        )

    def close(self) -> None:
        try:
            self.store.close()
        except StoreError as error:
            raise Refused(str(error)) from error


def _observe(entry: StreamEntry, unreadable: set[tuple[int, int]], group: int) -> StreamModel:
    log = entry.log
    machine = entry.group.machine
    assert isinstance(machine, StreamMachine)
    stream = StreamModel(entry.name, entry.config, log.last_seq)
    seq = log.next_matching((), 1)
    while seq is not None:
        try:
            message = log.get(seq)
        except Damaged:
            unreadable.add((group, seq))
        else:
            assert message is not None, f"message {seq} of {entry.name} is listed but not there"
            assert message.seq == seq, (message.seq, seq)
            stream.messages[seq] = (message.ts_ns, message.subject, message.header_bytes, message.data)
        seq = log.next_matching((), seq + 1)
    listed = len(stream.messages) + sum(one == group for one, _ in unreadable)
    assert log.message_count == listed, (entry.name, log.message_count, listed)
    stream.message_ids = {message_id: seq for _, message_id, seq in machine.dedupe.snapshot()}
    for number, consumer in machine.consumers.items():
        stream.consumers[number] = ConsumerModel(
            consumer.name,
            {"ack_policy": consumer.config.ack_policy},
            consumer.delivered.stream_seq,
            set(consumer.pending),
        )
    return stream
