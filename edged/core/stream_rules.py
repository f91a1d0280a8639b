"""Which configurations a stream may have, and what it has where the request says nothing.

`check_create` takes a configuration as it was requested and gives the one that the stream gets, or refuses
it. `others` are the streams of the account by name; one of the same name is what a repeated request is held
against. Updates are in `stream_update_rules`, which asks `checked` what concerns the new configuration alone.

Rules: everything is asked in nats-server's order, so that a request with several faults is refused for the
same one. A pedantic request is refused where another one would be adjusted. Nothing is changed in place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.dead_letter_rules import check_dead_letter
from edged.core.gotime import MILLISECOND, MINUTE, SECOND, format_duration
from edged.core.stream_bounds import StreamBounds, check_room_for_one, check_stream_bytes
from edged.core.stream_config import Placement, StreamConfig
from edged.core.stream_origin_rules import Streams, check_filters, is_valid_name, with_origins
from edged.core.stream_subject_rules import (
    check_subject_transform,
    overlaps_any,
    refusal,
    with_republish,
    with_subjects,
)

NAME_BYTES_MAX = 255
DESCRIPTION_BYTES_MAX = 4 * 1024
METADATA_BYTES_MAX = 128 * 1024
REPLICAS_MAX = 5
MAX_AGE_MIN_NS = 100 * MILLISECOND
DUPLICATE_WINDOW_MIN_NS = 100 * MILLISECOND
DUPLICATE_WINDOW_DEFAULT_NS = 2 * MINUTE
MARKER_TTL_MIN_NS = SECOND

API_LEVEL = 5
REQUIRED_LEVEL_KEY = "_nats.req.level"
VERSION_KEY = "_nats.ver"
LEVEL_KEY = "_nats.level"

# Zero and less mean no limit, which is written -1. In this order.
_LIMITS = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def check_create(
    config: StreamConfig,
    bounds: StreamBounds,
    others: Streams,
    *,
    pedantic: bool = False,
    subject_name: str | None = None,
) -> StreamConfig:
    """The configuration of the stream to make, or of the one that is there and is just like it.

    `subject_name` is the name in the subject of the request; None when there is no such subject.
    """
    config = with_level(config)
    if subject_name is not None and subject_name != config.name:
        raise ApiFailure(api_errors.STREAM_MISMATCH)
    if "/" in config.name or "\\" in config.name:
        raise ApiFailure(api_errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS)
    if config.sealed:
        raise refusal("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise refusal("stream has no mirror but does have mirror direct")
    check_room_for_one(config, bounds, others.values())
    config = checked(config, bounds, others, pedantic)
    if config.num_replicas > 1 and not bounds.is_clustered:
        raise ApiFailure(api_errors.STREAM_REPLICAS_NOT_SUPPORTED)
    existing = others.get(config.name)
    if existing is not None:
        return _same_or_refused(config, existing)
    check_room_for_one(config, bounds, others.values())
    check_filters(config)
    check_against(config, others)
    return config


def check_against(config: StreamConfig, others: Streams) -> None:
    """That no other stream captures its subjects. The rest that depends on others is asked in `checked`."""
    if overlaps_any(config.subjects, (other for other in others.values() if other.name != config.name)):
        raise ApiFailure(api_errors.STREAM_SUBJECT_OVERLAP)


def checked(config: StreamConfig, bounds: StreamBounds, others: Streams, pedantic: bool) -> StreamConfig:
    """The configuration with its defaults, if its values can be and go together."""
    _check_texts(config)
    config = _with_limits(config, pedantic)
    config = _with_duplicate_window(config, bounds, pedantic)
    if config.deny_purge and config.allow_rollup_hdrs:
        raise refusal("roll-ups require the purge permission")
    _check_counter(config)
    check_discard_new_per_subject(config)
    config = _with_markers(config, pedantic)
    config = _with_schedules(config, pedantic)
    _check_persist_mode(config)
    config = with_origins(config, others, pedantic)
    config = with_subjects(config)
    check_stream_bytes(config, bounds)
    check_subject_transform(config)
    config = with_republish(config, pedantic)
    if config.placement == Placement():
        config = replace(config, placement=None)
    if config.placement is not None and config.placement.preferred:
        raise refusal("preferred server not permitted in placement")
    check_dead_letter(config, others)
    return config


def with_level(config: StreamConfig) -> StreamConfig:
    """With the API level in its metadata that a server must have for it, and without what answers add."""
    level = 0
    if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0:
        level = 1
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules:
        level = 2
    if config.persist_mode == "async":
        level = 2
    if config.allow_batched:
        level = 4
    kept = {key: value for key, value in config.metadata.items() if key not in (VERSION_KEY, LEVEL_KEY)}
    return replace(config, metadata={**kept, REQUIRED_LEVEL_KEY: str(level)})


def with_server(config: StreamConfig, version: str) -> StreamConfig:
    """As answers show it: with the version and the API level of this server in the metadata."""
    added = {VERSION_KEY: version, LEVEL_KEY: str(API_LEVEL)}
    return replace(config, metadata={**config.metadata, **added})


def _same_or_refused(config: StreamConfig, existing: StreamConfig) -> StreamConfig:
    """A request that is repeated succeeds. The level is not compared: it is not the client who sets it."""
    metadata = {key: value for key, value in config.metadata.items() if key != REQUIRED_LEVEL_KEY}
    if REQUIRED_LEVEL_KEY in existing.metadata:
        metadata[REQUIRED_LEVEL_KEY] = existing.metadata[REQUIRED_LEVEL_KEY]
    if replace(config, metadata=metadata) != existing:
        raise ApiFailure(api_errors.STREAM_NAME_EXIST)
    return existing


def _check_texts(config: StreamConfig) -> None:
    if not is_valid_name(config.name):
        raise refusal("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > NAME_BYTES_MAX:
        raise refusal(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise refusal(f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}")
    metadata_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items())
    if metadata_bytes > METADATA_BYTES_MAX:
        raise refusal(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")


def _with_limits(config: StreamConfig, pedantic: bool) -> StreamConfig:
    if config.num_replicas > REPLICAS_MAX:
        raise refusal(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise ApiFailure(api_errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    changed: dict[str, Any] = {"num_replicas": config.num_replicas or 1}
    for name in _LIMITS:
        limit: int = getattr(config, name)
        if limit < -1 and pedantic:
            raise ApiFailure(api_errors.pedantic(f"{name} must be set to -1"))
        changed[name] = limit if limit > 0 else -1
    if config.max_age < 0:
        raise refusal("max age can not be negative")
    if 0 < config.max_age < MAX_AGE_MIN_NS:
        raise refusal("max age needs to be >= 100ms")
    return replace(config, **changed)


def _with_duplicate_window(config: StreamConfig, bounds: StreamBounds, pedantic: bool) -> StreamConfig:
    window, limit = config.duplicate_window, bounds.duplicate_window_max_ns
    if window == 0 and config.mirror is None and not config.sources:
        window = DUPLICATE_WINDOW_DEFAULT_NS
        if 0 < limit < window:
            if pedantic:
                raise ApiFailure(
                    api_errors.pedantic("duplicate window limits are higher than current limits")
                )
            window = limit
        if 0 < config.max_age < window:
            if pedantic:
                raise ApiFailure(api_errors.pedantic("duplicate window cannot be bigger than max age"))
            window = config.max_age
    if window < 0:
        raise refusal("duplicates window can not be negative")
    if 0 < config.max_age < window:
        raise refusal("duplicates window can not be larger then max age")
    if 0 < limit < window:
        shown = format_duration(limit)
        raise refusal(f"duplicates window can not be larger then server limit of {shown}")
    if 0 < window < DUPLICATE_WINDOW_MIN_NS:
        raise refusal("duplicates window needs to be >= 100ms")
    return replace(config, duplicate_window=window)


def _check_counter(config: StreamConfig) -> None:
    if not config.allow_msg_counter:
        return
    if config.discard == "new":
        raise refusal("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise refusal("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise refusal("counter stream cannot use message schedules")
    if config.retention != "limits":
        raise refusal("counter stream can only use limits retention")


def check_discard_new_per_subject(config: StreamConfig) -> None:
    """That the stream has what makes a subject full."""
    if not config.discard_new_per_subject:
        return
    if config.discard != "new":
        raise refusal("discard new per subject requires discard new policy to be set")
    if config.max_msgs_per_subject <= 0:
        raise refusal("discard new per subject requires max msgs per subject > 0")


def _with_markers(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """Delete markers have a TTL and replace what was there, so both must be allowed."""
    ttl_ns = config.subject_delete_marker_ttl
    if ttl_ns < 0:
        raise refusal("subject delete marker TTL must not be negative")
    if ttl_ns == 0:
        return config
    if ttl_ns < MARKER_TTL_MIN_NS:
        raise refusal("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            raise refusal("subject delete marker cannot be set if message TTLs are disabled")
        config = replace(config, allow_msg_ttl=True)
    if not config.allow_rollup_hdrs and pedantic:
        raise refusal("subject delete marker cannot be set if roll-ups are disabled")
    return _with_rollup(config)


def _with_schedules(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """A schedule is replaced by its next state, so that roll-ups must be allowed."""
    if not config.allow_msg_schedules:
        return config
    if config.discard == "new":
        raise refusal("message scheduling cannot use discard new")
    if not config.allow_rollup_hdrs and pedantic:
        raise refusal("message scheduling cannot be set if roll-ups are disabled")
    return _with_rollup(config)


def _with_rollup(config: StreamConfig) -> StreamConfig:
    return config if config.allow_rollup_hdrs else replace(config, allow_rollup_hdrs=True, deny_purge=False)


def _check_persist_mode(config: StreamConfig) -> None:
    if config.persist_mode != "async":
        return
    if config.storage != "file":
        raise refusal("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise refusal("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise refusal("async persist mode is not supported with atomic batch publish")
