"""The jetstream{} block as typed, frozen values.

The rules are those of options.py: every default once, here; durations are seconds, sizes are bytes; secrets
are left out of repr(). What a comment calls "edged only" is a key that nats-server does not have.
"""

from dataclasses import dataclass, field

_KIB = 1024
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class JetStreamLimits:
    """jetstream.limits: bounds on what clients may ask for; 0 means nats-server's default."""

    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_request_batch: int = 0
    default_max_consumers: int = 0  # of a stream that does not say how many it may have
    duplicate_window_s: float = 0.0
    batch_max_inflight_per_stream: int = 0
    batch_max_inflight_total: int = 0
    batch_max_messages: int = 0
    batch_timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """jetstream.segment: how messages are kept that outlive their journal file. edged only."""

    block_bytes: int = 64 * _KIB  # compressed, checked and read as one
    compression_level: int = 3  # of zstd
    bytes_max: int = 64 * _MIB  # small neighbours are merged up to this
    live_percent_min: int = 50  # with less of it alive, a segment is rewritten without its dead


@dataclass(frozen=True, slots=True)
class ShedClass:
    """One entry of jetstream.shed.classes: which streams, and when their oldest messages may go.

    A stream is in the class when one of the patterns (* and ? stand for any characters) matches its name, or
    when its metadata has all of these entries. accounts () means every account. Streams in a class that may
    not shed never lose anything, whatever other class they are in.
    """

    name: str
    streams: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    accounts: tuple[str, ...] = ()
    order: int = 0  # lower goes first
    may_shed: bool = True
    synced_only: bool = False  # only messages that the hub has confirmed


@dataclass(frozen=True, slots=True)
class ShedOptions:
    """jetstream.shed: which messages make room when the store fills up. Without classes none. edged only."""

    start_percent: int = 90  # of what the store may use
    stop_percent: int = 80
    classes: tuple[ShedClass, ...] = ()


@dataclass(frozen=True, slots=True)
class JetStreamOptions:
    """The jetstream{} block when JetStream is on.

    sync differs from nats-server on purpose: "always" (an acknowledged message is on disk) is the default
    here, where nats-server syncs every two minutes. "interval" and "os" are weaker modes, chosen by name.
    """

    store_dir: str | None = None  # None: a directory under the system's temporary one, as nats-server
    max_memory: int = -1  # -1: three quarters of the memory
    max_store: int = -1  # -1: three quarters of the free disk
    domain: str | None = None
    sync: str = "always"  # "always", "interval" or "os"
    sync_interval_s: float = 120.0  # used by sync "interval" only
    group_commit_delay_s: float | None = None  # edged only; None adapts to the measured sync time
    group_commit_bytes: int = _MIB  # edged only
    free_space_min: int = 64 * _MIB  # edged only: bytes left on the disk below which writes are refused
    reserve_bytes: int | None = None  # edged only; None is 1% of max_store, at least 1 MiB, at most 64 MiB
    journal_file_bytes: int | None = None  # edged only; None is 1/32 of max_store, from 1 to 32 MiB
    block_cache_bytes: int = 16 * _MIB  # edged only
    segment: SegmentOptions = SegmentOptions()
    shed: ShedOptions = ShedOptions()
    key: str | None = field(default=None, repr=False)
    prev_key: str | None = field(default=None, repr=False)
    cipher: str = "chachapoly"  # or "aes"
    strict: bool = True
    unique_tag: str | None = None
    extension_hint: str | None = None
    limits: JetStreamLimits = JetStreamLimits()
    max_buffered_messages: int = 0
    max_buffered_size: int = 0
    request_queue_limit: int = 10_000
    info_queue_limit: int = 10_000
    max_outstanding_catchup: int = 0
