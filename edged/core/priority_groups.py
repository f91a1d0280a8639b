"""Priority groups: which of the clients that pull from a consumer get its messages.

With `overflow` a request can wait until much is pending. With `pinned_client` one client gets everything,
until it asks for nothing for a while. With `prioritized` requests are ordered, which is for PullQueue.

Rules: time is an argument, and so are the ids that clients are pinned by. nats-server has one pin per
consumer, whatever its group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from edged.core import pull_statuses as statuses

if TYPE_CHECKING:
    from edged.core.consumer_config import ConsumerConfig
    from edged.core.pull_request import PullRequest, PullTerms

OVERFLOW: Final = "overflow"
PINNED: Final = "pinned_client"
PRIORITIZED: Final = "prioritized"
NONE: Final = "none"
_PRIORITY_MAX: Final = 9


class Pins:
    """Who is pinned. `make_id` makes up an id."""

    __slots__ = ("_make_id", "_timeout_ns", "expires_at_ns", "is_changed", "pin_id", "pinned_ns")

    def __init__(self, timeout_ns: int, make_id: Callable[[], str]) -> None:
        self._timeout_ns = timeout_ns
        self._make_id = make_id
        self.pin_id = ""
        self.pinned_ns = 0
        self.expires_at_ns = 0
        # Set when somebody was pinned; whoever tells others of it puts it back.
        self.is_changed = False

    @property
    def is_free(self) -> bool:
        """Whether the next one who asks is pinned."""
        return not self.pin_id

    def assign(self, now_ns: int) -> str:
        """Pin whoever is served now."""
        self.pin_id = self._make_id()
        self.pinned_ns = now_ns
        self.is_changed = True
        self.renew(now_ns)
        return self.pin_id

    def renew(self, now_ns: int) -> None:
        """The one who is pinned asked for more."""
        self.expires_at_ns = now_ns + self._timeout_ns

    def release(self) -> None:
        """Nobody is pinned any more."""
        self.pin_id = ""
        self.pinned_ns = self.expires_at_ns = 0

    def expire(self, now_ns: int) -> bool:
        """Release who has not asked for too long; tells whether that was so."""
        if not self.pin_id or now_ns < self.expires_at_ns:
            return False
        self.release()
        return True

    def configure(self, timeout_ns: int) -> None:
        """The time that a pin holds has changed; it counts from the next request on."""
        self._timeout_ns = timeout_ns


def has_overflow(request: PullRequest, pending: int, ack_pending: int) -> bool:
    """Whether so much is waiting that a request may be served."""
    if request.min_pending <= 0 and request.min_ack_pending <= 0:
        return True
    return 0 < request.min_pending <= pending or 0 < request.min_ack_pending <= ack_pending


def group_refusal(config: ConsumerConfig, terms: PullTerms, pins: Pins | None) -> bytes | None:
    """The status of a request that names a group, or none, in a way that the consumer has no use for."""
    if not terms.is_formal:
        return None
    policy = config.priority_policy
    if (terms.min_pending or terms.min_ack_pending) and policy != OVERFLOW:
        return statuses.bad_request("Not a Overflow Priority consumer")
    if terms.pin_id and policy != PINNED:
        return statuses.bad_request("Not a Pinned Client Priority consumer")
    if not 0 <= terms.priority <= _PRIORITY_MAX:
        return statuses.bad_request("Priority must be between 0 and 9")
    if policy == NONE:
        return None
    if not terms.group:
        return statuses.bad_request("Priority Group missing")
    if terms.group not in config.priority_groups:
        return statuses.bad_request("Invalid Priority Group")
    if pins is not None and terms.pin_id and not pins.is_free and terms.pin_id != pins.pin_id:
        return statuses.PIN_MISMATCH
    return None
