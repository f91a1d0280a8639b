"""Archives of a stream as nats-server up to 2.14 writes them: a tar of its store's files, not compressed.

In this order: `meta.inf` (configuration), `meta.sum` (its checksum), `msgs/N.blk` (messages, before 2.10
each with `msgs/N.idx`), `msgs/index.db`, then for each consumer `obs/<name>/meta.inf`, `meta.sum` and
`o.dat`. A message may be declared dead by a later block, or by the index, which comes after all of them: so
one pass over the archive finds out what counts (see `archive_reader`) and another one reads it.

A block may be compressed: `cmp`, u8 algorithm (1: S2), how many bytes it has as a uvarint, an S2 stream of
all but the last 8 bytes, then these.

Rules: archives come from outside. Every checksum is verified, no size is believed beyond the bounds of
ArchiveLimits, no path is ever used as one, and ArchiveError is the only way to fail. A reader that failed
must not be used on.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from edged.core.archive_parts import (
    SEQ_MAX,
    ArchivedConsumer,
    ArchiveEnd,
    ArchiveError,
    ArchiveLimits,
    parse_document,
)
from edged.core.block_records import CHECKSUM_BYTES, BlockReader, Record, hash_key
from edged.core.gotime import parse_rfc3339
from edged.core.message import Message
from edged.core.s2 import S2Error
from edged.core.s2_stream import S2Reader
from edged.core.s2_twins import highway_hash
from edged.core.store_index import (
    BLOCKS_MAX,
    StoreIndex,
    parse_block_index,
    parse_consumer_position,
    parse_index,
)
from edged.core.subjects import valid_asset_name, valid_subscription
from edged.core.tar_files import BLOCK_BYTES, TarFile, parse_header, parse_records

_BLOCK_NAME: Final = re.compile(r"msgs/([1-9][0-9]{0,9})\.(blk|idx)", re.ASCII)
_CONSUMER_NAME: Final = re.compile(r"obs/([^/]+)/(meta\.inf|meta\.sum|o\.dat)")
# Files that say nothing that the blocks do not say: subjects of a block, times to live, schedules, sources.
_IGNORED: Final = re.compile(r"msgs/[0-9]+\.fss|msgs/thw\.db|msgs/sched\.db|sources\.db", re.ASCII)
_ERRORS: Final = "errors.txt"
_COMPRESSED: Final = b"cmp\x01"
_CHECKSUM_TEXT_BYTES_MAX: Final = 64
_ERROR_TEXT_BYTES_MAX: Final = 4096
_EXTENSION_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """The configuration in `meta.inf`, as it is there."""

    name: str
    config: dict[str, Any]
    created_ns: int | None


@dataclass(frozen=True, slots=True)
class Removed:
    """There is a tombstone for this seq."""

    seq: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """There is a record for this seq, with no message in it."""

    seq: int


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """All of a block was read. The checksum is that of its last record.

    `index` is what was said beside the block about it, if that holds for what was read.
    """

    block: int
    checksum: bytes
    first_seq: int
    last_seq: int
    index: StoreIndex | None


TarEntry: TypeAlias = (
    StreamFiles | Message | Removed | Skipped | BlockEnd | StoreIndex | ArchivedConsumer | ArchiveEnd
)
# What goes on step by step: None says that more bytes are needed.
Steps: TypeAlias = Generator[TarEntry | None, None, None]


class TarReader:
    """The bytes of an archive in by feed(), what its files say out by next_entry()."""

    __slots__ = (
        "_block",
        "_block_floor",
        "_block_index",
        "_blocks",
        "_buffer",
        "_consumer",
        "_consumers",
        "_documents_bytes",
        "_ended",
        "_has_index",
        "_limits",
        "_output_bytes",
        "_position",
        "_seq",
        "_steps",
        "_stream",
    )

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._position = 0
        self._steps = self._read()
        self._stream: StreamFiles | None = None
        self._block = 0
        self._blocks = 0
        # The highest seq of the blocks before, and what was said of the block to come.
        self._block_floor = 0
        self._block_index: StoreIndex | None = None
        self._seq = 0
        # Configurations whose checksum was right, and which consumer's state is expected next.
        self._consumers: set[str] = set()
        self._consumer: tuple[str, dict[str, Any]] | None = None
        self._documents_bytes = 0
        # What came out of any compression, the one around the archive included.
        self._output_bytes = 0
        self._has_index = False
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Bytes as they come, cut anywhere."""
        del self._buffer[: self._position]
        self._position = 0
        self._buffer += data
        self._output_bytes += len(data)

    def next_entry(self) -> TarEntry | None:
        """What comes next; None: more bytes are needed, or the archive ended."""
        return next(self._steps)

    def finish(self) -> None:
        """Nothing comes any more; ArchiveError when that is before the end."""
        if not self._ended:
            raise ArchiveError("the archive was cut")

    # --- the tar ---

    def _read(self) -> Steps:
        while True:
            file = yield from self._next_file()
            if file is None:
                break
            yield from self._file(file)
        if self._stream is None or self._consumer is not None:
            raise ArchiveError("the archive ends without its configuration or the state of a consumer")
        self._ended = True
        yield ArchiveEnd(self._seq)
        while True:
            if any(self._buffer[self._position :]):
                raise ArchiveError("there is more after the end of the archive")
            self._position = len(self._buffer)
            yield None

    def _next_file(self) -> Generator[None, None, TarFile | None]:
        """The header of the next file; None: the mark of the end."""
        header = yield from self._take(BLOCK_BYTES)
        if not any(header):
            return None
        file = parse_header(header)
        if file.is_extension:
            records = parse_records((yield from self._small(file, _EXTENSION_BYTES_MAX)))
            file = parse_header((yield from self._take(BLOCK_BYTES)), records)
        if not file.is_regular:
            raise ArchiveError(f"the archive holds {file.name[:256]!r}, which is no plain file")
        # A server on Windows joins names with its own separator.
        return TarFile(file.name.replace("\\", "/"), file.size, file.kind)

    def _take(self, size: int) -> Generator[None, None, bytes]:
        """The next bytes, so many."""
        while len(self._buffer) - self._position < size:
            yield None
        start = self._position
        self._position = start + size
        return bytes(self._buffer[start : self._position])

    def _padding(self, file: TarFile) -> Generator[None, None, None]:
        yield from self._take(-file.size % BLOCK_BYTES)

    def _small(self, file: TarFile, size_max: int) -> Generator[None, None, bytes]:
        """A whole file that is kept in memory."""
        if file.size > size_max:
            raise ArchiveError(f"{file.name!r} has {file.size} bytes, more than {size_max}")
        data = yield from self._take(file.size)
        yield from self._padding(file)
        return data

    def _parts(self, size: int) -> Generator[None, None, bytes]:
        """Some of the next bytes, at least one and at most `size`."""
        while self._position == len(self._buffer):
            yield None
        return (yield from self._take(min(size, len(self._buffer) - self._position)))

    # --- the files ---

    def _file(self, file: TarFile) -> Steps:
        if file.name == _ERRORS:
            text = yield from self._take(min(file.size, _ERROR_TEXT_BYTES_MAX))
            raise ArchiveError(f"the server failed while it wrote this: {text.decode('utf-8', 'replace')}")
        if file.name.endswith(".key"):
            raise ArchiveError("the archive is encrypted: it holds keys, and files that need them")
        if file.name == "meta.inf":
            yield from self._meta(file)
            return
        if self._stream is None:
            raise ArchiveError("the archive does not begin with the configuration of a stream")
        if found := _BLOCK_NAME.fullmatch(file.name):
            yield from self._block_file(file, int(found[1]), found[2])
        elif file.name == "msgs/index.db":
            yield from self._index(file)
        elif found := _CONSUMER_NAME.fullmatch(file.name):
            yield from self._consumer_file(file, found[1], found[2])
        elif _IGNORED.fullmatch(file.name):
            yield from self._skip(file)
        else:
            raise ArchiveError(f"the archive holds {file.name!r}, which does not belong to a stream")

    def _skip(self, file: TarFile) -> Steps:
        rest = file.size
        while rest:
            rest -= len((yield from self._parts(rest)))
        yield from self._padding(file)

    def _document(self, file: TarFile) -> Generator[None, None, bytes]:
        data = yield from self._small(file, self._limits.documents_bytes_max - self._documents_bytes)
        self._documents_bytes += len(data)
        return data

    def _checked_document(self, file: TarFile, key: str | None) -> Generator[None, None, dict[str, Any]]:
        """A configuration, whose checksum is the next file; its key is the name in it when none is given."""
        data = yield from self._document(file)
        document = parse_document(data, f"{file.name}, which is damaged or encrypted,")
        name = document.get("name")
        if key is None and not isinstance(name, str):
            raise ArchiveError(f"{file.name} names no stream")
        sum_file = yield from self._next_file()
        if sum_file is None or sum_file.name != file.name.removesuffix("inf") + "sum":
            raise ArchiveError(f"{file.name} is not followed by its checksum")
        checksum = yield from self._small(sum_file, _CHECKSUM_TEXT_BYTES_MAX)
        if highway_hash(hash_key(str(name) if key is None else key), data).hex().encode() != checksum:
            raise ArchiveError(f"{file.name} does not match its checksum")
        return document

    def _meta(self, file: TarFile) -> Steps:
        if self._stream is not None:
            raise ArchiveError("the configuration of the stream comes twice")
        config = yield from self._checked_document(file, None)
        if not valid_asset_name(config["name"]):
            raise ArchiveError("the stream has no valid name")
        created_ns = _take_created(config)
        self._stream = StreamFiles(config["name"], config, created_ns)
        yield self._stream

    def _index(self, file: TarFile) -> Steps:
        assert self._stream is not None
        if self._has_index:
            raise ArchiveError("index.db comes twice")
        self._has_index = True
        data = yield from self._small(file, self._limits.index_bytes_max)
        content, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        if highway_hash(hash_key(self._stream.name), content) != checksum:
            raise ArchiveError("index.db does not match its checksum; it is damaged or encrypted")
        yield parse_index(content, self._limits.pages_max)

    def _consumer_file(self, file: TarFile, name: str, part: str) -> Steps:
        assert self._stream is not None
        if part == "meta.inf" and self._consumer is None and name not in self._consumers:
            if not valid_asset_name(name) or len(self._consumers) >= self._limits.consumers_max:
                raise ArchiveError("a consumer without a valid name, or too many of them")
            self._consumers.add(name)
            self._consumer = name, (yield from self._checked_document(file, f"{self._stream.name}/{name}"))
        elif part == "o.dat" and self._consumer is not None and self._consumer[0] == name:
            data = yield from self._document(file)
            config = self._consumer[1]
            self._consumer = None
            created_ns = _take_created(config)
            yield ArchivedConsumer(name, config, parse_consumer_position(data, name), created_ns)
        else:
            raise ArchiveError(f"{file.name!r} comes twice or out of order")

    # --- the blocks ---

    def _block_file(self, file: TarFile, block: int, kind: str) -> Steps:
        if kind == "idx":
            data = yield from self._small(file, self._limits.index_bytes_max)
            self._block_index = parse_block_index(data, block, self._limits.pages_max)
            return
        assert self._stream is not None
        if block <= self._block:
            raise ArchiveError(f"message block {block} comes after block {self._block}")
        self._blocks += 1
        if self._blocks > BLOCKS_MAX:
            raise ArchiveError(f"more than {BLOCKS_MAX} message blocks")
        self._block = block
        self._block_floor = self._seq
        reader = BlockReader(self._stream.name, block, self._limits.message_bytes_max)
        start = yield from self._take(min(len(_COMPRESSED), file.size))
        rest = file.size - len(start)
        if start == _COMPRESSED:
            yield from self._compressed_block(reader, rest)
        else:
            reader.feed(start)
            while rest:
                part = yield from self._parts(rest)
                rest -= len(part)
                reader.feed(part)
                yield from self._records(reader)
        reader.finish()
        yield self._block_end(reader.checksum)
        yield from self._padding(file)

    def _block_end(self, checksum: bytes) -> BlockEnd:
        index, self._block_index = self._block_index, None
        if index is not None:
            first_seq, last_seq = index.ranges[0]
            is_empty = self._seq == self._block_floor and first_seq > last_seq
            # One of another block, or of another state of this one, says nothing.
            if index.last_block != self._block or (index.last_checksum != checksum and not is_empty):
                index = None
        return BlockEnd(self._block, checksum, self._block_floor + 1, self._seq, index)

    def _compressed_block(self, reader: BlockReader, rest: int) -> Steps:
        """How many bytes it has as a varint, an S2 stream of all but the last bytes, then these."""
        while rest and (yield from self._take(1))[0] >= 0x80:
            rest -= 1
        rest -= 1 + CHECKSUM_BYTES
        if rest < 0:
            raise ArchiveError(f"{reader.name} is too short")
        plain = S2Reader(self._limits.output_bytes_max - self._output_bytes)
        try:
            while rest:
                part = yield from self._parts(rest)
                rest -= len(part)
                plain.feed(part)
                while (data := plain.next_block()) is not None:
                    reader.feed(data)
                    yield from self._records(reader)
            plain.finish()
        except S2Error as error:
            raise ArchiveError(f"{reader.name}: {error}") from None
        self._output_bytes += plain.output_bytes
        reader.feed((yield from self._take(CHECKSUM_BYTES)))
        yield from self._records(reader)

    def _records(self, reader: BlockReader) -> Steps:
        while (record := reader.next_record()) is not None:
            if record.is_tombstone:
                if record.seq:
                    yield Removed(record.seq)
            elif record.seq <= self._block_floor and not record.is_erased:
                raise ArchiveError(f"{reader.name}: message {record.seq} is of an earlier block")
            elif record.seq > self._seq:
                # Within a block, what does not move up is a leftover, which nats-server ignores as well.
                yield self._skipped(record) if record.is_erased else self._message(reader, record)

    def _skipped(self, record: Record) -> Skipped:
        self._seq = record.seq
        return Skipped(record.seq)

    def _message(self, reader: BlockReader, record: Record) -> Message:
        if record.seq > SEQ_MAX or record.ts_ns < 0 or not valid_subscription(record.subject):
            raise ArchiveError(f"{reader.name}: message {record.seq} has no valid seq, time or subject")
        self._seq = record.seq
        return Message(record.seq, record.ts_ns, record.subject, record.header_bytes, record.data)


def _take_created(config: dict[str, Any]) -> int | None:
    """The time of creation, which the files have beside the configuration proper."""
    config.pop("Name", None)
    created = config.pop("Created", None)
    try:
        return parse_rfc3339(created) if isinstance(created, str) else None
    except ValueError:
        return None
