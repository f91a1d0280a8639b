"""A stream at run time: it takes what is published to its subjects, and lets go what has outlived its time.

Rules: what a stream holds is in its log, what it decides is in its machine; here is only what listens and
what is told. All of it is there only while this node leads the stream's group: a server that stands alone
leads always, and of several nodes one does, while the others keep log and machine and nothing else. Whoever
must know of new messages is in `listeners`, and is called when some are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from edged.core.commands import CREATED, PEERS
from edged.core.pull_statuses import CONSUMER_DELETED, LEADERSHIP_CHANGE
from edged.core.stream_config import StreamConfig
from edged.core.stream_machine import MessageLog, StreamMachine
from edged.core.twins import Subscription
from edged.core.wire import Publish
from edged.server.jetstream.alarm import Alarm
from edged.server.jetstream.certainty import Certainty
from edged.server.jetstream.configuring import configure, runs_as
from edged.server.jetstream.dead_letter_sender import DeadLetterSender
from edged.server.jetstream.ingest import Ingest
from edged.server.jetstream.origins import StreamOrigins
from edged.server.jetstream.stream_consumers import StreamConsumers
from edged.store.errors import StoreError
from edged.store.message_reads import MessageReads

if TYPE_CHECKING:
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.consumers.consumer import Consumer
    from edged.server.jetstream.origin import Hold
    from edged.server.jetstream.origin_hold import OriginHold
    from edged.store.group import StreamEntry

MARKERS_MAX = 1024
"""How many delete markers are submitted at a time."""
EXPIRY_PAUSE_NS = 250_000_000
"""How long after one removal of old messages the next one comes, which costs a commit for however many."""
RESTORING = "edged.restoring"
"""Marks, in the configuration that is stored, a stream of which not all messages are there yet."""


class Parting(NamedTuple):
    """The consumers that a stream had, and what kept messages of its origins."""

    consumers: list[Consumer]
    holds: list[Hold]


class Stream:
    """One stream of an account. `ingest` and `letter_sender` are there from when it is first led."""

    ingest: Ingest
    letter_sender: DeadLetterSender

    def __init__(self, account: AccountStreams, entry: StreamEntry, is_earlier: bool = False) -> None:
        self.account = account
        self.jetstream = account.jetstream
        self.entry = entry
        self.name = entry.name
        # How it runs, which in a cluster is not always as the catalog says already.
        self.config = StreamConfig.stored(self.machine.config)
        self.is_being_configured = False
        # Whether it is from an earlier life of the process, and was not led in this one yet.
        self.is_earlier = is_earlier
        self.alarm = Alarm(self.jetstream.server.deadlines, self.jetstream.now_ns, self._ring)
        self.origins = StreamOrigins(self)
        self.consumers = StreamConsumers(self)
        self.certainty = Certainty(self)
        self.is_leading = False
        # Held, in a cluster, by whoever changes the stream or its consumers.
        self.lock = trio.Lock()
        # What is left to do when it is removed; None where another node does that.
        self.parting: Parting | None = None
        # What keeps messages for readers on other nodes, by name.
        self.remote_holds: dict[str, OriginHold] = {}
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

    def has_consumer(self, name: str) -> bool:
        """Whether there is such a consumer, be it served here or not."""
        if self.is_leading:
            return self.consumers.find(name) is not None
        return any(consumer.name == name for consumer in self.machine.consumers.values())

    @property
    def is_replicated(self) -> bool:
        """Whether other nodes have it as well."""
        return self.jetstream.cluster is not None and len(self.entry.config.get(PEERS, ())) > 1

    # --- leading ---

    def lead(self) -> None:
        """Take messages, deliver them, and do what is due by the clock: this node decides from now on."""
        if self.is_leading:
            return
        self.is_leading = True
        self._is_expiring = False
        self.config = StreamConfig.stored(self.machine.config)
        self.ingest = Ingest(self)
        self.letter_sender = DeadLetterSender(self)
        self.origins = StreamOrigins(self)
        self._listen()
        self.consumers.start()
        if self.is_earlier and not self.is_replicated:
            self.consumers.forget_earlier()
        self.is_earlier = False
        self.jetstream.origins.opened(self)
        if self.is_replicated:
            self.jetstream.advisories.leader_elected(self)
        self.follow_catalog()

    def follow_leader(self) -> None:
        """Lead if this node leads the group, and follow otherwise."""
        cluster = self.jetstream.cluster
        if cluster is None or cluster.leads(self.group):
            self.lead()
        else:
            self.follow()

    def follow(self, status: bytes | None = LEADERSHIP_CHANGE) -> list[Consumer]:
        """Keep what is committed, and do nothing else; its consumers, which tell who waits why."""
        if not self.is_leading:
            return []
        # Without a status consumers tell the journal before they stop, so this comes first.
        consumers = self.consumers.stop(status)
        self.is_leading = False
        self.certainty.forget()
        self._deafen()
        self.letter_sender.close()
        self.remote_holds.clear()
        return consumers

    def part(self) -> None:
        """It is about to be removed: it takes nothing more, and whoever waits is told."""
        if self.is_leading:
            holds = self.origins.holds()
            self.parting = Parting(self.follow(CONSUMER_DELETED), holds)

    def _listen(self) -> None:
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
        self.origins.start()

    def _deafen(self) -> None:
        """Listen no more."""
        self.account.direct.pop(self.name.encode(), None)
        self.alarm.cancel()
        self.ingest.close()
        self.origins.close()
        for subscription in self._subscriptions:
            self.account.account.unsubscribe(subscription)
        self._subscriptions.clear()

    def follow_catalog(self) -> None:
        """The catalog may have another configuration than it runs with."""
        if self.jetstream.cluster is None or self.is_being_configured:
            return
        if not self.is_leading:
            self.config = StreamConfig.stored(self.entry.config)
        elif not runs_as(self.machine.config, self.entry.config):
            self.is_being_configured = True
            self.jetstream.server.nursery.start_soon(configure, self)

    def reconfigure(self) -> None:
        """The configuration has changed."""
        self.config = StreamConfig.stored(self.machine.config)
        if not self.is_leading:
            return
        self._deafen()
        self.ingest = Ingest(self)
        self.origins = StreamOrigins(self)
        self._listen()
        # Limits that shrank have taken messages.
        self.consumers.removed()

    def stored(self, messages: Sequence[Publish] | None = None) -> None:
        """Messages were stored: these, or nobody knows which."""
        self.consumers.stored(messages)
        for listener in self.listeners:
            listener()

    def tick(self, now_ns: int) -> None:
        """Do what is due, and be there in time for what is due soon."""
        if not self.is_leading:
            return
        self.follow_catalog()
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
