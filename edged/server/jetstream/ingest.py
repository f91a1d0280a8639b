"""From what is published to a stream's subjects to appends, and from their outcomes to acknowledgements.

Rules: whatever one turn of the loop brought for a stream is one command to the committer. Nothing is
acknowledged before the committer says what became of it. Messages are not decided about here: the machine of
the stream does that when they are durable. What has to be done to a message before it is stored, and batches,
are for `Preparation`; most messages need nothing of it and pass by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edged.core.stream_machine import Duplicate, Outcome, Refused, Stored
from edged.core.twins import are_plain
from edged.core.wire import Publish
from edged.server.jetstream.counter_intake import CounterIntake
from edged.server.jetstream.preparation import Preparation
from edged.server.jetstream.pub_acks import PubAcks, error_of, is_undecided, total_field
from edged.server.jetstream.republish import Republisher
from edged.server.jetstream.schedule_runner import ScheduleRunner
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.core.api_errors import ApiError
    from edged.core.twins import Outbox, Subscription
    from edged.server.jetstream.counter_intake import Done, Guest
    from edged.server.jetstream.stream import Stream


class Ingest:
    """Takes messages for one stream, as its configuration was when this was made."""

    def __init__(self, stream: Stream) -> None:
        config = stream.config
        self._stream = stream
        self._jetstream = stream.jetstream
        self._account = stream.account.account
        self.is_silent = config.no_ack
        self.acks = PubAcks(stream.name, stream.jetstream.options.domain)
        self._preparation = Preparation(stream, self)
        self._counters = CounterIntake(stream) if config.allow_msg_counter else None
        self._republisher = Republisher(stream) if config.republish is not None else None
        self._schedules = ScheduleRunner(stream) if config.allow_msg_schedules else None

    def arrived(self, subscription: Subscription, messages: list[Publish], origin: Outbox | None) -> None:
        """Called with all messages of one batch."""
        if self._preparation.is_needed or not are_plain(messages):
            messages = self._preparation.prepared(messages)
        if messages:
            self.take(messages)

    def arrived_again(self, messages: list[Publish]) -> None:
        """Called with messages that had to wait for others."""
        messages = self._preparation.prepared(messages)
        if messages:
            self.take(messages)

    def take(self, messages: list[Publish]) -> None:
        """Submit messages that need nothing more, each of which is answered by itself."""
        if self._counters is not None:
            self._counters.submit(messages, self._counted, together=False)
        else:
            self._submit(messages, partial(self._finished, messages))

    def submit(self, messages: Sequence[Publish], done: Done) -> None:
        """Submit messages that `done` answers: members of a batch that are taken together, or not at all."""
        if self._counters is not None:
            self._counters.submit(messages, done, together=True)
        else:
            self._submit(messages, partial(done, messages, ()))

    def lend_counters(self, guest: Guest) -> None:
        """Let the guest count and submit messages when it is its turn, in a stream with counters."""
        assert self._counters is not None
        self._counters.lend(guest)

    def _submit(
        self, messages: Sequence[Publish], done: Callable[[Sequence[Outcome] | StoreError], None]
    ) -> None:
        jetstream = self._jetstream
        jetstream.committer.submit_appends(self._stream.group, messages, jetstream.now_ns(), done)
        jetstream.crowd()

    def tick(self, now_ns: int) -> None:
        """Do what is due by the clock."""
        self._preparation.tick(now_ns)
        if self._schedules is not None:
            self._schedules.tick(now_ns)

    def next_ns(self) -> int | None:
        """When a message is to be published next; None when that is not known of any."""
        return None if self._schedules is None else self._schedules.next_ns()

    def close(self) -> None:
        """The stream goes, or is configured otherwise: forget what has not come to its end."""
        self._preparation.close()

    # --- outcomes ---

    def _finished(self, messages: Sequence[Publish], result: Sequence[Outcome] | StoreError) -> None:
        """Tell everybody what became of their messages."""
        if isinstance(result, range):
            if not self.is_silent:
                fanout = self._account.fanout
                fanout.acknowledge(messages, result.start, self.acks.head, self._account.internal)
        elif isinstance(result, StoreError):
            if is_undecided(result):
                return
            error = error_of(result)
            for message in messages:
                self.refuse(message[1], error)
            return
        else:
            for message, outcome in zip(messages, result, strict=True):
                self.answer(message[1], outcome)
        self.stored(messages, result)

    def _counted(
        self, messages: Sequence[Publish], values: Sequence[str], result: Sequence[Outcome] | StoreError
    ) -> None:
        """The same for messages of a counter, with their totals."""
        if isinstance(result, StoreError):
            self._finished(messages, result)
            return
        for message, value, outcome in zip(messages, values or [""] * len(messages), result, strict=True):
            self.answer(message[1], outcome, b"" if isinstance(outcome, Duplicate) else total_field(value))
        self.stored(messages, result)

    def stored(self, messages: Sequence[Publish], outcomes: Sequence[Outcome]) -> None:
        """Let everybody know who waits for messages of this stream."""
        if self._republisher is not None:
            self._republisher.publish(messages, outcomes)
        if self._schedules is not None:
            self._schedules.stored(messages, outcomes)
        self._stream.stored(messages)

    def answer(self, reply: bytes | None, outcome: Outcome, fields: bytes = b"") -> None:
        """Tell a publisher what became of its message; `fields` stand behind the seq."""
        if isinstance(outcome, Refused):
            self.refuse(reply, outcome.error)
        elif reply is not None and not self.is_silent:
            if isinstance(outcome, Duplicate):
                answer = self.acks.duplicate(outcome.seq, fields)
            else:
                seq = outcome.seq if isinstance(outcome, Stored) else outcome
                answer = self.acks.stored(seq, fields)
            self._account.publish(reply, None, answer)

    def refuse(self, reply: bytes | None, error: ApiError) -> None:
        """Tell a publisher that its message was not stored."""
        if reply is not None and not self.is_silent:
            self._account.publish(reply, None, self.acks.refused(error))
