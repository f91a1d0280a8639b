"""Rows: messages on their way to a segment, as columns instead of objects; and how columns are packed.

What is alive in a journal file goes to a segment block by block. Here the frames of a scan become the columns
of a block in one pass, and the columns the bytes of a block (see docs/format.md) in another. The way back is
here too: many messages at once out of the columns of a block, or out of frames whose places are known.

Rules: no I/O. A message whose frame a scan did not find is left out. A column has each number in as few bytes
as the largest needs, little endian.

This is the reference; `_rows.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from operator import sub
from typing import Final, NamedTuple

from edged.core.frames import APPEND, HEADER_BYTES, Frame, decode_append
from edged.core.message import Message, counted_bytes
from edged.core.runs import SIZE_MASK

COLUMN: Final = struct.Struct("<sI")
_IS_LITTLE_ENDIAN: Final = array("H", [1]).tobytes() == b"\1\0"
# Unsigned numbers in 1, 2, 4 or 8 bytes.
_LIMITS: Final = (("B", 0xFF), ("H", 0xFFFF), ("I", 0xFFFFFFFF), ("Q", 0xFFFFFFFFFFFFFFFF))

# The named tuple's own constructor is a Python function; this one is not.
_message_of = partial(tuple.__new__, Message)


class Rows(NamedTuple):
    """Messages in the order of their seqs; `sizes` is what each counts for, `data` that of all of them."""

    seqs: Sequence[int]
    times_ns: array[int]
    subjects: list[bytes]
    header_sizes: array[int]
    data_sizes: array[int]
    sizes: array[int]
    data: bytes

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Rows:
        """Messages as rows."""
        seqs, times_ns, subjects, header_sizes, datas = zip(*messages, strict=True)
        data_sizes = array("I", map(len, datas))
        sizes = array("I", map(counted_bytes, map(len, subjects), header_sizes, data_sizes))
        head = array("q", times_ns), list(subjects), array("I", header_sizes)
        return cls(seqs, *head, data_sizes, sizes, b"".join(datas))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Rows that follow one another, as one."""
        if len(parts) == 1:
            return parts[0]
        seqs: Sequence[int] = array("Q", [seq for part in parts for seq in part.seqs])
        if seqs[-1] - seqs[0] == len(seqs) - 1:
            seqs = range(seqs[0], seqs[-1] + 1)
        times_ns, header_sizes, data_sizes, sizes = array("q"), array("I"), array("I"), array("I")
        for part in parts:
            times_ns += part.times_ns
            header_sizes += part.header_sizes
            data_sizes += part.data_sizes
            sizes += part.sizes
        subjects = [subject for part in parts for subject in part.subjects]
        data = b"".join([part.data for part in parts])
        return cls(seqs, times_ns, subjects, header_sizes, data_sizes, sizes, data)

    def messages(self) -> list[Message]:
        """The reverse of of()."""
        ends = pairwise(accumulate(self.data_sizes, initial=0))
        datas = [self.data[start:end] for start, end in ends]
        columns = (self.seqs, self.times_ns, self.subjects, self.header_sizes, datas)
        return list(map(_message_of, zip(*columns, strict=True)))


class Places(NamedTuple):
    """Where messages are in a journal file, in order: seq, offset, and 1 if it is alive, else 0."""

    seqs: Sequence[int]
    offsets: array[int]
    live: bytes


class Step(NamedTuple):
    """Some rows, and how far they take us: in the places, and in the frames."""

    rows: Rows | None
    position: int
    frame: int


class BlockColumns(NamedTuple):
    """The messages of a block, as they are once it was unpacked."""

    seqs: Sequence[int]  # a range where no seq is missing, else an array
    times_ns: array[int]
    codes: array[int]
    header_sizes: array[int]
    bounds: array[int]  # the data of message i is raw[bounds[i]:bounds[i + 1]]
    subjects: list[bytes]  # by code, which has a meaning within this block only
    raw: bytes


def rows_of_frames(
    data: bytes,
    frames: Sequence[Frame],
    offset: int,
    places: Places,
    position: int,
    frame: int,
    bytes_max: int,
    row_bytes: int,
) -> Step:
    """Rows for one block: messages from a position on, whose frames are from `frame` on.

    `data` begins at `offset` of its file. A block has `bytes_max` bytes, or one message; each message takes
    `row_bytes` besides its data. Without rows, nothing that is alive and was found is left.
    """
    found: list[Message] = []
    room = bytes_max
    while position < len(places.offsets):
        place = places.offsets[position] - offset
        if places.live[position]:
            while frame < len(frames) and frames[frame][0] < place:
                frame += 1
            if frame < len(frames) and frames[frame][0] == place and frames[frame][1] == APPEND:
                ts_ns, subject, header_bytes, content = decode_append(data, *frames[frame][4:])
                room -= len(content) + row_bytes
                if room < 0 and found:
                    break
                found.append(Message(places.seqs[position], ts_ns, subject, header_bytes, content))
        position += 1
    if not found:
        return Step(None, position, frame)
    rows = Rows.of(found)
    first_seq, last_seq = rows.seqs[0], rows.seqs[-1]
    is_dense = last_seq - first_seq == len(found) - 1
    seqs = range(first_seq, last_seq + 1) if is_dense else array("Q", rows.seqs)
    return Step(rows._replace(seqs=seqs), position, frame)


# --- back to messages ---


def messages_between(block: BlockColumns, start: int, end: int) -> list[Message]:
    """The messages of a block from one position to another."""
    seqs, times_ns, codes, header_sizes, bounds, subjects, raw = block
    return list(
        map(
            _message_of,
            zip(
                seqs[start:end],
                times_ns[start:end],
                [subjects[code] for code in codes[start:end]],
                header_sizes[start:end],
                [raw[low:high] for low, high in pairwise(bounds[start : end + 1])],
                strict=False,
            ),
        )
    )


def messages_at(
    data: bytes, offset: int, seqs: Sequence[int], offsets: array[int], sizes: array[int]
) -> list[Message]:
    """The messages whose frames are at these offsets of a file; `data` begins at `offset` of it.

    The sizes are packed as runs.packed_size() does. ValueError if one of the frames holds no message. Marks
    and checksums are not looked at: this is for what never left the memory.
    """
    found: list[Message] = []
    for seq, place, size in zip(seqs, offsets, sizes, strict=True):
        body_start = place - offset + HEADER_BYTES
        ts_ns, subject, header_bytes, content = decode_append(
            data, body_start, (size & SIZE_MASK) - HEADER_BYTES
        )
        if ts_ns >> 63:
            raise OverflowError(ts_ns)
        found.append(Message(seq, ts_ns, subject, header_bytes, content))
    return found


def running_times(steps: array[int]) -> array[int]:
    """Times from the first one and from how far each is from the one before. Raises OverflowError."""
    return array("q", accumulate(steps))


# --- packing ---


def pack_column(values: Sequence[int]) -> bytes:
    """Unsigned numbers, each in as many bytes as the largest needs; a signed array as it is."""
    if isinstance(values, array) and values.typecode == "q":
        column = values
    else:
        largest = max(values, default=0)
        column = array(next(code for code, limit in _LIMITS if largest <= limit), values)
    if not _IS_LITTLE_ENDIAN:
        column = column[:]
        column.byteswap()
    return COLUMN.pack(column.typecode.encode(), len(column)) + column.tobytes()


def pack_seqs(seqs: Sequence[int]) -> bytes:
    """Seqs by their distances, and none at all where each is one more than the last."""
    if not seqs or seqs[-1] - seqs[0] == len(seqs) - 1:
        return pack_column(())
    return pack_column(array("Q", map(sub, seqs[1:], seqs)))


def pack_rows(rows: Rows) -> bytes:
    """The raw bytes of a block, which numbers its different subjects in the order of their first message."""
    seqs, times_ns, subjects, header_sizes, data_sizes, _, data = rows
    codes = dict(zip(dict.fromkeys(subjects), range(len(subjects)), strict=False))
    return b"".join(
        (
            pack_seqs(seqs),
            pack_column(array("q", [times_ns[0], *map(sub, times_ns[1:], times_ns)])),
            pack_column(list(map(codes.__getitem__, subjects))),
            pack_column(header_sizes),
            pack_column(data_sizes),
            pack_column(list(map(len, codes))),
            *codes,
            data,
        )
    )
