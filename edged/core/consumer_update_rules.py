"""What may change about a consumer that is there.

What a request leaves out is not kept: an update replaces the configuration. Where deliveries begin, how they
are acknowledged and at what pace, and whether they are sent or fetched, is settled for good.

Rules: as in `consumer_rules`, everything is asked in nats-server's order, and nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.consumer_checks import check_backoff
from edged.core.consumer_config import ConsumerConfig
from edged.core.consumer_defaults import ZERO_TIME_NS, with_inactive_threshold, with_level
from edged.core.stream_rules import REQUIRED_LEVEL_KEY

# What does not change, and how errors call it. In this order; the deliver subject is asked in between.
_SETTLED: Final = {
    "deliver_policy": "deliver policy",
    "mem_storage": "storage type",
    "direct": "direct",
    "sourcing": "sourcing",
    "opt_start_seq": "start sequence",
    "opt_start_time": "start time",
    "ack_policy": "ack policy",
    "replay_policy": "replay policy",
    "idle_heartbeat": "heart beats",
    "flow_control": "flow control",
}


def check_update(
    old: ConsumerConfig, new: ConsumerConfig, has_interest: Callable[[str], bool]
) -> ConsumerConfig:
    """The configuration that the consumer gets. Both were found to be possible by themselves."""
    if new != old:
        _check_kept(old, new, has_interest)
    if new.inactive_threshold != old.inactive_threshold:
        # Whether it was durable counts, not whether it is from now on.
        new = with_inactive_threshold(new, is_durable=old.is_durable)
    return replace(new, pause_until_zone_minutes=0)


def check_repeated(old: ConsumerConfig, new: ConsumerConfig) -> ConsumerConfig:
    """The configuration of a request that may only create, if it says just what the consumer there has.

    The level is not compared: it is not the client who sets it.
    """
    metadata = {key: value for key, value in new.metadata.items() if key != REQUIRED_LEVEL_KEY}
    if REQUIRED_LEVEL_KEY in old.metadata:
        metadata[REQUIRED_LEVEL_KEY] = old.metadata[REQUIRED_LEVEL_KEY]
    new = replace(new, metadata=metadata)
    if new != old:
        raise ApiFailure(api_errors.CONSUMER_ALREADY_EXISTS)
    return new


def with_pause(config: ConsumerConfig, until_ns: int | None) -> ConsumerConfig:
    """The configuration of a consumer that rests until then; None, or Go's zero time, lets it go on."""
    until_ns = None if until_ns == ZERO_TIME_NS else until_ns
    return with_level(replace(config, pause_until=until_ns, pause_until_zone_minutes=0))


def _check_kept(old: ConsumerConfig, new: ConsumerConfig, has_interest: Callable[[str], bool]) -> None:
    for name, words in _SETTLED.items():
        if getattr(new, name) != getattr(old, name):
            raise _cannot(f"{words} can not be updated")
    if new.deliver_subject != old.deliver_subject:
        if not old.is_push:
            raise _cannot("can not update pull consumer to push based")
        if not new.is_push:
            raise _cannot("can not update push consumer to pull based")
        if has_interest(old.deliver_subject):
            raise ApiFailure(api_errors.CONSUMER_NAME_EXIST)
    if new.max_waiting != old.max_waiting:
        raise _cannot("max waiting can not be updated")
    check_backoff(new)


def _cannot(words: str) -> ApiFailure:
    return ApiFailure(api_errors.consumer_create(words))
