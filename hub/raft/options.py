"""How patient a node is, and how much it sends ahead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Times in ms of a clock that only goes forward.

    What is promised of the log does not depend on its being right. A lease does: it holds as long as clocks
    do not run apart by more than a fifth.
    """

    # Who hears nothing of a leader for a time drawn between once and twice this holds an election.
    election_ms: int = 1000
    heartbeat_ms: int = 200
    # A group in which nothing happened for so many heartbeats falls quiet; 0: never.
    quiet_beats: int = 5
    # What one message carries at most, but for a single entry that is larger.
    append_bytes_max: int = 1024 * 1024
    # What may be under way to one follower; when it is reached, the next reply sends more.
    inflight_bytes_max: int = 8 * 1024 * 1024
    inflight_messages_max: int = 64
    snapshot_part_bytes: int = 256 * 1024
    snapshot_parts_max: int = 8

    @property
    def promise_ms(self) -> int:
        """How long a node that heard of the leader helps nobody else to lead."""
        return self.election_ms // 2

    @property
    def lease_ms(self) -> int:
        """For how long a leader counts on that, from when it sent what was answered."""
        return self.promise_ms * 4 // 5
