"""Acknowledgements that come one per message, read many at a time.

Nearly all of them say no more than that a message is done with, and want no answer: for those only the
message's seq counts. This is the reference; `_acks.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from edged.core.wire import Publish

_PAYLOADS: Final = (b"", b"+ACK", b"+OK")
# Deliveries, stream seq, consumer seq, time and how many wait.
_NUMBERS: Final = 5
_DIGITS_MAX: Final = 19


def plain_acks(messages: Sequence[Publish], start: int, prefix: bytes) -> array[int]:
    """The stream seqs that the messages from `start` on acknowledge, up to the first that is not plain.

    One is not plain that is for another consumer than that whose ack subjects begin with `prefix`, says
    something else, has headers, or wants an answer.
    """
    seqs = array("Q")
    for subject, reply, header_bytes, data in messages[start:]:
        if reply is not None or header_bytes > 0 or data not in _PAYLOADS or not subject.startswith(prefix):
            break
        numbers = subject[len(prefix) :].split(b".")
        if len(numbers) != _NUMBERS or not all(map(_is_number, numbers)) or not int(numbers[1]):
            break
        seqs.append(int(numbers[1]))
    return seqs


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _DIGITS_MAX
