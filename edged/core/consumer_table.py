"""The consumers of one stream: commands about them, and what happens to them when messages go.

Rules: everything here runs where a command is applied. A message that is gone from the stream is pending with
nobody; whoever removes messages says so here. Numbers of consumers are never given twice. A consumer that is
volatile is unknown to the journal: it is not in checkpoints, and nothing that the stream keeps depends on it.

On a node that stands alone a consumer runs ahead of the journal: what was handed out is changed at once.
Where several nodes have the stream, each must be able to go on from what is committed. So the one that leads
there runs a copy, the *runner*, ahead; whatever is applied changes both, and the runner is forgotten when
another node leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from edged.core.api_errors import CONSUMER_NOT_FOUND, ApiError
from edged.core.archive_parts import ConsumerPosition
from edged.core.commands import (
    ACK_ALL,
    GIVEN_UP,
    TERM,
    Ack,
    Dispatch,
    LettersTaken,
    PutConsumer,
    RemoveConsumer,
    ResetConsumer,
    Seqs,
    Terminate,
)
from edged.core.consumer_config import ConsumerConfig
from edged.core.consumer_machine import ConsumerMachine, Dropped, Pending, Position
from edged.core.consumer_start import start_of
from edged.core.dead_letters import DeadLetter, DeadLetters, subject_of
from edged.core.holders import Holders
from edged.core.interest import Interest
from edged.core.message_log import MessageLog
from edged.core.retention import Retention
from edged.core.subjects import is_subset

STATE: Final = "edged.state"
"""Where the configuration of a consumer that comes from an archive says how far it is."""

# In the place of a delivery that the journal has lost.
_UNKNOWN: Final = Pending(0, 0)

ConsumerCommand = PutConsumer | RemoveConsumer | ResetConsumer | Dispatch | Ack | Terminate | LettersTaken


class ConsumerTable:
    """Consumers by number."""

    __slots__ = (
        *("_holders", "_log", "_messages_per_subject_max", "consumers", "dropped", "highest"),
        *("_is_replicated", "interest", "keeps_dropped", "letters", "retention", "runners", "told_first_seq"),
    )

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self.consumers: dict[int, ConsumerMachine] = {}
        # The copies that run ahead, by number, if this node leads and others have the stream as well.
        self.runners: dict[int, ConsumerMachine] = {}
        self._holders = Holders()
        # The highest number that a consumer ever had.
        self.highest = 0
        self.interest = Interest()
        self.letters = DeadLetters()
        self.retention = Retention(log, self.consumers, self.letters)
        # What was pending when it went, with the number of the consumer, for whoever tells the world.
        self.dropped: list[tuple[int, Dropped]] = []
        self.keeps_dropped = False
        # Where the stream began when consumers were last told.
        self.told_first_seq = 0
        self._messages_per_subject_max = 0
        self._is_replicated = False

    def configure(self, config: dict[str, Any]) -> None:
        """Take over a changed configuration of the stream."""
        self._is_replicated = int(config.get("num_replicas") or 1) > 1
        before = self.retention.policy
        self.retention.policy = str(config.get("retention") or "limits")
        self._messages_per_subject_max = int(config.get("max_msgs_per_subject", -1))
        if self.retention.policy != before and self.consumers:
            self.retention.sweep()
        self.letters.subject = subject_of(config)
        if not self.letters.subject and self.letters.owed:
            self._release(self.letters.forget())
        self.look_through()

    def is_volatile(self, config: ConsumerConfig) -> bool:
        """Whether the journal knows nothing of such a consumer.

        Where consumers decide what the stream keeps it knows all of them, and where another node may lead
        the stream a moment later, so that clients find them there.
        """
        is_known = self.retention.is_by_acks or self._is_replicated
        return (config.mem_storage or config.direct) and not is_known

    # --- commands ---

    def apply(self, command: ConsumerCommand) -> int | ApiError:
        """What came of it, or why nothing did."""
        if isinstance(command, PutConsumer):
            return self._put(command)
        if isinstance(command, LettersTaken):
            return self._taken(command)
        consumer = self.consumers.get(command.consumer)
        if consumer is None:
            return CONSUMER_NOT_FOUND
        outcome = self._apply_to(consumer, command)
        runner = self.runners.get(command.consumer)
        if runner is not None:
            self._run_along(runner, command, outcome)
        return outcome

    def _apply_to(self, consumer: ConsumerMachine, command: ConsumerCommand) -> int:
        if isinstance(command, Dispatch):
            return self._dispatch(consumer, command)
        if isinstance(command, Ack):
            return self._settle(consumer, command.kind, command.seqs)
        if isinstance(command, Terminate):
            return self._settle(consumer, TERM, (command.seq,), command.reason)
        if isinstance(command, ResetConsumer):
            seq = consumer.reset(command.seq)
            self._sweep(consumer.filters)
            return seq
        assert isinstance(command, RemoveConsumer), command
        del self.consumers[command.consumer]
        self._holders.forget(consumer)
        self._follow_interest()
        self._sweep(consumer.filters)
        return 0

    def _put(self, command: PutConsumer) -> int:
        known = self.consumers.get(command.consumer)
        if known is None:
            consumer = ConsumerMachine(command.consumer, command.name, command.config)
            state = command.config.get(STATE)
            if state is None or _is_list_to_come(consumer.config, ConsumerPosition.parse(state)):
                limit = self._messages_per_subject_max
                consumer.start_at(*start_of(consumer.config, consumer.filters, self._log, limit))
            else:
                _take_over(consumer, ConsumerPosition.parse(state))
            self._admit(consumer)
            self.highest = max(self.highest, command.consumer)
            self._follow_interest()
            return 0
        before = known.filters
        for machine in self._both(known):
            machine.configure(command.config)
        if known.filters != before:
            self._follow_interest()
            self._sweep(before)
        return 0

    # --- running ahead ---

    def run_ahead(self, number: int) -> ConsumerMachine:
        """A copy of a consumer that whoever leads runs ahead, as long as it leads."""
        runner = ConsumerMachine.restore(number, self.consumers[number].snapshot())
        self.runners[number] = runner
        runner.holders = self._holders
        self._holders.note(runner, runner.lowest_known)
        return runner

    def stop_runners(self) -> None:
        """Another node leads: what counts is what is committed, and what only this one knew is gone."""
        for runner in self.runners.values():
            self._holders.forget(runner)
        self.runners.clear()
        for number, consumer in list(self.consumers.items()):
            if self.is_volatile(consumer.config):
                self.apply(RemoveConsumer(number))

    def _run_along(self, runner: ConsumerMachine, command: ConsumerCommand, outcome: int) -> None:
        """Let a runner know what was applied. What it has handed out itself is no news to it."""
        has = self._log.has
        if isinstance(command, RemoveConsumer):
            del self.runners[command.consumer]
            self._holders.forget(runner)
        elif isinstance(command, ResetConsumer):
            runner.reset(outcome)
        elif isinstance(command, Dispatch):
            if runner.dispatched(command):
                runner.drop([seq for seq in command.seqs if seq in runner.pending and not has(seq)])
        elif isinstance(command, Ack | Terminate):
            kind, seqs = (command.kind, command.seqs) if isinstance(command, Ack) else (TERM, (command.seq,))
            settled = runner.settle(kind, seqs)
            if kind == GIVEN_UP:
                runner.drop([seq for seq in settled if not has(seq)])

    def _both(self, consumer: ConsumerMachine) -> tuple[ConsumerMachine, ...]:
        runner = self.runners.get(consumer.number)
        return (consumer,) if runner is None else (consumer, runner)

    def _admit(self, consumer: ConsumerMachine) -> None:
        self.consumers[consumer.number] = consumer
        consumer.holders = self._holders
        self._holders.note(consumer, consumer.lowest_known)

    def _dispatch(self, consumer: ConsumerMachine, command: Dispatch) -> int:
        if consumer.dispatched(command):
            # Some may have gone between: that was in the journal before this.
            has = self._log.has
            consumer.drop([seq for seq in command.seqs if seq in consumer.pending and not has(seq)])
        if not consumer.has_acks and self.retention.is_by_acks:
            self._release(list(command.seqs))
        return 0

    def _settle(self, consumer: ConsumerMachine, kind: int, seqs: Seqs, reason: str = "") -> int:
        reach = consumer.delivered.stream_seq
        letters = self._letters(consumer, kind, seqs, reason) if self.letters.subject else {}
        settled = consumer.settle(kind, seqs)
        for seq in settled if letters else ():
            if seq in letters:
                self.letters.owe(letters[seq], self.is_volatile(consumer.config))
        if kind == GIVEN_UP:
            has = self._log.has
            consumer.drop([seq for seq in settled if not has(seq)])
        elif self.retention.is_by_acks:
            if kind == ACK_ALL and consumer.delivered.stream_seq > reach:
                settled += self._between(consumer, reach)
            self._release(settled)
        return len(settled)

    def _letters(
        self, consumer: ConsumerMachine, kind: int, seqs: Seqs, reason: str
    ) -> dict[int, DeadLetter]:
        """By seq, what is owed for those of the messages that are given up by this."""
        if kind not in (TERM, GIVEN_UP):
            return {}
        limit, has = consumer.config.max_deliver, self._log.has
        found: dict[int, DeadLetter] = {}
        for seq in seqs:
            count = consumer.delivery_count(seq)
            # One that was given up before has had its letter. One that is gone is not given up, but lost.
            if not consumer.is_settled(seq) and has(seq) and (kind == TERM or 0 < limit <= count):
                known = consumer.pending.get(seq) or _UNKNOWN
                found[seq] = DeadLetter(
                    *(consumer.number, consumer.name, seq, kind, reason, count),
                    *(known.ts_ns, known.consumer_seq, consumer.resets),
                )
        return found

    def _taken(self, command: LettersTaken) -> int:
        before = len(self.letters.owed)
        self._release(self.letters.taken(command.consumer, command.seqs))
        return before - len(self.letters.owed)

    def _between(self, consumer: ConsumerMachine, reach: int) -> list[int]:
        """What a consumer has settled without a record that it was handed out."""
        find, filters, found = self._log.next_matching, consumer.filters, []
        seq = find(filters, reach + 1)
        while seq is not None and seq <= consumer.delivered.stream_seq:
            found.append(seq)
            seq = find(filters, seq + 1)
        return found

    def _follow_interest(self) -> None:
        self.interest.follow(self._filters)
        self.retention.follow_interest()

    def _filters(self) -> Iterator[bytes]:
        return (one for each in self.consumers.values() for one in each.filters or (b">",))

    # --- messages go because of consumers ---

    def _release(self, seqs: list[int]) -> None:
        if seqs:
            self.retention.release(seqs)
            self.told_first_seq = self._log.first_seq

    def _sweep(self, filters: Sequence[bytes]) -> None:
        self.retention.sweep(filters)
        self.told_first_seq = self._log.first_seq

    # --- and for other reasons ---

    def begin_moved(self) -> None:
        """Messages at the start of the stream may have gone. Called often: cheap when it is not so."""
        first_seq = self._log.first_seq
        if first_seq != self.told_first_seq:
            self.told_first_seq = first_seq
            if first_seq > self._holders.lowest:
                self._drop(lambda consumer: consumer.drop_below(first_seq))

    def gone(self, seqs: Iterable[int]) -> None:
        """These messages have gone."""
        listed = list(seqs)
        if listed and max(listed) >= self._holders.lowest:
            self._drop(lambda consumer: consumer.drop(listed))
        self.begin_moved()

    def look_through(self) -> None:
        """Messages have gone, and nobody knows which."""
        has = self._log.has
        self._drop(lambda consumer: consumer.drop([seq for seq in consumer.known() if not has(seq)]))
        self.begin_moved()

    def purged(self, subject: bytes) -> None:
        """Messages on a subject, empty: on all, were purged, which nobody is told one by one.

        Consumers that want nothing else go on behind them.
        """
        subject = subject or b">"
        log, has = self._log, self._log.has
        for consumer in (*self.consumers.values(), *self.runners.values()):
            consumer.drop([seq for seq in consumer.known() if not has(seq)])
            filters = consumer.filters or (b">",)
            if all(is_subset(one, subject) for one in filters):
                first = log.next_matching((subject,), log.first_seq)
                consumer.skip_to((log.last_seq + 1 if first is None else first) - 1)
            elif any(is_subset(subject, one) for one in filters):
                consumer.skip_to(log.first_seq - 1)
        self.told_first_seq = log.first_seq

    def take_dropped(self) -> list[tuple[int, Dropped]]:
        """What was pending and has gone since this was asked last, with its consumer's number."""
        dropped, self.dropped = self.dropped, []
        return dropped

    def keep_dropped(self, is_kept: bool) -> None:
        """From now on remember what was pending when it was removed, or do so no more."""
        self.keeps_dropped = is_kept
        self.dropped.clear()

    def _drop(self, drop: Callable[[ConsumerMachine], list[Dropped]]) -> None:
        for number, consumer in self.consumers.items():
            for machine in self._both(consumer):
                dropped = drop(machine) if machine in self._holders else []
                # Whoever tells the world knows what runs ahead, and nothing else.
                if self.keeps_dropped and (machine is not consumer or number not in self.runners):
                    self.dropped += [(number, one) for one in dropped]
        self._holders.review()

    # --- checkpoints ---

    def snapshot(self) -> list[Any]:
        """Everything that a checkpoint keeps."""
        return [
            [number, consumer.snapshot()]
            for number, consumer in sorted(self.consumers.items())
            if not self.is_volatile(consumer.config)
        ]

    def restore(self, snapshot: list[Any], highest: int, told_first_seq: int) -> None:
        """The reverse of snapshot()."""
        for number, state in snapshot:
            self._admit(ConsumerMachine.restore(number, state))
        self.highest = highest
        # Not where the log begins now: what a node forgets below must not depend on whether it was restarted.
        self.told_first_seq = told_first_seq
        self._follow_interest()


def _is_list_to_come(config: ConsumerConfig, position: ConsumerPosition) -> bool:
    """Whether a consumer from an archive begins with the last message of each subject, as a new one does."""
    return config.deliver_policy == "last_per_subject" and not position.delivered.consumer_seq


def _take_over(consumer: ConsumerMachine, position: ConsumerPosition) -> None:
    pending = {seq: Pending(one.consumer_seq, one.ts_ns) for seq, one in position.pending.items()}
    delivered, floor = Position(*position.delivered), Position(*position.ack_floor)
    consumer.take_over(delivered, floor, pending, position.redelivered)
