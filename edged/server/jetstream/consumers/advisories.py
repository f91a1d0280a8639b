"""What happens to messages of a consumer, told to whoever listens.

Rules: those of edged/server/jetstream/advisories.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from edged.core.ack_subject import AckedMessage
from edged.server.jetstream.consumer_advisories import names_of, tell_about

if TYPE_CHECKING:
    from edged.server.jetstream.consumers.consumer import Consumer

Document = dict[str, Any]

_METRICS: Final = "$JS.EVENT.METRIC."
_METRIC_TYPES: Final = "io.nats.jetstream.metric.v1."


def message_naked(consumer: Consumer, acked: AckedMessage) -> None:
    """A client sent a message back."""
    tell_about(consumer, "MSG_NAKED", "nak", _fields(consumer, acked))


def message_terminated(consumer: Consumer, acked: AckedMessage, reason: str) -> None:
    """A message is not to be delivered again: a client said so, or it is gone."""
    fields = _fields(consumer, acked)
    if reason:
        fields["reason"] = reason
    tell_about(consumer, "MSG_TERMINATED", "terminated", fields)


def deliveries_exceeded(consumer: Consumer, seq: int, deliveries: int) -> None:
    """A message was delivered as often as may be, and nobody acknowledged it."""
    fields = {**names_of(consumer), "stream_seq": seq, "deliveries": deliveries}
    tell_about(consumer, "MAX_DELIVERIES", "max_deliver", fields)


def acknowledged(consumer: Consumer, acked: AckedMessage, delay_ns: int) -> None:
    """A sample: how long it took until a message was acknowledged."""
    fields = names_of(consumer)
    fields |= {
        "consumer_seq": acked.consumer_seq,
        "stream_seq": acked.stream_seq,
        "ack_time": delay_ns,
        "deliveries": acked.deliveries,
    }
    stream = consumer.stream
    stream.jetstream.advisories.tell(
        stream.account.account,
        f"CONSUMER.ACK.{stream.name}.{consumer.machine.name}",
        "consumer_ack",
        fields,
        _METRICS,
        _METRIC_TYPES,
    )


def _fields(consumer: Consumer, acked: AckedMessage) -> Document:
    return {
        **names_of(consumer),
        "consumer_seq": acked.consumer_seq,
        "stream_seq": acked.stream_seq,
        "deliveries": acked.deliveries,
    }
