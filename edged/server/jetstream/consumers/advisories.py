"""What happens to messages of a consumer, told to whoever listens.

Rules: those of edged/server/jetstream/advisories.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from edged.core.ack_subject import AckedMessage

if TYPE_CHECKING:
    from edged.server.jetstream.consumers.consumer import Consumer

Document = dict[str, Any]

_METRICS: Final = "$JS.EVENT.METRIC."
_METRIC_TYPES: Final = "io.nats.jetstream.metric.v1."


def message_naked(consumer: Consumer, acked: AckedMessage) -> None:
    """A client sent a message back."""
    _tell(consumer, "MSG_NAKED", "nak", _fields(consumer, acked))


def message_terminated(consumer: Consumer, acked: AckedMessage, reason: str) -> None:
    """A message is not to be delivered again: a client said so, or it is gone."""
    fields = _fields(consumer, acked)
    if reason:
        fields["reason"] = reason
    _tell(consumer, "MSG_TERMINATED", "terminated", fields)


def deliveries_exceeded(consumer: Consumer, seq: int, deliveries: int) -> None:
    """A message was delivered as often as may be, and nobody acknowledged it."""
    fields = {**_names(consumer), "stream_seq": seq, "deliveries": deliveries}
    _tell(consumer, "MAX_DELIVERIES", "max_deliver", fields)


def acknowledged(consumer: Consumer, acked: AckedMessage, delay_ns: int) -> None:
    """A sample: how long it took until a message was acknowledged."""
    fields = _names(consumer)
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
        **_names(consumer),
        "consumer_seq": acked.consumer_seq,
        "stream_seq": acked.stream_seq,
        "deliveries": acked.deliveries,
    }


def _names(consumer: Consumer) -> Document:
    return {"stream": consumer.stream.name, "consumer": consumer.machine.name}


def _tell(consumer: Consumer, word: str, kind: str, fields: Document) -> None:
    stream = consumer.stream
    subject = f"CONSUMER.{word}.{stream.name}.{consumer.machine.name}"
    stream.jetstream.advisories.tell(stream.account.account, subject, kind, fields)
