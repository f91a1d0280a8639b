"""A request for messages of a consumer: how many, for how long, and on which terms.

Rules: time is an argument. A request is for as many messages as `batch` says and one at least; what is left
of it is counted down here, by whoever serves it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from edged.core.gojson import JsonError, document
from edged.core.gojson_shapes import DURATION, FLAG, INT, INT64, TEXT, Structure

_SHAPE: Final = Structure(
    "server.JSApiConsumerGetNextRequest",
    {
        "expires": DURATION,
        "batch": INT,
        "max_bytes": INT,
        "no_wait": FLAG,
        "idle_heartbeat": DURATION,
        "group": TEXT,
        "min_pending": INT64,
        "min_ack_pending": INT64,
        "id": TEXT,
        "priority": INT,
    },
)
_BLANKS: Final = b" \t\r\n\v\f"
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}")
# So many different requests are remembered, unless they are longer than this.
_KNOWN_MAX: Final = 256
_KNOWN_BYTES_MAX: Final = 256
# What nats-server takes for the priority of a request that names none, in a queue that is ordered by it.
PRIORITY_LAST: Final = 2**31 - 1


class BadPull(ValueError):  # noqa: N818 - says what was sent
    """A request that cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class PullTerms:
    """What a request says."""

    batch: int = 1
    expires_ns: int = 0
    bytes_max: int = 0
    no_wait: bool = False
    heartbeat_ns: int = 0
    # Whether it could have named a group: a request of JSON, as opposed to a number or nothing.
    is_formal: bool = False
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    pin_id: str = ""
    priority: int = 0


_ONE: Final = PullTerms()


def pull_terms(body: bytes) -> PullTerms:
    """Read the body of a request. Raises BadPull."""
    return _known_terms(body) if len(body) <= _KNOWN_BYTES_MAX else _read_terms(body)


def _read_terms(body: bytes) -> PullTerms:
    body = body.strip(_BLANKS)
    if not body:
        return _ONE
    if not body.startswith(b"{"):
        return PullTerms(int(body)) if _NUMBER.fullmatch(body) else _ONE
    try:
        found = _SHAPE.read(document(body), "", strict=False)
    except JsonError as error:
        raise BadPull(str(error)) from None
    terms = PullTerms(
        batch=found.get("batch", 0),
        expires_ns=found.get("expires", 0),
        bytes_max=found.get("max_bytes", 0),
        no_wait=found.get("no_wait", False),
        heartbeat_ns=found.get("idle_heartbeat", 0),
        is_formal=True,
        group=found.get("group", ""),
        min_pending=found.get("min_pending", 0),
        min_ack_pending=found.get("min_ack_pending", 0),
        pin_id=found.get("id", ""),
        priority=found.get("priority", 0),
    )
    if terms.heartbeat_ns > 0 and 2 * terms.heartbeat_ns > terms.expires_ns:
        raise BadPull("heartbeat value too large")
    return terms


# A client asks with the same words again and again.
_known_terms: Final = lru_cache(maxsize=_KNOWN_MAX)(_read_terms)


class PullRequest:
    """A request that waits, and what is left of it."""

    __slots__ = (
        "batch_left",
        "bytes_left",
        "delivered",
        "expires_at_ns",
        "heartbeat_at_ns",
        "heartbeat_ns",
        "is_formal",
        "is_limited",
        "min_ack_pending",
        "min_pending",
        "no_wait",
        "pin_id",
        "priority",
        "received_ns",
        "reply",
    )

    def __init__(self, terms: PullTerms, reply: bytes, now_ns: int) -> None:
        self.reply = reply
        self.received_ns = now_ns
        self.batch_left = terms.batch
        self.bytes_left = terms.bytes_max
        self.delivered = 0
        self.no_wait = terms.no_wait
        # When it is over, and when its requester wants to hear that it still waits; 0 for never.
        self.expires_at_ns = now_ns + terms.expires_ns if terms.expires_ns else 0
        self.heartbeat_ns = max(terms.heartbeat_ns, 0)
        self.heartbeat_at_ns = now_ns + self.heartbeat_ns if self.heartbeat_ns else 0
        self.is_formal = terms.is_formal
        self.pin_id = terms.pin_id
        self.min_pending = terms.min_pending
        self.min_ack_pending = terms.min_ack_pending
        self.priority = terms.priority if terms.is_formal else PRIORITY_LAST
        # Whether not every message may be for it.
        self.is_limited = self.bytes_left > 0

    @property
    def is_done(self) -> bool:
        """Whether it has all that it asked for."""
        return self.batch_left <= 0

    def left(self) -> tuple[int, int]:
        """The messages and bytes that were not sent."""
        return self.batch_left, self.bytes_left

    def due_at_ns(self) -> int:
        """When something is to be done about it by the clock; 0 for never."""
        if self.expires_at_ns and self.heartbeat_at_ns:
            return min(self.expires_at_ns, self.heartbeat_at_ns)
        return self.expires_at_ns or self.heartbeat_at_ns

    def take(self, count: int, size: int, now_ns: int) -> None:
        """So many messages were sent for it, of so many bytes together."""
        self.batch_left -= count
        self.delivered += count
        if self.bytes_left > 0:
            self.bytes_left -= size
            if self.bytes_left <= 0:
                self.bytes_left = self.batch_left = 0
        if self.heartbeat_ns:
            self.heartbeat_at_ns = now_ns + self.heartbeat_ns
