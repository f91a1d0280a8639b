"""Which messages a stream lets go because its consumers are done with them.

With `limits` none. With `workqueue` a message goes when the consumer that wants it has settled it. With
`interest` it goes when all consumers that want it have, and when the last one that wants it goes or wants
something else.

Rules: called where a command is applied, never when messages are handed out. A message that was handed out
too often without an answer stays: somebody may still settle it, or delete it. One whose dead letter is owed
stays until that is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edged.core.consumer_machine import ConsumerMachine
from edged.core.dead_letters import DeadLetters
from edged.core.interest import Interest
from edged.core.message_log import MessageLog

LIMITS: Final = "limits"
INTEREST: Final = "interest"

# How many messages are looked at together.
_PAGE: Final = 4096


class Retention:
    """What a stream keeps for its consumers."""

    __slots__ = ("_consumers", "_interests", "_letters", "_log", "policy")

    def __init__(
        self, log: MessageLog, consumers: Mapping[int, ConsumerMachine], letters: DeadLetters
    ) -> None:
        self._log = log
        self._consumers = consumers
        self._letters = letters
        self.policy = LIMITS
        # The consumers with filters; None when they have changed since somebody asked last.
        self._interests: list[tuple[ConsumerMachine, Interest]] | None = None

    @property
    def is_by_acks(self) -> bool:
        """Whether messages go when they are settled."""
        return self.policy != LIMITS

    def follow_interest(self) -> None:
        """Consumers came, went, or want something else."""
        self._interests = None

    def release(self, seqs: Sequence[int]) -> None:
        """A consumer is done with these messages: remove those that nobody else needs."""
        left = list(seqs)
        # A work queue has one consumer for each message.
        for consumer in self._consumers.values() if self.policy == INTEREST else ():
            reach, needs, is_filtered = consumer.delivered.stream_seq, consumer.needs, bool(consumer.filters)
            left = [seq for seq in left if (is_filtered and seq > reach) or not needs(seq)]
        if self.policy == INTEREST:
            filtered = self._filtered()
            left = [seq for seq in left if not self._is_awaited(seq, filtered)] if filtered else left
        self._remove(left)

    def _filtered(self) -> list[tuple[ConsumerMachine, Interest]]:
        if self._interests is None:
            consumers = [one for one in self._consumers.values() if one.filters]
            self._interests = [(one, Interest.in_filters(one.filters)) for one in consumers]
        return self._interests

    def _is_awaited(self, seq: int, filtered: list[tuple[ConsumerMachine, Interest]]) -> bool:
        """Whether somebody with a filter wants a message that it has not come to."""
        behind = [
            interest
            for consumer, interest in filtered
            if seq > consumer.delivered.stream_seq and consumer.needs(seq)
        ]
        if not behind:
            return False
        message = self._log.peek(seq)
        # What cannot be read may come back.
        return message is None or any(interest.wants(message.subject) for interest in behind)

    def sweep(self, filters: Sequence[bytes] = ()) -> None:
        """Remove what nobody needs, after a consumer with these filters went or changed. Only by interest."""
        log = self._log
        if self.policy != INTEREST or not log.message_count:
            return
        consumers = self._consumers.values()
        lowest = [self._letters.lowest, *(self._lowest_needed(consumer) for consumer in consumers)]
        log.compact_to(min([seq for seq in lowest if seq is not None], default=log.last_seq + 1))
        # Above this there is one who wants everything.
        reaches = [max(one.delivered.stream_seq, one.chosen_to) for one in consumers if not one.filters]
        for page in self._pages(filters, min(reaches, default=log.last_seq)):
            left = page
            for consumer in consumers:
                left = self._not_needed(consumer, left)
            self._remove(left)

    def _not_needed(self, consumer: ConsumerMachine, seqs: list[int]) -> list[int]:
        needs, filters = consumer.needs, consumer.filters
        if not filters:
            return [seq for seq in seqs if not needs(seq)]
        # What it has been handed out it wants; of the others the log knows which one is next.
        reach, find = consumer.delivered.stream_seq, self._log.next_matching
        left: list[int] = []
        wanted: int | None = 0
        for seq in seqs:
            if seq > reach and wanted is not None and wanted < seq:
                wanted = find(filters, seq)
            if not needs(seq) or (seq > reach and wanted != seq):
                left.append(seq)
        return left

    def _lowest_needed(self, consumer: ConsumerMachine) -> int | None:
        chosen = consumer.chosen
        ahead = chosen[0] if chosen else self._log.next_matching(consumer.filters, consumer.next_seq)
        held = min(consumer.held(), default=None)
        return held if ahead is None else ahead if held is None else min(ahead, held)

    def _pages(self, filters: Sequence[bytes], last: int) -> Iterator[list[int]]:
        """The messages on some subjects up to a seq."""
        find = self._log.next_matching
        page: list[int] = []
        seq = find(filters, self._log.first_seq)
        while seq is not None and seq <= last:
            page.append(seq)
            if len(page) == _PAGE:
                yield page
                page = []
            seq = find(filters, seq + 1)
        yield page

    def _remove(self, seqs: list[int]) -> None:
        """Remove messages. Those at the start of the stream, the usual case, go together."""
        seqs = self._letters.not_held(seqs)
        log, done = self._log, 0
        if seqs and seqs[0] == log.first_seq:
            first, count = seqs[0], len(seqs)
            if seqs[-1] - first == count - 1 and seqs == list(range(first, first + count)):
                done = count
            else:
                while done < count and seqs[done] == first + done:
                    done += 1
            log.compact_to(first + done)
        for seq in seqs[done:]:
            log.remove(seq)
