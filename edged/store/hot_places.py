"""Where messages are that are still in the journal: the part of a log that belongs to one journal file.

For each message there are 9 bytes: offset and size of its frame, and the number of its subject; 11 when
the stream has more than 256 subjects, and 8 more once seqs have holes. What the message counts for is in
the size as well: a frame is a few bytes longer than that, and how many is in the upper bits.

Rules: offsets are below 4 GiB, frames below 128 MiB. Nothing is read but by message_at(), read() and
timestamp_at().
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

from edged.core.frames import Frame
from edged.core.message import Message
from edged.core.row_twins import messages_at, rows_of_frames
from edged.core.rows import Places
from edged.core.runs import OVERHEAD_MAX, SIZE_BITS, SIZE_MASK
from edged.store.deleted import DeletedPositions
from edged.store.errors import Damaged
from edged.store.log_part import GrowingPart

# file, offset, size of the frame; returns the frame
ReadHot = Callable[[int, int, int], bytes]
# file, offset, size of a span of frames; returns its bytes, and the good frames in them, or None where they
# never left the memory and are all good
ReadSpan = Callable[[int, int, int], tuple[bytes, Sequence[Frame] | None]]
# a frame; returns time, subject, size of the header block, header block and payload
DecodeFrame = Callable[[bytes], tuple[int, bytes, int, bytes]]

_PAGE_MASK: Final = GrowingPart.PAGE - 1
# Fewer messages than this are read one by one, and so are those with too much of others between them.
_SPAN_MESSAGES_MIN: Final = 4
_SPAN_WASTE_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class LivePlaces:
    """The messages of a complete journal file that were alive when this was taken. Any thread may iterate."""

    seqs: Sequence[int]
    offsets: array[int]
    sizes: array[int]
    deleted: DeletedPositions
    live_bytes: int

    def __len__(self) -> int:
        return len(self.offsets) - self.deleted.count

    def columns(self) -> Places:
        """Seqs and offsets, and which of them are alive."""
        return Places(self.seqs, self.offsets, self.deleted.live_flags(0, len(self.offsets)))

    @property
    def span(self) -> tuple[int, int]:
        """Where the frames of those that are alive begin and end in the file, or more than that."""
        return self.offsets[self.deleted.floor], self.offsets[-1] + (self.sizes[-1] & SIZE_MASK)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Seq, offset and frame size."""
        stop = len(self.offsets)
        start = self.deleted.floor
        live = self.deleted.live_flags(start, stop)
        for position in compress(range(start, stop), live):
            yield self.seqs[position], self.offsets[position], self.sizes[position] & SIZE_MASK


class HotPlaces(GrowingPart):
    """The messages of a stream in one journal file, or those of them behind the first hole in the seqs."""

    __slots__ = ("_decode", "_offsets", "_read", "_read_span", "_sizes", "file", "has_holes")

    def __init__(
        self,
        file: int,
        first_seq: int,
        read: ReadHot,
        decode: DecodeFrame,
        has_holes: bool,
        read_span: ReadSpan | None = None,
    ) -> None:
        super().__init__(first_seq)
        self.file = file
        self.has_holes = has_holes
        self._read = read
        self._read_span = read_span
        self._decode = decode
        self._offsets = array("I")
        self._sizes = array("I")
        if has_holes:
            self._seqs = array("Q")

    def append(
        self, seq: int, ts_ns: int, number: int, message_bytes: int, offset: int, frame_bytes: int
    ) -> None:
        """One more message."""
        overhead = frame_bytes - message_bytes
        # As packed_size() does it, which is not called here: this runs for every message.
        assert 0 <= frame_bytes <= SIZE_MASK and 0 <= overhead <= OVERHEAD_MAX, (frame_bytes, message_bytes)
        self._sizes.append(frame_bytes | overhead << SIZE_BITS)
        self._offsets.append(offset)
        self.numbers.append(number)
        if self._seqs is not None:
            assert isinstance(self._seqs, array)
            self._seqs.append(seq)
        count = self.count
        if not count & _PAGE_MASK:
            self._begin_page(ts_ns)
        self.count = count + 1
        self.live_bytes += message_bytes
        self.last_seq = seq
        self.last_ts_ns = ts_ns

    def append_run(
        self,
        first_seq: int,
        times_ns: Sequence[int],
        numbers: array[int],
        offsets: array[int],
        sizes: array[int],
        message_bytes: int,
    ) -> None:
        """Many messages with consecutive seqs, as the columns of a run; `message_bytes` is of them all."""
        before, added = self.count, len(numbers)
        assert len(times_ns) == len(offsets) == len(sizes) == added > 0, (added, len(sizes))
        self._sizes += sizes
        self._offsets += offsets
        self.numbers.extend(numbers)
        if self._seqs is not None:
            assert isinstance(self._seqs, array)
            self._seqs.extend(range(first_seq, first_seq + added))
        self.count = before + added
        for position in range(-before & _PAGE_MASK, added, self.PAGE):
            self._begin_page(times_ns[position])
        self.live_bytes += message_bytes
        self.last_seq = first_seq + added - 1
        self.last_ts_ns = times_ns[-1]

    def place(self, position: int) -> tuple[int, int]:
        """Where the frame of a message is in the file, and its size."""
        return self._offsets[position], self._sizes[position] & SIZE_MASK

    def places(self) -> LivePlaces:
        """Seq, offset and frame size of all messages that are alive. Nothing is appended any more."""
        seqs: Sequence[int] = range(self.first_seq, self.first_seq + self.count)
        if self._seqs is not None:
            seqs = self._seqs
        return LivePlaces(seqs, self._offsets, self._sizes, self.deleted.copy(), self.live_bytes)

    def bytes_at(self, position: int) -> int:
        size = self._sizes[position]
        return (size & SIZE_MASK) - (size >> SIZE_BITS)

    def message_at(self, position: int, names: Sequence[bytes | None]) -> Message:
        seq = self.seq_at(position)
        ts_ns, subject, header_bytes, data = self._decoded(position)
        if subject != names[self.numbers[position]]:
            raise Damaged(f"message {seq} has another subject than before", f"journal file {self.file}")
        return Message(seq, ts_ns, subject, header_bytes, data)

    def read(self, positions: Sequence[int], names: Sequence[bytes | None]) -> list[Message]:
        found = self._read_many(positions)
        if found is None:
            return super().read(positions, names)
        # A frame of another message is no better than none.
        expected = [names[number] for number in self.numbers.at(positions)]
        if len(found) < len(positions):
            there = {message.seq for message in found}
            expected = list(compress(expected, [seq in there for seq in self.seqs_at(positions)]))
        return [message for message, name in zip(found, expected, strict=True) if message.subject == name]

    def _read_many(self, positions: Sequence[int]) -> list[Message] | None:
        """The messages at these positions read in one go, or None where that does not pay."""
        if self._read_span is None or len(positions) < _SPAN_MESSAGES_MIN:
            return None
        first, last = positions[0], positions[-1]
        if last - first < len(positions):
            offsets, sizes = self._offsets[first : last + 1], self._sizes[first : last + 1]
        else:
            offsets = array("I", map(self._offsets.__getitem__, positions))
            sizes = array("I", map(self._sizes.__getitem__, positions))
        size = offsets[-1] + (sizes[-1] & SIZE_MASK) - offsets[0]
        if size > _SPAN_WASTE_MAX * sum(map(SIZE_MASK.__and__, sizes)):
            return None
        data, frames = self._read_span(self.file, offsets[0], size)
        seqs = self.seqs_at(positions)
        try:
            if frames is None:
                return messages_at(data, offsets[0], seqs, offsets, sizes)
            places = Places(seqs, offsets, b"\x01" * len(offsets))
            rows = rows_of_frames(data, frames, offsets[0], places, 0, 0, size, 0).rows
        except (ValueError, OverflowError):
            # One of the frames holds no message. Which one is found out when they are read one by one.
            return None
        return [] if rows is None else rows.messages()

    def timestamp_at(self, position: int) -> int:
        return self._decoded(position)[0]

    def _decoded(self, position: int) -> tuple[int, bytes, int, bytes]:
        offset, size = self.place(position)
        frame = self._read(self.file, offset, size)
        if len(frame) != size:
            raise Damaged("a frame is cut off", f"journal file {self.file}", offset)
        try:
            return self._decode(frame)
        except ValueError as error:
            raise Damaged(
                f"a frame holds no message, {error}", f"journal file {self.file}", offset
            ) from error

    def _begin_page(self, ts_ns: int) -> None:
        pages = self.page_times_ns
        pages.append(max(ts_ns, pages[-1]) if pages else ts_ns)
