"""Rules about where a stream's messages come from: its mirror, its sources, their prefixes, and no cycles.

`others` are the streams of the account by name. An origin need not be among them: it may be made later, or be
elsewhere; what can be seen is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edged.core import api_errors
from edged.core.api_errors import ApiError, ApiFailure
from edged.core.gotext import quote
from edged.core.source_config import StreamSource
from edged.core.stream_config import StreamConfig
from edged.core.stream_subject_rules import collide, is_literal, is_subset, is_valid_subject, refusal
from edged.core.transform_reasons import BAD_SUBJECT, mapping_reason

Streams = Mapping[str, StreamConfig]

_API_PREFIX = "$JS.API"
_NAME_REFUSED = frozenset(" \t\r\n\f.*>/\\")


def is_valid_name(name: str) -> bool:
    """Whether a stream or consumer may be called so, if that is not too long."""
    return bool(name) and _NAME_REFUSED.isdisjoint(name)


def with_origins(config: StreamConfig, others: Streams, pedantic: bool) -> StreamConfig:
    """The configuration with a mirror and sources that can be; a mirror's direct gets follow its origin."""
    if config.mirror is not None:
        config = _with_mirror(config, config.mirror, others, pedantic)
    if config.sources and config.allow_msg_schedules:
        raise ApiFailure(api_errors.SOURCE_WITH_MESSAGE_SCHEDULES)
    _check_sources(config, others)
    _check_prefixes(config, others)
    _check_cycles(config, others)
    return config


def check_filters(config: StreamConfig) -> None:
    """What is only asked when a stream is made: whether the filters of its origins are subjects."""
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_valid_subject(mirror.filter_subject):
        words = f"subject filter '{mirror.filter_subject}' for the mirror {BAD_SUBJECT}"
        raise ApiFailure(api_errors.stream_create(words))
    for source in config.sources:
        if source.filter_subject and not is_valid_subject(source.filter_subject):
            words = f"subject filter '{source.filter_subject}' for the source: {BAD_SUBJECT}"
            raise ApiFailure(api_errors.stream_create(words))


def _with_mirror(config: StreamConfig, mirror: StreamSource, others: Streams, pedantic: bool) -> StreamConfig:
    excluded = (
        (config.first_seq > 0, api_errors.MIRROR_WITH_FIRST_SEQUENCE),
        (bool(config.subjects), api_errors.MIRROR_WITH_SUBJECTS),
        (bool(config.sources), api_errors.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, api_errors.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, api_errors.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, api_errors.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, api_errors.MIRROR_WITH_MESSAGE_SCHEDULES),
        (_has_bad_consumer(mirror), api_errors.MIRROR_DURABLE_CONSUMER_CONFIG_INVALID),
        (
            bool(mirror.filter_subject and mirror.subject_transforms),
            api_errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED,
        ),
    )
    _refuse_first(excluded)
    if config.subject_delete_marker_ttl > 0:
        # A marker would take a sequence that the origin gives to something else.
        raise refusal("subject delete markers forbidden on mirrors")
    transforms = mirror.subject_transforms
    for position, transform in enumerate(transforms):
        if transform.src and not is_valid_subject(transform.src):
            raise ApiFailure(api_errors.mirror_invalid_subject_filter(f"{BAD_SUBJECT} {transform.src}"))
        reason = mapping_reason(transform.src, transform.dest)
        if reason is not None:
            raise ApiFailure(api_errors.mirror_invalid_transform_destination(reason))
        rest = transforms[:position] + transforms[position + 1 :]
        if any(collide(transform.src, other.src) for other in rest):
            raise ApiFailure(api_errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS)
    # A stream elsewhere may have the name of one here: those here say nothing about it.
    if mirror.external is not None:
        return config
    if not is_valid_name(mirror.name):
        raise ApiFailure(api_errors.MIRROR_INVALID_STREAM_NAME)
    origin = others.get(mirror.name)
    if origin is None:
        return config
    if 0 < config.max_msg_size < origin.max_msg_size:
        raise ApiFailure(api_errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG)
    if pedantic and config.mirror_direct != origin.allow_direct:
        words = "origin stream has direct get set, mirror has it disabled"
        raise ApiFailure(api_errors.pedantic(words))
    return replace(config, mirror_direct=origin.allow_direct)


def _has_bad_consumer(source: StreamSource) -> bool:
    """A consumer that is there already has its own start and filter."""
    consumer = source.consumer
    if consumer is None:
        return False
    subject = consumer.deliver_subject
    return (
        not is_valid_name(consumer.name)
        or not (is_valid_subject(subject) and is_literal(subject))
        or source.opt_start_seq != 0
        or source.opt_start_time is not None
        or bool(source.filter_subject)
    )


def _refuse_first(excluded: tuple[tuple[bool, ApiError], ...]) -> None:
    for is_wrong, error in excluded:
        if is_wrong:
            raise ApiFailure(error)


def _check_sources(config: StreamConfig, others: Streams) -> None:
    identities: set[tuple[str, ...]] = set()
    consumers: set[tuple[str, ...]] = set()
    for source in config.sources:
        if not is_valid_name(source.name):
            raise ApiFailure(api_errors.SOURCE_INVALID_STREAM_NAME)
        if source.identity in identities:
            raise ApiFailure(api_errors.SOURCE_DUPLICATE_DETECTED)
        identities.add(source.identity)
        _check_source_filters(source)
        if source.consumer is not None:
            if _has_bad_consumer(source):
                raise ApiFailure(api_errors.SOURCE_DURABLE_CONSUMER_CONFIG_INVALID)
            place = () if source.external is None else (source.external.api,)
            consumer = (source.name, source.consumer.name, *place)
            if consumer in consumers:
                raise ApiFailure(api_errors.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED)
            consumers.add(consumer)
        origin = others.get(source.name) if source.external is None else None
        if origin is not None and 0 < config.max_msg_size < origin.max_msg_size:
            raise ApiFailure(api_errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG)


def _check_source_filters(source: StreamSource) -> None:
    transforms = source.subject_transforms
    if source.filter_subject and transforms:
        raise ApiFailure(api_errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED)
    for transform in transforms:
        if transform.src and not is_valid_subject(transform.src):
            raise ApiFailure(api_errors.source_invalid_subject_filter(f"{BAD_SUBJECT} {transform.src}"))
        reason = mapping_reason(transform.src, transform.dest)
        if reason is not None:
            raise ApiFailure(api_errors.source_invalid_transform_destination(reason))
    for position, transform in enumerate(transforms):
        rest = transforms[:position] + transforms[position + 1 :]
        if any(is_subset(transform.src, other.src) for other in rest):
            raise ApiFailure(api_errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS)


def _check_prefixes(config: StreamConfig, others: Streams) -> None:
    """Where origins elsewhere are reached: not by way of our own API, and not into our own origins."""
    origins = ((config.mirror,) if config.mirror is not None else ()) + config.sources
    local = [others[origin.name] for origin in origins if origin.external is None and origin.name in others]
    subjects = [subject for stream in local for subject in stream.subjects]
    externals = [origin.external for origin in origins if origin.external is not None]
    for prefix in (external.deliver for external in externals if external.deliver):
        if not (is_valid_subject(prefix) and is_literal(prefix)):
            raise ApiFailure(api_errors.stream_invalid_external_delivery_subject(prefix))
        for subject in subjects:
            if collide(subject, f"{prefix}.{subject}"):
                raise ApiFailure(api_errors.stream_external_deliver_prefix_overlaps(prefix, subject))
    for prefix in (external.api for external in externals if external.api):
        if not (is_valid_subject(prefix) and is_literal(prefix)):
            shown = quote(prefix.encode())
            raise refusal(f"stream external api prefix {shown} must be a valid subject without wildcards")
        if prefix == _API_PREFIX:
            raise ApiFailure(api_errors.stream_external_api_overlap(prefix, _API_PREFIX))


def _check_cycles(config: StreamConfig, others: Streams) -> None:
    """Follows origins from stream to stream; a way back to one that was seen is a cycle, if subjects take it.

    Like nats-server it also refuses a stream that is reached by ways of different lengths.
    """
    waiting = [config]
    seen: set[str] = set()

    def follow(name: str) -> None:
        # One that waits already is not put there again: in a dense net it would be visited ever more often.
        if name in others and all(name != stream.name for stream in waiting):
            waiting.append(others[name])

    while waiting:
        stream = waiting.pop(0)
        seen.add(stream.name)
        for source in stream.sources:
            if source.external is not None:
                continue
            wanted = source.filter_subject
            if source.name not in seen:
                follow(source.name)
            elif not wanted or any(collide(subject, wanted) for subject in stream.subjects):
                raise refusal("detected cycle")
        mirror = stream.mirror
        if mirror is not None and mirror.external is None:
            if mirror.name in seen:
                raise refusal("detected cycle")
            follow(mirror.name)
