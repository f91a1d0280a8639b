"""The jetstream{} block.

Rules: JetStream is on when the key says so (true, enabled) or has a block that does not say otherwise. Sizes
in quotes count in powers of 1024, others as their suffix says. sync names how durable an acknowledgement is;
see JetStreamOptions for why the default differs from nats-server.
"""

import re
from collections.abc import Callable

from edged.config.document import ConfigError, Value
from edged.config.jetstream_options import (
    JetStreamLimits,
    JetStreamOptions,
    SegmentOptions,
    ShedClass,
    ShedOptions,
)
from edged.config.readers import (
    boolean,
    choice,
    duration,
    go_duration,
    integer,
    percent,
    required_text,
    size,
    size_between,
    size_from_zero,
    text,
    text_duration,
    text_map,
    texts,
)
from edged.config.table import Context, Reader, Table, items_of, key, read_block

_META_COMPACT = "the list of streams is written with every checkpoint"
_KIB = 1024
_MIB = 1024 * 1024


def _sync(context: Context, value: Value, name: str) -> dict[str, object]:
    """always, os, or how often; as in nats-server an interval may be a number of seconds."""
    word = value.data.lower() if isinstance(value.data, str) else ""
    if word in ("always", "os"):
        return {"sync": word}
    words = word.split()
    if len(words) == 2 and words[0] == "interval":
        value = Value(words[1], value.position)
    interval_s = duration(context, value, name)
    if interval_s == 0:
        raise ConfigError(f'{name}: expected always, os, or an interval such as "2s"', value.position)
    return {"sync": "interval", "sync_interval_s": interval_s}


def _group_commit_delay(_context: Context, value: Value, name: str) -> float | None:
    return None if value.data == "auto" else go_duration(value, name)


def _without_effect(read: Reader, reason: str) -> Reader:
    """A key of nats-server for something that edged does otherwise: its value is checked all the same."""

    def checked(context: Context, value: Value, name: str) -> dict[str, object]:
        read(context, value, name)
        context.warn(f"{name} has no effect: {reason}", value.position)
        return {}

    return checked


def _domain(context: Context, value: Value, name: str) -> str | None:
    found = text(context, value, name)
    if found is not None and re.search("[ \\t\\r\\n\\f.*>]", found):
        raise ConfigError(f"{name}: a domain is one word without '.', '*', '>' and blanks", value.position)
    return found


def _tag(context: Context, value: Value, name: str) -> str | None:
    return (text(context, value, name) or "").strip().lower() or None


BATCH = Table(
    "jetstream.limits.batch",
    (
        key("max_inflight_per_stream", integer(), "batch_max_inflight_per_stream"),
        key("max_inflight_total", integer(), "batch_max_inflight_total"),
        key("max_msgs", integer(), "batch_max_messages"),
        key("timeout", text_duration, "batch_timeout_s"),
    ),
)


def _batch(context: Context, value: Value, name: str) -> dict[str, object]:
    return read_block(context, value, BATCH, name)


LIMITS = Table(
    "jetstream.limits",
    (
        key("max_ack_pending", integer()),
        key("max_ha_assets", integer()),
        key("max_request_batch", integer()),
        key("default_max_consumers", integer(-1)),
        key("duplicate_window", text_duration, "duplicate_window_s"),
        key("batch", _batch, None, block=BATCH),
    ),
)


def _limits(context: Context, value: Value, name: str) -> JetStreamLimits:
    return JetStreamLimits(**read_block(context, value, LIMITS, name))


def _or_auto(read: Callable[[Context, Value, str], int]) -> Callable[[Context, Value, str], int | None]:
    """The word auto, or what is read."""

    def read_or_auto(context: Context, value: Value, name: str) -> int | None:
        return None if value.data == "auto" else read(context, value, name)

    return read_or_auto


SEGMENT = Table(
    "jetstream.segment",
    (
        key("block_size", size_between(4 * _KIB, _MIB), "block_bytes"),
        key("compression_level", integer(1, 19)),
        key("size_max", size_between(_MIB, 1024 * _MIB), "bytes_max"),
        key("live_min", percent, "live_percent_min"),
    ),
)


def _segment(context: Context, value: Value, name: str) -> SegmentOptions:
    return SegmentOptions(**read_block(context, value, SEGMENT, name))


SHED_CLASS = Table(
    "jetstream.shed.classes",
    (
        key("name", required_text),
        key("streams", texts),
        key("metadata", text_map),
        key("accounts", texts),
        key("order", integer()),
        key("may_shed", boolean),
        key("synced_only", boolean),
    ),
)


def _shed_classes(context: Context, value: Value, name: str) -> tuple[ShedClass, ...]:
    found: dict[str, ShedClass] = {}
    for position, item in enumerate(items_of(value, name)):
        fields = {"order": position, **read_block(context, item, SHED_CLASS, name)}
        if "name" not in fields:
            raise ConfigError(f"{name}: a class needs a name", item.position)
        one = ShedClass(**fields)
        if one.name in found:
            raise ConfigError(f"{name}: class {one.name!r} is there twice", item.position)
        if not one.streams and not one.metadata:
            message = f"{name}: class {one.name!r} needs streams or metadata that say what is in it"
            raise ConfigError(message, item.position)
        if one.synced_only and not one.may_shed:
            message = f"{name}: class {one.name!r} is synced_only, which means nothing without may_shed"
            raise ConfigError(message, item.position)
        found[one.name] = one
    return tuple(found.values())


SHED = Table(
    "jetstream.shed",
    (
        key("start", percent, "start_percent"),
        key("stop", percent, "stop_percent"),
        key("classes", _shed_classes, block=SHED_CLASS),
    ),
)


def _shed(context: Context, value: Value, name: str) -> ShedOptions:
    options = ShedOptions(**read_block(context, value, SHED, name))
    if options.stop_percent >= options.start_percent:
        raise ConfigError(f"{name}: stop must be less than start", value.position)
    return options


JETSTREAM = Table(
    "jetstream",
    (
        key("enabled enable", boolean),
        key("store_dir storedir store", text),
        key("max_memory_store max_mem_store max_mem", size, "max_memory"),
        key("max_file_store max_file", size, "max_store"),
        key("domain", _domain),
        key("sync sync_interval", _sync, None),
        key("group_commit_delay", _group_commit_delay, "group_commit_delay_s"),
        key("group_commit_bytes", integer(minimum=4096)),
        key("free_space_min", size_from_zero),
        key("reserve", _or_auto(size_from_zero), "reserve_bytes"),
        key("shed", _shed, block=SHED),
        key("journal_file_size", _or_auto(size_between(_MIB, 1024 * _MIB)), "journal_file_bytes"),
        key("segment", _segment, block=SEGMENT),
        key("block_cache_size", size_from_zero, "block_cache_bytes"),
        key("key ek encryption_key", text),
        key("prev_key prev_ek prev_encryption_key", text),
        key("cipher", choice(chachapoly="chacha", aes="")),
        key("strict", boolean),
        key("unique_tag", _tag),
        key("extension_hint", text),
        key("limits", _limits, block=LIMITS),
        key("max_buffered_msgs", integer(), "max_buffered_messages"),
        key("max_buffered_size", size_from_zero),
        key("request_queue_limit", integer(), zero_is_default=True),
        key("info_queue_limit", integer(), zero_is_default=True),
        key("max_outstanding_catchup", size_from_zero),
        key("meta_compact", _without_effect(integer(), _META_COMPACT), None),
        key("meta_compact_size", _without_effect(size_from_zero, _META_COMPACT), None),
        key("meta_compact_sync", _without_effect(boolean, _META_COMPACT), None),
        key("max_concurrent_io", _without_effect(integer(4, 8192), "one thread writes, one seals"), None),
    ),
    refused={"tpm": "edged takes its encryption key from key, not from a TPM"},
)


def jetstream(context: Context, value: Value, name: str) -> JetStreamOptions | None:
    data = value.data
    if isinstance(data, bool):
        return JetStreamOptions() if data else None
    if isinstance(data, str):
        if data.lower() not in ("enabled", "enable", "disabled", "disable"):
            raise ConfigError(f"{name}: expected enabled, disabled, or a block", value.position)
        return JetStreamOptions() if data.lower().startswith("enable") else None
    fields = read_block(context, value, JETSTREAM, name)
    enabled = fields.pop("enabled", True)
    # nats-server takes the general limit for the other queue when only that is given.
    if "request_queue_limit" in fields:
        fields.setdefault("info_queue_limit", fields["request_queue_limit"])
    return JetStreamOptions(**fields) if enabled else None
