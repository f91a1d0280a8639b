"""A stored message, and how many bytes a stream counts for it."""

from typing import Final, NamedTuple

# What nats-server counts besides the parts themselves, so that limits mean the same here.
_RECORD_BYTES: Final = 30
_HEADER_LENGTH_BYTES: Final = 4


class Message(NamedTuple):
    """What a stream keeps. `data` is the header block, of `header_bytes` bytes (0: none), and the payload."""

    seq: int
    ts_ns: int
    subject: bytes
    header_bytes: int
    data: bytes


def counted_bytes(subject_bytes: int, header_bytes: int, data_bytes: int) -> int:
    """What a message adds to the bytes of its stream; `data_bytes` is header block and payload."""
    return _RECORD_BYTES + (_HEADER_LENGTH_BYTES if header_bytes > 0 else 0) + subject_bytes + data_bytes
