"""A consumer at run time: what serves the machine that knows what was delivered.

It has a supply of messages, a side that delivers them (to a subject, or to those who ask), and takes
acknowledgements. Whatever may give it something to do wakes it, and it has its turn with the next flush.

Rules: everything here is volatile; what must survive is a command that the machine applies. One deadline at a
time looks after all that is due by the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from edged.core import pull_statuses as statuses
from edged.core.ack_subject import AckedMessage
from edged.core.commands import Ack, Dispatch, Terminate
from edged.server.jetstream.consumer_advisories import consumer_paused
from edged.server.jetstream.consumers import advisories
from edged.server.jetstream.consumers.acks import Acks
from edged.server.jetstream.consumers.pull import PullSide
from edged.server.jetstream.consumers.push import PushSide
from edged.server.jetstream.consumers.supply import Supply

if TYPE_CHECKING:
    from edged.core.consumer_config import ConsumerConfig
    from edged.core.consumer_machine import ConsumerMachine, Dropped
    from edged.server.account import Account
    from edged.server.deadlines import Deadline
    from edged.server.jetstream.consumers.door import ConsumerDoor
    from edged.server.jetstream.stream import Stream

RETRY_NS: Final = 250_000_000
"""How soon it is tried again after messages could not be read."""
_DELETED_REASON: Final = "Unacknowledged message was deleted"


class Consumer:
    """One consumer of a stream."""

    def __init__(self, stream: Stream, machine: ConsumerMachine) -> None:
        self.stream = stream
        self.machine = machine
        self.jetstream = stream.jetstream
        self.account: Account = stream.account.account
        self.door: ConsumerDoor = stream.account.consumer_door
        # Whether it waits for its turn, whether it is not to deliver for a while, whether it is gone.
        self.is_listed = False
        self.is_held = False
        self.is_stopped = False
        self.last_activity_ns = self.now_ns()
        self.supply = Supply(self)
        self.acks = Acks(self)
        self._side: PullSide | PushSide = PushSide(self) if self.config.is_push else PullSide(self)
        self._was_paused = self.is_paused
        self._deadline: Deadline | None = None
        self._deadline_ns = 0
        self._failed_until_ns = 0
        # The last message that was told of because it cannot be read.
        self._unreadable_to = 0

    # --- figures ---

    @property
    def config(self) -> ConsumerConfig:
        """As it is stored."""
        return self.machine.config

    @property
    def num_pending(self) -> int:
        """How many messages it has before it."""
        return self.supply.count

    @property
    def num_ack_pending(self) -> int:
        """How many messages wait for an acknowledgement, or for it to be durable. The limit holds."""
        count, limit = len(self.machine.pending), self.config.max_ack_pending
        if 0 < limit < count:
            count = max(limit, count - self.acks.on_their_way)
        return count

    @property
    def num_waiting(self) -> int:
        """How many requests wait."""
        return self._side.waiting_count

    @property
    def is_push_bound(self) -> bool:
        """Whether somebody listens to where it delivers."""
        return self._side.is_bound

    @property
    def is_paused(self) -> bool:
        """Whether it rests."""
        return self._pause_left_ns() > 0

    def _pause_left_ns(self) -> int:
        """How long it rests by the time of day, in which that is said."""
        until_ns = self.config.pause_until
        return 0 if until_ns is None else max(until_ns - self.jetstream.server.now_ns(), 0)

    @property
    def pinned(self) -> dict[str, tuple[str, int]]:
        """Which client is served alone, and since when, by group."""
        return self._side.pinned

    @property
    def is_volatile(self) -> bool:
        """Whether the journal does not know of it."""
        return self.stream.machine.is_volatile(self.config)

    @property
    def inactive_since_ns(self) -> int | None:
        """Since when nobody has used it; None while somebody does."""
        if self._side.is_bound or self._side.waiting_count:
            return None
        if self.config.is_push or not self.machine.pending:
            return self.last_activity_ns
        # Somebody may still work on what was delivered.
        waits = max(self.config.backoff, default=self.config.ack_wait)
        return max(self.last_activity_ns, self.machine.last_delivered_ns + waits)

    def now_ns(self) -> int:
        """The time, which a clock that is set back does not stop."""
        return self.jetstream.turns.now_ns()

    def heartbeat(self, stalled: bytes | None) -> bytes:
        """What is told to a client that waits."""
        consumer_seq = self.machine.delivered.consumer_seq
        return statuses.idle_heartbeat(consumer_seq, self.supply.next_seq - 1, stalled)

    # --- coming and going ---

    def start(self) -> None:
        """Take requests and acknowledgements, and deliver."""
        self.door.open(self)
        if isinstance(self._side, PushSide):
            self._side.open()
        self.wake()
        self.plan()

    def stop(self, status: bytes | None) -> None:
        """Deliver no more; whoever waits is told why, if that is said."""
        if self.is_stopped:
            return
        self.door.close(self)
        self._side.close(status)
        if status is None:
            self.acks.flush()
            self.supply.submit_dispatches()
        self.is_stopped = True
        self._cancel()

    def leave(self) -> None:
        """The server is about to go."""
        if isinstance(self._side, PullSide):
            self._side.leave()

    def hold(self) -> None:
        """Deliver nothing until reconfigure(): where it is, is about to change."""
        self.is_held = True
        self.acks.flush()
        self.supply.submit_dispatches()

    def reconfigure(self) -> None:
        """The configuration has changed, or where it is."""
        self.supply.configure(is_elsewhere=self.is_held)
        self.is_held = False
        self.acks.configure()
        if self.config.is_push != isinstance(self._side, PushSide):
            self._side.close(None)
            self._side = PushSide(self) if self.config.is_push else PullSide(self)
            if isinstance(self._side, PushSide):
                self._side.open()
        else:
            self._side.configure()
        self._was_paused = self.is_paused
        self.wake()
        self.plan()

    def unpin(self, group: str) -> None:
        """Let another client be served."""
        self._side.unpin()
        self.wake()

    # --- what happens ---

    def wake(self) -> None:
        """There may be something to do: have a turn with the next flush."""
        if not self.is_stopped:
            self.jetstream.turns.add(self)

    def used(self) -> None:
        """Somebody uses it."""
        self.last_activity_ns = self.now_ns()

    def messages_stored(self) -> None:
        """The stream has new messages."""
        if self._side.is_wanted and not self.is_listed and self.supply.may_have_more():
            self.wake()

    def messages_removed(self) -> None:
        """The stream has lost messages."""
        self.supply.pending.forget()
        if self.machine.has_acks and self._side.is_wanted:
            # Some may have been pending, and have made room.
            self.wake()

    def message_dropped(self, dropped: Dropped) -> None:
        """A message that waited for its acknowledgement is gone."""
        acked = AckedMessage(dropped.deliveries, dropped.seq, dropped.pending.consumer_seq)
        advisories.message_terminated(self, acked, _DELETED_REASON)

    def acknowledged(self) -> None:
        """Acknowledgements were applied."""
        self.stream.letter_sender.wake()
        if self._side.is_wanted:
            self.wake()

    def deliveries_exceeded(self, seq: int, deliveries: int) -> None:
        """A message was delivered as often as may be."""
        advisories.deliveries_exceeded(self, seq, deliveries)

    def unreadable(self, seqs: Sequence[int]) -> None:
        """Messages that should be there cannot be read, and are passed over; that is told once."""
        if seqs[-1] <= self._unreadable_to:
            return
        self._unreadable_to = seqs[-1]
        self.jetstream.server.log.error(
            "messages for a consumer cannot be read",
            account=self.account.name,
            stream=self.stream.name,
            consumer=self.machine.name,
            first_seq=seqs[0],
            count=len(seqs),
        )

    def pull(self, reply: bytes, block: bytes, body: bytes) -> None:
        """Somebody asks for messages."""
        self.used()
        self._side.pull(reply, block, body, self.now_ns())
        self.plan()

    def flow_answered(self, subject: bytes, block: bytes) -> None:
        """A client answered a request for flow control."""
        if isinstance(self._side, PushSide):
            self.used()
            self._side.flow_answered(subject, block)

    def answer(self, subject: bytes, block: bytes) -> None:
        """Send a status, or nothing at all, which confirms."""
        self.account.publish(subject, None, block, len(block) if block else -1)

    def submit(self, command: Dispatch | Ack | Terminate, done: Callable[[object], None]) -> None:
        """Commit a command; a consumer that the journal does not know has it applied at once."""
        if self.is_volatile:
            done((self.stream.machine.apply(command),))
        else:
            self.jetstream.committer.submit(self.stream.group, command, done)

    # --- turns ---

    def step(self) -> bool:
        """Deal with what came, and deliver a slice. True when there may be more to do at once."""
        if self.is_stopped:
            return False
        now_ns = self.now_ns()
        self.acks.flush_due(now_ns)
        self._check(now_ns)
        has_more = False
        if self.is_paused:
            self._side.at_end(now_ns)
        elif self._may_deliver():
            has_more = self._side.step(now_ns)
        self.plan()
        return has_more

    def _may_deliver(self) -> bool:
        if self.is_held or self._failed_until_ns or self.supply.is_behind:
            return False
        # Who leads no more would deliver what was acknowledged elsewhere.
        certainty = self.stream.certainty
        if self.supply.is_empty or certainty.is_there:
            return True
        certainty.ask(self, self._may_go_on)
        return False

    def _may_go_on(self, is_certain: bool) -> None:
        if is_certain:
            self.wake()
        else:
            self.failed()

    def failed(self) -> None:
        """A turn ended with an error; there is another one after a while."""
        self._failed_until_ns = self.now_ns() + RETRY_NS
        self.plan()

    # --- by the clock ---

    def tick(self) -> None:
        """Called a quarter of a second after it had something to tell the journal."""
        self.supply.submit_dispatches()

    def plan(self) -> None:
        """See to it that whatever is due next is done in time."""
        due_ns = self._due_at_ns()
        if not due_ns or self.is_stopped:
            return
        if self._deadline is not None:
            if self._deadline_ns <= due_ns:
                return
            self._deadline.cancel()
        self._deadline_ns = due_ns
        delay_s = max(due_ns - self.now_ns(), 0) / 1e9
        self._deadline = self.jetstream.server.deadlines.after(delay_s, self._is_due)

    def _due_at_ns(self) -> int:
        times = [
            self._side.due_at_ns,
            self.supply.redelivery.due_at_ns,
            self.acks.due_at_ns,
            self._failed_until_ns,
        ]
        if self._was_paused:
            times.append(self.now_ns() + self._pause_left_ns() + 1)
        return min((time for time in times if time), default=0)

    def _is_due(self) -> None:
        """What is to be done is done in a turn, which can fail without harm to others."""
        self._deadline = None
        self.wake()
        self.jetstream.server.flush()

    def _check(self, now_ns: int) -> None:
        """Do what is due."""
        if 0 < self._failed_until_ns <= now_ns:
            self._failed_until_ns = 0
        if self._was_paused and not self.is_paused:
            self._was_paused = False
            consumer_paused(self)
        if 0 < self.supply.redelivery.due_at_ns <= now_ns:
            self.supply.expire(now_ns)
        self._side.check(now_ns)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
