"""Brings the meta group back when most of its nodes are gone for good (`META.RESCUE`).

Without a majority nobody leads, and so nobody can remove the nodes that are gone. For a while fewer votes are
enough on the nodes that are told so: one of them leads, the others are removed, and what is left is a
majority again.

Rules: only a person can know that nodes never come back; if they do, two halves may decide differently. So it
is refused while somebody leads, ends by itself, and is never remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.server.log import Log
from hub.meta import META
from hub.raft.members import Members

RESCUE_S: Final = 300.0
"""How long it lasts at most."""


class Groups(Protocol):
    """What is needed of the replicas."""

    def has(self, group: int) -> bool: ...
    def leader(self, group: int) -> int: ...
    def set_quorum_max(self, group: int, quorum_max: int | None) -> None: ...


class MetaRescue:
    """Of one node. `now_s` is a clock that only goes forward, `members` those of the meta group."""

    def __init__(
        self, groups: Groups, members: Callable[[], Members], now_s: Callable[[], float], log: Log
    ) -> None:
        self._groups = groups
        self._members = members
        self._now_s = now_s
        self._log = log
        self._quorum = 0
        self._until_s = 0.0

    @property
    def is_active(self) -> bool:
        """Whether fewer votes than a majority are enough."""
        return bool(self._quorum)

    @property
    def quorum_needed(self) -> int:
        """How many nodes have to agree now."""
        return self._quorum or self._majority()

    def _majority(self) -> int:
        """How many it takes; while voters leave, those that were there have to agree, too."""
        members = self._members()
        return max(len(members.voters), len(members.outgoing)) // 2 + 1

    def begin(self, quorum: int) -> tuple[int, int]:
        """Let so many be enough; how many were needed, and are. Raises ApiFailure."""
        if not self._groups.has(META):
            raise ApiFailure(api_errors.CLUSTER_NOT_AVAILABLE)
        before = self.quorum_needed
        if not 1 <= quorum <= before:
            reason = "raft: rescue quorum must be between 1 and current quorum"
            raise ApiFailure(api_errors.cluster_rescue(reason))
        if self._groups.leader(META):
            raise ApiFailure(api_errors.cluster_rescue("raft: leader is known"))
        self._quorum, self._until_s = quorum, self._now_s() + RESCUE_S
        self._groups.set_quorum_max(META, quorum)
        self._log.warn("meta group is rescued: a minority decides", quorum=quorum, quorum_before=before)
        return before, quorum

    def look(self) -> None:
        """End it when it is not needed any more, or has lasted too long. Called about every second."""
        if self._quorum and (self._majority() <= self._quorum or self._now_s() >= self._until_s):
            self._quorum = 0
            self._groups.set_quorum_max(META, None)
            self._log.warn("rescue of the meta group has ended", quorum=self._majority())
