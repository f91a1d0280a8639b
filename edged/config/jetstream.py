"""The jetstream{} block.

Rules: JetStream is on when the key says so (true, enabled) or has a block that does not say otherwise. Sizes
in quotes count in powers of 1024, others as their suffix says. sync names how durable an acknowledgement is;
see JetStreamOptions for why the default differs from nats-server.
"""

import re

from edged.config.document import ConfigError, Value
from edged.config.options import JetStreamLimits, JetStreamOptions
from edged.config.readers import (
    boolean,
    choice,
    duration,
    go_duration,
    integer,
    size,
    size_from_zero,
    text,
    text_duration,
)
from edged.config.table import Context, Table, key, read_block


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
        key("duplicate_window", text_duration, "duplicate_window_s"),
        key("batch", _batch, None, block=BATCH),
    ),
)


def _limits(context: Context, value: Value, name: str) -> JetStreamLimits:
    return JetStreamLimits(**read_block(context, value, LIMITS, name))


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
        key("meta_compact", integer()),
        key("meta_compact_size", size_from_zero),
        key("meta_compact_sync", boolean),
        key("max_concurrent_io", integer(4, 8192)),
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
