"""How much may be open at a time of atomic and fast batches, and how much is.

Rules: a batch is counted from its first message until it is committed, abandoned or ended; whoever opens one
closes it. The limits on open batches are refusals that clients see; the bound on bytes keeps what waits for a
commit out of the way of everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

BATCH_ID_BYTES_MAX: Final = 64
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one server. `api_level` is the highest that a member may require."""

    api_level: int
    atomic_messages_max: int = 1000
    atomic_per_stream_max: int = 50
    atomic_per_server_max: int = 1000
    fast_per_stream_max: int = 1000
    fast_per_server_max: int = 50_000
    idle_ns: int = 10 * _SECOND_NS
    # What is staged in memory, of all batches of the server. A batch that would exceed it is given up.
    staged_bytes_max: int = 64 * 1024 * 1024

    def configured(
        self, per_stream_max: int, per_server_max: int, messages_max: int, idle_ns: int
    ) -> BatchLimits:
        """These limits with what `jetstream.limits.batch` sets, 0 being not set; two are for both kinds."""
        return replace(
            self,
            atomic_messages_max=messages_max or self.atomic_messages_max,
            atomic_per_stream_max=per_stream_max or self.atomic_per_stream_max,
            atomic_per_server_max=per_server_max or self.atomic_per_server_max,
            fast_per_stream_max=per_stream_max or self.fast_per_stream_max,
            fast_per_server_max=per_server_max or self.fast_per_server_max,
            idle_ns=idle_ns or self.idle_ns,
        )


class OpenBatches:
    """What is open on one server, over all its streams."""

    __slots__ = ("atomic", "fast", "staged_bytes")

    def __init__(self) -> None:
        self.atomic = 0
        self.fast = 0
        self.staged_bytes = 0


def api_level_missing(required: bytes | None, api_level: int) -> bool:
    """Whether `Nats-Required-Api-Level` asks for more than there is, or for something that is no level."""
    if not required:
        return False
    sign = required[:1] in (b"+", b"-")
    digits = required[1:] if sign else required
    if not digits.isdigit() or len(digits) > 18:
        return True
    return required[:1] != b"-" and int(digits) > api_level
