"""An edged without sockets, threads and a clock: the real server, JetStream and store, moved by a test.

A test publishes and subscribes as a client of the server's own account, lets time pass, ends the server in
order or in the middle of something, and starts it again on the same disk, which is in memory.

Rules: nothing happens by itself. What a call brought about is over when it returns, except that commands wait
while `is_disk_busy`. Time passes in advance() only, from one thing that is due to the next.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, Final, cast

import trio
import trio.testing

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import LoggingOptions, Options
from edged.core.commands import Command
from edged.core.twins import Outbox, Subscription
from edged.core.wire import Publish
from edged.ports import LocalRouter
from edged.server.deadlines import Deadline, Deadlines
from edged.server.jetstream.consumer_info import listed
from edged.server.jetstream.consumers.consumer import Consumer
from edged.server.jetstream.jetstream import TICK_S, JetStream
from edged.server.log import Log
from edged.server.server import Server
from edged.store.batch import Done
from edged.store.options import StoreOptions
from edged.store.store import Store
from tests.lab.fake_disk import FakeDisk

START_NS: Final = 1_800_000_000 * 10**9
SECOND_NS: Final = 10**9
_TICK_NS: Final = int(TICK_S * SECOND_NS)
_GIBIBYTE: Final = 1 << 30
# So small that a test fills some, and old ones become segments and checkpoints.
_JOURNAL_FILE_BYTES: Final = 64 * 1024


class VirtualClock:
    """What time it is, and what is to be done when."""

    def __init__(self) -> None:
        self.now_ns = START_NS


class VirtualDeadlines(Deadlines):
    """Deadlines that are met when the test lets time pass. In whole nanoseconds: what is due is due."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._waiting: list[tuple[int, int, Deadline]] = []
        self._numbers = itertools.count()

    def after(self, delay_s: float, callback: Callable[[], None]) -> Deadline:
        """Call back once `delay_s` has passed."""
        due_ns = self._clock.now_ns + round(delay_s * SECOND_NS)
        deadline = Deadline(due_ns / SECOND_NS, callback)
        heapq.heappush(self._waiting, (due_ns, next(self._numbers), deadline))
        return deadline

    def due_ns(self) -> int | None:
        """When something is to be done next."""
        while self._waiting and self._waiting[0][2].callback is None:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def meet(self) -> None:
        """Do what is due by now."""
        while (due_ns := self.due_ns()) is not None and due_ns <= self._clock.now_ns:
            callback = heapq.heappop(self._waiting)[2].callback
            assert callback is not None
            callback()


class _ClockedServer(Server):
    """A server that reads the clock of the test."""

    def __init__(self, clock: VirtualClock, log: Log) -> None:
        self._clock = clock
        options = Options(jetstream=JetStreamOptions(max_memory=_GIBIBYTE, max_store=_GIBIBYTE))
        super().__init__(options, log, LocalRouter(), cast(trio.Nursery, None))
        self.deadlines = VirtualDeadlines(clock)

    def now_ns(self) -> int:
        return self._clock.now_ns

    def monotonic_ns(self) -> int:
        return self._clock.now_ns


class _SteppedCommitter:
    """Commits at once, in the caller's thread; what is submitted waits while `is_busy`."""

    flush_due_ns = None
    is_full = False
    sealing_error = None

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_busy = False

    def submit(self, group: int, command: Command, done: Done) -> None:
        self._store.add(group, command, done)

    def submit_appends(self, group: int, messages: Sequence[Publish], ts_ns: int, done: Done) -> None:
        self._store.add_appends(group, messages, ts_ns, done)

    def flush(self) -> None:
        if not self.is_busy and self._store.has_gathered:
            self._store.settle()
            self._store.maintain()

    def close(self) -> None:
        self._store.settle()


class Inbox:
    """What arrived on a subscription and was not taken yet."""

    def __init__(self, subscription: Subscription | None = None) -> None:
        self.subscription = subscription
        self._messages: list[Publish] = []

    def arrived(self, subscription: Subscription, messages: list[Publish], origin: Outbox | None) -> None:
        """Called by the server."""
        self._messages += messages

    def take(self) -> list[Publish]:
        """Everything that has arrived: subject, reply, length of the header block (or -1), bytes."""
        messages, self._messages = self._messages, []
        return messages


class VirtualServer:
    """One, through all its lives. It is running when it was made."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._log = Log(LoggingOptions(), StringIO())
        self._clock = VirtualClock()
        self._disk = FakeDisk()
        self._inboxes: dict[bytes, Inbox] = {}
        self._ticked_ns = START_NS
        self._start()

    # --- lives ---

    def _start(self) -> None:
        options = StoreOptions(
            journal_file_bytes=_JOURNAL_FILE_BYTES,
            now_ns=lambda: self._clock.now_ns,
            draw_nonce=lambda: self._chance.getrandbits(64) | 1,
        )
        self._server = _ClockedServer(self._clock, self._log)
        self._store = Store.open(self._disk, options)
        assert self._server.options.jetstream is not None
        self.jetstream = JetStream(self._server, self._store, self._server.options.jetstream, "")
        self._committer = _SteppedCommitter(self._store)
        self.jetstream.committer = cast(Any, self._committer)
        self._server.jetstream = self.jetstream
        self._account = self._server.default_account
        for subject, inbox in self._inboxes.items():
            self._listen(subject, inbox)
        self.settle()

    def restart(self) -> None:
        """End in order, and start again. Whoever listened listens again; what was sent is there no more."""
        self._committer.is_busy = False
        self.jetstream.close()
        self._disk.end_process()
        self._forget()
        self._start()

    def crash(self) -> None:
        """Lose everything that is not durable, and start again."""
        self._store.journal.let_go()
        self.jetstream.waker.close()
        self._disk.end_process()
        self._forget()
        self._start()

    def _forget(self) -> None:
        for inbox in self._inboxes.values():
            inbox.take()

    # --- time ---

    @property
    def now_ns(self) -> int:
        """What time it is."""
        return self._clock.now_ns

    def advance(self, passed_ns: int) -> None:
        """Let time pass; what is due by then is done in its time."""
        until_ns = self._clock.now_ns + passed_ns
        deadlines = self._server.deadlines
        assert isinstance(deadlines, VirtualDeadlines)
        while True:
            tick_ns = self._ticked_ns + _TICK_NS
            due_ns = deadlines.due_ns()
            next_ns = tick_ns if due_ns is None else min(due_ns, tick_ns)
            if next_ns > until_ns:
                break
            self._clock.now_ns = max(self._clock.now_ns, next_ns)
            deadlines.meet()
            if self._clock.now_ns >= tick_ns:
                self._ticked_ns = self._clock.now_ns
                for stream in list(self.jetstream.streams()):
                    stream.tick(self._clock.now_ns)
            self.settle()
        self._clock.now_ns = until_ns

    def settle(self) -> None:
        """Let everything happen that can without time."""
        self._server.flush()
        while self.jetstream.turns.are_waiting or (self._store.has_gathered and not self._committer.is_busy):
            self._server.flush()

    @property
    def is_disk_busy(self) -> bool:
        """Whether commands wait. What waits is committed when it is busy no more."""
        return self._committer.is_busy

    @is_disk_busy.setter
    def is_disk_busy(self, is_busy: bool) -> None:
        self._committer.is_busy = is_busy
        if not is_busy:
            self.settle()

    # --- a client ---

    def subscribe(self, subject: str, queue: str = "", inbox: Inbox | None = None) -> Inbox:
        """Listen to a subject, in this life and in all others."""
        inbox = inbox or Inbox()
        self._inboxes[subject.encode()] = inbox
        self._listen(subject.encode(), inbox, queue.encode() or None)
        self.settle()
        return inbox

    def unsubscribe(self, inbox: Inbox) -> None:
        """Listen no more."""
        assert inbox.subscription is not None
        self._account.unsubscribe(inbox.subscription)
        del self._inboxes[inbox.subscription.subject]
        self.settle()

    def _listen(self, subject: bytes, inbox: Inbox, queue: bytes | None = None) -> None:
        inbox.subscription = Subscription(subject, queue, b"1", None, inbox.arrived)
        self._account.subscribe(inbox.subscription)

    def publish(
        self, subject: str | bytes, data: bytes = b"", reply: str = "", header_bytes: int = -1
    ) -> None:
        """Publish a message, and let everything happen that follows."""
        name = subject.encode() if isinstance(subject, str) else subject
        self._account.publish(name, reply.encode() or None, data, header_bytes)
        self.settle()

    def api(self, name: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request to the JetStream API, and its answer."""
        inbox = self.subscribe("api.answer")
        body = b"" if request is None else json.dumps(request).encode()
        self._account.publish(f"$JS.API.{name}".encode(), b"api.answer", body)
        trio.run(self._answer)
        self.settle()
        ((_, _, _, data),) = inbox.take()
        self.unsubscribe(inbox)
        answer: dict[str, Any] = json.loads(data)
        assert "error" not in answer, answer
        return answer

    async def _answer(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.jetstream.door.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    # --- figures ---

    def consumer(self, stream: str, name: str) -> Consumer:
        """A consumer at run time."""
        found = self.jetstream.accounts[self._account.name].streams[stream].consumers.find(name)
        assert found is not None, name
        return found

    def info(self, stream: str, name: str) -> dict[str, Any]:
        """What CONSUMER.INFO shows, without the way there."""
        return listed(self.consumer(stream, name))
