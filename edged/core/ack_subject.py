"""The subject to which a delivered message is acknowledged: it says which message that was.

The first form is `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>`. The
second has the domain (`_` if there is none) and a hash of the account before the stream, and may have more
tokens at its end. Messages are sent with the first form; acknowledgements are taken in both.

Rules: what is no number counts as none was given: such an acknowledgement is for no message.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

PREFIX: Final = b"$JS.ACK."
NO_DOMAIN: Final = "_"
_FIRST_TOKENS: Final = 9
_SECOND_TOKENS: Final = 11
_HASH_CHARACTERS: Final = 8
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# No number of an acknowledgement has more digits than this.
_NUMBER_DIGITS_MAX: Final = 20


class AckedMessage(NamedTuple):
    """Which delivery of which message an acknowledgement is for. A stream seq of 0 is for none."""

    deliveries: int
    stream_seq: int
    consumer_seq: int


NO_MESSAGE: Final = AckedMessage(0, 0, 0)


def account_hash(account: str) -> str:
    """What stands for an account in the second form."""
    digest = sha256(account.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_HASH_CHARACTERS])


def first_prefix(stream: str, consumer: str) -> bytes:
    """How the subjects of a consumer begin in the first form."""
    return f"$JS.ACK.{stream}.{consumer}.".encode()


def second_prefix(domain: str | None, account: str, stream: str, consumer: str) -> bytes:
    """How the subjects of a consumer begin in the second form."""
    return f"$JS.ACK.{domain or NO_DOMAIN}.{account_hash(account)}.{stream}.{consumer}.".encode()


def ack_subject(
    prefix: bytes, deliveries: int, stream_seq: int, consumer_seq: int, ts_ns: int, pending: int
) -> bytes:
    """The subject for one delivery; `prefix` is that of the consumer."""
    return b"%s%d.%d.%d.%d.%d" % (prefix, deliveries, stream_seq, consumer_seq, ts_ns, pending)


def prefixes_of(subject: bytes) -> tuple[bytes, ...]:
    """The prefix of the consumer that a subject may be for; none when it has neither form."""
    count = subject.count(b".") + 1
    if count == _FIRST_TOKENS:
        return (b".".join(subject.split(b".", 4)[:4]) + b".",)
    if count >= _SECOND_TOKENS:
        return (b".".join(subject.split(b".", 6)[:6]) + b".",)
    return ()


def stream_of(subject: bytes) -> bytes:
    """The name of the stream that a subject is for; empty when it has neither form."""
    count = subject.count(b".") + 1
    if count == _FIRST_TOKENS:
        return subject.split(b".", 3)[2]
    return subject.split(b".", 5)[4] if count >= _SECOND_TOKENS else b""


def acked_message(subject: bytes) -> AckedMessage:
    """Which message a subject is for."""
    tokens = subject.split(b".")
    count = len(tokens)
    if count == _FIRST_TOKENS:
        numbers = tokens[4:7]
    elif count >= _SECOND_TOKENS:
        numbers = tokens[6:9]
    else:
        return NO_MESSAGE
    deliveries, stream_seq, consumer_seq = numbers
    # One look at the three together: acknowledgements come one per message.
    if not (deliveries + stream_seq + consumer_seq).isdigit():
        return NO_MESSAGE
    if not deliveries or not stream_seq or not consumer_seq or max(map(len, numbers)) > _NUMBER_DIGITS_MAX:
        return NO_MESSAGE
    return AckedMessage(int(deliveries), int(stream_seq), int(consumer_seq))
