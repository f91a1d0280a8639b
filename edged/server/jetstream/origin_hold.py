"""Keeps the messages of an origin until they are durable elsewhere, where they would go before.

A stream that lets go of what its consumers have settled (retention by interest, work queues) must know of
those who read it for other streams. So they have a consumer there, with the name and the configuration that
nats-server gives it. The log is read all the same; the consumer is told afterwards what was taken over.

Rules: nothing here waits. What is told twice does no harm, so it is told again by who begins to read. A
consumer that somebody removed is made again. It goes when its source, or the stream that has it, goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from edged.core.commands import ACK_ALL, SEQS_MAX, Ack, Dispatch
from edged.core.consumer_config import ConsumerConfig
from edged.core.consumer_defaults import (
    ACK_FLOW_CONTROL_HEARTBEAT_NS,
    ACK_PENDING_DEFAULT,
    with_level,
)
from edged.core.short_names import short_hash
from edged.core.source_header import SourceHeader

if TYPE_CHECKING:
    from edged.core.source_config import StreamSource
    from edged.server.jetstream.stream import Stream

_KINDS: Final = {b"M": ("JS_MIRROR_", "mirror"), b"S": ("JS_SRC_", "src")}


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """Which consumer keeps messages for a reader. One that `is_given` is made by somebody else."""

    name: str
    is_given: bool
    config: ConsumerConfig

    def document(self) -> dict[str, Any]:
        """As one node tells another."""
        return {"name": self.name, "is_given": self.is_given, "config": self.config.document()}

    @classmethod
    def of(cls, document: dict[str, Any]) -> HoldTerms:
        """The reverse of document()."""
        return cls(document["name"], document["is_given"], ConsumerConfig.stored(document["config"]))


class OriginHold:
    """The consumer of one reader at its origin."""

    def __init__(self, origin: Stream, terms: HoldTerms) -> None:
        self._origin = origin
        self._terms = terms
        self.name = terms.name
        # Up to where it was told, and whether it is known where it was before.
        self._settled_to = 0
        self._is_begun = False

    def settle(self, filters: Sequence[bytes], to_seq: int) -> None:
        """The messages up to a seq are durable elsewhere, all that match."""
        origin = self._origin
        number = self._placed(to_seq + 1)
        if number is None:
            return
        seqs: list[int] = []
        seq = origin.log.next_matching(filters, self._settled_to + 1)
        while seq is not None and seq <= to_seq:
            seqs.append(seq)
            seq = origin.log.next_matching(filters, seq + 1)
        self._settled_to = max(self._settled_to, to_seq)
        committer, now_ns = origin.jetstream.committer, origin.jetstream.now_ns()
        for start in range(0, len(seqs), SEQS_MAX):
            part = tuple(seqs[start : start + SEQS_MAX])
            committer.submit(origin.group, Dispatch(number, now_ns, part, 0), _ignore)
            committer.submit(origin.group, Ack(number, ACK_ALL, (part[-1],)), self._settled)

    def release(self) -> None:
        """Nobody reads the origin any more."""
        origin = self._origin
        consumer = origin.consumers.find(self.name)
        if consumer is not None and consumer.config.sourcing and not self._terms.is_given:
            origin.consumers.forsake(consumer)

    def _settled(self, _result: object) -> None:
        consumers = self._origin.consumers
        consumer = consumers.find(self.name)
        if consumer is not None:
            consumer.machine.last_acked_ns = self._origin.jetstream.now_ns()
            # It has not handed these out itself.
            consumer.messages_removed()
        consumers.removed()

    def _placed(self, start_seq: int) -> int | None:
        """The number of the consumer, which is made if need be; None without one that is not ours to make."""
        consumers = self._origin.consumers
        known = consumers.find(self.name)
        if known is not None and not self._is_begun:
            self._is_begun = True
            self._settled_to = known.machine.delivered.stream_seq
        if self._terms.is_given:
            return None if known is None else known.machine.number
        config = self._config(start_seq)
        if known is not None and known.config.filters == config.filters:
            return known.machine.number
        self._is_begun = True
        if known is None:
            self._settled_to = max(self._settled_to, start_seq - 1)
        return consumers.place(self.name, config)

    def _config(self, start_seq: int) -> ConsumerConfig:
        is_late = start_seq > 1
        return with_level(
            replace(
                self._terms.config,
                deliver_policy="by_start_sequence" if is_late else "all",
                opt_start_seq=start_seq if is_late else 0,
            )
        )


def terms_of(reader: Stream, source: StreamSource, letter: bytes) -> HoldTerms:
    """The consumer of a reader at its origin. `letter` is M for a mirror, S for a source."""
    name, kind = hold_name(reader, source, letter), _KINDS[letter][1]
    filters = tuple(one.src for one in source.subject_transforms if one.src)
    if source.filter_subject:
        filters = (source.filter_subject,)
    metadata = {
        f"_nats.{kind}.stream": reader.name,
        f"_nats.{kind}.acc": reader.account.account.name,
    }
    domain = reader.jetstream.options.domain
    if domain:
        metadata[f"_nats.{kind}.domain"] = domain
    config = ConsumerConfig(
        durable_name=name,
        name=name,
        ack_policy="flow_control",
        max_deliver=-1,
        filter_subject=filters[0] if len(filters) == 1 else "",
        filter_subjects=filters if len(filters) > 1 else (),
        max_ack_pending=ACK_PENDING_DEFAULT,
        flow_control=True,
        deliver_subject=f"$JS.{letter.decode()}.{name}",
        idle_heartbeat=ACK_FLOW_CONTROL_HEARTBEAT_NS,
        sourcing=True,
        metadata=metadata,
    )
    return HoldTerms(name, source.consumer is not None, config)


def hold_name(reader: Stream, source: StreamSource, letter: bytes) -> str:
    """The name of the consumer of one reader at its origin: always the same."""
    if source.consumer is not None:
        return source.consumer.name
    domain = reader.jetstream.options.domain
    words = [reader.name, reader.account.account.name, *([domain] if domain else [])]
    found = short_hash(" ".join(words).encode())
    if letter == b"S" and sum(other.name == source.name for other in reader.config.sources) > 1:
        # A stream that has a source twice tells them apart.
        found = short_hash(f"{found} {SourceHeader(source).index}".encode())
    else:
        found = short_hash(found.encode()) if letter == b"S" else found
    return _KINDS[letter][0] + found


def _ignore(_result: object) -> None:
    """What could not be told is told again when a reader next begins."""
