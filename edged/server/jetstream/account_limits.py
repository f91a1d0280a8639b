"""What an account may have in JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.config.options import AccountJetStream
from edged.core.consumer_defaults import CONSUMERS_DEFAULT_MAX, ConsumerBounds
from edged.core.stream_bounds import INT64_MAX, StreamBounds
from edged.server.jetstream.figures import reserved_bytes

if TYPE_CHECKING:
    from edged.server.jetstream.account_streams import AccountStreams

Document = dict[str, Any]
_NO_LIMITS = AccountJetStream()
# What is shown as the limits of an account that has them by number of replicas.
NOTHING = AccountJetStream(0, 0, 0, 0, 0, 0, 0)


def limits_of(account: AccountStreams) -> AccountJetStream:
    """The limits of an account."""
    return account.account.options.jetstream or _NO_LIMITS


def keep_limits(account: AccountStreams) -> None:
    """Let the store keep to the limits of an account."""
    limits, room = limits_of(account), account.jetstream.store.room
    room.disk.set_bytes_max(account.account.name, limits.max_store)
    room.memory.set_bytes_max(account.account.name, limits.max_memory)


def bounds_of(account: AccountStreams, replicas: int) -> StreamBounds:
    """What the configuration of a stream with so many replicas may ask for."""
    limits = limits_of(account)
    tiers = dict(account.account.options.jetstream_tiers)
    tier = f"R{max(replicas, 1)}"
    limits = tiers.get(tier, limits)
    jetstream = account.jetstream
    is_clustered = jetstream.cluster is not None
    # Whether a node of a cluster has room is asked when a place is looked for.
    memory_bytes, file_bytes = (0, 0) if is_clustered else reserved_bytes(jetstream.streams())
    return StreamBounds(
        is_clustered=is_clustered,
        duplicate_window_max_ns=int(jetstream.options.limits.duplicate_window_s * 1e9),
        streams_max=limits.max_streams,
        consumers_max=limits.max_consumers,
        file_bytes_max=limits.max_store,
        memory_bytes_max=limits.max_memory,
        file_stream_bytes_max=max(limits.store_max_stream_bytes, 0),
        memory_stream_bytes_max=max(limits.memory_max_stream_bytes, 0),
        max_bytes_required=limits.max_bytes_required,
        tiered=bool(tiers),
        is_forbidden=bool(tiers) and tier not in tiers,
        server_file_bytes_max=INT64_MAX if is_clustered else jetstream.options.max_store,
        server_memory_bytes_max=INT64_MAX if is_clustered else jetstream.options.max_memory,
        server_file_bytes_reserved=file_bytes,
        server_memory_bytes_reserved=memory_bytes,
    )


def consumer_bounds(account: AccountStreams, replicas: int) -> ConsumerBounds:
    """What the configuration of a consumer may ask for, of a stream with so many replicas."""
    tiers = dict(account.account.options.jetstream_tiers)
    tier = f"R{max(replicas, 1)}"
    limits = tiers.get(tier, limits_of(account))
    of_server = account.jetstream.options.limits
    return ConsumerBounds(
        is_clustered=account.jetstream.cluster is not None,
        ack_pending_max=of_server.max_ack_pending,
        request_batch_max=of_server.max_request_batch,
        default_consumers_max=of_server.default_max_consumers or CONSUMERS_DEFAULT_MAX,
        account_ack_pending_max=limits.max_ack_pending,
        account_consumers_max=limits.max_consumers,
        is_forbidden=bool(tiers) and tier not in tiers,
    )


def limits_document(limits: AccountJetStream) -> Document:
    """Limits as the API shows them."""
    return {
        "max_memory": limits.max_memory,
        "max_storage": limits.max_store,
        "max_streams": limits.max_streams,
        "max_consumers": limits.max_consumers,
        "max_ack_pending": limits.max_ack_pending,
        "memory_max_stream_bytes": limits.memory_max_stream_bytes,
        "storage_max_stream_bytes": limits.store_max_stream_bytes,
        "max_bytes_required": limits.max_bytes_required,
    }
