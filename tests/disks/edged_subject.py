"""edged's store as the harness sees it: operations become commands, outcomes and states come back.

Sealing runs in a thread of its own beside the commits, as in the daemon, so that a crash meets it anywhere.
In the serial variant commits wait for it: what fails in one of them only is a matter of order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from edged.core import headers
from edged.core.commands import Ack, Command, Delete, Dispatch, PutConsumer, PutStream
from edged.core.commands import Purge as PurgeCommand
from edged.core.commands import RemoveStream as RemoveStreamCommand
from edged.core.space_rules import RESERVE_BYTES_MIN, SpaceLimits
from edged.core.stream_machine import MESSAGE_ID, Duplicate, StreamMachine
from edged.core.stream_machine import Outcome as MachineOutcome
from edged.core.stream_machine import Refused as MachineRefused
from edged.store.cycle import Cycle
from edged.store.errors import OutcomeUnknown, StoreBroken, StoreError, StoreFull
from edged.store.files import OperatingSystem, RealFiles
from edged.store.group import CATALOG, StreamEntry
from edged.store.options import StoreOptions
from edged.store.store import Append, Store
from tests.disks.model import ConsumerState, StreamState
from tests.disks.operations import (
    BROKEN,
    FULL,
    UNKNOWN,
    Acknowledge,
    ConfigureStream,
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    Deliver,
    Done,
    Operation,
    Outcome,
    Publish,
    Purge,
    Refused,
    RemoveStream,
    Stored,
)
from tests.disks.sync_watch import SyncWatch

# Small, so that the journal turns to a new file and seals several times in a round.
_JOURNAL_FILE_BYTES: Final = 1 << 20
# With the smallest reserve that a configuration leads to.
_SPACE: Final = SpaceLimits(reserve_bytes=RESERVE_BYTES_MIN)
_TEND_NS: Final = 100_000_000
# Longer than any run: whether an id is still known must not depend on the clock here.
_DUPLICATE_WINDOW_NS: Final = 24 * 3600 * 10**9
_CONSUMERS: Final = {"alpha": 1, "beta": 2}
_ACK: Final = 0
_DISPATCHED_NS: Final = 1
_REASONS: Final = {StoreFull: FULL, OutcomeUnknown: UNKNOWN, StoreBroken: BROKEN}


class EdgedSubject:
    """A store that is open."""

    def __init__(self, root: Path, watch: SyncWatch, *, is_serial: bool = False) -> None:
        self._is_serial = is_serial
        options = StoreOptions(journal_file_bytes=_JOURNAL_FILE_BYTES, space=_SPACE)
        self._store = Store.open(RealFiles(str(root), watch), options)
        self._tended_ns = options.now_ns()
        self._sealing: tuple[Cycle, threading.Thread] | None = None

    def commit(self, operations: Sequence[Operation]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in _parts(operations):
            answers = self._store.commit([_proposal(operation) for operation in part])
            outcomes += [_outcome(operation, answer) for operation, answer in zip(part, answers, strict=True)]
        self._seal()
        self._tend()
        return outcomes

    def states(self) -> dict[int, StreamState]:
        return {number: _state(entry) for number, entry in self._store.catalog.streams.items()}

    def rotate(self) -> None:
        self._store.journal.rotate()

    def close(self) -> None:
        self._end_sealing()
        self._store.close()

    def _seal(self) -> None:
        """Take over what was sealed, and seal the next file if there is one."""
        if self._sealing is not None and self._sealing[1].is_alive():
            return
        self._end_sealing()
        if self._store.is_cycle_due:
            cycle = self._store.begin_cycle()
            thread = threading.Thread(target=cycle.run)
            thread.start()
            self._sealing = cycle, thread
            if self._is_serial:
                self._end_sealing()

    def _tend(self) -> None:
        """What the daemon does by the clock, but more often, as a round is short."""
        now_ns = self._store.options.now_ns()
        if now_ns - self._tended_ns >= _TEND_NS:
            self._tended_ns = now_ns
            self._store.seal_tail()
            self._store.tend(now_ns)

    def _end_sealing(self) -> None:
        if self._sealing is not None:
            self._sealing[1].join()
            self._sealing = None
            self._store.end_cycle()


def edged_calls() -> SyncWatch:
    """The system calls that edged's store uses, watched."""
    return SyncWatch(OperatingSystem())


def _parts(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """A stream has to be there before anything can be asked of it: a part ends where one is made."""
    part: list[Operation] = []
    for operation in operations:
        part.append(operation)
        if isinstance(operation, CreateStream):
            yield part
            part = []
    if part:
        yield part


def _proposal(operation: Operation) -> tuple[int, Command | Append]:
    match operation:
        case CreateStream(stream, revision) | ConfigureStream(stream, revision):
            return CATALOG, PutStream(
                *(stream, stream.to_bytes(16), "disks", f"S{stream}"),
                {"description": str(revision), "duplicate_window": _DUPLICATE_WINDOW_NS},
            )
        case RemoveStream(stream):
            return CATALOG, RemoveStreamCommand(stream)
        case Publish(stream, subject, message_id, payload):
            header = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (MESSAGE_ID, message_id) if message_id else b""
            return stream, Append(subject, len(header), header + payload)
    return operation.stream, _stream_command(operation)


def _stream_command(operation: Operation) -> Command:
    match operation:
        case DeleteMessage(_, seq):
            return Delete(seq, erase=False)
        case Purge(_, below):
            return PurgeCommand(below, b"", 0)
        case CreateConsumer(_, name):
            return PutConsumer(_CONSUMERS[name], name, {"ack_policy": "explicit"})
        case Deliver(_, name, seqs):
            return Dispatch(_CONSUMERS[name], _DISPATCHED_NS, tuple(seqs), 0)
        case Acknowledge(_, name, seq):
            return Ack(_CONSUMERS[name], _ACK, (seq,))
    raise AssertionError(operation)


def _outcome(operation: Operation, answer: MachineOutcome | StoreError) -> Outcome:
    if isinstance(answer, StoreError):
        return Refused(_REASONS[type(answer)], str(answer))
    if isinstance(answer, MachineRefused):
        return Refused("state", answer.error.description)
    if isinstance(answer, Duplicate):
        return Stored(answer.seq, True)
    return Stored(answer, False) if isinstance(operation, Publish) else Done()


def _state(entry: StreamEntry) -> StreamState:
    log, machine = entry.log, entry.group.machine
    assert isinstance(machine, StreamMachine)
    messages: dict[int, tuple[bytes, bytes, bytes]] = {}
    seq = log.next_matching((), 0)
    while seq is not None:
        message = log.get(seq)
        assert message is not None, (entry.name, seq)
        header, payload = message.data[: message.header_bytes], message.data[message.header_bytes :]
        messages[seq] = message.subject, headers.value(header, MESSAGE_ID) or b"", payload
        seq = log.next_matching((), seq + 1)
    assert log.message_count == len(messages), (entry.name, log.message_count, len(messages))
    consumers = {
        state.name: ConsumerState(state.ack_floor.stream_seq, state.delivered.stream_seq, set(state.pending))
        for state in machine.consumers.values()
    }
    return StreamState(_revision(entry.config), log.last_seq, messages, consumers)


def _revision(config: dict[str, Any]) -> int:
    return int(config["description"])
