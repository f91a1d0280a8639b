"""The outer bytes of a sealed segment: its name, its header, its sections. docs/format.md describes them.

A segment is a header and sections, one after the other without a gap: blocks of messages, columns, and at
the end the footer. A section is a guarded blob of a prelude and a body; the body is compressed, then sealed
if there is a key. The prelude says whose section it is and what is in it, so a block means something
without the footer, and a section of another stream, file or place is not taken for the one that was asked
for.

Rules: nothing here reads or writes a file; numbers are little endian; sizes are checked against what is
there before memory is set aside for them; what does not fit raises Damaged. A file that a newer program
wrote is not damaged: that is StoreBroken, and nobody repairs it.
"""

from __future__ import annotations

import re
import struct
import threading
from typing import Final, NamedTuple
from zlib import crc32

import zstandard

from edged.store.box import Box
from edged.store.errors import Damaged, StoreBroken
from edged.store.guard import guard

VERSION: Final = 1
MARK: Final = int.from_bytes(b"eSeg", "little")  # of every section

BLOCK: Final = 1
FOOTER: Final = 2
SEQS: Final = 3
CODES: Final = 4
SIZES: Final = 5
SUBJECTS: Final = 6
EXPIRIES: Final = 7
COLUMN_KINDS: Final = (SEQS, CODES, SIZES, SUBJECTS, EXPIRIES)

STREAMS: Final = "streams"  # the directory that has one for each stream
BOX_PURPOSE: Final = b"segment"  # which key of a keyring seals segments


# version, kind, zeros, label, stream id, salt, name seq, generation, number, count, raw bytes, first and last
# seq, first, last and largest time, counted bytes
_PRELUDE: Final = struct.Struct("<BB6x8s16s16sQIIIIQQqqqQ")
PRELUDE_BYTES: Final = _PRELUDE.size
_HEADER: Final = struct.Struct(f"<8s{PRELUDE_BYTES}sQQ4x")
_CHECKSUM: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
_MAGIC: Final = b"edged\x00sg"
_PATH: Final = re.compile(r"(?:.*/)?([0-9a-f]{32})/(\d{20})-(\d{8})\.seg")

_local = threading.local()


class MessagesLost(Damaged):
    """A block is beyond repair: what it held of the messages `first_seq` to `last_seq` is lost."""

    def __init__(self, first_seq: int, last_seq: int, why: str, path: str, offset: int) -> None:
        super().__init__(f"messages {first_seq} to {last_seq} are lost, {why}", path, offset)
        self.first_seq = first_seq
        self.last_seq = last_seq


class NotThisSegment(Damaged):
    """The file is a segment, but not the one that its name says."""


class Prelude(NamedTuple):
    """What a section begins with. In all but blocks, the figures are those of the whole segment."""

    kind: int
    label: bytes
    stream_id: bytes
    salt: bytes
    name_seq: int
    generation: int
    number: int
    message_count: int
    raw_bytes: int
    first_seq: int
    last_seq: int
    first_ts_ns: int
    last_ts_ns: int
    max_ts_ns: int
    message_bytes: int

    def pack(self) -> bytes:
        """The bytes of it."""
        return _PRELUDE.pack(VERSION, *self)

    def belongs_to(self, other: Prelude) -> bool:
        """Whether both are of the same file; a file has its own random salt."""
        return self[1:6] == other[1:6]


def unpack_prelude(payload: bytes) -> Prelude:
    """The prelude of a section's payload."""
    if len(payload) < PRELUDE_BYTES:
        raise Damaged("too short for a section")
    version, *rest = _PRELUDE.unpack_from(payload)
    if version != VERSION:
        raise StoreBroken(f"segment format {version} is not known to this program")
    return Prelude(*rest)


# --- names ---


class SegmentName(NamedTuple):
    """What the path of a segment says."""

    stream_id: bytes
    first_seq: int
    generation: int


def segment_path(stream_id: bytes, first_seq: int, generation: int) -> str:
    """Where a segment is. No message in it has a smaller seq than `first_seq`."""
    return f"{STREAMS}/{stream_id.hex()}/{first_seq:020d}-{generation:08d}.seg"


def segment_name(path: str) -> SegmentName | None:
    """What a path says, or None if it is not the path of a segment."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    return SegmentName(bytes.fromhex(match[1]), int(match[2]), int(match[3]))


# --- the header ---


class Header(NamedTuple):
    """The first bytes of the file, in case its end is missing: the figures, and where the footer is."""

    prelude: Prelude
    footer_offset: int
    footer_size: int

    def pack(self) -> bytes:
        """The bytes of it."""
        packed = _HEADER.pack(_MAGIC, self.prelude.pack(), self.footer_offset, self.footer_size)
        return packed + _CHECKSUM.pack(crc32(packed))


def unpack_header(data: bytes) -> Header | None:
    """The header, if it is whole."""
    if len(data) < HEADER_BYTES:
        return None
    if _CHECKSUM.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        return None
    magic, prelude, offset, size = _HEADER.unpack_from(data)
    return Header(unpack_prelude(prelude), offset, size) if magic == _MAGIC else None


# --- sections ---


def compressor(level: int) -> zstandard.ZstdCompressor:
    """One that puts sizes and checksums into what it compresses; for one thread at a time."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)


def pack_section(prelude: Prelude, raw: bytes, compress: zstandard.ZstdCompressor, box: Box | None) -> bytes:
    """The guarded blob of a section; the prelude's `raw_bytes` is filled in here."""
    return pack_body(prelude._replace(raw_bytes=len(raw)), compress.compress(raw), box)


def pack_body(prelude: Prelude, body: bytes, box: Box | None) -> bytes:
    """The guarded blob of a section whose body is compressed already."""
    front = prelude.pack()
    if box is not None:
        body = box.seal(body, front)
    return guard(front + body, MARK)


def unpack_body(payload: bytes, box: Box | None) -> bytes:
    """The body of a section, still compressed, from the payload of its blob."""
    body = payload[PRELUDE_BYTES:]
    return body if box is None else box.open(body, payload[:PRELUDE_BYTES])


def unpack_section(payload: bytes, box: Box | None) -> bytes:
    """The raw bytes of a section, from the payload of its blob."""
    prelude = unpack_prelude(payload)
    body = unpack_body(payload, box)
    try:
        # The size that the frame gives is what the library would set aside.
        if zstandard.get_frame_parameters(body).content_size != prelude.raw_bytes:
            raise Damaged("compressed to another size than stated")
        if not hasattr(_local, "decompressor"):
            _local.decompressor = zstandard.ZstdDecompressor()
        raw: bytes = _local.decompressor.decompress(body)
    except zstandard.ZstdError as error:
        raise Damaged(f"cannot be decompressed ({error})") from error
    return raw
