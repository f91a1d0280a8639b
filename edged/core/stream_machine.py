"""A stream and its consumers as a state machine: commands in, outcomes out.

Rules: every change happens in apply() or append(), which run on durable commands, in the order of the
journal; time is an argument. The same commands give the same state on every machine, today and after a
restart. What stores messages and finds them again is the log behind the `MessageLog` protocol; it decides
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edged.core import headers
from edged.core.commands import (
    Ack,
    Command,
    Delete,
    Dispatch,
    Expire,
    Purge,
    PutConsumer,
    RemoveConsumer,
    Shed,
    Skip,
)
from edged.core.consumer_state import ConsumerState
from edged.core.dedupe import Dedupe
from edged.core.expiry import Expiry, expires_ns
from edged.core.frames import append_frame_bytes
from edged.core.message import Message
from edged.core.run_twins import run_of_messages
from edged.core.runs import Run
from edged.core.space_rules import ShedLedger, ShedRecord
from edged.core.wire import Publish

MESSAGE_ID = b"Nats-Msg-Id"
DUPLICATE_WINDOW_NS = 120_000_000_000


# Inside the protocol `bytes` is a number.
Subject = bytes


class MessageLog(Protocol):
    """Where a stream's messages are. See edged/store/stream_log.py and memory_log.py."""

    first_seq: int
    last_seq: int
    message_count: int
    bytes: int
    lost: list[Any]

    def counted_bytes(self, subject_bytes: int, header_bytes: int, data_bytes: int) -> int: ...

    def keep(self, message: Message, message_bytes: int, place: tuple[int, int, int]) -> None: ...

    def remove(self, seq: int) -> int | None: ...

    def drop_first(self) -> None: ...

    def compact_to(self, seq: int) -> Any: ...

    def skip_to(self, seq: int) -> None: ...

    def lose(self, first_seq: int, last_seq: int) -> None: ...

    def get(self, seq: int) -> Message | None: ...

    def first_of(self, subject: Subject) -> int | None: ...

    def previous_matching(self, filters: Sequence[Subject], seq: int) -> int | None: ...

    def next_matching(self, filters: Sequence[Subject], seq: int) -> int | None: ...

    def count_matching(self, filters: Sequence[Subject], from_seq: int = 0) -> int: ...

    def subjects(self, filters: Sequence[Subject]) -> Iterator[tuple[Subject, int]]: ...

    def seq_freeing(self, size: int) -> int: ...

    def seq_at_time(self, ts_ns: int) -> int: ...

    @property
    def first_ts_ns(self) -> int: ...


class RunLog(Protocol):
    """A log that takes many messages at once, by their places in the journal."""

    def append_run(self, first_seq: int, file: int, run: Run) -> None: ...


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message was stored before, under this seq."""

    seq: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing, because of this."""

    reason: str


# What a command came to: the seq of a stored message, how many messages went, or one of the classes above.
Outcome = int | Duplicate | Refused


class StreamMachine:
    """The state of one stream's group."""

    __slots__ = (
        *("_runs", "consumers", "dedupe", "discard_new", "expiry", "log"),
        *("max_bytes", "max_messages", "max_per_subject", "sheds"),
    )

    def __init__(self, log: MessageLog, config: dict[str, Any], runs: RunLog | None = None) -> None:
        self.log = log
        self._runs = runs
        self.consumers: dict[int, ConsumerState] = {}
        # What was given up to make room for other streams.
        self.sheds = ShedLedger()
        self.expiry = Expiry()
        self.dedupe = Dedupe(int(config.get("duplicate_window", DUPLICATE_WINDOW_NS)))
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        """Take over a changed configuration. Limits that shrank take effect at once."""
        self.max_messages = int(config.get("max_msgs", -1))
        self.max_bytes = int(config.get("max_bytes", -1))
        self.max_per_subject = int(config.get("max_msgs_per_subject", -1))
        self.discard_new = config.get("discard") == "new"
        self.expiry.max_age_ns = int(config.get("max_age", 0))
        self.dedupe.window_ns = int(config.get("duplicate_window", DUPLICATE_WINDOW_NS))
        if self.max_per_subject > 0:
            for subject, count in list(self.log.subjects(())):
                if count > self.max_per_subject:
                    self._keep_subject_limit(subject)
        self._keep_limits()

    def append(
        self,
        ts_ns: int,
        subject: bytes,
        header_bytes: int,
        data: bytes,
        place: tuple[int, int, int],
        force: bool = False,
    ) -> Outcome:
        """Store a message that the journal has at `place` (file, offset, frame bytes).

        With `force` it was accepted once and is so again, whatever has been lost since.
        """
        log = self.log
        message_id = headers.value(data[:header_bytes], MESSAGE_ID) if header_bytes > 0 else None
        if message_id:
            seq = self.dedupe.seen(message_id, ts_ns)
            if seq is not None and not force:
                return Duplicate(seq)
            message_id = None if seq is not None else message_id
        size = log.counted_bytes(len(subject), header_bytes, len(data))
        if self.discard_new and not force:
            reason = self._no_room(size)
            if reason is not None:
                return Refused(reason)
        seq = log.last_seq + 1
        log.keep(Message(seq, ts_ns, subject, header_bytes, data), size, place)
        if message_id:
            self.dedupe.remember(message_id, seq, ts_ns)
        if header_bytes > 0:
            self.expiry.add(seq, expires_ns(ts_ns, data[:header_bytes]))
        if self.max_per_subject > 0:
            self._keep_subject_limit(subject)
        if self.max_messages > 0 or self.max_bytes > 0:
            self._keep_limits()
        return seq

    @property
    def takes_runs(self) -> bool:
        """Whether there is nothing to decide about single messages without headers."""
        return self._runs is not None and not self.discard_new and self.max_per_subject <= 0

    def append_run(
        self, ts_ns: int, messages: Sequence[Publish], file: int, start: int, offsets: Sequence[int]
    ) -> Sequence[Outcome]:
        """Store messages whose frames are at these offsets behind `start` of a journal file.

        The same as append() for each; a range of seqs when they could be stored in one go.
        """
        run = run_of_messages(messages, ts_ns, start, offsets) if self.takes_runs else None
        if run is not None:
            return self.place_run(file, run)
        return [
            self.append(
                ts_ns,
                message[0],
                max(message[2], 0),
                message[3],
                (file, start + offset, append_frame_bytes(len(message[0]), len(message[3]))),
            )
            for message, offset in zip(messages, offsets, strict=True)
        ]

    def place_run(self, file: int, run: Run) -> range:
        """Store a run of messages that a journal file has, as append() does for each; their seqs."""
        runs = self._runs
        assert runs is not None and self.takes_runs
        first_seq = self.log.last_seq + 1
        runs.append_run(first_seq, file, run)
        if self.max_messages > 0 or self.max_bytes > 0:
            self._keep_limits()
        return range(first_seq, first_seq + len(run.subjects))

    def lose(self, first_seq: int, last_seq: int) -> None:
        """Messages that were stored are lost, with their records. Their seqs are not used again."""
        self.log.lose(first_seq, last_seq)

    def apply(self, command: Command) -> Outcome:
        """Everything but append."""
        log = self.log
        if isinstance(command, Delete):
            return Refused("no message found") if log.remove(command.seq) is None else 1
        if isinstance(command, Purge):
            return self._purge(command)
        if isinstance(command, Expire):
            return self._expire(command)
        if isinstance(command, Shed):
            return self._shed(command)
        if isinstance(command, Skip):
            log.skip_to(command.to_seq)
            return 0
        if isinstance(command, PutConsumer):
            return self._put_consumer(command)
        if isinstance(command, RemoveConsumer):
            gone = self.consumers.pop(command.consumer, None)
            return Refused("consumer not found") if gone is None else 0
        return self._consume(command)

    def _shed(self, command: Shed) -> int:
        log = self.log
        messages, size, first_seq = log.message_count, log.bytes, log.first_seq
        log.compact_to(command.last_seq + 1)
        if log.message_count < messages:
            freed = size - log.bytes
            record = ShedRecord("", "", first_seq, command.last_seq, command.reason, freed, command.ts_ns)
            self.sheds.add(record)
        return messages - log.message_count

    def _put_consumer(self, command: PutConsumer) -> Outcome:
        known = self.consumers.get(command.consumer)
        if known is None:
            self.consumers[command.consumer] = ConsumerState(command.name, command.config)
        else:
            known.config = command.config
        return 0

    def _consume(self, command: Command) -> Outcome:
        assert isinstance(command, Ack | Dispatch), command
        consumer = self.consumers.get(command.consumer)
        if consumer is None:
            return Refused("consumer not found")
        if isinstance(command, Dispatch):
            consumer.dispatched(command.seqs, command.ts_ns)
        else:
            consumer.settled(command.seqs)
        return 0

    def _purge(self, command: Purge) -> int:
        """Remove what the filter matches below `to_seq`, except the newest `keep`."""
        log = self.log
        before = log.message_count
        end = command.to_seq or log.last_seq + 1
        if command.subject in (b"", b">") and not command.keep:
            log.compact_to(end)
            return before - log.message_count
        filters = (command.subject or b">",)
        if command.keep:
            end = self._oldest_kept(filters, command.keep)
        seq = log.next_matching(filters, log.first_seq)
        while seq is not None and seq < end:
            log.remove(seq)
            seq = log.next_matching(filters, seq + 1)
        return before - log.message_count

    def _oldest_kept(self, filters: tuple[bytes, ...], keep: int) -> int:
        seq = self.log.last_seq + 1
        for _ in range(keep):
            found = self.log.previous_matching(filters, seq - 1)
            if found is None:
                return 0
            seq = found
        return seq

    def _expire(self, command: Expire) -> int:
        log = self.log
        before = log.message_count
        if command.to_seq > log.first_seq:
            log.compact_to(command.to_seq)
        for seq in command.seqs:
            log.remove(seq)
        return before - log.message_count

    def expired(self, now_ns: int) -> Expire | None:
        """The command that removes what has outlived its time; None when there is nothing."""
        return self.expiry.due(self.log, now_ns)

    # --- limits ---

    def _no_room(self, size: int) -> str | None:
        log = self.log
        if 0 < self.max_messages <= log.message_count:
            return "maximum messages exceeded"
        if 0 < self.max_bytes < log.bytes + size:
            return "maximum bytes exceeded"
        return None

    def _keep_limits(self) -> None:
        log = self.log
        while log.message_count and (
            0 < self.max_messages < log.message_count or 0 < self.max_bytes < log.bytes
        ):
            log.drop_first()

    def _keep_subject_limit(self, subject: bytes) -> None:
        while self.log.count_matching((subject,)) > self.max_per_subject:
            seq = self.log.first_of(subject)
            assert seq is not None, subject
            self.log.remove(seq)

    # --- checkpoints ---

    def snapshot(self) -> dict[str, Any]:
        """Everything but the messages, for a checkpoint."""
        return {
            "dedupe": self.dedupe.snapshot(),
            "sheds": self.sheds.snapshot(),
            "consumers": [[number, state.snapshot()] for number, state in sorted(self.consumers.items())],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The reverse of snapshot()."""
        self.dedupe.restore(snapshot["dedupe"])
        self.sheds = ShedLedger.restore(snapshot["sheds"])
        for number, state in snapshot["consumers"]:
            self.consumers[number] = ConsumerState.restore(state)
