"""Whether the values of a consumer's configuration can be and go together, and with its stream.

`check` is asked after `consumer_defaults` has put in what was left out. Whether there may be such a consumer
beside the ones that the stream has is asked in `consumer_rules`.

Rules: everything is asked in nats-server's order, so that a request with several faults is refused for the
same one.
"""

from __future__ import annotations

import re
from typing import Final

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.consumer_config import ConsumerConfig
from edged.core.consumer_defaults import ACK_FLOW_CONTROL_HEARTBEAT_NS, ConsumerBounds
from edged.core.gotext import quote
from edged.core.gotime import MILLISECOND, format_duration
from edged.core.stream_config import StreamConfig
from edged.core.stream_origin_rules import is_valid_name
from edged.core.stream_rules import DESCRIPTION_BYTES_MAX, METADATA_BYTES_MAX
from edged.core.stream_subject_rules import is_literal, is_subset, is_valid_subject, refusal
from edged.core.transform_reasons import BAD_SUBJECT

HEARTBEAT_MIN_NS: Final = 100 * MILLISECOND
REQUEST_EXPIRES_MIN_NS: Final = MILLISECOND

GROUP_NAME: Final = re.compile("[a-zA-Z0-9/_=-]{1,16}")
_SIGNS: Final = ("+", "-")
# How errors call the deliver policies.
_POLICIES: Final = {
    "all": "all",
    "last": "last",
    "new": "new",
    "last_per_subject": "last per subject",
    "by_start_sequence": "by start sequence",
    "by_start_time": "by start time",
}


def check(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> None:
    """Raises ApiFailure for what cannot be."""
    _check_names(config)
    _check_replicas(config, stream)
    if any(wait < 0 for wait in config.backoff):
        raise ApiFailure(api_errors.CONSUMER_BACKOFF_NEGATIVE)
    if config.ack_wait < 0:
        raise ApiFailure(api_errors.CONSUMER_ACK_WAIT_NEGATIVE)
    if config.ack_policy == "flow_control":
        _check_ack_flow_control(config)
    check_backoff(config)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise ApiFailure(api_errors.consumer_description_too_long(DESCRIPTION_BYTES_MAX))
    if config.is_push:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, bounds)
    _check_limits(config, stream, bounds)
    if config.direct and not config.is_push:
        raise ApiFailure(api_errors.CONSUMER_DIRECT_REQUIRES_PUSH)
    if config.direct and config.is_durable:
        raise ApiFailure(api_errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL)
    _check_filters(config)
    _check_start(config)
    _check_sampling(config)
    if config.flow_control and config.idle_heartbeat == 0:
        raise ApiFailure(api_errors.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS)
    if config.durable_name and config.name and config.name != config.durable_name:
        raise ApiFailure(api_errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH)
    metadata_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items())
    if metadata_bytes > METADATA_BYTES_MAX:
        raise ApiFailure(api_errors.consumer_metadata_length(f"{METADATA_BYTES_MAX // 1024}KB"))
    _check_priorities(config)


def check_backoff(config: ConsumerConfig) -> None:
    """That a message is delivered often enough for every wait to have its turn."""
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise ApiFailure(api_errors.CONSUMER_MAX_DELIVER_BACKOFF)


def _check_names(config: ConsumerConfig) -> None:
    for kind, name in (("name", config.name), ("durable name", config.durable_name)):
        if name and not is_valid_name(name):
            raise refusal(f"consumer {kind} can not contain '.', '*', '>', '\\', '/'")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > stream.num_replicas:
        raise ApiFailure(api_errors.CONSUMER_REPLICAS_EXCEEDS_STREAM)
    if config.num_replicas < 0:
        raise ApiFailure(api_errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    if stream.retention != "limits" and config.num_replicas not in (0, stream.num_replicas):
        raise ApiFailure(api_errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM)


def _check_ack_flow_control(config: ConsumerConfig) -> None:
    if not config.is_push:
        raise ApiFailure(api_errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_PUSH)
    if not config.flow_control:
        raise ApiFailure(api_errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_FLOW_CONTROL)
    if config.idle_heartbeat != ACK_FLOW_CONTROL_HEARTBEAT_NS:
        raise refusal("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise ApiFailure(api_errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_MAX_ACK_PENDING)
    if config.ack_wait != 0 or config.backoff:
        raise ApiFailure(api_errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_NO_ACK_WAIT)
    if config.max_deliver > 0:
        raise ApiFailure(api_errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_NO_MAX_DELIVER)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.deliver_subject
    if not is_literal(subject):
        raise ApiFailure(api_errors.CONSUMER_DELIVER_TO_WILDCARDS)
    if not is_valid_subject(subject):
        raise ApiFailure(api_errors.CONSUMER_INVALID_DELIVER_SUBJECT)
    if any(is_subset(subject, captured) for captured in stream.subjects):
        raise ApiFailure(api_errors.CONSUMER_DELIVER_CYCLE)
    if config.max_waiting != 0:
        raise ApiFailure(api_errors.CONSUMER_PUSH_MAX_WAITING)
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise ApiFailure(api_errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED)
    if 0 < config.idle_heartbeat < HEARTBEAT_MIN_NS:
        raise ApiFailure(api_errors.CONSUMER_SMALL_HEARTBEAT)


def _check_pull(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> None:
    if config.ack_policy == "none" and stream.retention == "workqueue":
        raise ApiFailure(api_errors.CONSUMER_PULL_REQUIRES_ACK)
    if config.rate_limit_bps > 0:
        raise ApiFailure(api_errors.CONSUMER_PULL_WITH_RATE_LIMIT)
    if config.idle_heartbeat > 0:
        raise ApiFailure(api_errors.CONSUMER_HEARTBEAT_REQUIRES_PUSH)
    if config.flow_control:
        raise ApiFailure(api_errors.CONSUMER_FLOW_CONTROL_REQUIRES_PUSH)
    if 0 < config.max_expires < REQUEST_EXPIRES_MIN_NS:
        raise ApiFailure(api_errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL)
    if 0 < bounds.request_batch_max < config.max_batch:
        raise ApiFailure(api_errors.consumer_max_request_batch_exceeded(bounds.request_batch_max))


def _check_limits(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> None:
    of_stream = stream.consumer_limits
    for limit in (bounds.ack_pending_max, bounds.account_ack_pending_max, of_stream.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            raise ApiFailure(api_errors.consumer_max_pending_ack_excess(limit))
    if 0 < of_stream.inactive_threshold < config.inactive_threshold:
        shown = format_duration(of_stream.inactive_threshold)
        raise ApiFailure(api_errors.consumer_inactive_threshold_excess(shown))


def _check_filters(config: ConsumerConfig) -> None:
    """Filters may collide, but none may cover another."""
    if config.filter_subject and config.filter_subjects:
        raise ApiFailure(api_errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS)
    if "" in config.filter_subjects:
        raise ApiFailure(api_errors.CONSUMER_EMPTY_FILTER)
    filters = config.filters
    for position, subject in enumerate(filters):
        if not is_valid_subject(subject):
            raise refusal(BAD_SUBJECT)
        others = filters[:position] + filters[position + 1 :]
        if any(is_subset(subject, other) for other in others):
            raise ApiFailure(api_errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS)


def _check_start(config: ConsumerConfig) -> None:
    """That the place to start from is given exactly when the deliver policy asks for it."""
    policy, has_seq, has_time = (
        config.deliver_policy,
        config.opt_start_seq > 0,
        config.opt_start_time is not None,
    )
    complaint = ""
    if policy == "by_start_sequence":
        if not has_seq:
            complaint = "optional start sequence is not set"
        elif has_time:
            complaint = "optional start time is also set"
    elif policy == "by_start_time":
        if not has_time:
            complaint = "optional start time is not set"
        elif has_seq:
            complaint = "optional start start sequence is also set"
    elif has_seq or has_time:
        complaint = f"optional start {'sequence' if has_seq else 'time'} is also set"
    elif policy == "last_per_subject" and not config.filters:
        complaint = "optional filter subject is not set"
    if complaint:
        words = f"consumer delivery policy is deliver {_POLICIES[policy]}, but {complaint}"
        raise ApiFailure(api_errors.consumer_invalid_policy(words))


def _check_sampling(config: ConsumerConfig) -> None:
    """That the frequency is a number, with or without a per cent sign. Errors are those of Go's `Atoi`."""
    if not config.sample_freq:
        return
    text = config.sample_freq.removesuffix("%")
    is_negative = text.startswith("-")
    digits = text[1:] if text.startswith(_SIGNS) else text
    number, reason = 0, "" if digits else "invalid syntax"
    for digit in digits:
        if not "0" <= digit <= "9":
            reason = "invalid syntax"
            break
        number = number * 10 + int(digit)
        if number >= 2**64:
            break
    if not reason and number >= 2**63 + is_negative:
        reason = "value out of range"
    if reason:
        words = f"strconv.Atoi: parsing {quote(text.encode())}: {reason}"
        raise ApiFailure(api_errors.consumer_invalid_sampling(words))
    if is_negative and number > 0:
        raise ApiFailure(api_errors.consumer_invalid_sampling("<nil>"))


def _check_priorities(config: ConsumerConfig) -> None:
    if config.priority_policy == "none":
        if config.priority_groups:
            raise ApiFailure(api_errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE)
        if config.priority_timeout > 0:
            raise ApiFailure(api_errors.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE)
        return
    if config.is_push:
        raise ApiFailure(api_errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP)
    if not config.priority_groups:
        raise ApiFailure(api_errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP)
    for group in config.priority_groups:
        if not group:
            raise ApiFailure(api_errors.CONSUMER_EMPTY_GROUP_NAME)
        if not GROUP_NAME.fullmatch(group):
            raise ApiFailure(api_errors.CONSUMER_INVALID_GROUP_NAME)
