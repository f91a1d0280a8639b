"""Where messages are that are still in the journal: the part of a log that belongs to one journal file.

For each message there are 9 bytes: offset and size of its frame, and the number of its subject; 11 when
the stream has more than 256 subjects, and 8 more once seqs have holes. What the message counts for is in
the size as well: a frame is a few bytes longer than that, and how many is in the upper bits.

Rules: offsets are below 4 GiB, frames below 128 MiB. Nothing is read but by message_at() and
timestamp_at().
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

from edged.core.message import Message
from edged.core.rows import Places
from edged.core.runs import SIZE_BITS, SIZE_MASK, packed_size
from edged.store.deleted import DeletedPositions
from edged.store.errors import Damaged
from edged.store.log_part import GrowingPart

# file, offset, size of the frame; returns the frame
ReadHot = Callable[[int, int, int], bytes]
# a frame; returns time, subject, size of the header block, header block and payload
DecodeFrame = Callable[[bytes], tuple[int, bytes, int, bytes]]

_PAGE_MASK: Final = GrowingPart.PAGE - 1


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

    __slots__ = ("_decode", "_offsets", "_read", "_sizes", "file", "has_holes")

    def __init__(
        self, file: int, first_seq: int, read: ReadHot, decode: DecodeFrame, has_holes: bool
    ) -> None:
        super().__init__(first_seq)
        self.file = file
        self.has_holes = has_holes
        self._read = read
        self._decode = decode
        self._offsets = array("I")
        self._sizes = array("I")
        if has_holes:
            self._seqs = array("Q")

    def append(
        self, seq: int, ts_ns: int, number: int, message_bytes: int, offset: int, frame_bytes: int
    ) -> None:
        """One more message."""
        self._sizes.append(packed_size(frame_bytes, message_bytes))
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
