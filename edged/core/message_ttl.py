"""How long messages live on their own terms: the `Nats-TTL` header, and the markers left behind.

A TTL is `never`, a whole number of seconds, or a Go duration of at least a second, of which the whole seconds
count. `0` is refused, but `00` is no TTL at all: that is how nats-server reads them.

Rules: no clock; times are nanoseconds since 1970. What a stored header means does not depend on any
configuration.
"""

from __future__ import annotations

from typing import Final

from edged.core import gotime, header_edits, headers
from edged.core.publish_headers import KV_OPERATION, MARKER_REASON, ROLLUP, TTL, number_of

# Of a message without a TTL.
UNSET_S: Final = 0
# Of a message that outlives even the max_age of its stream.
NEVER_S: Final = -1
_SECOND_NS: Final = 1_000_000_000
_SIGN_BIT: Final = 1 << 63


def parse_ttl_s(text: bytes) -> int:
    """Seconds, NEVER_S or UNSET_S. Raises ValueError."""
    if not text:
        return UNSET_S
    if text.lower() == b"never":
        return NEVER_S
    try:
        ttl_ns = gotime.parse_duration_ns(text.decode())
    except ValueError:
        seconds = number_of(text)
        if seconds & _SIGN_BIT:
            raise ValueError(f"no TTL: {text!r}") from None
        return seconds
    if ttl_ns < _SECOND_NS:
        raise ValueError(f"a TTL below one second: {text!r}")
    return ttl_ns // _SECOND_NS


def with_ttl_min(block: bytes, ttl_s_min: int) -> bytes:
    """The block with a TTL of at least so many seconds, if it has one that is valid and less."""
    text = headers.value(block, TTL)
    try:
        ttl_s = parse_ttl_s(text or b"")
    except ValueError:
        return block
    if not 0 < ttl_s < ttl_s_min:
        return block
    return headers.adding(header_edits.removed(block, TTL), TTL, b"%d" % ttl_s_min)


def delete_marker_headers(ttl_ns: int) -> bytes:
    """The header block of the message that says: the last message of this subject was too old."""
    ttl = gotime.format_duration(ttl_ns // _SECOND_NS * _SECOND_NS).encode()
    return headers.encode(((MARKER_REASON, b"MaxAge"), (TTL, ttl), (ROLLUP, b"sub")))


def is_delete_marker(block: bytes) -> bool:
    """Whether a message with this header block says that its subject is gone."""
    return bool(headers.value(block, MARKER_REASON)) or headers.value(block, KV_OPERATION) == b"PURGE"
