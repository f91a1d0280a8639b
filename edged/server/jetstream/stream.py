"""A stream at run time: it takes what is published to its subjects, and lets go what has outlived its time.

Rules: what a stream holds is in its log, what it decides is in its machine; here is only what listens and
what is told. Whoever must know of new messages is in `listeners`, and is called when some are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edged.core.stream_config import StreamConfig
from edged.core.stream_machine import MessageLog, StreamMachine
from edged.core.twins import Subscription
from edged.core.wire import Publish
from edged.server.jetstream.alarm import Alarm
from edged.server.jetstream.dead_letter_sender import DeadLetterSender
from edged.server.jetstream.ingest import Ingest
from edged.server.jetstream.origins import StreamOrigins
from edged.server.jetstream.stream_consumers import StreamConsumers
from edged.store.errors import StoreError
from edged.store.message_reads import MessageReads

if TYPE_CHECKING:
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.store.group import StreamEntry

MARKERS_MAX = 1024
"""How many delete markers are submitted at a time."""
EXPIRY_PAUSE_NS = 250_000_000
"""How long after one removal of old messages the next one comes, which costs a commit for however many."""
RESTORING = "edged.restoring"
"""Marks, in the configuration that is stored, a stream of which not all messages are there yet."""
CREATED = "edged.created"
"""Where the configuration that is stored says when the stream was made, in ns since the epoch."""


class Stream:
    """One stream of an account."""

    def __init__(self, account: AccountStreams, entry: StreamEntry) -> None:
        self.account = account
        self.jetstream = account.jetstream
        self.entry = entry
        self.name = entry.name
        self.config = StreamConfig.stored(entry.config)
        self.alarm = Alarm(self.jetstream.server.deadlines, self.jetstream.now_ns, self._ring)
        self.ingest = Ingest(self)
        self.origins = StreamOrigins(self)
        self.consumers = StreamConsumers(self)
        self.letter_sender = DeadLetterSender(self)
        self.listeners: list[Callable[[], None]] = []
        self._subscriptions: list[Subscription] = []
        self._is_expiring = False
        self._expired_ns = 0

    @property
    def group(self) -> int:
        """Its number in the journal."""
        return self.entry.group.number

    @property
    def machine(self) -> StreamMachine:
        """What decides."""
        machine = self.entry.group.machine
        assert isinstance(machine, StreamMachine)
        return machine

    @property
    def log(self) -> MessageLog:
        """Where its messages are."""
        return self.entry.log

    @property
    def reads(self) -> MessageReads:
        """The same, for whoever reads many of them."""
        log = self.entry.log
        assert isinstance(log, MessageReads), log
        return log

    @property
    def created_ns(self) -> int:
        """When it was made."""
        return int(self.entry.config.get(CREATED) or 0)

    def start(self) -> None:
        """Listen to the subjects of the configuration."""
        account = self.account.account
        if self.config.allow_direct:
            self.account.direct[self.name.encode()] = self
        first: Subscription | None = None
        for number, subject in enumerate(self.config.subjects):
            sid = b"%d" % (number + 1)
            subscription = Subscription(subject.encode(), None, sid, None, self.ingest.arrived, first)
            first = first or subscription
            account.subscribe(subscription)
            self._subscriptions.append(subscription)

    def stop(self) -> None:
        """Listen no more."""
        self.account.direct.pop(self.name.encode(), None)
        self.alarm.cancel()
        self.ingest.close()
        self.origins.close()
        for subscription in self._subscriptions:
            self.account.account.unsubscribe(subscription)
        self._subscriptions.clear()

    def reconfigure(self) -> None:
        """The configuration has changed."""
        self.stop()
        self.config = StreamConfig.stored(self.entry.config)
        self.ingest = Ingest(self)
        self.origins = StreamOrigins(self)
        self.start()
        # Limits that shrank have taken messages.
        self.consumers.removed()

    def stored(self, messages: Sequence[Publish] | None = None) -> None:
        """Messages were stored: these, or nobody knows which."""
        self.consumers.stored(messages)
        for listener in self.listeners:
            listener()

    def tick(self, now_ns: int) -> None:
        """Do what is due, and be there in time for what is due soon."""
        self.ingest.tick(now_ns)
        self.consumers.tick(now_ns)
        self.letter_sender.tick(now_ns)
        self._expire(now_ns)
        self.alarm.set(self.ingest.next_ns())
        expires_ns = None if self._is_expiring else self.machine.expiry.next_ns(self.log)
        if expires_ns is not None:
            expires_ns = max(expires_ns, self._expired_ns + EXPIRY_PAUSE_NS)
            # What is over and still there could not be removed just now.
            if expires_ns > now_ns:
                self.alarm.set(expires_ns)

    def _ring(self) -> None:
        # What was on its way to the disk may come back when the stream is gone.
        if self.account.streams.get(self.name) is self:
            self.tick(self.jetstream.now_ns())
            self.jetstream.server.flush()

    def _expire(self, now_ns: int) -> None:
        """Let go of what has outlived its time."""
        if self._is_expiring:
            return
        machine, committer = self.machine, self.jetstream.committer
        command = machine.expired(now_ns)
        if command is not None:
            self._is_expiring = True
            self._expired_ns = now_ns
            committer.submit(self.group, command, self._expired)
        elif machine.unmarked:
            self._is_expiring = True
            committer.submit_appends(self.group, machine.delete_markers(MARKERS_MAX), now_ns, self._marked)

    def _expired(self, result: object) -> None:
        self._is_expiring = False
        if not isinstance(result, StoreError) and self.machine.unmarked:
            self.alarm.set(0)
            self.jetstream.server.tasks_waiting = True
        self.consumers.removed()

    def _marked(self, result: object) -> None:
        self._is_expiring = False
        self.stored()
