"""Writes segments: messages in, one immutable file out, or none.

The file is written under another name, made durable, and only then given its own, so that a segment is
there completely or not at all. Memory holds one block and the columns (about 16 bytes per message), never
all messages. Any thread may write; each call has everything it needs to itself.

Rules: whoever writes many segments makes drafts first and syncs them one after the other, since the first
sync takes most of what the others need along; the names of all of them are synced at the end.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from edged.config.jetstream_options import SegmentOptions
from edged.core.message import Message
from edged.core.row_twins import pack_rows
from edged.core.rows import Rows
from edged.store.box import LABEL_PLAIN, SALT_BYTES, Box, Keyring
from edged.store.errors import StoreBroken, StoreFull
from edged.store.files import File, Files
from edged.store.segment_footer import INLINE_BYTES_MAX, BlockEntry, BlockTable, Span, Tally, pack_footer
from edged.store.segment_format import (
    BLOCK,
    BOX_PURPOSE,
    FOOTER,
    HEADER_BYTES,
    Header,
    Prelude,
    compressor,
    pack_body,
    pack_section,
    segment_name,
)

USUAL: Final = SegmentOptions()
TEMPORARY_SUFFIX: Final = ".tmp"
ROW_BYTES: Final = 20  # about what the columns of a block take for a message
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

# When a message expires, or 0 for never; asked only about messages with headers.
Expiry = Callable[[Message], int]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What was written. Without messages there is no file, and all figures are 0."""

    path: str
    count: int = 0
    first_seq: int = 0
    last_seq: int = 0
    first_ts_ns: int = 0
    last_ts_ns: int = 0
    message_bytes: int = 0
    file_bytes: int = 0


class PackedBlock(NamedTuple):
    """A block as another segment has it: its figures, compressed bytes, and what is said of its messages."""

    prelude: Prelude
    body: bytes
    seqs: Sequence[int]
    subjects: list[bytes]
    sizes: array[int]
    # Seqs of messages that expire, and when.
    expiries: list[tuple[int, int]]


def write_segment(
    files: Files,
    path: str,
    stream_id: bytes,
    messages: Iterable[Message],
    keys: Keyring | None = None,
    expires_ns: Expiry | None = None,
    salt: bytes | None = None,
    options: SegmentOptions = USUAL,
) -> SegmentInfo:
    """Write messages, in the order of their seqs, to a new segment and make it durable under its name."""
    blocks = blocks_of(messages, options.block_bytes)
    draft = Draft.write(files, path, stream_id, blocks, keys, expires_ns, salt, options.compression_level)
    finish_drafts([draft])
    sync_names(files, [path] if draft.info.count else [])
    return draft.info


def blocks_of(messages: Iterable[Message], block_bytes: int = USUAL.block_bytes) -> Iterator[Rows]:
    """Messages, as many together as make a block; one that is larger than that has a block of its own."""
    gathered: list[Message] = []
    gathered_bytes = 0
    for message in messages:
        size = len(message[4]) + ROW_BYTES
        if gathered_bytes + size > block_bytes and gathered:
            yield Rows.of(gathered)
            gathered.clear()
            gathered_bytes = 0
        gathered.append(message)
        gathered_bytes += size
    if gathered:
        yield Rows.of(gathered)


class Draft:
    """A segment that is written, and neither durable nor under its name yet. Without messages, nothing."""

    __slots__ = ("_file", "_files", "_temporary", "_writer", "info")

    def __init__(self, files: Files, file: File, path: str, writer: _Writer) -> None:
        self._files = files
        self._file = file
        self._temporary = path + TEMPORARY_SUFFIX
        self._writer = writer
        self.info = SegmentInfo(path)

    @classmethod
    def write(
        cls,
        files: Files,
        path: str,
        stream_id: bytes,
        blocks: Iterable[Rows | PackedBlock],
        keys: Keyring | None = None,
        expires_ns: Expiry | None = None,
        salt: bytes | None = None,
        compression_level: int = USUAL.compression_level,
    ) -> Draft:
        """Write messages that are blocks already. Memory holds one of them."""
        draft = cls.begin(files, path, stream_id, keys, expires_ns, salt, compression_level)
        try:
            with _translating(path):
                for block in blocks:
                    draft.add(block)
            draft.end()
        except BaseException:
            draft.drop()
            raise
        return draft

    @classmethod
    def begin(
        cls,
        files: Files,
        path: str,
        stream_id: bytes,
        keys: Keyring | None = None,
        expires_ns: Expiry | None = None,
        salt: bytes | None = None,
        compression_level: int = USUAL.compression_level,
    ) -> Draft:
        """For blocks that are added one by one, up to end(); whoever does not come that far drops it.

        The path is one of `segment_path`; no seq is below the one in it. `salt` is drawn at random unless a
        test wants the same bytes every time; it must never be used for two files.
        """
        name = segment_name(path)
        assert name is not None and name.stream_id == stream_id, path
        salt = os.urandom(SALT_BYTES) if salt is None else salt
        box = keys.box(BOX_PURPOSE, salt) if keys is not None else None
        label = box.label if box is not None else LABEL_PLAIN
        identity = Prelude(BLOCK, label, stream_id, salt, name.first_seq, name.generation, *[0] * 9)
        with _translating(path):
            _make_place(files, path)
            file = _create(files, path + TEMPORARY_SUFFIX)
        return cls(files, file, path, _Writer(file, path, identity, box, expires_ns, compression_level))

    def add(self, block: Rows | PackedBlock) -> None:
        """Write a block. Raises StoreError."""
        with _translating(self.info.path):
            self._writer.add(block)

    def end(self) -> None:
        """There are no more blocks. Raises StoreError."""
        with _translating(self.info.path):
            self.info = self._writer.finish()

    def sync(self) -> None:
        """Make it durable, as far as it is. Raises StoreError."""
        if self._writer.has_blocks:
            with _translating(self.info.path):
                self._file.sync()

    def give_name(self) -> None:
        """Let it be what it is. Its name is durable after sync_names(). Raises StoreError."""
        self._file.close()
        if not self.info.count:
            _remove(self._files, self._temporary)
            return
        with _translating(self.info.path):
            self._files.rename(self._temporary, self.info.path)

    def drop(self) -> None:
        """Leave nothing of it, if it has no name yet."""
        _remove(self._files, self._temporary)
        self._file.close()


def finish_drafts(drafts: Sequence[Draft]) -> None:
    """Make drafts durable, and give them their names. After a StoreError those without a name are gone."""
    try:
        for draft in drafts:
            draft.sync()
        for draft in drafts:
            draft.give_name()
    except BaseException:
        for draft in drafts:
            draft.drop()
        raise


def sync_names(files: Files, paths: Iterable[str]) -> None:
    """Make the names of segments durable. Raises StoreError."""
    # The directories above are synced too, as they may be new; where nothing changed that is cheap.
    directories = {directory: path for path in paths for directory in _directories(path)}
    for directory in sorted(directories, key=len, reverse=True):
        with _translating(directories[directory]):
            files.sync_directory(directory)


class _Writer:
    """One segment on its way to the disk."""

    def __init__(
        self,
        file: File,
        path: str,
        identity: Prelude,
        box: Box | None,
        expires_ns: Expiry | None,
        compression_level: int,
    ) -> None:
        self._file = file
        self._path = path
        self._identity = identity
        self._box = box
        self._expires_ns = expires_ns
        self._compress = compressor(compression_level)
        self._offset = HEADER_BYTES
        self._tally = Tally()
        self._blocks: list[Prelude] = []
        self._entries: list[BlockEntry] = []

    @property
    def has_blocks(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._blocks)

    def add(self, block: Rows | PackedBlock) -> None:
        """Take in some messages."""
        if isinstance(block, PackedBlock):
            self._copy_block(block)
        else:
            self._write_block(block)

    def finish(self) -> SegmentInfo:
        """Finish the file."""
        return self._finish() if self._blocks else SegmentInfo(self._path)

    def _write_block(self, rows: Rows) -> None:
        seqs, times_ns = rows.seqs, rows.times_ns
        assert seqs[0] >= self._identity.name_seq, (seqs[0], self._path)
        message_bytes = self._tally.add(seqs, rows.subjects, rows.sizes)
        if self._expires_ns is not None and any(rows.header_sizes):
            for message in rows.messages():
                expires_ns = self._expires_ns(message) if message.header_bytes else 0
                if expires_ns:
                    self._tally.add_expiry(message.seq, expires_ns)
        prelude = self._identity._replace(
            number=len(self._blocks),
            message_count=len(seqs),
            first_seq=seqs[0],
            last_seq=seqs[-1],
            first_ts_ns=times_ns[0],
            last_ts_ns=times_ns[-1],
            max_ts_ns=max(times_ns),
            message_bytes=message_bytes,
        )
        self._add_block(prelude, pack_section(prelude, pack_rows(rows), self._compress, self._box))

    def _copy_block(self, block: PackedBlock) -> None:
        message_bytes = self._tally.add(block.seqs, block.subjects, block.sizes)
        for seq, expires_ns in block.expiries:
            self._tally.add_expiry(seq, expires_ns)
        figures = block.prelude
        assert (figures.message_count, figures.message_bytes) == (len(block.seqs), message_bytes), figures
        assert figures.first_seq >= self._identity.name_seq, (figures.first_seq, self._path)
        prelude = Prelude(*self._identity[:6], len(self._blocks), *figures[7:])
        self._add_block(prelude, pack_body(prelude, block.body, self._box))

    def _add_block(self, prelude: Prelude, blob: bytes) -> None:
        self._blocks.append(prelude)
        self._entries.append(entry_of(prelude, self._write_blob(blob)))

    def _write_section(self, prelude: Prelude, raw: bytes) -> Span:
        return self._write_blob(pack_section(prelude, raw, self._compress, self._box))

    def _write_blob(self, blob: bytes) -> Span:
        span = Span(self._offset, len(blob))
        self._file.write_at(self._offset, blob)
        self._offset += len(blob)
        return span

    def _finish(self) -> SegmentInfo:
        whole = whole_of(self._blocks)
        columns: dict[int, bytes | Span] = {}
        for kind, raw in self._tally.columns().items():
            is_small = len(raw) <= INLINE_BYTES_MAX
            columns[kind] = raw if is_small else self._write_section(whole._replace(kind=kind), raw)
        footer = whole._replace(kind=FOOTER)
        span = self._write_section(footer, pack_footer(BlockTable.of(self._entries), columns))
        # Last, because only now everything in it is known; nobody sees the file before.
        self._file.write_at(0, Header(footer, *span).pack())
        return SegmentInfo(
            path=self._path,
            count=whole.message_count,
            first_seq=whole.first_seq,
            last_seq=whole.last_seq,
            first_ts_ns=whole.first_ts_ns,
            last_ts_ns=whole.last_ts_ns,
            message_bytes=whole.message_bytes,
            file_bytes=self._offset,
        )


def entry_of(prelude: Prelude, span: Span) -> BlockEntry:
    """A block's line in the table, from what the block says of itself."""
    return BlockEntry(
        number=prelude.number,
        first_seq=prelude.first_seq,
        last_seq=prelude.last_seq,
        message_count=prelude.message_count,
        first_ts_ns=prelude.first_ts_ns,
        max_ts_ns=prelude.max_ts_ns,
        offset=span.offset,
        size=span.size,
    )


def whole_of(blocks: list[Prelude]) -> Prelude:
    """The figures of a segment that consists of these blocks."""
    return blocks[0]._replace(
        number=0,
        raw_bytes=0,
        message_count=sum(block.message_count for block in blocks),
        last_seq=blocks[-1].last_seq,
        last_ts_ns=blocks[-1].last_ts_ns,
        max_ts_ns=max(block.max_ts_ns for block in blocks),
        message_bytes=sum(block.message_bytes for block in blocks),
    )


# --- names and errors ---


def _directories(path: str) -> list[str]:
    """The directory of a file and those above it, up to the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(len(parts), -1, -1)]


def _make_place(files: Files, path: str) -> None:
    files.make_directory(_directories(path)[0])


def _create(files: Files, path: str) -> File:
    try:
        return files.create(path)
    except FileExistsError:
        # Left by a write that a crash cut short; it never had the name of a segment.
        files.remove(path)
        return files.create(path)


def _remove(files: Files, path: str) -> None:
    # A temporary file that stays behind costs room only, and the next attempt removes it.
    with suppress(OSError):
        files.remove(path)


@contextmanager
def _translating(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StoreFull("no room for a segment", path) from error
        raise StoreBroken(f"a segment cannot be written ({error.strerror or error})", path) from error
