"""The records of a message block in the store of nats-server, as archives up to 2.14 have them.

    0   u32  bytes of the record; the top bit says that there are headers
    4   u64  seq; bit 63: erased, bit 62: a tombstone, which says that this seq was deleted
    12  i64  time in ns
    20  u16  bytes of the subject
    22  ...  subject, [u32 bytes of the header block, header block], payload
    -8  u64  HighwayHash over seq, time, subject, header block and payload, keyed with stream and block

All little endian.

Rules: blocks come from outside. No length is believed beyond the bounds, a record counts only with its hash
right, and ArchiveError is the only way to fail.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from edged.core.archive_parts import ArchiveError
from edged.core.s2_twins import highway_hash

CHECKSUM_BYTES: Final = 8

_START: Final = Struct("<IQqH")
_HASHED_FROM: Final = 4
_HASHED_TO: Final = 20
_HEADERS_BIT: Final = 1 << 31
_ERASED_BIT: Final = 1 << 63
_TOMBSTONE_BIT: Final = 1 << 62
_SEQ_BITS: Final = _TOMBSTONE_BIT - 1
_HEADER_SIZE_BYTES: Final = 4
# What was read is cut off the buffer when it is this much, not after each record.
_READ_BYTES_KEPT_MAX: Final = 256 * 1024


def hash_key(name: str) -> bytes:
    """What a hash is keyed with. Half of a surrogate pair can come out of JSON; it is a key as well."""
    return sha256(name.encode("utf-8", "surrogatepass")).digest()


class Record(NamedTuple):
    """One record. A tombstone has nothing but its seq; an erased one nothing that should be read."""

    seq: int
    ts_ns: int
    subject: bytes
    header_bytes: int
    data: bytes
    is_erased: bool
    is_tombstone: bool


class BlockReader:
    """The bytes of one block, not compressed, in by feed(), its records out by next_record()."""

    __slots__ = ("_buffer", "_key", "_message_bytes_max", "_position", "checksum", "name")

    def __init__(self, stream: str, block: int, message_bytes_max: int) -> None:
        self.name = f"message block {block}"
        self._key = hash_key(f"{stream}-{block}")
        self._message_bytes_max = message_bytes_max
        self._buffer = bytearray()
        self._position = 0
        # Of the last record: by it an index says up to where it knows the block.
        self.checksum = bytes(CHECKSUM_BYTES)

    def feed(self, data: bytes) -> None:
        """Bytes as they come, cut anywhere."""
        if self._position > _READ_BYTES_KEPT_MAX or self._position == len(self._buffer):
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def next_record(self) -> Record | None:
        """The next record; None: more bytes are needed."""
        buffer, position = self._buffer, self._position
        if len(buffer) - position < _START.size:
            return None
        size_bits, seq_bits, ts_ns, subject_bytes = _START.unpack_from(buffer, position)
        size = size_bits & ~_HEADERS_BIT
        has_headers = size_bits != size
        data_at = _START.size + subject_bytes + (_HEADER_SIZE_BYTES if has_headers else 0)
        data_bytes = size - data_at - CHECKSUM_BYTES
        if not 0 <= data_bytes <= self._message_bytes_max:
            raise ArchiveError(f"{self.name}: a record of {size} bytes; damaged, encrypted or too large")
        if len(buffer) - position < size:
            return None
        record = bytes(buffer[position : position + size])
        self._position = position + size
        subject = record[_START.size : _START.size + subject_bytes]
        data = record[data_at:-CHECKSUM_BYTES]
        self.checksum = record[-CHECKSUM_BYTES:]
        if highway_hash(self._key, record[_HASHED_FROM:_HASHED_TO] + subject + data) != self.checksum:
            raise ArchiveError(f"{self.name}: a record does not match its checksum; damaged or encrypted")
        header_bytes = 0
        if has_headers:
            header_bytes = int.from_bytes(record[data_at - _HEADER_SIZE_BYTES : data_at], "little")
            if header_bytes > data_bytes:
                raise ArchiveError(f"{self.name}: a header block is longer than its record")
        seq = seq_bits & _SEQ_BITS
        is_tombstone = bool(seq_bits & _TOMBSTONE_BIT)
        is_erased = not seq or bool(seq_bits & _ERASED_BIT)
        return Record(seq, ts_ns, subject, header_bytes, data, is_erased, is_tombstone)

    def finish(self) -> None:
        """The block ends here; ArchiveError when that is within a record."""
        if self._position < len(self._buffer):
            raise ArchiveError(f"{self.name} ends within a record")
