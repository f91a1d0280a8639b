"""What happens to consumers, told to whoever listens.

Rules: those of advisories.py. What feeds other streams is told of as well, as nats-server does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.core.gojson_time import Instant, format_instant
from edged.core.gotime import ZERO_TIME

if TYPE_CHECKING:
    from edged.server.jetstream.consumers.consumer import Consumer

Document = dict[str, Any]


def consumer_action(consumer: Consumer, word: str, action: str) -> None:
    """A consumer was CREATED or DELETED."""
    tell_about(consumer, word, "consumer_action", {**names_of(consumer), "action": action})


def consumer_paused(consumer: Consumer) -> None:
    """A consumer rests from now on, until another time than before, or no more."""
    config = consumer.config
    until_ns, shown = config.pause_until, ZERO_TIME
    is_paused = until_ns is not None and until_ns > consumer.stream.jetstream.server.now_ns()
    if until_ns is not None:
        shown = format_instant(Instant(until_ns, config.pause_until_zone_minutes))
    fields = {**names_of(consumer), "paused": is_paused, "pause_until": shown}
    tell_about(consumer, "PAUSE", "consumer_pause", fields)


def group_pinned(consumer: Consumer, group: str, pinned_id: str) -> None:
    """One client alone is served from now on."""
    _tell_group(consumer, "PINNED", "consumer_group_pinned", {"group": group, "pinned_id": pinned_id})


def group_unpinned(consumer: Consumer, group: str, reason: str) -> None:
    """No client is served alone any more: because of a `timeout`, or because an `admin` said so."""
    _tell_group(consumer, "UNPINNED", "consumer_group_unpinned", {"group": group, "reason": reason})


def _tell_group(consumer: Consumer, word: str, kind: str, fields: Document) -> None:
    document = {"account": consumer.stream.account.account.name, **names_of(consumer)}
    domain = consumer.stream.jetstream.options.domain
    if domain:
        document["domain"] = domain
    tell_about(consumer, word, kind, {**document, **fields})


def names_of(consumer: Consumer) -> Document:
    """Which one it is."""
    return {"stream": consumer.stream.name, "consumer": consumer.machine.name}


def tell_about(consumer: Consumer, word: str, kind: str, fields: Document) -> None:
    """Send an advisory of this kind; `word` is what its subject says."""
    stream = consumer.stream
    subject = f"CONSUMER.{word}.{stream.name}.{consumer.machine.name}"
    stream.jetstream.advisories.tell(stream.account.account, subject, kind, fields)
