"""A consumer as a state machine: what was handed out, what waits for its acknowledgement, where the floor is.

Handing out changes the state at once; the `Dispatch` that tells the journal of it comes later, and changes
nothing any more. After a restart it is the other way round: a `Dispatch` that was not known makes the same
change. Acknowledgements change the state only when they are applied.

Rules:
* Time is an argument. New messages are handed out in ascending order of their seqs; those that were handed
  out before, in any order. Every delivery, repeated ones too, has the next consumer_seq.
* What can be derived from `delivered` and `pending` is not kept. So what comes out does not depend on how
  deliveries and acknowledgements were interleaved, and a replay ends in the same state. Only the stream_seq
  of the floor may differ, by messages that are not for this consumer.
* A message that is not pending and not above `delivered` is settled, and stays so: a `Dispatch` that comes
  after its acknowledgement does not bring it back.

Invariant: ack_floor.stream_seq < every pending seq <= delivered.stream_seq, and `pending` is ascending.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from edged.core.commands import ACK, ACK_ALL, GIVEN_UP, TERM, Config, Dispatch
from edged.core.consumer_config import ConsumerConfig
from edged.core.holders import NOTHING, Holders
from edged.core.seq_runs import folded, unfolded

__all__ = ["ACK", "ACK_ALL", "GIVEN_UP", "TERM", "ConsumerMachine", "Dropped", "Pending", "Position"]

CREATED: Final = "edged.created"
"""Where the stored configuration says when the consumer was made, in ns since the epoch."""

# So many settled messages may stand between pending ones before the order is written anew.
_ORDER_SLACK: Final = 1024
# With more than so many, messages handed out again that are gone are looked for only now and then.
_DELIVERIES_FEW: Final = 256
_COUNT_MAX: Final = 1 << 32


class Position(NamedTuple):
    """A place in the deliveries of a consumer, and in its stream."""

    consumer_seq: int
    stream_seq: int


class Pending(NamedTuple):
    """A message that waits for its acknowledgement: its first delivery, and when the last one was."""

    consumer_seq: int
    ts_ns: int


class Dropped(NamedTuple):
    """A message that was pending, and is gone from its stream."""

    seq: int
    pending: Pending
    deliveries: int


_NOWHERE: Final = Position(0, 0)
# One C call for each message; the class itself would cost twice as much.
_new: Callable[..., Pending] = tuple.__new__


class ConsumerMachine:
    """The state of one consumer."""

    __slots__ = (
        *("_ahead", "_deliveries_lowest", "_held", "_idle", "_is_reset", "_order"),
        *(
            "chosen",
            "chosen_to",
            "config",
            "created_ns",
            "delivered",
            "deliveries",
            "filters",
            "has_acks",
            "holders",
            "last_acked_ns",
        ),
        *("last_delivered_ns", "name", "number", "pending", "resets"),
    )

    def __init__(self, number: int, name: str, config: Config) -> None:
        self.number = number
        self.name = name
        self.created_ns = 0
        self.delivered = _NOWHERE
        self.last_delivered_ns = 0
        # Set by whoever takes acknowledgements; the journal does not say when they came.
        self.last_acked_ns = 0
        # By stream seq, handed out and not settled.
        self.pending: dict[int, Pending] = {}
        # By stream seq, how often a message was handed out: only those handed out more than once, and those
        # given up, as long as the stream has them.
        self.deliveries: dict[int, int] = {}
        # With `last_per_subject`: what is still to be handed out before all others, and the last seq of the
        # stream at that time. Messages between are passed over.
        self.chosen: deque[int] = deque()
        self.chosen_to = 0
        # The pending seqs in their order, with settled ones between: the first one is always pending.
        self._order: deque[int] = deque()
        # Acknowledged, but handed out by a Dispatch that the journal has lost, or has later.
        self._ahead: set[int] = set()
        # What was delivered when nothing was pending for the last time.
        self._idle = _NOWHERE
        # Where the floor stays because of a message that was given up.
        self._held: Position | None = None
        # How often it was reset, and whether nothing was handed out since.
        self.resets = 0
        self._is_reset = False
        # No seq in `deliveries` is lower.
        self._deliveries_lowest = 0
        # Where it says that it knows messages; that of the stream, if it is in one.
        self.holders = Holders()
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Take over a changed configuration, as it is stored."""
        self.created_ns = int(config.get(CREATED) or self.created_ns)
        self.config = ConsumerConfig.stored(config)
        # None when it wants everything.
        self.filters = tuple(subject.encode() for subject in self.config.filters)
        self.has_acks = self.config.ack_policy != "none"

    # --- figures ---

    @property
    def ack_floor(self) -> Position:
        """Everything up to here is settled.

        As with nats-server the floor does not pass over messages that are not for this consumer before one
        is acknowledged, and a message that was given up holds it until all others are settled.
        """
        if self._held is not None:
            return self._held
        if not self._order:
            return self.delivered
        seq = self._order[0]
        consumer_seq = self.pending[seq].consumer_seq
        if consumer_seq == self._idle.consumer_seq + 1:
            return self._idle
        return Position(consumer_seq - 1, seq - 1)

    @property
    def next_seq(self) -> int:
        """From where on to look for what is new, when nothing is chosen any more."""
        return max(self.delivered.stream_seq, 0 if self.chosen else self.chosen_to) + 1

    def delivery_count(self, seq: int) -> int:
        """How often a message was handed out that was so at least once."""
        return self.deliveries.get(seq, 1)

    @property
    def is_ahead(self) -> bool:
        """Whether messages are settled that were not handed out."""
        return bool(self._ahead)

    def is_settled(self, seq: int) -> bool:
        """Whether a message need not be handed out any more, however often it was."""
        return seq in self._ahead if seq > self.delivered.stream_seq else seq not in self.pending

    def needs(self, seq: int) -> bool:
        """Whether a message whose subject it wants must stay until it is settled or given back."""
        if seq > self.delivered.stream_seq:
            if seq in self._ahead:
                return False
            return seq > self.chosen_to or self._place_chosen(seq) is not None
        return seq in self.pending or seq in self.deliveries

    def _place_chosen(self, seq: int) -> int | None:
        place = bisect_left(self.chosen, seq)
        return place if place < len(self.chosen) and self.chosen[place] == seq else None

    def held(self) -> list[int]:
        """The messages that it was handed out and that must stay, given up ones too."""
        if not self.deliveries:
            return list(self.pending)
        return [*self.pending, *(seq for seq in self.deliveries if seq not in self.pending)]

    def known(self) -> list[int]:
        """All messages that it knows by their seqs."""
        return [*self.held(), *self.chosen]

    @property
    def lowest_known(self) -> int:
        """No message below is known by its seq; NOTHING if none is."""
        lowest = self._order[0] if self._order else NOTHING
        if self.deliveries:
            lowest = min(lowest, self._deliveries_lowest)
        if self.chosen:
            lowest = min(lowest, self.chosen[0])
        return min(lowest, min(self._ahead)) if self._ahead else lowest

    # --- handing out ---

    def hand_out(self, seqs: Sequence[int], ts_ns: int) -> int:
        """New messages are handed out, ascending; the consumer_seq of the first."""
        before, last = self.delivered, seqs[-1]
        first = before.consumer_seq + 1
        assert seqs[0] > before.stream_seq, (seqs[0], before)
        if self.has_acks:
            if not self.pending:
                self._idle = before
            numbers = range(first, first + len(seqs))
            self.pending.update(
                zip(seqs, map(_new, repeat(Pending), zip(numbers, repeat(ts_ns), strict=False)), strict=True)
            )
            self._order.extend(seqs)
            self.holders.note(self, seqs[0])
            if self._ahead:
                self._forget_ahead(seqs)
        self.delivered = Position(first + len(seqs) - 1, last)
        self.last_delivered_ns = ts_ns
        self._is_reset = False
        if self.chosen:
            self.pass_over(last)
        return first

    def hand_out_again(self, seqs: Sequence[int], ts_ns: int) -> int:
        """Pending messages are handed out again, in any order; the consumer_seq of the first."""
        before = self.delivered
        pending, deliveries = self.pending, self.deliveries
        if not deliveries:
            self._deliveries_lowest = min(seqs)
        for seq in seqs:
            known = pending.get(seq)
            if known is not None:
                pending[seq] = Pending(known.consumer_seq, ts_ns)
                deliveries[seq] = deliveries.get(seq, 1) + 1
        self._deliveries_lowest = min(self._deliveries_lowest, min(seqs))
        self.delivered = Position(before.consumer_seq + len(seqs), before.stream_seq)
        self.last_delivered_ns = ts_ns
        return before.consumer_seq + 1

    def pass_over(self, seq: int) -> None:
        """The chosen messages up to this one are handed out, or gone."""
        chosen = self.chosen
        while chosen and chosen[0] <= seq:
            chosen.popleft()

    def _not_chosen(self, seqs: Iterable[int]) -> None:
        """These need not be handed out any more."""
        for seq in seqs if self.chosen else ():
            place = self._place_chosen(seq)
            if place is not None:
                del self.chosen[place]

    def dispatched(self, command: Dispatch) -> bool:
        """Apply what the journal says of deliveries; whether it was news. 0 is the next consumer_seq."""
        before, seqs = self.delivered, command.seqs
        first = command.first_delivery_seq or before.consumer_seq + 1
        known = before.consumer_seq - first + 1
        if known >= len(seqs):
            return False
        if known < 0:
            if self._is_reset:
                # From before it was reset: nobody waits for these any more.
                return False
            # The journal has lost a Dispatch between.
            self.delivered = Position(first - 1, before.stream_seq)
        ts_ns, position = command.ts_ns, max(known, 0)
        while position < len(seqs):
            end = position + 1
            if seqs[position] <= self.delivered.stream_seq:
                while end < len(seqs) and seqs[end] <= self.delivered.stream_seq:
                    end += 1
                self.hand_out_again(seqs[position:end], ts_ns)
            else:
                while end < len(seqs) and seqs[end] > seqs[end - 1]:
                    end += 1
                self.hand_out(seqs[position:end], ts_ns)
            position = end
        return True

    # --- settling ---

    def settle(self, kind: int, seqs: Sequence[int]) -> list[int]:
        """Messages were answered for; those that were not settled before, and are now."""
        if not self.has_acks or not seqs:
            return []
        if kind == ACK_ALL:
            return self._settle_to(max(seqs))
        pending = self.pending
        if kind == GIVEN_UP and self._order and self._order[0] in seqs:
            self._held = self.ack_floor
        settled = [seq for seq in seqs if pending.pop(seq, None) is not None]
        if kind == GIVEN_UP:
            self._remember(settled)
        else:
            if settled:
                self._release_floor()
            if self.deliveries:
                before = set(settled)
                given_up = [seq for seq in seqs if self.deliveries.pop(seq, None) and seq not in before]
                settled += given_up
            if len(settled) < len(seqs) and not self._is_reset:
                settled += self._settle_ahead(seqs)
        self._trim()
        return settled

    def _settle_ahead(self, seqs: Sequence[int]) -> list[int]:
        """The journal has lost, or has later, what handed these out."""
        reach = self.delivered.stream_seq
        found = [seq for seq in seqs if seq > reach and seq not in self._ahead]
        self._ahead.update(found)
        if found:
            self.holders.note(self, min(found))
        self._not_chosen(found)
        return found

    def _settle_to(self, last: int) -> list[int]:
        order, pending = self._order, self.pending
        # One that comes behind a higher one does not take the floor back.
        floor_seq = max(last, self.ack_floor.stream_seq)
        settled = []
        while order and order[0] <= last:
            seq = order.popleft()
            if pending.pop(seq, None) is not None:
                settled.append(seq)
        if self.deliveries:
            before = set(settled)
            for seq in [seq for seq in self.deliveries if seq <= last]:
                del self.deliveries[seq]
                if seq not in before:
                    settled.append(seq)
        reach = self.delivered
        if last > reach.stream_seq and not self._is_reset:
            # The journal has lost what handed it out. All before it were handed out as well.
            self.delivered = Position(reach.consumer_seq, last)
            self.pass_over(last)
        self._trim()
        self._held = None
        if order:
            self._idle = Position(pending[order[0]].consumer_seq - 1, floor_seq)
        return settled

    def _remember(self, given_up: list[int]) -> None:
        """What was given up stays known as long as the stream has it."""
        if not given_up:
            return
        lowest = min(given_up)
        self._deliveries_lowest = min(self._deliveries_lowest, lowest) if self.deliveries else lowest
        for seq in given_up:
            self.deliveries.setdefault(seq, 1)

    def _forget_ahead(self, seqs: Sequence[int]) -> None:
        for seq in self._ahead.intersection(seqs):
            del self.pending[seq]
        last = seqs[-1]
        self._ahead = {seq for seq in self._ahead if seq > last}
        self._trim()

    def _release_floor(self) -> None:
        if not self.pending:
            self._held = None

    def _trim(self) -> None:
        """Let the order begin with what is pending, and hold not much else."""
        order, pending = self._order, self.pending
        if not pending:
            order.clear()
            return
        while order[0] not in pending:
            order.popleft()
        if len(order) > 2 * len(pending) + _ORDER_SLACK:
            self._order = deque(pending)

    # --- messages go, or the consumer goes elsewhere ---

    def drop(self, seqs: Iterable[int]) -> list[Dropped]:
        """Messages are gone from the stream: nobody can hand them out again. Those that were pending."""
        seqs = list(seqs)
        self._not_chosen(seqs)
        pending, deliveries = self.pending, self.deliveries
        dropped = []
        for seq in seqs:
            known = pending.pop(seq, None)
            count = deliveries.pop(seq, 1)
            if known is not None:
                dropped.append(Dropped(seq, known, count))
        if dropped:
            self._trim()
            self._release_floor()
        return dropped

    def drop_below(self, first_seq: int) -> list[Dropped]:
        """The stream begins here now."""
        order, dropped = self._order, []
        if order and order[0] < first_seq:
            gone = []
            while order and order[0] < first_seq:
                gone.append(order.popleft())
            dropped = self.drop(seq for seq in gone if seq in self.pending)
        deliveries = self.deliveries
        if deliveries:
            slack = len(deliveries) if len(deliveries) > _DELIVERIES_FEW else 0
            if first_seq > self._deliveries_lowest + slack:
                self.drop([seq for seq in deliveries if seq < first_seq and seq not in self.pending])
                self._deliveries_lowest = min(deliveries, default=0)
        if self._ahead:
            self._ahead = {seq for seq in self._ahead if seq >= first_seq}
        if self.chosen:
            self.pass_over(first_seq - 1)
        return dropped

    def skip_to(self, seq: int) -> None:
        """Nothing up to this seq is to be handed out any more: it was purged."""
        if seq > self.delivered.stream_seq:
            self.delivered = Position(self.delivered.consumer_seq, seq)
            self.pass_over(seq)
            self._held = None

    def reset(self, seq: int) -> int:
        """Begin again with a message, 0: behind the floor; its seq. All that is pending is forgotten."""
        seq = max(seq or self.ack_floor.stream_seq + 1, 1)
        self.start_at(seq)
        self.last_delivered_ns = self.last_acked_ns = 0
        self._is_reset = True
        self.resets += 1
        return seq

    def start_at(self, seq: int, chosen: Iterable[int] = (), chosen_to: int = 0) -> None:
        """Nothing was handed out, and this message comes first."""
        self.delivered = self._idle = Position(0, seq - 1)
        self._held = None
        self.pending.clear()
        self.deliveries.clear()
        self._order.clear()
        self._ahead.clear()
        self.chosen = deque(chosen)
        self.chosen_to = chosen_to

    def take_over(
        self, delivered: Position, floor: Position, pending: dict[int, Pending], redelivered: dict[int, int]
    ) -> None:
        """Take the state that an archive has of it; that of one which never began is none."""
        self.delivered, self._idle = delivered, floor
        self.pending = dict(sorted(pending.items()))
        self._order = deque(self.pending)
        self.deliveries = {seq: times + 1 for seq, times in redelivered.items()}
        self._deliveries_lowest = min(redelivered, default=0)
        self.chosen.clear()

    # --- checkpoints ---

    def snapshot(self) -> list[Any]:
        """Everything, for a checkpoint. Lists are in columns, so that neighbours take no room."""
        pending, lowest = self.pending, self._deliveries_lowest if self.deliveries else 0
        return [
            self.name,
            {**self.config.document(), CREATED: self.created_ns},
            [*self.delivered, *self._idle, *(self._held or ())],
            [self.last_delivered_ns, self.last_acked_ns, int(self._is_reset), self.resets, lowest],
            folded(list(pending)),
            folded([one.consumer_seq for one in pending.values()]),
            folded([one.ts_ns for one in pending.values()]),
            folded(list(self.deliveries)),
            folded(list(self.deliveries.values())),
            [folded(list(self.chosen)), self.chosen_to],
            folded(sorted(self._ahead)),
        ]

    @classmethod
    def restore(cls, number: int, snapshot: list[Any]) -> ConsumerMachine:
        """The reverse of snapshot()."""
        name, config, positions, times, seqs, numbers, times_ns, again, counts, chosen, ahead = snapshot
        machine = cls(number, name, config)
        machine.delivered, machine._idle = Position(*positions[:2]), Position(*positions[2:4])
        machine._held = Position(*positions[4:]) if positions[4:] else None
        machine.last_delivered_ns, machine.last_acked_ns = times[:2]
        machine._is_reset = bool(times[2])
        # Checkpoints of earlier versions do not have the last two.
        machine.resets = times[3] if len(times) > 3 else 0
        entries = map(Pending, _column(numbers), _column(times_ns))
        machine.pending = dict(zip(_column(seqs), entries, strict=True))
        machine._order = deque(machine.pending)
        machine.deliveries = dict(zip(_column(again), _column(counts), strict=True))
        machine._deliveries_lowest = times[4] if len(times) > 4 else min(machine.deliveries, default=0)
        machine.chosen, machine.chosen_to = deque(_column(chosen[0])), chosen[1]
        machine._ahead = set(_column(ahead))
        return machine


def _column(items: list[Any]) -> tuple[int, ...]:
    column = unfolded(items, _COUNT_MAX)
    if column is None:
        raise ValueError("not a column of numbers")
    return column
