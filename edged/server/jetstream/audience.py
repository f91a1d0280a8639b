"""Which consumers of a stream may want the messages that were just stored.

The filters of all consumers are in one tree, so that a message costs what it costs to find those it is for,
however many others there are.

Rules: a consumer that is told too much finds nothing and goes to sleep; one that is told too little would
sleep on, so whoever changes a filter says so here. Answers are remembered until that happens, for as many
subjects as SUBJECTS_MAX; then they are found out anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from edged.core.sublist import SubscriptionList
from edged.core.wire import Publish

if TYPE_CHECKING:
    from edged.server.jetstream.consumers.consumer import Consumer

SUBJECTS_MAX: Final = 10_000
FEW: Final = 8
"""So many consumers are asked one by one as fast as they are looked for."""
_EVERYTHING: Final = (b">",)


class Audience:
    """Of one stream."""

    def __init__(self) -> None:
        # What each consumer is in the tree with.
        self._filters: dict[Consumer, Sequence[bytes]] = {}
        self._tree: SubscriptionList[Consumer] = SubscriptionList()
        self._known: dict[bytes, tuple[Consumer, ...]] = {}

    def put(self, consumer: Consumer) -> None:
        """A consumer is new, or wants something else."""
        filters = consumer.machine.filters or _EVERYTHING
        if self._filters.get(consumer) != filters:
            self.remove(consumer)
            self._filters[consumer] = filters
            for one in filters:
                self._tree.insert(one, None, consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer wants nothing any more."""
        for one in self._filters.pop(consumer, ()):
            self._tree.remove(one, None, consumer)
        self._known.clear()

    def clear(self) -> None:
        """All go."""
        for consumer in list(self._filters):
            self.remove(consumer)

    def of(self, messages: Sequence[Publish] | None) -> Iterable[Consumer]:
        """Those to be told of messages; None when nobody knows which came."""
        if messages is None or len(self._filters) <= FEW:
            return list(self._filters)
        if len(messages) == 1:
            return self._of_subject(messages[0][0])
        found: dict[Consumer, None] = {}
        for subject in {message[0] for message in messages}:
            found.update(dict.fromkeys(self._of_subject(subject)))
        return found

    def _of_subject(self, subject: bytes) -> tuple[Consumer, ...]:
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= SUBJECTS_MAX:
                self._known.clear()
            known = self._known[subject] = tuple(dict.fromkeys(self._tree.match(subject).plain))
        return known
