"""What a consumer has to deliver: messages that are due again, and new ones.

Rules: a message is read before it is handed out, so one that cannot be read is never counted as delivered.
Handing out changes the machine at once; the command that tells the journal of it is kept until something else
of this consumer is submitted, or the clock ticks: a delivery alone is not worth a sync. No acknowledgement
comes before it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from edged.core.commands import GIVEN_UP, SEQS_MAX, Ack, Dispatch, Seqs
from edged.core.message import Message
from edged.core.pending_count import PendingCount
from edged.core.redelivery import Redelivery
from edged.core.subjects import is_literal
from edged.store.errors import Damaged, StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.consumers.consumer import Consumer

SLICE_MESSAGES: Final = 512
SLICE_BYTES: Final = 512 * 1024
"""What one turn delivers at most; a larger message is a turn of its own."""
SETTLED_MAX: Final = 16_384
"""So many acknowledged messages are pending beyond the limit until the disk has it; then deliveries wait."""
DISPATCHES_MAX: Final = 64
"""So many deliveries are kept back at most before the journal is told."""
UNTOLD_MAX: Final = 4096
"""With so many deliveries that the journal has not taken, as on a disk that fails, the consumer waits."""


class Supply:
    """Of one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._stream = consumer.stream
        self._machine = consumer.machine
        self._log = consumer.stream.reads
        # Deliveries in their order, and how many more are on their way to the journal.
        self._dispatches: list[Dispatch] = []
        self._dispatches_sent = 0
        config = consumer.config
        self.pending = PendingCount(self._log, self._machine.filters)
        now_ns = consumer.now_ns()
        self.redelivery = Redelivery(self._machine, self._wait_ns(), config.backoff, now_ns)
        self._literal = self._literal_filter()
        # Nothing below is to be delivered that was not yet.
        self._looked_to = 0
        # Whether there was nothing new when it was last looked for, not even beyond what may wait for acks.
        self.is_at_end = False

    def _literal_filter(self) -> bytes | None:
        """The only subject that is wanted, if it is one."""
        filters = self._machine.filters
        return filters[0] if len(filters) == 1 and is_literal(filters[0]) else None

    def _wait_ns(self) -> int:
        config = self._consumer.config
        return config.ack_wait if self._machine.has_acks else 0

    def configure(self, is_elsewhere: bool) -> None:
        """The configuration has changed, or where the consumer is."""
        config = self._consumer.config
        self.pending.configure(self._machine.filters)
        self.redelivery.configure(self._wait_ns(), config.backoff)
        self._looked_to = 0
        self._literal = self._literal_filter()
        if is_elsewhere:
            self.redelivery.clear()
            self._dispatches = [command for command in self._dispatches if self._is_news(command)]

    @property
    def count(self) -> int:
        """How many messages it has before it."""
        machine = self._machine
        if machine.chosen:
            return len(machine.chosen) + self._log.count_matching(machine.filters, machine.chosen_to + 1)
        return self.pending.count(self.next_seq)

    @property
    def next_seq(self) -> int:
        """From where on to look for new messages."""
        return max(self._machine.next_seq, self._looked_to)

    def may_have_more(self) -> bool:
        """Whether there may be new messages. Quick, as all consumers of a stream are asked when some come."""
        if self._literal is None:
            return True
        last_seq = self._log.last_of(self._literal)
        return last_seq is not None and last_seq >= self.next_seq

    @property
    def is_empty(self) -> bool:
        """Whether there is surely nothing to hand out."""
        is_behind = self._log.last_seq >= self.next_seq
        return not (is_behind or self.redelivery.queue or self._machine.chosen)

    # --- messages that are due again ---

    def again(self, count_max: int) -> list[Message]:
        """Messages to be delivered once more. Those that were so often enough are given up."""
        redelivery = self.redelivery
        found: list[Message] = []
        spent: list[int] = []
        size = 0
        while redelivery.queue and len(found) < count_max and size < SLICE_BYTES:
            for seq in self._unanswered(redelivery.take(1)):
                message = None if self._is_spent(seq) else self._read(seq)
                if message is None:
                    spent.append(seq)
                else:
                    found.append(message)
                    size += len(message.data)
        self._give_up(spent)
        return found

    def expire(self, now_ns: int) -> None:
        """What was not acknowledged in time is to be delivered again, or is given up."""
        due = self._unanswered(self.redelivery.expire(now_ns))
        spent = [seq for seq in due if self._is_spent(seq)]
        if spent:
            self._give_up(spent)
            given_up = set(spent)
            due = [seq for seq in due if seq not in given_up]
        self.redelivery.enqueue(due)

    def _unanswered(self, seqs: list[int]) -> list[int]:
        """Without those whose acknowledgement is on its way; if it gets lost, they have their time anew."""
        acks = self._consumer.acks
        if not acks.on_their_way:
            return seqs
        for seq in seqs:
            if acks.is_on_its_way(seq):
                self.redelivery.progress(seq, self._consumer.now_ns())
        return [seq for seq in seqs if not acks.is_on_its_way(seq)]

    def _is_spent(self, seq: int) -> bool:
        """Whether a message was delivered as often as may be."""
        deliveries_max = self._consumer.config.max_deliver
        return 0 < deliveries_max <= self._machine.delivery_count(seq)

    def _give_up(self, seqs: Sequence[int]) -> None:
        """Messages are not to be delivered any more, though nobody acknowledged them."""
        if not seqs:
            return
        letters = self._stream.machine.letters
        if letters.subject and letters.is_full:
            # They wait until there is room for their dead letters.
            for seq in seqs:
                self.redelivery.progress(seq, self._consumer.now_ns())
            return
        for seq in seqs:
            if self._is_spent(seq):
                self._consumer.deliveries_exceeded(seq, self._machine.delivery_count(seq))
        self.submit_dispatches()
        ordered = sorted(seqs)
        for start in range(0, len(ordered), SEQS_MAX):
            some = tuple(ordered[start : start + SEQS_MAX])
            self._consumer.submit(Ack(self._machine.number, GIVEN_UP, some), self._given_up)

    def _given_up(self, result: object) -> None:
        self._stream.letter_sender.wake()
        self._consumer.wake()

    def handed_again(self, messages: Sequence[Message], now_ns: int) -> None:
        """Those were delivered, in this order."""
        seqs = tuple([message.seq for message in messages])
        first = self._machine.hand_out_again(seqs, now_ns)
        self.redelivery.handed_out_again(seqs, now_ns)
        self._note(seqs, first, now_ns)

    # --- new messages ---

    def room(self) -> int:
        """How many more may be delivered before some are acknowledged."""
        machine, limit = self._machine, self._consumer.config.max_ack_pending
        if limit <= 0 or not machine.has_acks:
            return SLICE_MESSAGES
        # What is acknowledged makes room at once, unless the disk is far behind.
        settled = min(self._consumer.acks.on_their_way, SETTLED_MAX)
        return max(0, limit + settled - len(machine.pending))

    def new(self, count_max: int) -> list[Message]:
        """Messages that were not delivered yet."""
        machine = self._machine
        room = min(count_max, self.room())
        self.is_at_end = False
        if room <= 0:
            return []
        while machine.chosen:
            # Those that are gone by now are passed over.
            found = self._chosen(room)
            if found:
                return found
        batch = self._log.messages(machine.filters, self.next_seq, room, SLICE_BYTES)
        if batch.unreadable:
            self._consumer.unreadable(batch.unreadable)
            self.pending.forget()
        self.is_at_end = not batch.messages
        if self.is_at_end:
            self._looked_to = batch.next_seq
        return self._unsettled(batch.messages) if machine.is_ahead else batch.messages

    def _unsettled(self, messages: list[Message]) -> list[Message]:
        """Without those whose acknowledgement survived a crash, but not their delivery."""
        machine = self._machine
        found = [message for message in messages if not machine.is_settled(message.seq)]
        if messages and not found:
            machine.skip_to(messages[-1].seq)
            self._consumer.wake()
        return found

    def _chosen(self, count_max: int) -> list[Message]:
        """The last messages of their subjects, which come first."""
        machine = self._machine
        found: list[Message] = []
        size = 0
        for seq in list(islice(machine.chosen, count_max)):
            message = self._read(seq)
            if message is not None:
                found.append(message)
                size += len(message.data)
                if size >= SLICE_BYTES:
                    break
            elif not found:
                machine.pass_over(seq)
        return found

    def note_handed(self, messages: Sequence[Message], now_ns: int, is_again: bool) -> None:
        """Those were delivered, in this order; all for the first time, or all once more."""
        if is_again:
            self.handed_again(messages, now_ns)
        else:
            self.handed(messages, now_ns)

    def handed(self, messages: Sequence[Message], now_ns: int) -> int:
        """The first of the new messages are delivered; the consumer seq of the first."""
        machine = self._machine
        first_seq, last_seq = messages[0].seq, messages[-1].seq
        is_chosen = bool(machine.chosen)
        seqs: Seqs
        if last_seq - first_seq + 1 == len(messages):
            seqs = range(first_seq, last_seq + 1)
        else:
            seqs = tuple([message.seq for message in messages])
        first = machine.hand_out(seqs, now_ns)
        if machine.has_acks:
            self.redelivery.handed_out(seqs, now_ns)
        if is_chosen:
            self.pending.forget()
        else:
            self.pending.passed(len(messages), self.next_seq)
        self._note(seqs, first, now_ns)
        return first

    def _read(self, seq: int) -> Message | None:
        try:
            return self._log.get(seq)
        except Damaged:
            self._consumer.unreadable([seq])
            return None

    # --- the journal ---

    def _note(self, seqs: Seqs, first: int, now_ns: int) -> None:
        if self._consumer.is_volatile:
            return
        kept = self._dispatches
        joined = None if self._machine.has_acks or not kept else _joined(kept[-1], seqs, first)
        if joined is not None:
            # Nobody waits for these to be acknowledged, so only the last time counts.
            kept[-1] = Dispatch(self._machine.number, now_ns, joined, kept[-1].first_delivery_seq)
            return
        kept.append(Dispatch(self._machine.number, now_ns, seqs, first))
        self._stream.consumers.tell_later(self._consumer)
        if len(kept) >= DISPATCHES_MAX:
            self.submit_dispatches()

    def submit_dispatches(self) -> None:
        """Tell the journal what was delivered."""
        dispatches, self._dispatches = self._dispatches, []
        for command in dispatches:
            self._submit_dispatch(command)

    def _submit_dispatch(self, command: Dispatch) -> None:
        def done(result: object) -> None:
            was_behind = self.is_behind
            self._dispatches_sent -= 1
            if isinstance(result, StoreError) and not self._consumer.is_stopped and self._is_news(command):
                # It is no news to the machine; the journal hears of it with the next tick. One that comes
                # behind a later one would mean nothing to it.
                insort(self._dispatches, command, key=_delivery_seq)
                self._stream.consumers.tell_later(self._consumer)
            elif was_behind and not self.is_behind:
                self._consumer.wake()

        self._dispatches_sent += 1
        self._consumer.submit(command, done)

    def _is_news(self, command: Dispatch) -> bool:
        """Whether it is worth telling: what was delivered before the consumer began anew is not."""
        return command.first_delivery_seq <= self._machine.delivered.consumer_seq

    @property
    def is_behind(self) -> bool:
        """Whether the journal does not know of so many deliveries that there should be no more."""
        return self._dispatches_sent + len(self._dispatches) >= UNTOLD_MAX


def _delivery_seq(command: Dispatch) -> int:
    return command.first_delivery_seq


def _joined(before: Dispatch, seqs: Seqs, first: int) -> range | None:
    """The seqs of a delivery and of the next one, if no seq is missing and they are not too many for one."""
    earlier = before.seqs
    if not isinstance(earlier, range) or not isinstance(seqs, range):
        return None
    if earlier.stop != seqs.start or before.first_delivery_seq + len(earlier) != first:
        return None
    joined = range(earlier.start, seqs.stop)
    return joined if len(joined) <= SEQS_MAX else None
