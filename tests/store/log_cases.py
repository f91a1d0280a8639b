"""What the tests of logs share: a journal and segments in memory, and a model that is a plain dictionary."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from edged.core import subjects
from edged.core.frames import APPEND, Frame
from edged.core.message import Message, counted_bytes
from edged.core.runs import Run, SubjectColumns, packed_size
from edged.store.block_cache import BlockCache
from edged.store.errors import Damaged
from edged.store.memory_log import MemoryLog, memory_bytes
from edged.store.message_index import MessageIndex
from edged.store.message_reads import MessageReads, ReadBatch
from edged.store.sealed_part import SealedMessages
from edged.store.segment import Segment
from edged.store.segment_format import segment_path
from edged.store.segment_writer import write_segment
from edged.store.stream_log import StreamLog
from tests.store.segment_samples import MemoryFiles

STREAM_ID = bytes(range(16))
HEAD = struct.Struct("<QIH")
FRAME_HEADER_BYTES = 24


class FakeJournal:
    """Frames by file and offset; `broken` ones are read as something else."""

    def __init__(self) -> None:
        self.files: dict[int, bytearray] = {}
        self.frames: dict[int, list[Frame]] = {}
        self.spans_read = 0
        # Whether it says that what it has never left the memory.
        self.is_trusted = False

    def append(self, file: int, message: Message) -> tuple[int, int]:
        content = self.files.setdefault(file, bytearray(64))
        offset = len(content)
        content += bytes(FRAME_HEADER_BYTES)
        content += HEAD.pack(message.ts_ns, message.header_bytes, len(message.subject))
        content += message.subject + message.data
        body = offset + FRAME_HEADER_BYTES
        frame = (offset, APPEND, 1, message.seq, body, len(content) - body)
        self.frames.setdefault(file, []).append(frame)
        return offset, len(content) - offset

    def read(self, file: int, offset: int, size: int) -> bytes:
        return bytes(self.files[file][offset : offset + size])

    def read_span(self, file: int, offset: int, size: int) -> tuple[bytes, Sequence[Frame] | None]:
        self.spans_read += 1
        if self.is_trusted:
            return self.read(file, offset, size), None
        found = [frame for frame in self.frames[file] if offset <= frame[0] < offset + size]
        frames = [(start - offset, *rest, body - offset, count) for start, *rest, body, count in found]
        return self.read(file, offset, size), frames

    @staticmethod
    def decode(frame: bytes) -> tuple[int, bytes, int, bytes]:
        ts_ns, header_bytes, subject_bytes = HEAD.unpack_from(frame, FRAME_HEADER_BYTES)
        start = FRAME_HEADER_BYTES + HEAD.size
        if start + subject_bytes > len(frame):
            raise ValueError("too short")
        return ts_ns, frame[start : start + subject_bytes], header_bytes, frame[start + subject_bytes :]


class FakeSegment:
    """A segment that is a list; it counts how often its columns are read."""

    def __init__(self, path: str, messages: Sequence[Message]) -> None:
        self.path = path
        self._messages = list(messages)
        self._seqs = array("Q", [message.seq for message in messages])
        self.first_seq = self._seqs[0]
        self.last_seq = self._seqs[-1]
        self.count = len(self._messages)
        self.message_bytes = sum(counted(message) for message in messages)
        self.last_ts_ns = self._messages[-1].ts_ns
        self.columns_read = 0
        by_subject: dict[bytes, list[int]] = {}
        for message in messages:
            by_subject.setdefault(message.subject, []).append(message.seq)
        self._subjects = SubjectColumns(
            self.first_seq,
            b"".join(by_subject),
            array("I", map(len, by_subject)),
            array("Q", map(len, by_subject.values())),
            array("Q", [seqs[0] - self.first_seq for seqs in by_subject.values()]),
            array("Q", [seqs[-1] - seqs[0] for seqs in by_subject.values()]),
        )
        codes = {subject: code for code, subject in enumerate(by_subject)}
        typecode = "B" if len(codes) <= 256 else "H"
        self._codes = array(typecode, [codes[message.subject] for message in messages])

    def subject_columns(self) -> SubjectColumns:
        return self._subjects._replace(counts=self._subjects.counts[:])

    def get(self, seq: int) -> Message | None:
        position = bisect_left(self._seqs, seq)
        found = self._messages[position] if position < self.count else None
        return found if found is not None and found.seq == seq else None

    def read(self, seqs: Sequence[int]) -> list[Message]:
        return [message for message in map(self.get, seqs) if message is not None]

    def codes(self) -> tuple[Sequence[int], Any]:
        self.columns_read += 1
        return self._seqs, self._codes

    def columns(self) -> tuple[Any, Any]:
        self.columns_read += 1
        return array("Q", [seq - self.first_seq for seq in self._seqs]), self._codes

    def sizes(self) -> Any:
        return array("I", map(counted, self._messages))

    def seq_at_time(self, ts_ns: int) -> int:
        return next((message.seq for message in self._messages if message.ts_ns >= ts_ns), self.last_seq + 1)

    def rebuilt(self) -> SealedMessages:
        raise Damaged("it has no blocks", self.path)


def counted(message: Message) -> int:
    return counted_bytes(len(message.subject), message.header_bytes, len(message.data))


class FakeSegments:
    """Makes and opens segments that are lists."""

    def __init__(self) -> None:
        self._segments: dict[str, FakeSegment] = {}

    def write(self, messages: Sequence[Message]) -> SealedMessages | None:
        if not messages:
            return None
        path = f"segment-{len(self._segments)}"
        self._segments[path] = FakeSegment(path, messages)
        return self._segments[path]

    def open(self, path: str) -> SealedMessages:
        return self._segments[path]


class RealSegments:
    """Makes and opens real segments, in files in memory."""

    def __init__(self) -> None:
        self._files = MemoryFiles()
        self._cache = BlockCache(1 << 22)
        self._generation = 0

    def write(self, messages: Sequence[Message]) -> SealedMessages | None:
        if not messages:
            return None
        self._generation += 1
        path = segment_path(STREAM_ID, messages[0].seq, self._generation)
        write_segment(self._files, path, STREAM_ID, messages)
        return self.open(path)

    def open(self, path: str) -> SealedMessages:
        return Segment.open(self._files, path, self._cache)


# The same few subjects and patterns are asked for again and again.
_matches = lru_cache(maxsize=65536)(subjects.matches)


@dataclass
class Model:
    """What a log should say, the slow way."""

    is_memory: bool = False
    messages: dict[int, Message] = field(default_factory=dict)
    last_seq: int = 0
    last_ts_ns: int = 0

    def copy(self) -> Model:
        return Model(self.is_memory, dict(self.messages), self.last_seq, self.last_ts_ns)

    def add(self, message: Message) -> None:
        self.messages[message.seq] = message
        self.last_seq = message.seq
        self.last_ts_ns = message.ts_ns

    def size(self, message: Message) -> int:
        return memory_bytes(message) if self.is_memory else counted(message)

    @property
    def first_seq(self) -> int:
        return min(self.messages, default=self.last_seq + 1)

    def matching(self, filters: Iterable[bytes]) -> list[int]:
        patterns = tuple(filters) or (b">",)
        return sorted(
            seq
            for seq, message in self.messages.items()
            if any(_matches(message.subject, pattern) for pattern in patterns)
        )

    def check_figures(self, log: MessageIndex) -> None:
        assert log.first_seq == self.first_seq
        assert log.last_seq == self.last_seq
        assert log.message_count == len(self.messages)
        assert log.bytes == sum(map(self.size, self.messages.values()))
        assert log.subject_count == len({message.subject for message in self.messages.values()})
        assert log.deleted_count == self.last_seq + 1 - self.first_seq - len(self.messages)
        assert log.last_ts_ns == self.last_ts_ns
        assert log.first_ts_ns == (self.messages[self.first_seq].ts_ns if self.messages else 0)

    def check_filter(self, log: MessageIndex, filters: tuple[bytes, ...], seqs: Iterable[int]) -> None:
        matching = self.matching(filters)
        for seq in seqs:
            place = bisect_left(matching, seq)
            assert log.next_matching(filters, seq) == (matching[place] if place < len(matching) else None)
            assert log.count_matching(filters, seq) == len(matching) - place
            place = bisect_left(matching, seq + 1)
            assert log.previous_matching(filters, seq) == (matching[place - 1] if place else None)
        counts: dict[bytes, int] = {}
        for seq in matching:
            subject = self.messages[seq].subject
            counts[subject] = counts.get(subject, 0) + 1
        found = list(log.subjects(filters))
        assert dict(found) == counts
        assert len(found) == len(counts)

    def check_subject(self, log: MessageIndex, subject: bytes) -> None:
        seqs = [seq for seq, message in self.messages.items() if message.subject == subject]
        assert log.first_of(subject) == min(seqs, default=None)
        assert log.last_of(subject) == max(seqs, default=None)

    def check_batch(
        self, log: MessageReads, filters: tuple[bytes, ...], seq: int, limits: tuple[int, int]
    ) -> None:
        count_max, bytes_max = limits
        expected: list[Message] = []
        next_seq = self.last_seq + 1
        for message in (self.messages[one] for one in self.matching(filters) if one >= seq):
            if expected and len(message.data) > bytes_max:
                next_seq = message.seq
                break
            expected.append(message)
            bytes_max -= len(message.data)
            if len(expected) == count_max or bytes_max <= 0:
                next_seq = message.seq + 1
                break
        assert log.messages(filters, seq, *limits) == ReadBatch(expected, next_seq, [])

    def check_lasts(self, log: MessageReads, filters: tuple[bytes, ...], to_seq: int | None) -> None:
        lasts: dict[bytes, int] = {}
        for seq in self.matching(filters):
            if to_seq is None or seq <= to_seq:
                lasts[self.messages[seq].subject] = seq
        assert log.last_seqs(filters, to_seq) == sorted(lasts.values())

    def check_time(self, log: MessageIndex, ts_ns: int) -> None:
        found = [seq for seq, message in self.messages.items() if message.ts_ns >= ts_ns]
        assert log.seq_at_time(ts_ns) == min(found, default=self.last_seq + 1)

    def check_messages(self, log: MessageIndex, seqs: Iterable[int]) -> None:
        for seq in seqs:
            assert log.get(seq) == self.messages.get(seq)

    def check_deleted(self, log: MessageIndex, limit: int) -> None:
        missing = (seq for seq in range(self.first_seq, self.last_seq + 1) if seq not in self.messages)
        expected = [seq for seq, _ in zip(missing, range(limit), strict=False)]
        assert log.deleted_seqs(limit) == expected


def run_of(messages: Sequence[Message], places: Sequence[tuple[int, int]]) -> Run:
    """Messages as a run; their frames are at these offsets and have these sizes."""
    sizes = [counted(message) for message in messages]
    return Run(
        [message.subject for message in messages],
        [message.ts_ns for message in messages],
        array("I", [offset for offset, _ in places]),
        array("I", [packed_size(frame, size) for (_, frame), size in zip(places, sizes, strict=True)]),
        sum(sizes),
    )


class FileWorld:
    """A StreamLog with a journal and segments, and messages on their way from one to the other."""

    is_memory = False

    def __init__(self, segments: FakeSegments | RealSegments) -> None:
        self.journal = FakeJournal()
        self.segments = segments
        self.file = 1
        self.log = StreamLog(
            STREAM_ID, self.journal.read, self.journal.decode, read_span=self.journal.read_span
        )
        self._moving: tuple[list[int], list[SealedMessages], list[Message]] | None = None

    def append(self, message: Message) -> None:
        place = self.journal.append(self.file, message)
        self.log.append(message.seq, message.ts_ns, message.subject, counted(message), self.file, *place)

    def append_run(self, messages: Sequence[Message]) -> None:
        places = [self.journal.append(self.file, message) for message in messages]
        self.log.append_run(messages[0].seq, self.file, run_of(messages, places))

    def begin_move(self, merged_max: int) -> None:
        """Take what is alive in all complete files, and in some segments before them."""
        if self._moving is not None:
            return
        self.file += 1
        files = self.log.hot_files()
        merged = self.log.segments[-merged_max:] if merged_max else []
        alive: list[Message] = []
        for segment in merged:
            dead = self.log.deleted_in(segment)
            found = (segment.get(seq) for seq in segment.codes()[0] if seq not in dead)
            alive.extend(message for message in found if message is not None)
        for file in files:
            for seq, offset, size in places_in(self.log, file):
                frame = self.journal.read(file, offset, size)
                alive.append(Message(seq, *self.journal.decode(frame)))
        self._moving = files, merged, alive

    def end_move(self) -> SealedMessages | None:
        """Write it to a segment, and read it there."""
        if self._moving is None:
            return None
        files, merged, alive = self._moving
        self._moving = None
        segment = self.segments.write(alive)
        assert self.log.adopt(files, merged, segment) == []
        for file in files:
            del self.journal.files[file]
        return segment

    def rewrite(self, index: int, count: int) -> None:
        """Write some neighbouring segments anew, without what is dead in them."""
        old = self.log.segments[index : index + count]
        if self._moving is None and old:
            alive = [
                message
                for segment, dead in [(segment, self.log.deleted_in(segment)) for segment in old]
                for seq in segment.codes()[0]
                if seq not in dead and (message := segment.get(seq)) is not None
            ]
            self.log.replace_segments(old, self.segments.write(alive))

    def restored(self, snapshot: dict[str, Any]) -> StreamLog:
        return StreamLog.restore(
            snapshot,
            self.segments.open,
            STREAM_ID,
            self.journal.read,
            self.journal.decode,
            read_span=self.journal.read_span,
        )

    def restart(self) -> None:
        """Move everything to segments, take a snapshot and go on with what is made of it."""
        self.end_move()
        self.begin_move(0)
        self.end_move()
        self.log = self.restored(self.log.snapshot())


class MemoryWorld:
    """A MemoryLog, for which nothing moves."""

    is_memory = True

    def __init__(self) -> None:
        self.log = MemoryLog()

    def append(self, message: Message) -> None:
        self.log.append(message)

    def append_run(self, messages: Sequence[Message]) -> None:
        self.log.append_run(messages)


def places_in(log: StreamLog, file: int) -> list[tuple[int, int, int]]:
    """Seq, offset and frame size of what is alive in a journal file."""
    return [place for places in log.live_in_file(file) for place in places]


def broken_open(_: str) -> SealedMessages:
    """Nothing can be opened."""
    raise Damaged("neither footer nor blocks can be read")
