"""What a node owes the leader it has heard of: for a while it helps nobody else to lead.

Two times count from when it heard of the leader. For an election timeout it sees no need of another one; this
is forgotten when the link to the leader breaks. For a shorter time it is bound, whatever happens: a leader
that a quorum has answered may count on it, and act as if there were no other (see Leadership.holds_lease).

Invariant: a node that may have heard of a leader before it was started is bound, too.
"""

from __future__ import annotations

from hub.raft.options import RaftOptions


class Allegiance:
    """Of one node in one group. `is_quiet` says that the leader will be silent until something happens."""

    def __init__(self, options: RaftOptions, bound_until_ms: int) -> None:
        self.is_quiet = False
        self.bound_until_ms = bound_until_ms
        self._options = options
        # When the leader was last heard of; None if there is none to be heard of.
        self._heard_ms: int | None = None

    def hear(self, now_ms: int) -> None:
        """The leader is there."""
        self.is_quiet = False
        self._heard_ms = now_ms
        self.bound_until_ms = now_ms + self._options.promise_ms

    def doubt(self, now_ms: int) -> None:
        """If the leader is gone, that will show now."""
        self.is_quiet = False
        self._heard_ms = now_ms

    def forget(self) -> None:
        """There is no leader to be heard of, or it is gone; what is owed stays owed."""
        self.is_quiet = False
        self._heard_ms = None

    def is_led(self, now_ms: int) -> bool:
        """Whether a leader was heard of so lately that nobody needs another one (thesis, 4.2.3)."""
        return self.is_quiet or (
            self._heard_ms is not None and now_ms - self._heard_ms < self._options.election_ms
        )

    def is_bound(self, now_ms: int) -> bool:
        """Whether a leader may still count on this node."""
        return now_ms < self.bound_until_ms
