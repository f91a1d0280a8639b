"""The fields of a message's header block that a stream looks at: all those whose key begins with `Nats-`.

Rules: keys are matched as the bytes they are; the first of equal keys counts; blanks in front of a value are
not part of it, those behind it are. A block without such a key costs one search. A field that is there and
empty counts as one that is missing, as nats-server has it: ask with get(), and whether there is something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# Up to the end of the line; a CR alone is part of the value.
_FIELD: Final = re.compile(rb"\r\n(Nats-[^:\r\n]*): *([^\r]*(?:\r(?!\n)[^\r]*)*)")

Fields = Mapping[bytes, bytes]
NO_FIELDS: Final[Fields] = MappingProxyType({})

MESSAGE_ID: Final = b"Nats-Msg-Id"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ: Final = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MESSAGE_ID: Final = b"Nats-Expected-Last-Msg-Id"
ROLLUP: Final = b"Nats-Rollup"
ROLLUP_SUBJECT: Final = b"sub"
ROLLUP_ALL: Final = b"all"
TTL: Final = b"Nats-TTL"
INCREMENT: Final = b"Nats-Incr"
SCHEDULE: Final = b"Nats-Schedule"
SCHEDULER: Final = b"Nats-Scheduler"
SCHEDULE_NEXT: Final = b"Nats-Schedule-Next"
SCHEDULE_PURGE: Final = b"purge"
BATCH_ID: Final = b"Nats-Batch-Id"
STREAM_SOURCE: Final = b"Nats-Stream-Source"
MARKER_REASON: Final = b"Nats-Marker-Reason"
KV_OPERATION: Final = b"KV-Operation"

_NUMBER_MASK: Final = 2**64 - 1
# Ten to the power of 64 is a multiple of two to the power of 64: more digits do not matter.
_DIGITS_THAT_COUNT: Final = 64


def fields_of(block: bytes) -> Fields:
    """The fields of a header block; the mapping is not to be changed."""
    if b"\r\nNats-" not in block:
        return NO_FIELDS
    found = _FIELD.findall(block)
    if len(found) > 1:
        found.reverse()
    return dict(found)


def number_of(text: bytes) -> int:
    """A seq as nats-server reads it: digits, cut to 64 bits; the highest number for anything else."""
    if not text.isdigit():
        return _NUMBER_MASK
    return int(text[-_DIGITS_THAT_COUNT:]) & _NUMBER_MASK
