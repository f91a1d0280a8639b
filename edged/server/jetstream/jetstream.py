"""JetStream of this server: the store, the door to it, and the streams of the accounts.

Rules: everything here belongs to the loop's thread, except what the committer does in its own threads. Every
change of state is a command that passes the committer; who waits for one calls `commit()`. The time that
messages are dated with never goes back, whatever the clock of the machine does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import trio

from edged.committer import LocalCommitter
from edged.core.batch_limits import BatchLimits, OpenBatches
from edged.core.commands import RemoveStream
from edged.core.limits import COUNTER_QUEUE_BYTES_MAX
from edged.core.stream_machine import Outcome
from edged.server.jetstream.account_streams import AccountStreams
from edged.server.jetstream.advisories import Advisories
from edged.server.jetstream.api_door import ApiDoor
from edged.server.jetstream.consumers.turns import Turns
from edged.server.jetstream.disk_watch import DiskWatch
from edged.server.jetstream.origins import Origins
from edged.server.jetstream.recovery_log import tell_recovery
from edged.server.jetstream.relay import Relay
from edged.server.jetstream.resources import store_directory, with_shares
from edged.server.jetstream.stream import RESTORING
from edged.server.jetstream.waker import Waker
from edged.store.errors import StoreError
from edged.store.files import RealFiles
from edged.store.group import CATALOG, REMOVED
from edged.store.options import StoreOptions
from edged.store.store import Store
from edged.version import API_LEVEL

if TYPE_CHECKING:
    from edged.config.jetstream_options import JetStreamOptions
    from edged.core.commands import Command
    from edged.ports import Cluster
    from edged.server.account import Account
    from edged.server.jetstream.stream import Stream
    from edged.server.server import Server

TICK_S = 0.25
"""How often all streams are looked at for what is due by the clock. For what is sooner they have alarms."""
TEND_S = 1.0
"""How often the disk is looked after."""


class JetStream:
    """Made by open(), once per daemon."""

    def __init__(
        self,
        server: Server,
        store: Store,
        options: JetStreamOptions,
        directory: str,
        cluster: Cluster | None = None,
    ) -> None:
        self.server = server
        self.store = store
        # The other nodes; None for a server that stands alone.
        self.cluster = cluster
        self.relay = None if cluster is None else Relay(self, cluster)
        # Set, and replaced, when somebody else may lead some group, or streams have changed.
        self.change = trio.Event()
        # With the limits filled in that follow from the machine.
        self.options = options
        self.directory = directory
        self.waker = Waker(server.reactor, server.log, self._collect)
        self.committer = LocalCommitter(store, self.waker.wake)
        self.accounts: dict[str, AccountStreams] = {}
        # The streams of all accounts that are served, by the number of their group.
        self.by_group: dict[int, Stream] = {}
        # The system account, which has no streams.
        self.system: AccountStreams | None = None
        # Held by whoever makes, changes or removes streams, from looking what there is to the outcome.
        self.catalog_lock = trio.Lock()
        bounds = options.limits
        self.batch_limits = BatchLimits(API_LEVEL).configured(
            bounds.batch_max_inflight_per_stream,
            bounds.batch_max_inflight_total,
            bounds.batch_max_messages,
            int(bounds.batch_timeout_s * 1e9),
        )
        self.open_batches = OpenBatches()
        self.advisories = Advisories(self)
        self.door = ApiDoor(self)
        self.origins = Origins(self)
        self.turns = Turns(server)
        self._last_ns = max((entry.log.last_ts_ns for entry in store.catalog.streams.values()), default=0)
        self._is_flush_planned = False
        self._room = trio.Event()
        # Whether somebody submitted messages although the committer, or the queue before it, had its fill.
        self.is_crowded = False
        self._held_bytes = 0
        self._remove_incomplete()
        store.catalog.listener = self._catalog_changed
        for account in server.accounts.values():
            self._serve(account)
        server.account_listeners.append(self._serve)

    @classmethod
    async def open(
        cls, server: Server, cluster: Cluster | None = None, replication: object | None = None
    ) -> JetStream:
        """Recover what is in the directory of the configuration, or begin there. Raises StoreBroken.

        `replication` is for the store: what lets groups be decided by several nodes.
        """
        configured = server.options.jetstream
        assert configured is not None
        directory = store_directory(server.options, configured)
        options = with_shares(configured, directory)
        store_options = StoreOptions.of(options)
        server.log.info("opening the store", directory=directory, sync=options.sync)
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        plugins = () if replication is None else (replication,)
        store = await trio.to_thread.run_sync(Store.open, RealFiles(str(directory)), store_options, *plugins)
        jetstream = cls(server, store, options, str(directory), cluster)
        tell_recovery(store, server.log)
        return jetstream

    async def run(self) -> None:
        """Answer requests, and do what is due by the clock, forever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.door.run)
            nursery.start_soon(self.origins.run)
            nursery.start_soon(self.turns.run)
            nursery.start_soon(self._tend)

    async def _tend(self) -> None:
        tended_at = trio.current_time()
        watch = DiskWatch(self.store, self.committer, self.server.log)
        while True:
            await trio.sleep(TICK_S)
            now_ns = self.now_ns()
            for stream in list(self.streams()):
                stream.tick(now_ns)
            if trio.current_time() - tended_at >= TEND_S:
                tended_at = trio.current_time()
                self.committer.tend(now_ns)
                watch.look()
            self.server.flush()

    def leave(self) -> None:
        """Whoever waits for messages is told that the server goes."""
        for stream in self.streams():
            for consumer in stream.consumers:
                consumer.leave()
        self.server.flush()

    def close(self) -> None:
        """Make everything durable that was acknowledged in a weaker mode, and let go of the store."""
        for stream in self.streams():
            stream.consumers.stop()
        try:
            self.committer.close()
        finally:
            self.waker.close()
            self.store.close()

    def now_ns(self) -> int:
        """The time of day, which never goes back."""
        self._last_ns = max(self._last_ns, self.server.now_ns())
        return self._last_ns

    # --- committing ---

    def flush(self) -> None:
        """Write what this turn has submitted; called before what it has to say is written to sockets."""
        committer, turns = self.committer, self.turns
        turns.take()
        committer.flush()
        if turns.are_waiting:
            # What was stored here and now is delivered at once; the journal hears of it with the next batch.
            turns.take()
            turns.go_on()
        due_ns = committer.flush_due_ns
        if due_ns is not None and not self._is_flush_planned:
            self._is_flush_planned = True
            self.server.deadlines.after(max(0, due_ns - time.time_ns()) / 1e9, self._flush_later)

    async def commit(self, group: int, command: Command) -> Outcome:
        """Commit one command and wait for its outcome. Raises StoreError."""
        finished = trio.Event()
        results: list[Sequence[Outcome] | StoreError] = []

        def done(result: Sequence[Outcome] | StoreError) -> None:
            results.append(result)
            finished.set()
            self.server.tasks_waiting = True

        self.committer.submit(group, command, done)
        self.flush()
        await finished.wait()
        result = results[0]
        if isinstance(result, StoreError):
            raise result
        return result[0]

    def hold(self, size: int) -> None:
        """So many bytes wait for their turn to be submitted or, below 0, wait no more."""
        self._held_bytes += size
        assert self._held_bytes >= 0, self._held_bytes

    def crowd(self) -> None:
        """Messages have come: let whoever publishes to streams wait, if that is enough for now."""
        if (self.committer.is_full or self._is_holding_enough) and not self.is_crowded:
            self.is_crowded = True
            self._room = trio.Event()
            self.committer.when_there_is_room(self._make_room)

    async def room(self) -> None:
        """Wait until more is taken."""
        while self.is_crowded:
            await self._room.wait()

    @property
    def _is_holding_enough(self) -> bool:
        return self._held_bytes >= COUNTER_QUEUE_BYTES_MAX

    def _make_room(self) -> None:
        """The committer takes more."""
        if self._is_holding_enough:
            # Some of it is submitted after each batch, and then this is called again.
            self.committer.when_there_is_room(self._make_room)
            return
        self.is_crowded = False
        self._room.set()
        self.server.tasks_waiting = True

    def _flush_later(self) -> None:
        self._is_flush_planned = False
        self.server.flush()

    def _collect(self) -> None:
        self.committer.collect()

    def _remove_incomplete(self) -> None:
        """Remove streams whose restore was cut short by a crash."""
        if self.cluster is not None:
            return
        for group, entry in list(self.store.catalog.streams.items()):
            if entry.config.get(RESTORING):
                self.server.log.warn("removing a stream that was not restored completely", stream=entry.name)
                self.store.commit([(CATALOG, RemoveStream(group))])

    # --- accounts ---

    def streams(self) -> Iterator[Stream]:
        """The streams of all accounts."""
        for account in self.accounts.values():
            yield from account.streams.values()

    def _catalog_changed(self, kind: str, group: int) -> None:
        """A command of the catalog was applied: serve what there is now."""
        entry = self.store.catalog.streams.get(group)
        stream = self.by_group.get(group)
        if entry is not None:
            account = self.accounts.get(entry.account)
            if account is not None:
                account.put(entry)
        elif stream is not None and kind == REMOVED:
            stream.account.removed(stream)
        elif stream is not None:
            # It is on other nodes only from now on.
            stream.follow()
            stream.account.close(stream)
        if entry is None:
            self.origins.look()
        self.changed()

    def leadership_changed(self, group: int) -> None:
        """It may be another node than before that leads a group: serve what is led here, and nothing else."""
        stream = self.by_group.get(group)
        if stream is not None:
            stream.follow_leader()
        elif group == CATALOG:
            self._remove_abandoned()
        self.changed()

    def quorum_lost(self, group: int) -> None:
        """Too few members of a group are there for anybody to lead it."""
        stream = self.by_group.get(group)
        if stream is not None:
            self.advisories.quorum_lost(stream)

    def _remove_abandoned(self) -> None:
        """Remove streams that come from archives, if nobody is at it any more: who leads here does that."""
        if self.cluster is None or not self.cluster.leads(CATALOG):
            return
        found: list[tuple[int, str, str, Mapping[str, Any]]] = [
            (group, entry.account, entry.name, entry.config)
            for group, entry in self.store.catalog.streams.items()
        ]
        for name in self.accounts:
            for group, one in self.cluster.assignments(name).items():
                found.append((group, name, one.name, one.config))
        for group, account, name, config in found:
            if config.get(RESTORING) and name not in self.accounts[account].restoring:
                self.committer.submit(CATALOG, RemoveStream(group), _nobody_waits)

    def changed(self) -> None:
        """Let everybody look again who waits for something that other nodes do."""
        change, self.change = self.change, trio.Event()
        change.set()
        self.server.tasks_waiting = True

    def _serve(self, account: Account) -> None:
        """Give an account its streams."""
        streams = AccountStreams(self, account)
        if account.is_system:
            self.system = streams
            self.door.open_system(streams)
        elif account.name not in self.accounts:
            self.accounts[account.name] = streams
            streams.follow()
            self.door.open(streams)
            if self.cluster is not None:
                # What is said to consumers on other nodes is passed on.
                streams.consumer_door.listen()

    def configured(self) -> None:
        """The options of the server, or of accounts, have changed."""
        options = self.server.options.jetstream
        if options is not None:
            # What is not said is a share of the machine as it was when the store was opened.
            max_memory = options.max_memory if options.max_memory >= 0 else self.options.max_memory
            max_store = options.max_store if options.max_store >= 0 else self.options.max_store
            self.options = replace(options, max_memory=max_memory, max_store=max_store)
            self.store.room.set_limits(max_memory, max_store)
        for account in self.accounts.values():
            account.follow()


def _nobody_waits(result: object) -> None:
    """What was not removed is looked for again by the next leader."""
