"""How a node comes back whose log may lack what it had confirmed: as a learner, until it is confirmed.

Rules: it votes for nobody and leads nobody before the leader of the present has said how far its log has to
reach, the log reaches that far and agrees with the leader's, and all of that is durable. One that is only
unsure of the end of its log, and knows its term, its vote and the members, votes and leads where everybody
agrees (votes.py): if nobody else is sure, either, there is no leader to ask.
Invariant: what one leader said is worth nothing under the next one.
"""

from __future__ import annotations

from hub.raft.messages import RejoinReply, RejoinRequest
from hub.raft.ready import Ready


class Rejoining:
    """What a node knows of its own way back."""

    def __init__(self, boot: int, *, is_needed: bool, is_unsure: bool) -> None:
        self.is_needed = is_needed or is_unsure
        # Whether it has forgotten nothing but the end of its log.
        self._knows_votes = not is_needed
        # Tells answers to this life from those to an earlier one.
        self._boot = boot
        # What the log has to reach; None until the leader says so.
        self._index: int | None = None
        # The Ready that brings it there; 0: the next one.
        self._number: int | None = None
        # Up to where the log is known to be that of the present leader.
        self._agreed_index = 0

    @property
    def may_vote(self) -> bool:
        """Whether it may say whom it would have lead."""
        return not self.is_needed or self._knows_votes

    def request(self, term: int) -> RejoinRequest | None:
        """The question to the leader, as long as it is open."""
        return RejoinRequest(term, self._boot) if self.is_needed and self._index is None else None

    def answered(self, reply: RejoinReply) -> None:
        """The leader says how far the log has to reach."""
        if self.is_needed and reply.boot == self._boot and self._index is None:
            self._index = reply.index
            self._finish_if_reached()

    def agreed(self, index: int) -> None:
        """Up to here the log is the leader's."""
        self._agreed_index = max(self._agreed_index, index)
        self._finish_if_reached()

    def _finish_if_reached(self) -> None:
        if self._index is not None and self._number is None and self._agreed_index >= self._index:
            self._number = 0

    def taken(self, ready: Ready) -> None:
        """This Ready has all that happened."""
        if self._number == 0:
            self._number = ready.number

    def persisted(self, ready: Ready) -> bool:
        """It is durable; True if that ends the way back."""
        if not self._number or ready.number < self._number:
            return False
        self.end()
        return True

    def end(self) -> None:
        """Nothing is missing: it has what the leader has, or leads."""
        self.is_needed = False
        self._knows_votes = True
        self.restart()

    def restart(self) -> None:
        """The leader or the term is another one."""
        self._index = self._number = None
        self._agreed_index = 0
