"""What may change about a stream, and what a change brings with it.

`check_update` takes the configuration that a stream has and the one that was requested, and gives the one
that it gets, or refuses it. What a request leaves out is not kept: an update replaces the configuration.

Rules: as in `stream_rules`, everything is asked in nats-server's order. What was promised stays: a sealed
stream is not opened, a denial is not taken back, a mirror gets no other origin, but may cease to be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.stream_bounds import StreamBounds, check_room_for_change
from edged.core.stream_config import ConsumerLimits, StreamConfig
from edged.core.stream_origin_rules import Streams
from edged.core.stream_rules import check_against, check_discard_new_per_subject, checked, with_level
from edged.core.stream_subject_rules import refusal
from edged.core.transform_reasons import transform_reason


@dataclass(frozen=True, slots=True)
class ConsumerUse:
    """What a consumer of the stream takes of that which the stream limits."""

    name: str
    inactive_threshold: int = 0
    max_ack_pending: int = 0


def check_update(
    old: StreamConfig | None,
    new: StreamConfig,
    bounds: StreamBounds,
    others: Streams,
    *,
    pedantic: bool = False,
    consumers: Iterable[ConsumerUse] = (),
    subject_name: str | None = None,
) -> StreamConfig:
    """The configuration that the stream gets. `others` may have the stream itself among them, as it is now.

    `old` is None when there is no such stream, `subject_name` when no subject has named it.
    """
    config = checked(new, bounds, others, pedantic)
    if subject_name is not None and subject_name != config.name:
        raise ApiFailure(api_errors.STREAM_MISMATCH)
    if old is None:
        raise ApiFailure(api_errors.STREAM_NOT_FOUND)
    config = checked(with_level(config), bounds, others, pedantic)
    _check_kept(old, config, bounds)
    if config.sealed:
        config = _sealed(config)
    neighbours = [other for other in others.values() if other.name != old.name]
    check_room_for_change(old, config, bounds, neighbours)
    _check_consumers(old.consumer_limits, config.consumer_limits, consumers)
    check_against(config, others)
    return _with_republish_destination(config)


def _check_kept(old: StreamConfig, new: StreamConfig, bounds: StreamBounds) -> None:
    if new.name != old.name:
        raise refusal("stream configuration name must match original")
    if new.num_replicas > 1 and not bounds.is_clustered:
        raise ApiFailure(api_errors.STREAM_REPLICAS_NOT_SUPPORTED)
    if new.storage != old.storage:
        raise refusal("stream configuration update can not change storage type")
    if new.retention != old.retention and "workqueue" in (new.retention, old.retention):
        raise refusal("stream configuration update can not change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise refusal("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise refusal("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise refusal("stream configuration update can not cancel deny purge")
    if new.mirror is not None and new.mirror != old.mirror:
        raise ApiFailure(api_errors.STREAM_MIRROR_NOT_UPDATABLE)
    check_discard_new_per_subject(new)
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise refusal("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise refusal("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise refusal("message schedules can not be disabled")
    if new.persist_mode != old.persist_mode:
        raise refusal("stream configuration update can not change persist mode")


def _sealed(config: StreamConfig) -> StreamConfig:
    """Nothing comes in and nothing goes. Also for a pedantic request: there is no other way to be sealed."""
    return replace(
        config, max_age=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
    )


def _check_consumers(old: ConsumerLimits, new: ConsumerLimits, consumers: Iterable[ConsumerUse]) -> None:
    """A limit that changes must be kept by the consumers that are there."""
    threshold, pending = new.inactive_threshold, new.max_ack_pending
    changes_threshold = threshold > 0 and threshold != old.inactive_threshold
    changes_pending = pending > 0 and pending != old.max_ack_pending
    if not changes_threshold and not changes_pending:
        return
    above = [
        consumer.name
        for consumer in consumers
        if 0 < threshold < consumer.inactive_threshold or 0 < pending < consumer.max_ack_pending
    ]
    if above:
        words = f"change to limits violates consumers: {', '.join(above)}"
        raise ApiFailure(api_errors.stream_update(words))


def _with_republish_destination(config: StreamConfig) -> StreamConfig:
    """An update fills in a destination that is missing, which a create leaves empty."""
    republish = config.republish
    if republish is None or republish.dest:
        return config
    republish = replace(republish, dest=">")
    reason = transform_reason(republish.src, republish.dest)
    if reason is not None:
        way = f"from '{republish.src}' to '{republish.dest}'"
        raise ApiFailure(api_errors.stream_update(f"stream configuration for republish {way}: {reason}"))
    return replace(config, republish=republish)
