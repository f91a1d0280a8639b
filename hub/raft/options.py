"""How patient a node is, and how much it sends ahead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Times in ms of a clock that only goes forward; nothing that is promised depends on its being right."""

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
