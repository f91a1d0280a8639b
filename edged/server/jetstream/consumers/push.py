"""Delivers messages to a subject, as long as somebody listens to it.

Rules: only those count as listeners who name the subject; with a deliver group, in that group. What holds
deliveries back is looked at before each message: flow control, a rate, and the pace of the original. Nothing
is sent to a client that has much to read already. While nothing is sent, heartbeats are.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edged.core import headers
from edged.core import pull_statuses as statuses
from edged.core.ack_subject import ack_subject
from edged.core.flow_window import FlowWindow
from edged.core.message import Message
from edged.core.rate_limit import RateLimit
from edged.server.jetstream.consumers.door import FLOW_CONTROL
from edged.server.jetstream.consumers.envelopes import Envelopes
from edged.server.jetstream.consumers.pull import CROWDED_NS
from edged.server.jetstream.consumers.supply import SLICE_MESSAGES
from edged.server.jetstream.consumers.target import Target

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.jetstream.consumers.consumer import Consumer

REPLAY_GAP_NS: Final = 1_000_000
"""Gaps between messages that are shorter than this are not replayed."""
_FLOW_ID_BYTES: Final = 2


class PushSide:
    """Of one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._machine = consumer.machine
        self._account = consumer.account
        self._is_active = False
        # When the last message or heartbeat was sent.
        self._sent_ns = consumer.now_ns()
        self._window: FlowWindow | None = None
        self._rate: RateLimit | None = None
        self._held_until_ns = 0
        # Up to which seq the pace of the original is kept; the time of the message before and of its sending.
        self._replay_to = 0
        self._replayed_ns = 0
        self._replayed_at_ns = 0
        if consumer.config.replay_policy == "original":
            self._replay_to = consumer.stream.log.last_seq
        self._take_config()

    def _take_config(self) -> None:
        config, stream = self._consumer.config, self._consumer.stream
        self._subject = config.deliver_subject.encode()
        self._group = config.deliver_group.encode() or None
        self._envelopes = Envelopes(self._consumer)
        if config.flow_control and self._window is None:
            self._window = FlowWindow()
        self._rate = None
        if config.rate_limit_bps:
            burst = stream.config.max_msg_size
            server = stream.jetstream.server
            self._rate = RateLimit(config.rate_limit_bps, burst if burst > 0 else server.options.max_payload)
        self._consumer.door.watch(self._subject, self._interest_changed)

    # --- figures ---

    @property
    def is_bound(self) -> bool:
        """Whether somebody listens."""
        return self._is_active

    waiting_count = 0

    @property
    def pinned(self) -> dict[str, tuple[str, int]]:
        """Nobody, ever."""
        return {}

    @property
    def is_wanted(self) -> bool:
        """Whether messages can be delivered at all."""
        return self._is_active

    # --- coming and going ---

    def open(self) -> None:
        """Begin, if somebody listens."""
        self._interest_changed()

    def configure(self) -> None:
        """The configuration has changed."""
        self._consumer.door.unwatch(self._subject, self._interest_changed)
        before = self._subject
        self._take_config()
        if self._subject != before:
            # Whoever listened before may not have got what is pending.
            self._consumer.supply.redelivery.expire_all()
        self._interest_changed()

    def close(self, status: bytes | None) -> None:
        """Deliver no more. Who listens is not told: there is no request to be answered."""
        self._consumer.door.unwatch(self._subject, self._interest_changed)
        self._is_active = False

    def unpin(self) -> None:
        """Nobody is pinned here."""

    def pull(self, reply: bytes, block: bytes, body: bytes, now_ns: int) -> None:
        """Nobody can ask for messages here."""
        self._consumer.answer(reply, statuses.PUSH_BASED)

    def _interest_changed(self) -> None:
        is_active = self._has_interest()
        if is_active == self._is_active:
            return
        self._is_active = is_active
        self._consumer.used()
        if is_active:
            self._sent_ns = self._consumer.now_ns()
            if self._window is not None:
                self._window = FlowWindow()
            self._consumer.wake()
            self._consumer.plan()
        else:
            self._consumer.stream.consumers.unused(self._consumer)

    def _has_interest(self) -> bool:
        """As with nats-server only those count who name the subject, not those who listen to many."""
        return self._account.subscriptions.is_named(self._subject, self._group)

    def flow_answered(self, subject: bytes, block: bytes) -> None:
        """A client has dealt with what it was sent."""
        if self._window is None or not self._window.answered(subject):
            return
        if self._consumer.config.ack_policy == "flow_control" and block:
            text = headers.value(block, b"Nats-Last-Stream") or b""
            if text.isdigit():
                self._consumer.acks.acknowledged_to(int(text))
        self._consumer.wake()

    # --- serving ---

    def step(self, now_ns: int) -> bool:
        """Deliver a slice. True when there may be more to do at once."""
        supply = self._consumer.supply
        if not self._is_active or now_ns < self._held_until_ns:
            return False
        if self._window is not None and self._window.is_closed:
            return False
        target = Target(self._account, self._subject)
        if target.is_crowded:
            self._held_until_ns = now_ns + CROWDED_NS
            return False
        self._held_until_ns = 0
        again = supply.again(SLICE_MESSAGES) if supply.redelivery.queue else []
        if again:
            taken = self._deliver(target, again, now_ns, is_again=True)
            if taken < len(again):
                supply.redelivery.put_back([message.seq for message in again[taken:]])
                return False
        messages = supply.new(SLICE_MESSAGES)
        if not messages:
            return bool(again)
        taken = self._deliver(target, messages, now_ns, is_again=False)
        return taken == len(messages)

    def at_end(self, now_ns: int) -> None:
        """There is nothing more."""

    def _deliver(self, target: Target, messages: Sequence[Message], now_ns: int, is_again: bool) -> int:
        """Send messages while nothing holds them back; how many were sent."""
        supply, envelopes = self._consumer.supply, self._envelopes
        pending = supply.count
        is_free = self._window is None and self._rate is None and not self._replay_to
        if is_free and not is_again and envelopes.are_plain and target.is_plain:
            first = supply.handed(messages, now_ns)
            target.hand_out(messages, envelopes.prefix, first, pending - 1)
            taken = len(messages)
        else:
            taken = self._deliver_each(target, messages, pending, now_ns, is_again)
        if taken:
            self._sent_ns = now_ns
        target.close()
        return taken

    def _deliver_each(
        self, target: Target, messages: Sequence[Message], pending: int, now_ns: int, is_again: bool
    ) -> int:
        """The same where each message may be held back, or looks different."""
        supply, machine, envelopes = self._consumer.supply, self._machine, self._envelopes
        consumer_seq = machine.delivered.consumer_seq
        window, rate = self._window, self._rate
        deliveries, asks = 1, False
        sent: list[Publish] = []
        for message in messages:
            if self._is_held(message, now_ns, is_again):
                break
            if is_again:
                deliveries = machine.delivery_count(message.seq) + 1
            else:
                pending -= 1
            consumer_seq += 1
            ack = ack_subject(envelopes.prefix, deliveries, message.seq, consumer_seq, message.ts_ns, pending)
            wrapped = envelopes.wrap(message, ack)
            sent.append(wrapped)
            size = len(wrapped[0]) + len(ack) + len(wrapped[3])
            if rate is not None:
                rate.sent(size)
            if window is not None and (window.sent(size) or self._is_last(len(sent))):
                asks = True
                break
        if sent:
            supply.note_handed(messages[: len(sent)], now_ns, is_again)
            for wrapped in sent:
                target.send(wrapped)
        if asks:
            self._ask()
            self._consumer.wake()
        return len(sent)

    def _is_last(self, sent_count: int) -> bool:
        """Whether nothing may follow these before the client answers, where answers acknowledge."""
        config, window = self._consumer.config, self._window
        if config.ack_policy != "flow_control" or window is None or window.asked is not None:
            return False
        return 0 < config.max_ack_pending <= len(self._machine.pending) + sent_count

    def _is_held(self, message: Message, now_ns: int, is_again: bool) -> bool:
        """Whether a message has to wait."""
        if self._window is not None and self._window.is_closed:
            return True
        if self._rate is not None:
            ready_ns = self._rate.ready_at_ns(now_ns)
            if ready_ns > now_ns:
                self._held_until_ns = ready_ns
                return True
        if self._replay_to and not is_again:
            return self._is_early(message, now_ns)
        return False

    def _is_early(self, message: Message, now_ns: int) -> bool:
        """Whether the original had a longer gap before this message than there was here."""
        if message.seq > self._replay_to:
            self._replay_to = 0
            return False
        gap_ns = message.ts_ns - self._replayed_ns if self._replayed_ns else 0
        if gap_ns > REPLAY_GAP_NS and now_ns < self._replayed_at_ns + gap_ns:
            self._held_until_ns = self._replayed_at_ns + gap_ns
            return True
        self._replayed_ns = message.ts_ns
        self._replayed_at_ns = now_ns
        return False

    def _ask(self) -> None:
        """Ask the client to say when it has dealt with everything."""
        assert self._window is not None
        name = f"{FLOW_CONTROL}{self._consumer.stream.name}.{self._machine.name}."
        subject = name.encode() + secrets.token_hex(_FLOW_ID_BYTES).encode()
        self._window.ask(subject)
        block = statuses.FLOW_CONTROL
        self._account.publish(self._subject, subject, block, len(block))

    # --- by the clock ---

    @property
    def due_at_ns(self) -> int:
        """When something is to be done by the clock; 0 for never."""
        if not self._is_active:
            return 0
        times = [self._held_until_ns]
        if self._consumer.config.idle_heartbeat:
            times.append(self._sent_ns + self._consumer.config.idle_heartbeat)
        return min((time for time in times if time), default=0)

    def check(self, now_ns: int) -> None:
        """Do what is due."""
        if not self._is_active:
            return
        if self._held_until_ns and now_ns >= self._held_until_ns:
            self._held_until_ns = 0
            self._consumer.wake()
        config, window = self._consumer.config, self._window
        if config.idle_heartbeat and now_ns >= self._sent_ns + config.idle_heartbeat:
            self._sent_ns = now_ns
            self._consumer.answer(
                self._subject, self._consumer.heartbeat(None if window is None else window.asked)
            )
            is_acked_by_flow = config.ack_policy == "flow_control" and self._machine.pending
            if is_acked_by_flow and window is not None and window.asked is None:
                self._ask()
