"""Short names that are hashes: of consumers that were given none, of accounts, of a stream's identity.

Rules: the same text always has the same hash, which is nats-server's, because other servers compare it.
Chance is an argument: nothing here draws numbers.
"""

from __future__ import annotations

from collections.abc import Container
from hashlib import sha256
from typing import Final

from edged.core.gojson_time import Instant, format_instant

HASH_CHARACTERS: Final = 8

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def short_hash(data: bytes) -> str:
    """Eight letters and digits."""
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in sha256(data).digest()[:HASH_CHARACTERS])


def generated_name(chance: bytes, taken: Container[str]) -> str:
    """A name for a consumer that has none, other than those that are taken."""
    while (name := short_hash(chance)) in taken:
        chance = sha256(chance).digest()
    return name


def stream_identity(created_ns: int) -> str:
    """What tells a stream from another one of the same name that was there before it."""
    return short_hash(format_instant(Instant(created_ns)).encode())
