"""Delivers messages to those who ask for them.

Rules: who asks is answered with messages, or with a status; what is refused is refused in nats-server's
order. A client that has much to read already makes its consumer wait, not the server's memory grow.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edged.core import pull_statuses as statuses
from edged.core.ack_subject import ack_subject
from edged.core.gotime import format_duration
from edged.core.message import Message
from edged.core.priority_groups import PINNED, Pins, group_refusal
from edged.core.pull_queue import Backlog, PullQueue
from edged.core.pull_request import BadPull, PullRequest, PullTerms, pull_terms
from edged.core.wire import Publish
from edged.server.jetstream.api_request import asks_too_much
from edged.server.jetstream.consumer_advisories import group_pinned, group_unpinned
from edged.server.jetstream.consumers.envelopes import Envelopes
from edged.server.jetstream.consumers.supply import SLICE_MESSAGES
from edged.server.jetstream.consumers.target import Target, has_interest

if TYPE_CHECKING:
    from edged.core.consumer_config import ConsumerConfig
    from edged.server.jetstream.consumers.consumer import Consumer

CROWDED_NS: Final = 5_000_000
"""How soon a client that has much to read is looked at again."""
_PIN_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_PIN_CHARACTERS: Final = 22

_NO_BACKLOG: Final = Backlog(0, 0)
# To whom, and what.
_Parcel = tuple[bytes, Publish]


class PullSide:
    """Of one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        config = consumer.config
        self._consumer = consumer
        self._machine = consumer.machine
        self._account = consumer.account
        self._queue = PullQueue(config.max_waiting, self._has_interest, config.priority_policy)
        self._pins = Pins(config.priority_timeout, _new_pin) if config.priority_policy == PINNED else None
        self._envelopes = Envelopes(consumer)
        # Who had much to read when they were sent something last, and when they are looked at again.
        self._crowded: set[bytes] = set()
        self._crowded_until_ns = 0

    # --- figures ---

    @property
    def is_bound(self) -> bool:
        """Whether somebody is subscribed to it: not to this kind."""
        return False

    @property
    def waiting_count(self) -> int:
        """How many requests wait of somebody who is still there."""
        return self._queue.count_interested()

    @property
    def pinned(self) -> dict[str, tuple[str, int]]:
        """Who is pinned since when, by group."""
        pins, groups = self._pins, self._consumer.config.priority_groups
        if pins is None or pins.is_free or not groups:
            return {}
        return {groups[0]: (pins.pin_id, pins.pinned_ns)}

    def _has_interest(self, reply: bytes) -> bool:
        return has_interest(self._account, reply)

    # --- coming and going ---

    def configure(self) -> None:
        """The configuration has changed."""
        config = self._consumer.config
        self._envelopes = Envelopes(self._consumer)
        self._queue.configure(config.max_waiting, config.priority_policy)
        if config.priority_policy != PINNED:
            self._pins = None
        elif self._pins is None:
            self._pins = Pins(config.priority_timeout, _new_pin)
        else:
            self._pins.configure(config.priority_timeout)

    def close(self, status: bytes | None) -> None:
        """Everybody who waits hears that it is over."""
        self._queue.end_all(status)
        self._send_statuses()

    def leave(self) -> None:
        """Everybody who waits hears that the server goes, and asks the next one."""
        self._queue.leave()
        self._send_statuses()

    def unpin(self) -> None:
        """Whoever asks next is pinned."""
        if self._pins is not None:
            self._pins.release()

    # --- requests ---

    def pull(self, reply: bytes, block: bytes, body: bytes, now_ns: int) -> None:
        """Somebody asks for messages."""
        refusal = statuses.API_LEVEL if block and asks_too_much(block) else None
        terms: PullTerms | None = None
        if refusal is None:
            try:
                terms = pull_terms(body)
                refusal = self._refusal(terms, now_ns)
            except BadPull as error:
                refusal = statuses.bad_request(str(error))
        if refusal is not None:
            self._consumer.answer(reply, refusal)
            return
        assert terms is not None
        if not self._queue.add(PullRequest(terms, reply, now_ns), now_ns):
            # Who has a heartbeat notices that there is none; an answer would make it ask again at once.
            if terms.heartbeat_ns <= 0:
                self._consumer.answer(reply, statuses.MAX_WAITING)
            return
        self._consumer.wake()

    def _refusal(self, terms: PullTerms, now_ns: int) -> bytes | None:
        refusal = _exceeded(self._consumer.config, terms)
        if refusal is None:
            refusal = group_refusal(self._consumer.config, terms, self._pins)
        if refusal is not None:
            return refusal
        pins = self._pins
        if pins is not None and terms.pin_id and terms.pin_id == pins.pin_id:
            pins.renew(now_ns)
        if terms.no_wait:
            return self._no_wait_refusal(terms, now_ns)
        return None

    def _no_wait_refusal(self, terms: PullTerms, now_ns: int) -> bytes | None:
        """Why somebody who does not wait would get nothing."""
        supply = self._consumer.supply
        count = supply.count + len(supply.redelivery.queue)
        if not count:
            return None if terms.expires_ns else statuses.NO_MESSAGES
        if len(self._queue):
            self._check(now_ns, is_at_end=False)
            if count < self._queue.batches:
                return statuses.REQUESTS_PENDING
        return None

    # --- serving ---

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits."""
        return len(self._queue) > 0

    def step(self, now_ns: int) -> bool:
        """Deliver a slice. True when there may be more to do at once."""
        queue, supply = self._queue, self._consumer.supply
        if not len(queue) or (self._crowded and self._is_crowded(now_ns)):
            return False
        wanted = min(SLICE_MESSAGES, queue.batches)
        again = supply.again(wanted) if supply.redelivery.queue else []
        if again:
            taken = self._serve(again, now_ns, is_again=True)
            if taken < len(again):
                supply.redelivery.put_back([message.seq for message in again[taken:]])
                self.at_end(now_ns)
                return False
            if taken >= wanted:
                return True
            wanted -= taken
        messages = supply.new(wanted)
        if messages and self._serve(messages, now_ns, is_again=False):
            return True
        if messages or supply.is_at_end:
            self.at_end(now_ns)
        return False

    def _is_crowded(self, now_ns: int) -> bool:
        """Whether somebody has not read enough yet of what was sent."""
        if now_ns < self._crowded_until_ns:
            return True
        self._crowded = {reply for reply in self._crowded if Target(self._account, reply).is_crowded}
        self._crowded_until_ns = now_ns + CROWDED_NS if self._crowded else 0
        return bool(self._crowded)

    def at_end(self, now_ns: int) -> None:
        """There is nothing more that anybody may have: who does not wait is told."""
        if self._queue.needs_check(now_ns, is_at_end=True):
            self._check(now_ns, is_at_end=True)

    def _serve(self, messages: list[Message], now_ns: int, is_again: bool) -> int:
        """Give messages to whoever has a turn; how many were taken."""
        supply = self._consumer.supply
        pending = supply.count
        if not is_again and self._pins is None and self._envelopes.are_plain:
            front = self._queue.front(len(messages), now_ns)
            targets = {reply: Target(self._account, reply) for reply in {request.reply for request in front}}
            if front and all(target.is_plain and not target.is_empty for target in targets.values()):
                return self._deal(messages, targets, pending, now_ns)
        parcels: list[_Parcel] = []
        taken = self._serve_turns(messages, pending, now_ns, is_again, parcels)
        if taken:
            supply.note_handed(messages[:taken], now_ns, is_again)
            self._consumer.used()
        self._send(parcels, now_ns)
        return taken

    def _deal(self, messages: list[Message], targets: dict[bytes, Target], pending: int, now_ns: int) -> int:
        """Deliver messages as they are stored to requests that take whatever there is.

        Each requester gets as many as if they had turns of one message, but one after the other.
        """
        shares: dict[bytes, int] = {}
        for request, count in self._queue.deal(len(messages), now_ns):
            shares[request.reply] = shares.get(request.reply, 0) + count
        dealt = sum(shares.values())
        first = self._consumer.supply.handed(messages[:dealt], now_ns)
        taken = 0
        for reply, count in shares.items():
            share, target = messages[taken : taken + count], targets[reply]
            target.hand_out(share, self._envelopes.prefix, first + taken, pending - taken - 1)
            self._close(reply, target, now_ns)
            taken += count
        self._consumer.used()
        return taken

    def _serve_turns(
        self,
        messages: Sequence[Message],
        pending: int,
        now_ns: int,
        is_again: bool,
        parcels: list[_Parcel],
    ) -> int:
        """One message after the other, each for whoever has a turn."""
        machine, queue, envelopes = self._machine, self._queue, self._envelopes
        consumer_seq = machine.delivered.consumer_seq
        ack_pending = len(machine.pending)
        backlog = _NO_BACKLOG
        taken = 0
        for message in messages:
            seq, ts_ns, subject, _, _ = message
            deliveries = machine.delivery_count(seq) + 1 if is_again else 1
            left = pending if is_again else pending - taken - 1
            ack = ack_subject(envelopes.prefix, deliveries, seq, consumer_seq + taken + 1, ts_ns, left)
            wrapped = envelopes.wrap(message, ack)
            size = len(subject) + len(ack) + len(wrapped[3])
            if queue.is_overflow:
                # As nats-server counts: the message is not part of what is pending any more, and put back.
                backlog = Backlog(left + 1, ack_pending + (0 if is_again else taken))
            request = queue.choose(size, now_ns, backlog, self._pins)
            if queue.ended:
                parcels += self._take_statuses()
            if request is None:
                break
            if self._pins is not None:
                wrapped = envelopes.wrap(message, ack, self._pins.pin_id)
            parcels.append((request.reply, wrapped))
            if request.is_done and request.bytes_left > 0:
                block = statuses.batch_completed(*request.left())
                parcels.append((request.reply, (request.reply, None, len(block), block)))
            taken += 1
        pins = self._pins
        if pins is not None and pins.is_changed:
            pins.is_changed = False
            group_pinned(self._consumer, self._consumer.config.priority_groups[0], pins.pin_id)
        return taken

    def _send(self, parcels: list[_Parcel], now_ns: int) -> None:
        targets: dict[bytes, Target] = {}
        for reply, message in parcels:
            target = targets.get(reply)
            if target is None:
                target = targets[reply] = Target(self._account, reply)
            target.send(message)
        for reply, target in targets.items():
            self._close(reply, target, now_ns)

    def _close(self, reply: bytes, target: Target, now_ns: int) -> None:
        if target.is_crowded:
            self._crowded.add(reply)
            self._crowded_until_ns = now_ns + CROWDED_NS
        target.close()

    # --- by the clock ---

    @property
    def due_at_ns(self) -> int:
        """When something is to be done by the clock; 0 for never."""
        times = [self._queue.due_at_ns, self._crowded_until_ns]
        if self._pins is not None:
            times.append(self._pins.expires_at_ns)
        return min((time for time in times if time), default=0)

    def check(self, now_ns: int) -> None:
        """Do what is due."""
        if self._crowded and not self._is_crowded(now_ns):
            self._consumer.wake()
        pins = self._pins
        if pins is not None and pins.expire(now_ns):
            group_unpinned(self._consumer, self._consumer.config.priority_groups[0], "timeout")
            self._consumer.wake()
        if self._queue.needs_check(now_ns, is_at_end=False):
            # Who does not wait may hope for acknowledgements, but not longer than until the clock strikes.
            is_at_end = self._consumer.supply.room() <= 0 and self._queue.is_due(now_ns)
            self._check(now_ns, is_at_end)

    def _check(self, now_ns: int, is_at_end: bool) -> None:
        beats = self._queue.check(now_ns, is_at_end)
        self._send_statuses()
        if beats:
            block = self._consumer.heartbeat(None)
            for request in beats:
                self._consumer.answer(request.reply, block)

    def _take_statuses(self) -> list[_Parcel]:
        ended, self._queue.ended = self._queue.ended, []
        return [(request.reply, (request.reply, None, len(block), block)) for request, block in ended]

    def _send_statuses(self) -> None:
        for reply, message in self._take_statuses():
            self._consumer.answer(reply, message[3])


def _exceeded(config: ConsumerConfig, terms: PullTerms) -> bytes | None:
    """The status of a request that asks for more than the consumer allows."""
    if 0 < config.max_batch < terms.batch:
        return statuses.exceeded("MaxRequestBatch", config.max_batch)
    if 0 < config.max_expires < terms.expires_ns:
        return statuses.exceeded("MaxRequestExpires", format_duration(config.max_expires))
    if 0 < config.max_bytes < terms.bytes_max:
        return statuses.exceeded("MaxRequestMaxBytes", config.max_bytes)
    return None


def _new_pin() -> str:
    return "".join(secrets.choice(_PIN_ALPHABET) for _ in range(_PIN_CHARACTERS))
