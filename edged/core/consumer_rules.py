"""Which consumers a stream may have: how a request names one, and whether there may be such a consumer.

`check_consumer_create` takes a request as it came and gives the consumer that it makes, or the one that it
changes or finds as it is. The existing consumers are those of the stream by name, internal ones included.

Rules: everything is asked in nats-server's order, so that a request with several faults is refused for the
same one. Chance is an argument: the same request with the same chance gets the same name. Nothing is changed
in place. A list that is empty and one that is left out are the same here, also where a repeated request is
compared with the consumer that is there; nats-server tells them apart until it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.consumer_checks import check
from edged.core.consumer_config import ConsumerConfig, ConsumerRequest
from edged.core.consumer_defaults import (
    ConsumerBounds,
    with_defaults,
    with_inactive_threshold,
    with_level,
)
from edged.core.consumer_update_rules import check_repeated, check_update
from edged.core.short_names import generated_name
from edged.core.stream_config import StreamConfig
from edged.core.stream_rules import NAME_BYTES_MAX
from edged.core.stream_subject_rules import collide

Consumers = Mapping[str, ConsumerConfig]


@dataclass(frozen=True, slots=True)
class ConsumerSubject:
    """What the subject of a request says; what it does not say is empty.

    There are four forms: `CREATE.stream` for what has no durable name, `DURABLE.CREATE.stream.name` for what
    has one, `CREATE.stream.name` for both, and `CREATE.stream.name.filter`.
    """

    stream: str
    name: str = ""
    filter: str = ""
    is_durable_form: bool = False

    @classmethod
    def create(cls, arguments: Sequence[str]) -> ConsumerSubject:
        """From the tokens that follow `CONSUMER.CREATE`, of which there is at least one."""
        return cls(arguments[0], arguments[1] if len(arguments) > 1 else "", ".".join(arguments[2:]))

    @classmethod
    def durable_create(cls, arguments: Sequence[str]) -> ConsumerSubject:
        """From the two tokens that follow `CONSUMER.DURABLE.CREATE`."""
        stream, name = arguments
        return cls(stream, name, is_durable_form=True)


@dataclass(frozen=True, slots=True)
class CheckedConsumer:
    """A consumer that may be. Its configuration has no name when the name was generated."""

    name: str
    config: ConsumerConfig
    is_new: bool


def check_consumer_create(
    request: ConsumerRequest,
    subject: ConsumerSubject,
    stream: StreamConfig | None,
    bounds: ConsumerBounds,
    existing: Consumers,
    *,
    chance: bytes,
    has_interest: Callable[[str], bool],
    identity: str = "",
    expected_identity: str = "",
) -> CheckedConsumer:
    """The consumer that a request to create or to update one gives; ApiFailure when there may be none such.

    `stream` is None when there is no such stream. `chance` makes the name of a consumer that has none;
    `has_interest` tells whether anyone in the account listens to a subject. What feeds another stream may
    expect (by a header) the stream to be the one it knows; `identity` is the one that the stream has.
    """
    config = named(request, subject)
    if config.num_replicas > 1 and not bounds.is_clustered:
        raise ApiFailure(api_errors.STREAM_REPLICAS_NOT_SUPPORTED)
    if stream is None:
        raise ApiFailure(api_errors.STREAM_NOT_FOUND)
    config = _as_source(config, stream, chance)
    if config.is_internal and expected_identity not in ("", identity):
        raise ApiFailure(api_errors.consumer_stream_identity_mismatch(identity))
    name = config.durable_name or config.name
    there = existing.get(name) if name else None
    if there is not None:
        config = _with_kept(config, there)
    if bounds.is_forbidden:
        raise ApiFailure(api_errors.NO_LIMITS)
    config = with_defaults(with_level(config), stream, bounds, request.pedantic)
    check(config, stream, bounds)
    if there is not None:
        if request.action == "create":
            config = check_repeated(there, config)
        if stream.retention == "workqueue" and not _is_unique(config, name, existing):
            raise ApiFailure(api_errors.CONSUMER_WORKQUEUE_CONSUMER_NOT_UNIQUE)
        return CheckedConsumer(name, check_update(there, config, has_interest), is_new=False)
    if request.action == "update":
        raise ApiFailure(api_errors.CONSUMER_DOES_NOT_EXIST)
    _check_room(config, stream, bounds, existing)
    _check_work_queue(config, stream, existing)
    _check_length(config)
    config = with_inactive_threshold(config, is_durable=config.is_durable)
    return CheckedConsumer(name or generated_name(chance, existing), config, is_new=True)


def named(request: ConsumerRequest, subject: ConsumerSubject) -> ConsumerConfig:
    """The configuration with the name that the subject has; ApiFailure when they contradict each other."""
    config = request.config
    if subject.stream != request.stream_name:
        raise ApiFailure(api_errors.STREAM_MISMATCH)
    name = subject.name or config.name
    if "/" in name or "\\" in name:
        raise ApiFailure(api_errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS)
    if subject.is_durable_form and not config.is_durable:
        raise ApiFailure(api_errors.CONSUMER_DURABLE_NAME_NOT_SET)
    if not subject.name and config.is_durable:
        raise ApiFailure(api_errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME)
    if config.is_durable and config.durable_name != name:
        raise ApiFailure(api_errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT)
    if subject.filter and config.filter_subjects:
        raise ApiFailure(api_errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED)
    if subject.filter and subject.filter != config.filter_subject:
        raise ApiFailure(api_errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH)
    return replace(config, name=name)


def _as_source(config: ConsumerConfig, stream: StreamConfig, chance: bytes) -> ConsumerConfig:
    """A consumer that feeds another stream always asks with the same name. Where messages go once they are
    acknowledged it must be durable and acknowledge; elsewhere a second one may be there for a while.
    """
    if not (config.direct and config.sourcing and config.name):
        return config
    if stream.retention == "limits":
        return replace(config, name=f"{config.name}-{generated_name(chance, ())}")
    return replace(
        config,
        direct=False,
        durable_name=config.name,
        ack_policy="flow_control",
        ack_wait=0,
        max_deliver=0,
        inactive_threshold=0,
    )


def _with_kept(config: ConsumerConfig, there: ConsumerConfig) -> ConsumerConfig:
    """The configuration with what a request does not change about a consumer that is there."""
    config = replace(
        config,
        pause_until=there.pause_until,
        pause_until_zone_minutes=there.pause_until_zone_minutes,
    )
    if not (config.sourcing and config.is_durable):
        return config
    return replace(
        config,
        deliver_policy=there.deliver_policy,
        opt_start_seq=there.opt_start_seq,
        opt_start_time=there.opt_start_time,
        opt_start_zone_minutes=there.opt_start_zone_minutes,
    )


def _check_room(
    config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds, existing: Consumers
) -> None:
    """That the stream may have one consumer more."""
    if config.is_internal:
        return
    limits = [limit for limit in (stream.max_consumers, bounds.account_consumers_max) if limit > 0]
    limit = min(limits) if limits else bounds.default_consumers_max
    # Those that count are counted only when all together might be too many.
    if 0 < limit <= len(existing) and limit <= _count(existing):
        raise ApiFailure(api_errors.MAXIMUM_CONSUMERS_LIMIT)


def _check_work_queue(config: ConsumerConfig, stream: StreamConfig, existing: Consumers) -> None:
    """Every message of a queue is for one consumer, which must tell when it is done."""
    if stream.retention != "workqueue" or config.is_internal:
        return
    if config.ack_policy not in ("explicit", "flow_control"):
        raise ApiFailure(api_errors.CONSUMER_WORKQUEUE_REQUIRES_EXPLICIT_ACK)
    if config.deliver_policy != "all":
        raise ApiFailure(api_errors.CONSUMER_WORKQUEUE_CONSUMER_NOT_DELIVER_ALL)
    if _count(existing) == 0:
        return
    if not config.filters:
        raise ApiFailure(api_errors.CONSUMER_WORKQUEUE_MULTIPLE_UNFILTERED)
    if not _is_unique(config, config.name, existing):
        raise ApiFailure(api_errors.CONSUMER_WORKQUEUE_CONSUMER_NOT_UNIQUE)


def _check_length(config: ConsumerConfig) -> None:
    """A name too long for a file is refused in other words unless it is durable."""
    if len(config.durable_name.encode()) > NAME_BYTES_MAX:
        raise ApiFailure(api_errors.consumer_name_too_long(NAME_BYTES_MAX))
    if len(config.name.encode()) > NAME_BYTES_MAX:
        raise ApiFailure(api_errors.consumer_create("error creating store for consumer"))


def _count(existing: Consumers) -> int:
    return sum(not config.is_internal for config in existing.values())


def _is_unique(config: ConsumerConfig, name: str, existing: Consumers) -> bool:
    """Whether no other consumer wants what its filters want. Without filters the answer is yes: whether one
    may want everything is asked only where the consumer is made.
    """
    others = [other for key, other in existing.items() if key != name and not other.is_internal]
    return not any(
        not other.filters or any(collide(mine, theirs) for theirs in other.filters)
        for mine in config.filters
        for other in others
    )
