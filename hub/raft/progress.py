"""What a leader knows of one follower, and how much it has sent ahead.

A follower whose log is not known is probed with one message at a time; one that agreed gets everything at
once, within a window; one that lacks what the leader no longer has gets a snapshot, in parts.

Invariant: match < next. Everything up to match is durable there.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from hub.raft.messages import Snapshot


class Pace(Enum):
    """How a follower is being sent things."""

    PROBE = 1
    STREAM = 2
    SNAPSHOT = 3


class Progress:
    """One follower, as the leader sees it."""

    __slots__ = (
        *("match", "next", "pace", "is_active", "is_probed", "is_nudged", "commit_told", "round"),
        *("snapshot", "offset_acked", "offset_sent", "_inflight", "_inflight_bytes", "_match_at_beat"),
        "is_snapshot_lost",
        "_offset_at_beat",
    )

    def __init__(self, next_index: int) -> None:
        self.match = 0
        self.next = next_index
        self.pace = Pace.PROBE
        # Heard of since the leader last counted whom it hears of.
        self.is_active = False
        # A probe is under way, and nothing else is sent until it is answered.
        self.is_probed = False
        # Something may have got lost: ask, even if there is nothing new to send.
        self.is_nudged = False
        # The commit index that it was last sent.
        self.commit_told = 0
        # The last heartbeat that it answered.
        self.round = 0
        self.snapshot: Snapshot | None = None
        # Its bytes are gone: at the next heartbeat another one is asked for.
        self.is_snapshot_lost = False
        self.offset_acked = 0
        self.offset_sent = 0
        # (last index, bytes) of each message that is not answered yet.
        self._inflight: deque[tuple[int, int]] = deque()
        self._inflight_bytes = 0
        self._match_at_beat = 0
        self._offset_at_beat = 0

    @property
    def needed_from(self) -> int:
        """The first entry that it needs, behind a snapshot if it is being sent one."""
        return (self.match if self.snapshot is None else self.snapshot.index) + 1

    @property
    def has_inflight(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._inflight)

    def is_window_full(self, messages_max: int, bytes_max: int) -> bool:
        """Whether nothing more is sent before an answer comes."""
        return len(self._inflight) >= messages_max or self._inflight_bytes >= bytes_max

    def sent(self, last: int, size: int) -> None:
        """Entries up to `last` are under way."""
        if self.pace is Pace.PROBE:
            self.is_probed = True
            return
        self.next = last + 1
        self._inflight.append((last, size))
        self._inflight_bytes += size

    def agreed(self, index: int) -> bool:
        """It has everything up to `index`; False if that is old news."""
        if index < self.match or (index == self.match and self.pace is not Pace.PROBE):
            return False
        is_news = index > self.match
        self.match = index
        while self._inflight and self._inflight[0][0] <= index:
            self._inflight_bytes -= self._inflight.popleft()[1]
        if self.pace is not Pace.STREAM:
            # What it lacks now the leader may have or not; that is seen when it is sent.
            self.pace = Pace.STREAM
            self.snapshot = None
            self.is_probed = False
            self.next = index + 1
        else:
            self.next = max(self.next, index + 1)
        return is_news

    def refused(self, index: int, next_index: int) -> bool:
        """It does not have the entry at `index`; try the one before `next_index`. False if it is old news."""
        if self.pace is Pace.STREAM:
            if index <= self.match:
                return False
            self.probe(self.match + 1)
            self.next = max(min(next_index, self.next), self.match + 1)
            return True
        if self.pace is Pace.SNAPSHOT or index != self.next - 1:
            return False
        if index <= self.match:
            # It denies what it confirmed. There is nothing else to ask it, so not before the next heartbeat.
            return False
        self.next = max(min(next_index, index), self.match + 1)
        self.is_probed = False
        return True

    def probe(self, next_index: int) -> None:
        """Find out what it has, beginning there."""
        self.pace = Pace.PROBE
        self.next = next_index
        self.is_probed = False
        self.snapshot = None
        self._inflight.clear()
        self._inflight_bytes = 0

    def start_over(self, next_index: int) -> None:
        """Nothing is known of it any more."""
        self.match = 0
        self.commit_told = 0
        self.probe(next_index)

    def want_snapshot(self) -> None:
        """It needs what the log no longer has."""
        self.pace = Pace.SNAPSHOT
        self.snapshot = None
        self.is_snapshot_lost = False
        self._inflight.clear()
        self._inflight_bytes = 0

    def offer(self, snapshot: Snapshot) -> None:
        """This is the snapshot to send."""
        self.snapshot = snapshot
        self.offset_acked = self.offset_sent = self._offset_at_beat = 0

    def lose_snapshot(self) -> None:
        """What was to be sent cannot be had any more."""
        self.snapshot = None
        self.is_snapshot_lost = True

    def took_part(self, offset: int) -> None:
        """It has the bytes of the snapshot before `offset`; fewer than it had if it was restarted."""
        if offset < self.offset_acked or offset > self.offset_sent:
            self.offset_sent = offset
        self.offset_acked = offset

    def answered_beat(self) -> None:
        """It answered a heartbeat. If nothing moved since the one before, something may have got lost."""
        self.is_probed = False
        if self.pace is Pace.SNAPSHOT:
            if self.offset_acked == self._offset_at_beat:
                self.offset_sent = self.offset_acked
            self._offset_at_beat = self.offset_acked
        elif self.match == self._match_at_beat:
            self.is_nudged = True
            if self._inflight:
                # Room for at least that one question.
                self._inflight_bytes -= self._inflight.popleft()[1]
        self._match_at_beat = self.match
