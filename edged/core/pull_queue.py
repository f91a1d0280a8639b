"""The requests that wait for messages of a consumer, and whose turn it is.

Requests have their turns one message at a time, first come first served; who is not done goes to the back.
With the policy `prioritized` those with a lower number come before all others; equals take turns.

Rules: time is an argument; a request that ends without all its messages is in `ended`, with the status for
its requester, until the caller takes it. Whether somebody still listens is asked of `has_interest`, and who
does not is forgotten without a word. At most `waiting_max` wait; who comes then is refused.
Invariant: `due_at_ns` is not later than anything that is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from edged.core import pull_statuses as statuses
from edged.core.priority_groups import NONE, OVERFLOW, PRIORITIZED, Pins, has_overflow
from edged.core.pull_request import PullRequest

# Requests that nobody waits for any more are looked for when a full queue is asked, but not more often.
FULL_CHECK_NS: Final = 1_000_000_000

# Among so many requests messages are dealt at once.
FRONT_MAX: Final = 64

HasInterest = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a consumer has to deliver: new messages, and those that wait for acknowledgements."""

    pending: int
    ack_pending: int


class PullQueue:
    """Of one consumer."""

    def __init__(self, waiting_max: int, has_interest: HasInterest, policy: str = NONE) -> None:
        self.waiting_max = waiting_max
        self.is_prioritized = policy == PRIORITIZED
        self.is_overflow = policy == OVERFLOW
        self.ended: list[tuple[PullRequest, bytes]] = []
        # When something is to be done by the clock, 0 for never.
        self.due_at_ns = 0
        self._has_interest = has_interest
        self._waiting: deque[PullRequest] = deque()
        self._no_wait_count = 0
        self._checked_ns = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def batches(self) -> int:
        """How many messages are asked for in all."""
        return sum([request.batch_left if request.batch_left > 1 else 1 for request in self._waiting])

    def count_interested(self) -> int:
        """How many wait of somebody who is still there."""
        has_interest = self._has_interest
        return sum([has_interest(request.reply) for request in self._waiting])

    def configure(self, waiting_max: int, policy: str) -> None:
        """How many may wait, and in which order, from now on."""
        self.waiting_max = waiting_max
        self.is_prioritized = policy == PRIORITIZED
        self.is_overflow = policy == OVERFLOW

    # --- coming and going ---

    def add(self, request: PullRequest, now_ns: int) -> bool:
        """Let a request wait; False when there are too many."""
        if self._is_full() and now_ns - self._checked_ns > FULL_CHECK_NS:
            self.check(now_ns, is_at_end=False)
        if self._is_full():
            return False
        self._insert(request)
        self._no_wait_count += request.no_wait
        due_ns = request.due_at_ns()
        if due_ns:
            self.due_at_ns = min(self.due_at_ns, due_ns) if self.due_at_ns else due_ns
        return True

    def _is_full(self) -> bool:
        return len(self._waiting) >= self.waiting_max > 0

    def _insert(self, request: PullRequest) -> None:
        """At the back, or behind those with the same priority."""
        waiting = self._waiting
        if self.is_prioritized and waiting and waiting[-1].priority > request.priority:
            place = next(place for place, other in enumerate(waiting) if other.priority > request.priority)
            waiting.insert(place, request)
        else:
            waiting.append(request)

    def end_all(self, status: bytes | None) -> None:
        """Everyone goes, with a status or without one."""
        if status is not None:
            self.ended += [(request, status) for request in self._waiting]
        self._waiting.clear()
        self._no_wait_count = 0
        self.due_at_ns = 0

    def leave(self) -> None:
        """Everyone is told that the server goes, and what was not sent."""
        self.ended += [(request, statuses.server_shutdown(*request.left())) for request in self._waiting]
        self.end_all(None)

    def _keep(self, kept: list[PullRequest]) -> None:
        self._waiting = deque(kept)
        self._no_wait_count = sum(request.no_wait for request in kept)

    def _drop_first(self, status: bytes | None) -> None:
        request = self._waiting.popleft()
        self._no_wait_count -= request.no_wait
        if status is not None:
            self.ended.append((request, status))

    # --- serving ---

    def front(self, count: int, now_ns: int) -> list[PullRequest]:
        """Who has a turn when so many messages are dealt; nobody, unless each takes whatever there is.

        Pins are not looked at, nor who listens.
        """
        if self.is_overflow or (self.is_prioritized and len(self._waiting) > 1):
            return []
        first = list(islice(self._waiting, min(count, FRONT_MAX)))
        for request in first:
            if request.is_limited or 0 < request.expires_at_ns <= now_ns:
                return []
        return first

    def deal(self, count: int, now_ns: int) -> list[tuple[PullRequest, int]]:
        """Serve those whom front() found, as if they had turns of one message: whom, and how many."""
        waiting = self._waiting
        if len(waiting) > FRONT_MAX:
            count = min(count, FRONT_MAX)
        shares: dict[PullRequest, int] = {}
        while count and waiting:
            rounds = min(count // len(waiting), min([request.batch_left for request in waiting]) - 1)
            if rounds > 0:
                # None of them is done by this, so their order stays.
                for request in waiting:
                    request.take(rounds, 0, now_ns)
                    shares[request] = shares.get(request, 0) + rounds
                count -= rounds * len(waiting)
                continue
            request = waiting[0]
            shares[request] = shares.get(request, 0) + 1
            self._serve_first(0, now_ns)
            count -= 1
        return list(shares.items())

    def choose(self, size: int, now_ns: int, backlog: Backlog, pins: Pins | None) -> PullRequest | None:
        """Whose turn it is for a message of this size, which is counted as sent; None if nobody can have it.

        Of `backlog` the message itself is part.
        """
        passed = 0
        while passed < len(self._waiting):
            request = self._waiting[0]
            if request.expires_at_ns and now_ns >= request.expires_at_ns:
                self._drop_first(statuses.request_timeout(*request.left()))
                continue
            is_pin_new = False
            if pins is not None:
                if pins.is_free and not request.pin_id:
                    # Who names no group is served, but not pinned.
                    is_pin_new = request.is_formal
                elif not request.pin_id:
                    self._rotate()
                    passed += 1
                    continue
                elif request.pin_id != pins.pin_id:
                    self._drop_first(statuses.wrong_pin(*request.left()))
                    continue
            if self.is_overflow and not has_overflow(request, backlog.pending, backlog.ack_pending):
                self._rotate()
                passed += 1
                continue
            if 0 < request.bytes_left < size:
                self._drop_first(statuses.too_large(*request.left()))
                continue
            if not self._has_interest(request.reply):
                self._drop_first(None)
                continue
            if is_pin_new:
                assert pins is not None
                request.pin_id = pins.assign(now_ns)
            self._serve_first(size, now_ns)
            return request
        return None

    def _rotate(self) -> None:
        """Pass over the first, which stays where it is among its equals."""
        self._waiting.rotate(-1)

    def _serve_first(self, size: int, now_ns: int) -> None:
        request = self._waiting[0]
        request.take(1, size, now_ns)
        if request.is_done:
            self._drop_first(None)
        elif len(self._waiting) > 1:
            self._waiting.popleft()
            self._insert(request)

    # --- by the clock ---

    def check(self, now_ns: int, is_at_end: bool) -> list[PullRequest]:
        """End whoever has waited long enough; `is_at_end` tells that there is nothing more to deliver.

        Returns those who are to be sent a heartbeat.
        """
        self._checked_ns = now_ns
        kept: list[PullRequest] = []
        beats: list[PullRequest] = []
        due_at_ns = 0
        for request in self._waiting:
            if request.expires_at_ns and now_ns >= request.expires_at_ns:
                self.ended.append((request, statuses.request_timeout(*request.left())))
                continue
            if is_at_end and request.no_wait and (not request.expires_at_ns or request.delivered):
                self.ended.append((request, statuses.NO_MESSAGES))
                continue
            if not self._has_interest(request.reply):
                continue
            if request.heartbeat_at_ns and now_ns >= request.heartbeat_at_ns:
                beats.append(request)
                request.heartbeat_at_ns = now_ns + request.heartbeat_ns
            due_ns = request.due_at_ns()
            if due_ns:
                due_at_ns = min(due_at_ns, due_ns) if due_at_ns else due_ns
            kept.append(request)
        self._keep(kept)
        self.due_at_ns = due_at_ns
        return beats

    def is_due(self, now_ns: int) -> bool:
        """Whether a request that waits is to be ended or told something; `due_at_ns` may be too early."""
        return any(0 < request.due_at_ns() <= now_ns for request in self._waiting)

    def needs_check(self, now_ns: int, is_at_end: bool) -> bool:
        """Whether check() has anything to do but to look for interest."""
        return bool(self.due_at_ns and now_ns >= self.due_at_ns) or (is_at_end and self._no_wait_count > 0)
