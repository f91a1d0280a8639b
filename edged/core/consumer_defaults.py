"""What a consumer has where its request says nothing, and what server and account allow it to have.

Rules: everything is asked in nats-server's order. A pedantic request is refused where another one would be
adjusted. Nothing is changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.consumer_config import ConsumerConfig
from edged.core.gotime import MINUTE, SECOND
from edged.core.stream_config import StreamConfig
from edged.core.stream_rules import API_LEVEL, LEVEL_KEY, REQUIRED_LEVEL_KEY, VERSION_KEY

ACK_WAIT_DEFAULT_NS: Final = 30 * SECOND
ACK_PENDING_DEFAULT: Final = 1000
WAITING_DEFAULT: Final = 512
PIN_DEFAULT_NS: Final = 2 * MINUTE
INACTIVE_DEFAULT_NS: Final = 5 * SECOND
# How many consumers a stream may have when nobody says.
CONSUMERS_DEFAULT_MAX: Final = 1000
# Acknowledging by flow control goes with this heartbeat and no other.
ACK_FLOW_CONTROL_HEARTBEAT_NS: Final = SECOND
# The time that Go takes for none: the first moment of the year 1.
ZERO_TIME_NS: Final = -62_135_596_800 * SECOND

# What is below the least becomes the least. In this order.
_LEAST: Final = {
    "max_deliver": -1,
    "max_waiting": 0,
    "max_ack_pending": -1,
    "max_batch": 0,
    "max_expires": 0,
    "max_bytes": 0,
    "idle_heartbeat": 0,
    "inactive_threshold": 0,
    "priority_timeout": 0,
}


@dataclass(frozen=True, slots=True)
class ConsumerBounds:
    """Limits as they apply to one request; what is not limited is 0 or -1."""

    # Whether more than one replica can be had at all.
    is_clustered: bool = False
    # Of the server.
    ack_pending_max: int = 0
    request_batch_max: int = 0
    # Where neither the stream nor the account has a limit.
    default_consumers_max: int = -1
    # Of the account.
    account_ack_pending_max: int = 0
    account_consumers_max: int = -1
    # Whether there are no limits for this replica count, so that there can be no consumer.
    is_forbidden: bool = False


def with_defaults(
    config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds, pedantic: bool
) -> ConsumerConfig:
    """The configuration with everything that follows from what it says, from its stream and from limits.

    How long an ephemeral consumer may be unused is not in it: see `with_inactive_threshold`.
    """
    config = _with_least(config, pedantic)
    if not config.is_push and config.max_waiting == 0:
        config = replace(config, max_waiting=WAITING_DEFAULT)
    if config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        config = replace(config, ack_wait=ACK_WAIT_DEFAULT_NS)
    if config.backoff:
        if pedantic and config.ack_wait != config.backoff[0]:
            raise _pedantic("first backoff value has to equal batch AckWait")
        config = replace(config, ack_wait=config.backoff[0])
    config = _with_stream_limits(config, stream, pedantic)
    if config.max_ack_pending == 0 and config.ack_policy != "none":
        limits = (bounds.ack_pending_max, bounds.account_ack_pending_max)
        pending = min([ACK_PENDING_DEFAULT, *(limit for limit in limits if limit > 0)])
        config = replace(config, max_ack_pending=pending)
    if not config.is_push and config.max_batch == 0 and bounds.request_batch_max > 0:
        if pedantic:
            raise _pedantic("max_request_batch must be set if it's JetStream limits are set")
        config = replace(config, max_batch=bounds.request_batch_max)
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config = replace(config, priority_timeout=PIN_DEFAULT_NS)
    if config.ack_policy == "flow_control" and not pedantic:
        config = replace(config, flow_control=True, idle_heartbeat=ACK_FLOW_CONTROL_HEARTBEAT_NS)
    return config


def with_inactive_threshold(config: ConsumerConfig, *, is_durable: bool) -> ConsumerConfig:
    """What is not durable goes after a while without use, and shows after how long."""
    if is_durable or config.inactive_threshold > 0:
        return config
    return replace(config, inactive_threshold=INACTIVE_DEFAULT_NS)


def with_level(config: ConsumerConfig) -> ConsumerConfig:
    """With the API level in its metadata that a server must have for it, and without what answers add."""
    level = 0
    if config.pause_until not in (None, ZERO_TIME_NS):
        level = 1
    if config.priority_policy != "none" or config.priority_timeout != 0 or config.priority_groups:
        level = 1
    if config.ack_policy == "flow_control":
        level = 4
    kept = {key: value for key, value in config.metadata.items() if key not in (VERSION_KEY, LEVEL_KEY)}
    return replace(config, metadata={**kept, REQUIRED_LEVEL_KEY: str(level)})


def with_server(config: ConsumerConfig, version: str) -> ConsumerConfig:
    """As answers show it: with the version and the API level of this server in the metadata."""
    added = {VERSION_KEY: version, LEVEL_KEY: str(API_LEVEL)}
    return replace(config, metadata={**config.metadata, **added})


def _with_least(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    changed: dict[str, Any] = {}
    for name, least in _LEAST.items():
        if getattr(config, name) < least:
            if pedantic:
                raise _pedantic(f"{name} must {'be set to -1' if least else 'not be negative'}")
            changed[name] = least
    if config.max_deliver == 0:
        changed["max_deliver"] = -1
    return replace(config, **changed)


def _with_stream_limits(config: ConsumerConfig, stream: StreamConfig, pedantic: bool) -> ConsumerConfig:
    for name in ("max_ack_pending", "inactive_threshold"):
        limit: int = getattr(stream.consumer_limits, name)
        if getattr(config, name) == 0:
            if pedantic and limit > 0:
                raise _pedantic(f"{name} must be set if it's configured in stream limits")
            values: dict[str, Any] = {name: limit}
            config = replace(config, **values)
    return config


def _pedantic(words: str) -> ApiFailure:
    return ApiFailure(api_errors.pedantic(words))
