"""Reads an archive of a stream of either kind, in two passes over its compressed bytes.

The first pass, ArchiveSurvey, can follow the bytes as they arrive from a client. It verifies everything and
finds out what the archive holds: only when it is through is the archive known to be whole, and which
messages of an old one still count. The second, ArchiveMessages, gives the messages. So nothing needs to be
created before it is certain that it can be completed.

Rules: archives come from outside. One step is a bounded piece of work, memory is bounded by ArchiveLimits,
and ArchiveError is the only way to fail; a reader that failed fails again in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from edged.core.archive import MAGIC, Entry, EntryReader
from edged.core.archive_parts import (
    ArchivedConsumer,
    ArchiveEnd,
    ArchiveError,
    ArchiveLimits,
    ArchiveState,
)
from edged.core.message import Message, counted_bytes
from edged.core.s2 import S2Error
from edged.core.s2_stream import S2Reader
from edged.core.seq_set import SeqSet, SeqSetFullError
from edged.core.store_index import StoreIndex
from edged.core.tar_archive import BlockEnd, Removed, Skipped, StreamFiles, TarEntry, TarReader

# How many entries one step looks at.
_STEP_ENTRIES: Final = 256


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """What an archive holds besides the messages themselves."""

    state: ArchiveState
    consumers: tuple[ArchivedConsumer, ...]
    # The rest only in archives of nats-server up to 2.14, which hold the stream's configuration as well.
    config: dict[str, Any] | None = None
    created_ns: int | None = None
    # The messages that count; such an archive has others beside them.
    live: SeqSet | None = None


class ArchiveReader:
    """Compressed bytes in by feed(), entries out by next_entry(), whichever kind of archive it is."""

    __slots__ = ("_failure", "_input", "_limits", "_reader", "_start")

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._input = S2Reader(limits.output_bytes_max)
        # The first bytes, until there are enough of them to tell which kind it is.
        self._start = b""
        self._reader: EntryReader | TarReader | None = None
        self._failure: ArchiveError | None = None

    @property
    def output_bytes(self) -> int:
        """What came out of the compression so far."""
        return self._input.output_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes as they come, cut anywhere. Take the entries out before more is fed: what waits is kept."""
        self._input.feed(data)

    def next_entry(self) -> Entry | TarEntry | None:
        """The next entry; None: more bytes are needed, or the archive ended."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._next_entry()
        except (S2Error, ArchiveError, SeqSetFullError) as error:
            self._failure = error if isinstance(error, ArchiveError) else ArchiveError(str(error))
            raise self._failure from None

    def finish(self) -> None:
        """Nothing comes any more; ArchiveError when that is before the end."""
        if self._failure is not None:
            raise self._failure
        try:
            self._input.finish()
        except S2Error as error:
            raise ArchiveError(str(error)) from None
        if self._reader is None:
            raise ArchiveError("the archive was cut")
        self._reader.finish()

    def _next_entry(self) -> Entry | TarEntry | None:
        while True:
            if self._reader is not None:
                entry = self._reader.next_entry()
                if entry is not None:
                    return entry
            block = self._input.next_block()
            if block is None:
                return None
            if self._reader is not None:
                self._reader.feed(block)
                continue
            self._start += block
            if len(self._start) >= len(MAGIC):
                is_new = self._start.startswith(MAGIC)
                self._reader = EntryReader(self._limits) if is_new else TarReader(self._limits)
                self._reader.feed(self._start)
                self._start = b""


class ArchiveSurvey:
    """The first pass: feed(), step() until it has nothing to do, in the end finish()."""

    __slots__ = (
        "_block_bytes",
        "_config",
        "_consumers",
        "_created_ns",
        "_ended",
        "_index",
        "_last_block",
        "_last_seq",
        "_limits",
        "_ranges",
        "_reader",
        "_removed",
        "_seen",
        "_size_bytes",
        "_state",
    )

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._reader = ArchiveReader(limits)
        self._state: ArchiveState | None = None
        self._config: dict[str, Any] | None = None
        self._created_ns: int | None = None
        self._consumers: list[ArchivedConsumer] = []
        self._ended = False
        # For archives of the old kind.
        self._seen = SeqSet(limits.pages_max)
        self._removed = SeqSet(limits.pages_max)
        self._index: StoreIndex | None = None
        self._ranges: list[tuple[int, int]] = []
        self._last_block = 0, b""
        self._last_seq = 0
        self._size_bytes = 0
        self._block_bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Compressed bytes as they come, cut anywhere."""
        self._reader.feed(data)

    def step(self) -> bool:
        """Read on for a while; False: there is nothing to do before more is fed."""
        for _ in range(_STEP_ENTRIES):
            entry = self._reader.next_entry()
            if entry is None:
                return False
            try:
                self._note(entry)
            except SeqSetFullError as error:
                raise ArchiveError(f"the seqs of the archive are too far apart: {error}") from None
        return True

    def finish(self) -> ArchiveContents:
        """Everything was fed and step() has nothing to do; what the archive holds, if it is whole."""
        self._reader.finish()
        assert self._ended, "step() was not called until it had nothing to do"
        consumers = tuple(self._consumers)
        if self._state is not None:
            return ArchiveContents(self._state, consumers)
        live, last_seq, size_bytes = self._live()
        first_seq = live.first() if live else last_seq + 1
        state = ArchiveState(len(live), size_bytes, first_seq, last_seq, len(consumers))
        return ArchiveContents(state, consumers, self._config, self._created_ns, live)

    def _note(self, entry: Entry | TarEntry) -> None:
        match entry:
            case Message():
                if self._state is None:
                    self._seen.add(entry.seq)
                    self._last_seq = max(self._last_seq, entry.seq)
                    self._block_bytes += counted_bytes(
                        len(entry.subject), entry.header_bytes, len(entry.data)
                    )
            case Removed():
                self._removed.add(entry.seq)
                self._last_seq = max(self._last_seq, entry.seq)
            case Skipped():
                self._last_seq = max(self._last_seq, entry.seq)
            case BlockEnd():
                self._note_block(entry)
            case StoreIndex():
                self._index = entry
            case ArchivedConsumer():
                self._consumers.append(entry)
            case StreamFiles():
                self._config, self._created_ns = entry.config, entry.created_ns
            case ArchiveState():
                self._state = entry
            case ArchiveEnd():
                self._ended = True

    def _note_block(self, end: BlockEnd) -> None:
        self._last_block = end.block, end.checksum
        if end.index is None:
            self._ranges.append((end.first_seq, end.last_seq))
            self._size_bytes += self._block_bytes
        else:
            self._ranges += end.index.ranges
            self._removed.add_all(end.index.removed)
            self._size_bytes += end.index.size_bytes
            self._last_seq = max(self._last_seq, end.index.last_seq)
        self._block_bytes = 0

    def _live(self) -> tuple[SeqSet, int, int]:
        """The seqs of an old archive that count, its last seq, and the bytes of its messages.

        An index holds only for exactly these blocks. One that was written while the stream went on does not:
        then it is the tombstones that say what was deleted, as when nats-server restores such an archive. In
        that case what a limit had removed is there again, and the bytes count what was deleted, too.
        """
        live, index = self._seen, self._index
        if index is not None and (index.last_block, index.last_checksum) == self._last_block:
            live.keep_ranges(index.ranges)
            live.remove_all(index.removed)
            return live, index.last_seq, index.size_bytes
        live.keep_ranges(self._ranges)
        live.remove_all(self._removed)
        return live, self._last_seq, self._size_bytes


class ArchiveMessages:
    """The second pass over an archive that was found whole: feed(), next_message() until None, finish()."""

    __slots__ = ("_live", "_reader")

    def __init__(self, contents: ArchiveContents, limits: ArchiveLimits) -> None:
        self._live = contents.live
        self._reader = ArchiveReader(limits)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Compressed bytes as they come, cut anywhere."""
        self._reader.feed(data)

    def next_message(self) -> Message | None:
        """The next message, their seqs going up; None: more bytes are needed, or there is no other."""
        while (entry := self._reader.next_entry()) is not None:
            if isinstance(entry, Message) and (self._live is None or entry.seq in self._live):
                return entry
        return None

    def finish(self) -> None:
        """Everything was fed; ArchiveError when it was less than in the first pass."""
        self._reader.finish()
