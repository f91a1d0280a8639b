"""How a consumer is described: its configuration, how far it is, and who waits.

Rules: the fields, their order and what is left out are nats-server's. What is counted is counted elsewhere:
nothing here looks at messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.core.consumer_defaults import with_server
from edged.core.gotime import format_rfc3339
from edged.version import NATS_VERSION

if TYPE_CHECKING:
    from edged.core.consumer_machine import Position
    from edged.server.jetstream.consumers.consumer import Consumer

Document = dict[str, Any]


def described(consumer: Consumer) -> Document:
    """What CONSUMER.INFO shows."""
    document = listed(consumer)
    document["config"] = with_server(consumer.config, NATS_VERSION).document()
    return document


def listed(consumer: Consumer) -> Document:
    """What CONSUMER.LIST and monitoring show, which leaves out what is the same for all."""
    machine, config = consumer.machine, consumer.config
    now_ns = consumer.stream.jetstream.server.now_ns()
    document: Document = {
        "stream_name": consumer.stream.name,
        "name": machine.name,
        "created": format_rfc3339(machine.created_ns),
        "config": config.document(),
        "delivered": _position(machine.delivered, machine.last_delivered_ns),
        "ack_floor": _position(machine.ack_floor, machine.last_acked_ns),
        "num_ack_pending": consumer.num_ack_pending,
        # With one delivery only, what is counted for our own use would confuse.
        "num_redelivered": 0 if config.max_deliver == 1 else len(machine.deliveries),
        "num_waiting": consumer.num_waiting,
        "num_pending": consumer.num_pending,
    }
    cluster = consumer.stream.jetstream.cluster
    if cluster is not None:
        # It is where its stream is.
        document["cluster"] = cluster.cluster_document(consumer.stream.group)
    if consumer.is_push_bound:
        document["push_bound"] = True
    until_ns = config.pause_until
    if until_ns is not None and until_ns > now_ns:
        document |= {"paused": True, "pause_remaining": until_ns - now_ns}
    document["ts"] = format_rfc3339(now_ns)
    if config.priority_groups:
        document["priority_groups"] = [_priority_group(consumer, config.priority_groups[0])]
    return document


def _position(position: Position, active_ns: int) -> Document:
    document: Document = {"consumer_seq": position.consumer_seq, "stream_seq": position.stream_seq}
    if active_ns:
        document["last_active"] = format_rfc3339(active_ns)
    return document


def _priority_group(consumer: Consumer, group: str) -> Document:
    """There can be more groups than one, of which only the first one is ever served."""
    pin = consumer.pinned.get(group)
    if pin is None:
        return {"group": group, "pinned_ts": format_rfc3339(None)}
    pinned_id, pinned_ns = pin
    return {"group": group, "pinned_client_id": pinned_id, "pinned_ts": format_rfc3339(pinned_ns)}
