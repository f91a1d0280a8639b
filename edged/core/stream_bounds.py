"""What the server and the account allow a stream to be, and what its neighbours have taken of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.stream_config import StreamConfig

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """Limits as they apply to one request. What is not limited is -1, or 0 where that cannot be a limit.

    `tiered` tells that the account's limits are those of one replica count: streams with another one are not
    counted, and replicas are not multiplied. The `reserved` of the server are sums over all accounts.
    """

    # Whether more than one replica can be had at all.
    is_clustered: bool = False
    duplicate_window_max_ns: int = 0
    # Of the account.
    streams_max: int = -1
    consumers_max: int = -1
    file_bytes_max: int = -1
    memory_bytes_max: int = -1
    file_stream_bytes_max: int = 0
    memory_stream_bytes_max: int = 0
    max_bytes_required: bool = False
    tiered: bool = False
    # Whether there are no limits for this replica count, so that there can be no stream.
    is_forbidden: bool = False
    # Of the server.
    server_file_bytes_max: int = INT64_MAX
    server_memory_bytes_max: int = INT64_MAX
    server_file_bytes_reserved: int = 0
    server_memory_bytes_reserved: int = 0


def check_room_for_one(config: StreamConfig, bounds: StreamBounds, others: Iterable[StreamConfig]) -> None:
    """That the account may have one stream more, and that there is room for it. `others` are without it."""
    if (
        bounds.streams_max > 0
        and sum(_counts(config, other, bounds) for other in others) >= bounds.streams_max
    ):
        raise ApiFailure(api_errors.MAXIMUM_STREAMS_LIMIT)
    check_room(config, config.max_bytes, bounds, _reserved(config, bounds, others))


def check_room_for_change(
    old: StreamConfig, new: StreamConfig, bounds: StreamBounds, others: Iterable[StreamConfig]
) -> None:
    """That there is room for what the new configuration wants more than the old one."""
    more = max(0, max(new.max_bytes, 0) - max(old.max_bytes, 0))
    kept = _reservation(new, new.max_bytes - more, bounds)
    check_room(new, more, bounds, _reserved(new, bounds, others) + kept)


def check_room(config: StreamConfig, wanted_bytes: int, bounds: StreamBounds, reserved_bytes: int) -> None:
    """That `wanted_bytes` more fit; a stream without a limit wants one byte: a full store refuses it too."""
    if bounds.is_forbidden:
        raise ApiFailure(api_errors.NO_LIMITS)
    if 0 < bounds.consumers_max < config.max_consumers:
        raise ApiFailure(api_errors.MAXIMUM_CONSUMERS_LIMIT)
    if wanted_bytes < 0:
        wanted_bytes = 1
    if config.storage == "memory":
        account_max = bounds.memory_bytes_max
        server_max, server_reserved = bounds.server_memory_bytes_max, bounds.server_memory_bytes_reserved
        error = api_errors.MEMORY_RESOURCES_EXCEEDED
    else:
        account_max = bounds.file_bytes_max
        server_max, server_reserved = bounds.server_file_bytes_max, bounds.server_file_bytes_reserved
        error = api_errors.STORAGE_RESOURCES_EXCEEDED
    if account_max >= 0 and reserved_bytes + _reservation(config, wanted_bytes, bounds) > account_max:
        raise ApiFailure(error)
    if server_reserved + wanted_bytes > server_max:
        raise ApiFailure(error)


def check_stream_bytes(config: StreamConfig, bounds: StreamBounds) -> None:
    """That the stream has a limit in bytes if it must, and not too high a one."""
    if bounds.max_bytes_required and config.max_bytes <= 0:
        raise ApiFailure(api_errors.STREAM_MAX_BYTES_REQUIRED)
    in_memory = config.storage == "memory"
    limit = bounds.memory_stream_bytes_max if in_memory else bounds.file_stream_bytes_max
    if 0 < limit < config.max_bytes:
        raise ApiFailure(api_errors.STREAM_MAX_STREAM_BYTES_EXCEEDED)


def _counts(config: StreamConfig, other: StreamConfig, bounds: StreamBounds) -> bool:
    if other.name == config.name:
        return False
    return not bounds.tiered or max(other.num_replicas, 1) == max(config.num_replicas, 1)


def _reserved(config: StreamConfig, bounds: StreamBounds, others: Iterable[StreamConfig]) -> int:
    """What the other streams of the account with the same storage may take."""
    return sum(
        _reservation(other, other.max_bytes, bounds)
        for other in others
        if other.storage == config.storage and _counts(config, other, bounds)
    )


def _reservation(config: StreamConfig, wanted_bytes: int, bounds: StreamBounds) -> int:
    replicas = 1 if bounds.tiered else max(config.num_replicas, 1)
    return max(wanted_bytes, 0) * replicas
