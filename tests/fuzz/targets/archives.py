"""Archives of streams: an ArchiveError, or what is in them, the same however the bytes were cut."""

from __future__ import annotations

from edged.core import _s2, s2
from edged.core.archive import MAGIC, ArchiveWriter
from edged.core.archive_parts import ArchivedConsumer, ArchiveError, ArchiveLimits, ConsumerPosition, SeqPair
from edged.core.archive_reader import ArchiveReader
from edged.core.message import Message
from edged.core.s2 import S2Error
from edged.core.s2_stream import IDENTIFIER, S2Reader
from edged.core.store_index import parse_block_index, parse_consumer_position, parse_index
from tests.core.archive_cases import DATA, NEW, OLD_TAR, TAR, compressed, plain, tar_files
from tests.fuzz.target import Target, chance_of, cut

LIMITS = ArchiveLimits(1 << 20, 1 << 12, documents_bytes_max=1 << 14, index_bytes_max=1 << 14, pages_max=64)


def run_archive(data: bytes) -> None:
    """`data` is what is in the compression, so that its checksums do not keep everything out."""
    archive = compressed(data)
    assert outcome([archive]) == outcome(cut(archive, chance_of(data)))


def outcome(pieces: list[bytes]) -> list[object]:
    """The entries, and in the end what was wrong."""
    reader = ArchiveReader(LIMITS)
    entries: list[object] = []
    try:
        for piece in pieces:
            reader.feed(piece)
            while (entry := reader.next_entry()) is not None:
                # What has a set in it is not compared but by its kind.
                entries.append(entry if isinstance(entry, Message | ArchivedConsumer) else type(entry))
        reader.finish()
    except ArchiveError as error:
        entries.append(str(error))
    assert reader.output_bytes <= LIMITS.output_bytes_max
    return entries


def run_stream(data: bytes) -> None:
    """Compressed bytes, with whatever is wrong with them."""
    results = []
    for pieces in ([data], cut(data, chance_of(data))):
        reader = S2Reader(1 << 16)
        found: list[bytes] = []
        try:
            for piece in pieces:
                reader.feed(piece)
                while (block := reader.next_block()) is not None:
                    found.append(block)
            reader.finish()
        except S2Error as error:
            found.append(str(error).encode())
        assert reader.output_bytes <= 1 << 16
        results.append(found)
    assert results[0] == results[1]


def run_block(data: bytes) -> None:
    """The twins decode alike, and what they encode decodes to the same."""
    results = []
    for decode_block in (s2.decode_block, _s2.decode_block):
        try:
            results.append(decode_block(data, 1 << 16))
        except S2Error as error:
            results.append(str(error).encode())
    assert results[0] == results[1]
    assert s2.decode_block(_s2.encode_block(data), len(data)) == data


def run_store_file(data: bytes) -> None:
    """The small files of old archives; their checksums do not help against whoever can compute them."""
    for parse in (
        lambda: parse_index(data, 64),
        lambda: parse_block_index(data, 1, 64),
        lambda: parse_consumer_position(data, "C"),
    ):
        try:
            parse()
        except ArchiveError:
            continue


def _seeds() -> tuple[bytes, ...]:
    writer = ArchiveWriter()
    position = ConsumerPosition(SeqPair(2, 2), SeqPair(1, 1), {}, {})
    archive = writer.begin({"consumer_count": 1, "first_seq": 1, "last_seq": 3}, 1)
    archive += writer.consumer(ArchivedConsumer("C", {"name": "C"}, position), 1)
    archive += writer.messages(
        [Message(1, 5, b"a", 0, b"one"), Message(3, 6, b"b.c", 12, b"NATS/1.0\r\n\r\ntwo")]
    )
    return plain(archive + writer.finish()), plain((DATA / NEW).read_bytes())


_FILES, _OLD_FILES = tar_files(TAR), tar_files(OLD_TAR)
_STREAMS = (IDENTIFIER, IDENTIFIER + b"\x01\x05\x00\x00", b"\xff\x06\x00\x00sNaPpY", b"\xfe\x01\x00\x00")

TARGETS = (
    Target("archives", run_archive, _seeds(), (MAGIC, b"state.json", b"consumers/", bytes(5)), share=5),
    Target(
        "tar-archives", run_archive, (plain((DATA / TAR).read_bytes()),), (b"ustar\0", bytes(512)), share=5
    ),
    Target("s2-streams", run_stream, ((DATA / NEW).read_bytes(), compressed(b"abc" * 99)), _STREAMS, share=5),
    Target("s2-blocks", run_block, tuple(map(_s2.encode_block, (b"abc" * 99, bytes(999), b"x"))), share=5),
    Target(
        "store-files",
        run_store_file,
        (_FILES["msgs/index.db"], _OLD_FILES["msgs/1.idx"], _FILES["obs/PULL/o.dat"]),
        share=5,
    ),
)
