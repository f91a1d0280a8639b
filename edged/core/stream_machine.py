"""A stream and its consumers as a state machine: commands in, outcomes out.

Rules: every change happens in apply() or append(), which run on durable commands, in the order of the
journal; time is an argument. The same commands give the same state on every machine, today and after a
restart. What stores messages and finds them again is the log behind the `MessageLog` protocol; it decides
nothing. Whether a message is taken is decided in publish_rules.py, stream_limits.py and atomic_rules.py; what
follows from taking it, here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edged.core.api_errors import (
    MESSAGE_TTL_INVALID,
    NO_MESSAGE_FOUND,
    STREAM_SEALED,
    STREAM_SEQUENCE_NOT_MATCH,
    STREAM_WRONG_LAST_SEQUENCE_CONSTANT,
    ApiError,
    stream_store_failed,
)
from edged.core.atomic_rules import BatchCheck, Member
from edged.core.commands import (
    Command,
    Configure,
    Delete,
    Expire,
    Purge,
    Refill,
    Shed,
    Skip,
)
from edged.core.consumer_config import ConsumerConfig
from edged.core.consumer_table import ConsumerCommand, ConsumerTable
from edged.core.dead_letters import DeadLetters
from edged.core.dedupe import Dedupe
from edged.core.expiry import Expiry, expires_at_ns, expires_ns
from edged.core.frames import FOLLOWS, HEADER_SIZE_MASK, INTERNAL, MORE, ONLY_IF_EMPTY, append_frame_bytes
from edged.core.message import Message
from edged.core.message_log import MessageLog, Place, RunLog
from edged.core.message_ttl import delete_marker_headers
from edged.core.outcomes import Duplicate, Outcome, Refused, Stored
from edged.core.publish_headers import (
    BATCH_ID,
    MESSAGE_ID,
    NO_FIELDS,
    ROLLUP,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    SCHEDULE_NEXT,
    SCHEDULE_PURGE,
    SCHEDULER,
    STREAM_SOURCE,
    TTL,
    Fields,
    fields_of,
)
from edged.core.publish_rules import PublishRules, ttl_of
from edged.core.removals import expire, purge, purge_subject
from edged.core.run_twins import run_of_messages
from edged.core.runs import FRAME_BYTES, PLAIN_BYTES, Run
from edged.core.source_positions import SourcePosition, read_position
from edged.core.space_rules import ShedLedger, ShedRecord
from edged.core.stream_limits import StreamLimits
from edged.core.wire import Publish

__all__ = ["MESSAGE_ID", "Duplicate", "MessageLog", "Outcome", "Refused", "RunLog", "Stored", "StreamMachine"]

DUPLICATE_WINDOW_NS = 120_000_000_000

# The subject of a delete marker has a message again: nobody needs it any more.
_NOT_EMPTY = Refused(STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
# One before it was refused, and comes again first.
_OUT_OF_ORDER = Refused(STREAM_SEQUENCE_NOT_MATCH)


class StreamMachine:
    """The state of one stream's group."""

    __slots__ = (
        *("_is_plain", "_is_refusing", "_members", "_runs"),
        *("config", "consumers", "decided", "dedupe", "expiry"),
        *("last_message_id", "limits", "log", "rules", "sheds", "source_positions", "table", "unmarked"),
    )

    def __init__(self, log: MessageLog, config: dict[str, Any], runs: RunLog | None = None) -> None:
        self.log = log
        self._runs = runs
        self.table = ConsumerTable(log)
        self.consumers = self.table.consumers
        # What was given up to make room for other streams.
        self.sheds = ShedLedger()
        self.expiry = Expiry()
        self.dedupe = Dedupe(DUPLICATE_WINDOW_NS)
        # The id of the last message that was taken, empty if it had none.
        self.last_message_id = b""
        # How far messages were taken over from other streams, by the source's name, filter and transform.
        # Kept when a source goes: should it come back, it does not bring the same again.
        self.source_positions: dict[str, SourcePosition] = {}
        # Subjects whose last message was too old, and that a delete marker is still to be stored for.
        self.unmarked: dict[bytes, None] = {}
        # The members of an atomic batch that has not come to its end, and what those of the last one came to.
        self._members: list[Member] = []
        self.decided: list[Outcome] = []
        # Whether the last message that was decided about singly was refused. Those that follow it are in the
        # same batch of the journal: no checkpoint needs this.
        self._is_refusing = False
        self.configure(config)
        self._begin()

    def _begin(self) -> None:
        """A stream that never held anything begins where its configuration says."""
        if not self.log.last_seq:
            self.log.skip_to(int(self.config.get("first_seq") or 0) - 1)

    def configure(self, config: dict[str, Any]) -> None:
        """Take over a changed configuration. Limits that shrank take effect at once."""
        self.config = config
        self.limits = limits = StreamLimits.of(config)
        self.rules = rules = PublishRules.of(config)
        self.expiry.max_age_ns = int(config.get("max_age", 0))
        self.expiry.allows_ttl = rules.allows_ttl
        # A stream that takes its messages from others has no window unless it says so.
        default_ns = 0 if rules.is_mirror or config.get("sources") else DUPLICATE_WINDOW_NS
        self.dedupe.window_ns = int(config.get("duplicate_window", default_ns))
        if not rules.marker_ttl_ns:
            self.unmarked.clear()
        # Nothing is to be decided about a message without headers, except that older ones may go.
        self._is_plain = rules.is_silent and not rules.marker_ttl_ns and not limits.is_new_refused
        limits.keep_all(self.log)
        self.table.configure(config)

    # --- messages come in ---

    def append(
        self,
        ts_ns: int,
        subject: bytes,
        header_bytes: int,
        data: bytes,
        place: Place,
        force: bool = False,
    ) -> Outcome | None:
        """Store a message that the journal has at `place` (file, offset, frame bytes).

        `header_bytes` may carry flags. With `force` it was accepted once and is so again, whatever has been
        lost since. None for a member of an atomic batch: what it came to is in `decided` after the last one.
        """
        if not header_bytes and self._is_plain and not self._members:
            return self._keep(Message(self.log.last_seq + 1, ts_ns, subject, 0, data), place, NO_FIELDS)
        flags = header_bytes & ~HEADER_SIZE_MASK
        header_bytes &= HEADER_SIZE_MASK
        fields = fields_of(data[:header_bytes]) if header_bytes else NO_FIELDS
        if not force:
            # A batch of one has its header only.
            if flags & MORE or self._members or (BATCH_ID in fields and not flags & INTERNAL):
                return self._add_member(Member(ts_ns, subject, header_bytes, data, place, fields), flags)
            if flags & FOLLOWS and self._is_refusing:
                return _OUT_OF_ORDER
            refusal = self._refusal(ts_ns, subject, header_bytes, data, fields, flags)
            self._is_refusing = isinstance(refusal, Refused)
            if refusal is not None:
                if isinstance(refusal, Duplicate) and STREAM_SOURCE in fields:
                    # It is here already: the source need not bring it again.
                    self.source_positions.update(read_position(fields[STREAM_SOURCE]))
                return refusal
        return self._take(ts_ns, subject, header_bytes, data, place, fields)

    @property
    def takes_runs(self) -> bool:
        """Whether there is nothing to decide about single messages without headers."""
        if self._runs is None or not self._is_plain or self._members:
            return False
        # With both limits it matters in which order messages came and went.
        return self.limits.messages_per_subject_max <= 0 or not self.limits.is_old_dropped

    def append_run(
        self, ts_ns: int, messages: Sequence[Publish], file: int, start: int, offsets: Sequence[int]
    ) -> Sequence[Outcome]:
        """Store messages whose frames are at these offsets behind `start` of a journal file.

        The same as append() for each; a range of seqs when they could be stored in one go.
        """
        if self.takes_runs:
            if len(messages) == 1:
                ((subject, _, header_bytes, data),) = messages
                if header_bytes <= 0:
                    return self._place_one(ts_ns, subject, data, (file, start + offsets[0]))
            run = run_of_messages(messages, ts_ns, start, offsets)
            if run is not None:
                return self.place_run(file, run)
        outcomes: list[Outcome] = []
        for (subject, _reply, header_bytes, data), offset in zip(messages, offsets, strict=True):
            place = (file, start + offset, append_frame_bytes(len(subject), len(data)))
            outcome = self.append(ts_ns, subject, max(header_bytes, 0), data, place)
            if self.decided:
                outcomes += self.take_decided()
            elif outcome is not None:
                outcomes.append(outcome)
        assert not self._members, "an atomic batch without an end"
        return outcomes

    def place_run(self, file: int, run: Run) -> range:
        """Store a run of messages that a journal file has, as append() does for each; their seqs."""
        runs = self._runs
        assert runs is not None and self.takes_runs
        first_seq = self.log.last_seq + 1
        runs.append_run(first_seq, file, run)
        if run.subjects:
            self._placed(runs, run.subjects)
        return range(first_seq, first_seq + len(run.subjects))

    def _place_one(self, ts_ns: int, subject: bytes, data: bytes, place: tuple[int, int]) -> range:
        """The same for one message, without the columns of a run."""
        runs = self._runs
        assert runs is not None
        seq = self.log.last_seq + 1
        size = len(subject) + len(data)
        runs.append(seq, ts_ns, subject, PLAIN_BYTES + size, *place, FRAME_BYTES + size)
        self._placed(runs, (subject,))
        return range(seq, seq + 1)

    def _placed(self, runs: RunLog, subjects: Sequence[bytes]) -> None:
        """What follows from messages without headers that are stored now."""
        self.last_message_id = b""
        limits = self.limits
        if limits.messages_per_subject_max > 0:
            before = self.log.message_count
            runs.trim_subjects(subjects, limits.messages_per_subject_max)
            if self.consumers and self.log.message_count < before:
                self.table.look_through()
        elif limits.is_old_dropped:
            limits.keep(self.log)
            self.table.begin_moved()

    def take_decided(self) -> list[Outcome]:
        """What the members of a batch came to, if the last one was just appended; else nothing."""
        decided, self.decided = self.decided, []
        return decided

    def give_up_members(self) -> list[Member]:
        """The members of an atomic batch whose end does not come; they are not part of a batch any more."""
        members, self._members = self._members, []
        return members

    def _add_member(self, member: Member, flags: int) -> Outcome | None:
        self._members.append(member)
        if flags & MORE:
            return None
        members = self.give_up_members()
        error = BatchCheck(self.rules, self.limits, self.log, self.dedupe).refusal(members)
        if error is not None:
            self.decided = [Refused(error)] * len(members)
        else:
            self.decided = [self._take(*one) for one in members]
        return self.decided[-1]

    def _refusal(
        self, ts_ns: int, subject: bytes, header_bytes: int, data: bytes, fields: Fields, flags: int
    ) -> Refused | Duplicate | None:
        """Why a single message is not taken; None if it is."""
        rules, log = self.rules, self.log
        is_internal = flags & INTERNAL != 0
        if flags & ONLY_IF_EMPTY:
            self.unmarked.pop(subject, None)
            if log.count_of(subject):
                return _NOT_EMPTY
        error = STREAM_SEALED if rules.is_sealed else rules.size_refusal(header_bytes, len(data))
        if error is not None:
            return Refused(error)
        if rules.is_mirror:
            # What the origin has taken is taken.
            fields = NO_FIELDS
        elif fields:
            message_id = fields.get(MESSAGE_ID)
            # Most messages with a field have the id only.
            if len(fields) > 1 or message_id is None:
                error = rules.early_refusal(fields, subject, data[:header_bytes], log, ts_ns, is_internal)
                if error is not None:
                    return Refused(error)
            if message_id:
                seq = self.dedupe.seen(message_id, ts_ns)
                if seq is not None:
                    return Duplicate(seq)
        error = rules.late_refusal(fields, self.last_message_id, is_internal)
        if error is None and (not rules.is_by_interest or self.table.interest.wants(subject)):
            if TTL in fields and ttl_of(fields) is None:
                error = MESSAGE_TTL_INVALID
            elif self.limits.is_new_refused:
                size = log.counted_bytes(len(subject), header_bytes, len(data))
                error = self.limits.refusal(log, subject, size, bool(fields.get(ROLLUP)))
        return None if error is None else Refused(error)

    # --- and are taken ---

    def _take(
        self, ts_ns: int, subject: bytes, header_bytes: int, data: bytes, place: Place, fields: Fields
    ) -> int | Stored:
        """Give a message its seq, and store it if there is interest in it."""
        rules, log = self.rules, self.log
        seq = log.last_seq + 1
        is_wanted = not rules.is_by_interest or self.table.interest.wants(subject)
        previous_seq = (log.last_of(subject) or 0) if rules.is_republished else 0
        if is_wanted:
            self._keep(Message(seq, ts_ns, subject, header_bytes, data), place, fields)
        else:
            log.skip_to(seq)
            log.last_ts_ns = ts_ns
        if STREAM_SOURCE in fields:
            self.source_positions.update(read_position(fields[STREAM_SOURCE]))
        message_id = fields.get(MESSAGE_ID)
        self.last_message_id = message_id or b""
        if message_id:
            self.dedupe.remember(message_id, seq, ts_ns)
        if rules.allows_rollup and (ROLLUP in fields or SCHEDULER in fields):
            self._roll_up(subject, fields, seq if is_wanted else seq + 1)
        return Stored(seq, previous_seq) if is_wanted and rules.is_republished else seq

    def _keep(self, message: Message, place: Place, fields: Fields) -> int:
        """Store a message, and keep the limits."""
        log = self.log
        seq, ts_ns, subject, header_bytes, data = message
        log.keep(message, log.counted_bytes(len(subject), header_bytes, len(data)), place)
        if fields:
            ttl = fields.get(TTL)
            if ttl:
                self.expiry.add(seq, expires_at_ns(ts_ns, ttl))
        else:
            self.last_message_id = b""
        if self.unmarked:
            self.unmarked.pop(subject, None)
        self._keep_limits(subject)
        return seq

    def _keep_limits(self, subject: bytes) -> None:
        """A message was stored: others may have to go."""
        log, limits = self.log, self.limits
        if limits.messages_per_subject_max > 0:
            gone = limits.keep_subject(log, subject)
            if gone and self.consumers:
                self.table.gone(gone)
        if limits.is_old_dropped:
            limits.keep(log)
            self.table.begin_moved()

    def _roll_up(self, subject: bytes, fields: Fields, end: int) -> None:
        """Remove what the message replaces: everything below `end`, or of its subject, and a schedule."""
        rollup = fields.get(ROLLUP, b"").lower()
        if rollup == ROLLUP_SUBJECT:
            purge_subject(self.log, subject, end)
            self.table.purged(subject)
        elif rollup == ROLLUP_ALL:
            self.log.compact_to(end)
            self.table.purged(b"")
        scheduler = fields.get(SCHEDULER)
        if scheduler and fields.get(SCHEDULE_NEXT) == SCHEDULE_PURGE:
            purge_subject(self.log, scheduler, self.log.last_seq + 1)
            self.table.purged(scheduler)

    def lose(self, first_seq: int, last_seq: int) -> None:
        """Messages that were stored are lost, with their records. Their seqs are not used again."""
        self.log.lose(first_seq, last_seq)

    # --- other commands ---

    def apply(self, command: Command) -> Outcome:
        """Everything but append."""
        log = self.log
        if isinstance(command, Delete):
            if log.remove(command.seq) is None:
                return Refused(NO_MESSAGE_FOUND)
            self.table.gone((command.seq,))
            return 1
        if isinstance(command, Purge):
            count = purge(log, command)
            self.table.purged(command.subject)
            return count
        if isinstance(command, Expire):
            return self._expire(command)
        if isinstance(command, Shed):
            return self._shed(command)
        if isinstance(command, Refill):
            return self._refill(command)
        if isinstance(command, Skip):
            log.skip_to(command.to_seq)
            return 0
        if isinstance(command, Configure):
            self.configure(command.config)
            self._begin()
            return 0
        assert isinstance(command, ConsumerCommand), command
        outcome = self.table.apply(command)
        return Refused(outcome) if isinstance(outcome, ApiError) else outcome

    def _shed(self, command: Shed) -> int:
        log = self.log
        messages, size, first_seq = log.message_count, log.bytes, log.first_seq
        log.compact_to(command.last_seq + 1)
        if log.message_count < messages:
            freed = size - log.bytes
            record = ShedRecord("", "", first_seq, command.last_seq, command.reason, freed, command.ts_ns)
            self.sheds.add(record)
        self.table.begin_moved()
        return messages - log.message_count

    def _refill(self, command: Refill) -> Outcome:
        fields = (command.seq, command.ts_ns, command.subject, command.header_bytes, command.data)
        outcome = self.put_back(Message(*fields))
        if not isinstance(outcome, Refused):
            self._keep_limits(command.subject)
        return outcome

    def put_back(self, message: Message) -> Outcome:
        """Store a lost message again. Its id is not remembered: by now it should be outside the window."""
        seq, ts_ns, subject, header_bytes, data = message
        if header_bytes > len(data):
            return Refused(stream_store_failed("the header block is longer than the message"))
        reason = self.log.refill(message, self.log.counted_bytes(len(subject), header_bytes, len(data)))
        if reason is not None:
            return Refused(stream_store_failed(reason))
        self.expiry.refilled(seq, expires_ns(ts_ns, data[:header_bytes]))
        return seq

    # --- consumers ---

    @property
    def highest_consumer(self) -> int:
        """The highest number that a consumer ever had."""
        return self.table.highest

    @property
    def letters(self) -> DeadLetters:
        """The dead letters that are owed."""
        return self.table.letters

    def is_volatile(self, config: ConsumerConfig) -> bool:
        """Whether the commands of such a consumer are applied at once, and the journal has none of them."""
        return self.table.is_volatile(config)

    # --- time ---

    def expired(self, now_ns: int) -> Expire | None:
        """The command that removes what has outlived its time; None when there is nothing."""
        return self.expiry.due(self.log, now_ns)

    def delete_markers(self, count_max: int) -> list[Publish]:
        """Messages to be appended for subjects that have lost their last one to time."""
        block = delete_marker_headers(self.rules.marker_ttl_ns)
        header_bytes = len(block) | ONLY_IF_EMPTY | INTERNAL
        subjects = list(self.unmarked)[:count_max]
        return [(subject, None, header_bytes, block) for subject in subjects]

    def _expire(self, command: Expire) -> int:
        before = self.log.message_count
        self.unmarked.update(expire(self.log, command, is_marked=self.rules.marker_ttl_ns > 0))
        self.expiry.done(command)
        self.table.gone(command.seqs)
        return before - self.log.message_count

    # --- checkpoints ---

    def snapshot(self) -> dict[str, Any]:
        """Everything but the messages, for a checkpoint."""
        assert not self._members, "a checkpoint in the middle of an atomic batch"
        letters = self.letters.snapshot()
        return {
            "dedupe": self.dedupe.snapshot(),
            "last_message_id": self.last_message_id,
            "sources": [[name, *position] for name, position in self.source_positions.items()],
            "unmarked": list(self.unmarked),
            "sheds": self.sheds.snapshot(),
            "consumers": self.table.snapshot(),
            "highest_consumer": self.table.highest,
            "told_first_seq": self.table.told_first_seq,
            **({"dead_letters": letters} if letters else {}),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The reverse of snapshot()."""
        self.dedupe.restore(snapshot["dedupe"])
        self.last_message_id = snapshot["last_message_id"]
        for name, *position in snapshot["sources"]:
            self.source_positions[name] = SourcePosition(*position)
        self.unmarked.update(dict.fromkeys(snapshot["unmarked"]))
        self.sheds = ShedLedger.restore(snapshot["sheds"])
        # Checkpoints of earlier versions do not say when consumers were last told where the stream begins.
        told_first_seq = snapshot.get("told_first_seq", 0)
        self.table.restore(snapshot["consumers"], snapshot["highest_consumer"], told_first_seq)
        # Checkpoints from before there were dead letters do not know them.
        self.letters.restore(snapshot.get("dead_letters", []))
