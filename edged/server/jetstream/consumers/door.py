"""Where what clients say to consumers arrives: acknowledgements, answers to flow control, and interest.

One subscription takes the acknowledgements of all consumers of an account. So making a consumer changes no
route, and the acknowledgements of one turn are sorted out here.

Rules: who speaks to a consumer that is not there, or that takes no acknowledgements, hears that nobody
listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edged.core import ack_subject
from edged.core.ack_twins import plain_acks
from edged.core.subjects import is_literal, matches
from edged.core.twins import Subscription
from edged.server.account import unanswered

if TYPE_CHECKING:
    from edged.core.twins import Outbox
    from edged.core.wire import Publish
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.consumers.consumer import Consumer

FLOW_CONTROL = "$JS.FC."
_FLOW_CONTROL_BYTES = len(FLOW_CONTROL)


class ConsumerDoor:
    """Of one account."""

    def __init__(self, streams: AccountStreams, domain: str | None) -> None:
        self._streams = streams
        self._account = streams.account
        self._domain = domain
        # By how the subjects begin to which their messages are acknowledged.
        self._acked: dict[bytes, Consumer] = {}
        # By `stream.consumer`.
        self._flowing: dict[bytes, Consumer] = {}
        self._pulled: dict[bytes, Consumer] = {}
        # By the subject whose interest they follow.
        self._watched: dict[bytes, list[Callable[[], None]]] = {}
        self._is_open = False

    def open(self, consumer: Consumer) -> None:
        """Take what is said to a consumer."""
        self.listen()
        self._pulled[_key(consumer)] = consumer
        if consumer.machine.has_acks:
            for prefix in self._prefixes(consumer):
                self._acked[prefix] = consumer
        if consumer.config.flow_control:
            self._flowing[_key(consumer)] = consumer

    def close(self, consumer: Consumer) -> None:
        """Take nothing more for a consumer."""
        self._pulled.pop(_key(consumer), None)
        self._flowing.pop(_key(consumer), None)
        for prefix in self._prefixes(consumer):
            self._acked.pop(prefix, None)

    def _prefixes(self, consumer: Consumer) -> tuple[bytes, bytes]:
        stream, name = consumer.stream.name, consumer.machine.name
        first = ack_subject.first_prefix(stream, name)
        return first, ack_subject.second_prefix(self._domain, self._account.name, stream, name)

    def listen(self) -> None:
        """Take what is said, be it to consumers that are here or not."""
        if self._is_open:
            return
        self._is_open = True
        self._account.interest_listeners.append(self._interest_changed)
        for pattern, handler in ((b"$JS.ACK.>", self._acks_arrived), (b"$JS.FC.>", self._flow_arrived)):
            self._account.subscribe(Subscription(pattern, None, b"consumers", None, handler), False)

    # --- interest ---

    def watch(self, subject: bytes, changed: Callable[[], None]) -> None:
        """Call back whenever the interest in a subject may have changed."""
        self._watched.setdefault(subject, []).append(changed)

    def unwatch(self, subject: bytes, changed: Callable[[], None]) -> None:
        """The reverse of watch()."""
        watchers = self._watched.get(subject)
        if watchers is not None and changed in watchers:
            watchers.remove(changed)
            if not watchers:
                del self._watched[subject]

    def _interest_changed(self, pattern: bytes) -> None:
        if not self._watched:
            return
        if is_literal(pattern):
            found = list(self._watched.get(pattern, ()))
        else:
            found = [
                one
                for subject, watchers in self._watched.items()
                if matches(subject, pattern)
                for one in watchers
            ]
        for changed in found:
            changed()

    # --- arrivals ---

    def pull(self, name: bytes, message: Publish) -> bool:
        """A request for messages of the consumer `stream.name`; False when there is none."""
        consumer = self._pulled.get(name)
        if consumer is None:
            return False
        _, reply, header_bytes, data = message
        if reply is not None:
            split = max(header_bytes, 0)
            consumer.pull(reply, data[:split], data[split:])
        return True

    def _acks_arrived(
        self, subscription: Subscription, messages: list[Publish], origin: Outbox | None
    ) -> None:
        place = 0
        while place < len(messages):
            subject, reply, header_bytes, data = messages[place]
            for prefix in ack_subject.prefixes_of(subject):
                consumer = self._acked.get(prefix)
                if consumer is not None:
                    seqs = plain_acks(messages, place, prefix)
                    if seqs:
                        consumer.acks.arrived_plain(seqs, messages[place : place + len(seqs)])
                        place += len(seqs)
                    else:
                        split = max(header_bytes, 0)
                        consumer.acks.arrived(subject, reply, data[split:])
                        place += 1
                    break
            else:
                if not self._streams.pass_on(ack_subject.stream_of(subject), messages[place]):
                    self._streams.unanswered(origin, messages[place])
                place += 1

    def _flow_arrived(
        self, subscription: Subscription, messages: list[Publish], origin: Outbox | None
    ) -> None:
        for message in messages:
            subject, reply, header_bytes, data = message
            name = subject[_FLOW_CONTROL_BYTES:].rpartition(b".")[0]
            consumer = self._flowing.get(name)
            if consumer is not None:
                consumer.flow_answered(subject, data[: max(header_bytes, 0)])
            elif not self._streams.pass_on(name, message):
                unanswered(origin, subject, reply)


def _key(consumer: Consumer) -> bytes:
    return f"{consumer.stream.name}.{consumer.machine.name}".encode()
