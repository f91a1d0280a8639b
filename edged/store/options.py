"""How a store works, and how durable the acknowledgements of a stream are."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from edged.config.jetstream_options import JetStreamOptions, SegmentOptions, ShedOptions
from edged.core.space_rules import (
    JOURNAL_FILE_BYTES_MAX,
    SpaceLimits,
    journal_file_bytes_default,
    reserve_bytes_default,
)
from edged.store.box import Keyring
from edged.store.sealed_frames import TAG_BYTES

SYNC_ALWAYS: Final = "always"
SYNC_INTERVAL: Final = "interval"
SYNC_OS: Final = "os"
SYNC_METADATA: Final = "edged.sync"
"""A stream's own mode, in its metadata: always, interval or os."""

NO_LIMITS: Final = SpaceLimits(reserve_bytes=0)
NOTHING_TO_SHED: Final = ShedOptions()
USUAL_SEGMENTS: Final = SegmentOptions()


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """See jetstream{} in edged.conf.example. `now_ns` and `draw_nonce` are the store's clock and chance."""

    journal_file_bytes: int = JOURNAL_FILE_BYTES_MAX
    sync: str = SYNC_ALWAYS
    sync_interval_ns: int = 2_000_000_000
    # How long, and up to how many bytes, a batch gathers although the disk is free. With 0 it is written at
    # once, and only what comes while the disk works is gathered.
    group_commit_delay_ns: int = 0
    group_commit_bytes: int = 1024 * 1024
    space: SpaceLimits = NO_LIMITS
    shed: ShedOptions = NOTHING_TO_SHED
    segment: SegmentOptions = USUAL_SEGMENTS
    memory_bytes_max: int = -1
    keys: Keyring | None = None
    tail_bytes: int = 8 * 1024 * 1024
    cache_bytes: int = 16 * 1024 * 1024
    now_ns: Callable[[], int] = time.time_ns
    draw_nonce: Callable[[], int] = field(default=lambda: random.SystemRandom().randrange(1, 1 << 64) | 1)

    @classmethod
    def of(cls, options: JetStreamOptions) -> StoreOptions:
        """What the configuration says."""
        reserve_bytes = options.reserve_bytes
        if reserve_bytes is None:
            reserve_bytes = reserve_bytes_default(options.max_store)
        journal_file_bytes = options.journal_file_bytes
        if journal_file_bytes is None:
            journal_file_bytes = journal_file_bytes_default(options.max_store)
        return cls(
            journal_file_bytes=journal_file_bytes,
            sync=options.sync,
            sync_interval_ns=int(options.sync_interval_s * 1e9),
            group_commit_delay_ns=int((options.group_commit_delay_s or 0) * 1e9),
            group_commit_bytes=options.group_commit_bytes,
            space=SpaceLimits(options.max_store, options.free_space_min, reserve_bytes),
            shed=options.shed,
            segment=options.segment,
            memory_bytes_max=options.max_memory,
            keys=Keyring.read(options.key, options.prev_key, options.cipher),
            cache_bytes=options.block_cache_bytes,
        )

    @property
    def tag_bytes(self) -> int:
        """What encryption adds to a record in the journal."""
        return TAG_BYTES if self.keys is not None and self.keys.current is not None else 0

    def sync_of(self, config: dict[str, Any]) -> str:
        """The mode of a stream: its own, or that of the store."""
        own = (config.get("metadata") or {}).get(SYNC_METADATA)
        if own in (SYNC_ALWAYS, SYNC_INTERVAL, SYNC_OS):
            return str(own)
        if config.get("persist_mode") == "async" and self.sync == SYNC_ALWAYS:
            return SYNC_INTERVAL
        return self.sync
