"""Which messages a stream lets go because its consumers are done with them.

With `limits` none. With `workqueue` a message goes when the consumer that wants it has settled it. With
`interest` it goes when all consumers that want it have, and when the last one that wants it goes or wants
something else.

Rules: called where a command is applied, never when messages are handed out. A message that was handed out
too often without an answer stays: somebody may still settle it, or delete it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edged.core.consumer_machine import ConsumerMachine
from edged.core.message_log import MessageLog

LIMITS: Final = "limits"
INTEREST: Final = "interest"

# How many messages are looked at together.
_PAGE: Final = 4096


class Retention:
    """What a stream keeps for its consumers."""

    __slots__ = ("_consumers", "_log", "policy")

    def __init__(self, log: MessageLog, consumers: Mapping[int, ConsumerMachine]) -> None:
        self._log = log
        self._consumers = consumers
        self.policy = LIMITS

    @property
    def is_by_acks(self) -> bool:
        """Whether messages go when they are settled."""
        return self.policy != LIMITS

    def release(self, seqs: Sequence[int]) -> None:
        """A consumer is done with these messages: remove those that nobody else needs."""
        left = list(seqs)
        for consumer in self._consumers.values():
            if not left:
                return
            left = self._not_needed(consumer, left)
        self._remove(left)

    def sweep(self) -> None:
        """Remove whatever nobody needs, after consumers went or changed. Only with `interest`."""
        log = self._log
        if self.policy != INTEREST or not log.message_count:
            return
        consumers = self._consumers.values()
        lowest = [self._lowest_needed(consumer) for consumer in consumers]
        log.compact_to(min([seq for seq in lowest if seq is not None], default=log.last_seq + 1))
        # Above this there is one who wants everything.
        stop = min([one.next_seq for one in consumers if not one.filters], default=log.last_seq + 1)
        for page in self._pages(stop):
            self.release(page)

    def _not_needed(self, consumer: ConsumerMachine, seqs: list[int]) -> list[int]:
        needs, filters = consumer.needs, consumer.filters
        if not filters:
            return [seq for seq in seqs if not needs(seq)]
        # What it has been handed out it wants; of the others the log knows.
        reach, find = consumer.delivered.stream_seq, self._log.next_matching
        return [seq for seq in seqs if not needs(seq) or (seq > reach and find(filters, seq) != seq)]

    def _lowest_needed(self, consumer: ConsumerMachine) -> int | None:
        chosen = consumer.chosen
        ahead = chosen[0] if chosen else self._log.next_matching(consumer.filters, consumer.next_seq)
        held = min(consumer.held(), default=None)
        return held if ahead is None else ahead if held is None else min(ahead, held)

    def _pages(self, stop: int) -> Iterator[list[int]]:
        """The messages below a seq."""
        find = self._log.next_matching
        page: list[int] = []
        seq = find((), self._log.first_seq)
        while seq is not None and seq < stop:
            page.append(seq)
            if len(page) == _PAGE:
                yield page
                page = []
            seq = find((), seq + 1)
        yield page

    def _remove(self, seqs: list[int]) -> None:
        """Remove messages. Those at the start of the stream, the usual case, go together."""
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
