"""Passwords and tokens: compare what a client sent with what the configuration holds.

Rules: a comparison takes the same time wherever the texts differ. bcrypt runs in a worker thread under a
small limiter, so that a flood of logins costs some processor and never the event loop. A name that is not
known is compared with a decoy, so that it takes as long as a wrong password.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

import trio

BCRYPT_THREADS_MAX: Final = 2  # logins beyond these wait for a thread, at most until their auth timeout

_BCRYPT: Final = re.compile(r"\$2[abxy]\$(\d{2})\$.*", re.DOTALL | re.ASCII)
_BCRYPT_PASSWORD_BYTES: Final = (
    72  # what bcrypt looks at; newer libraries refuse more instead of cutting it off
)
# The body of a bcrypt hash whose password nobody knows.
_DECOY_BODY: Final = "Xh5kPzR1mE0u8vTqLw3cJuVb7yN2sGd4oAf6iKt9rHxCeQlMpZjWa"


def is_bcrypt(text: str) -> bool:
    return _BCRYPT.fullmatch(text) is not None


def decoy_for(stored: Iterable[str]) -> str:
    """What to compare with when the user is unknown: as costly as the costliest password there is."""
    costs = [match[1] for text in stored if (match := _BCRYPT.fullmatch(text)) is not None]
    return f"$2b${max(costs)}${_DECOY_BODY}" if costs else _DECOY_BODY


def new_limiter() -> trio.CapacityLimiter:
    return trio.CapacityLimiter(BCRYPT_THREADS_MAX)


async def check(plain: str, stored: str, limiter: trio.CapacityLimiter) -> bool:
    """Whether the text a client sent is the stored password, plain or hashed."""
    if is_bcrypt(stored):
        return await trio.to_thread.run_sync(_check_bcrypt, plain, stored, limiter=limiter)
    return hmac.compare_digest(_digest(plain), _digest(stored))


def _digest(text: str) -> bytes:
    # Digests have one length, so that comparing them says nothing about the length of the password.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _check_bcrypt(plain: str, stored: str) -> bool:
    import bcrypt

    password = plain.encode("utf-8", "surrogatepass")[:_BCRYPT_PASSWORD_BYTES]
    try:
        return bcrypt.checkpw(password, stored.encode("utf-8", "surrogatepass"))
    except ValueError:
        # The stored text only looks like a hash, or the password holds a NUL that older libraries refuse.
        return False
