"""Runs: messages of one stream that are stored one behind the other, as columns instead of objects.

A batch that is applied and a journal that is replayed hold thousands of messages about which nothing is to be
decided: they have no headers, and only their subject and their place in the journal count. Here they become
columns in one pass, and their subjects numbers of a subject table in another. When a segment is opened, what
it has of each subject is entered into the table in the same way, without a look at the messages.

Rules: no I/O. A message with headers is never in a run. A place's size is the frame's, with what the frame is
longer than what the message counts for in the upper bits.

This is the reference; `_runs.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import gt
from typing import Final, NamedTuple, Protocol

from edged.core.frames import APPEND, BODY_BYTES_MAX, COMMAND, Frame, append_frame_bytes
from edged.core.message import counted_bytes
from edged.core.wire import Publish

SIZE_BITS: Final = 27
SIZE_MASK: Final = (1 << SIZE_BITS) - 1
OVERHEAD_MAX: Final = (1 << 32 - SIZE_BITS) - 1
# What counts for a message without headers besides its subject and payload: in its stream, and in the
# journal.
PLAIN_BYTES: Final = counted_bytes(0, 0, 0)
FRAME_BYTES: Final = append_frame_bytes(0, 0)
_APPEND: Final = struct.Struct("<QIH")


class Run(NamedTuple):
    """Messages with consecutive seqs: their subjects and times, the offsets of their frames, their sizes."""

    subjects: list[bytes]
    times_ns: Sequence[int]
    offsets: array[int]
    sizes: array[int]
    message_bytes: int


class SubjectColumns(NamedTuple):
    """Different subjects, and what a segment that begins with `first_seq` has of each.

    That is how many messages, how far the first is behind `first_seq`, and the last behind the first. The
    names are one behind the other, because most are looked at only once, to find the number of a subject.
    """

    first_seq: int
    joined: bytes
    sizes: array[int]
    counts: array[int]
    firsts: array[int]
    spans: array[int]

    def names(self) -> list[bytes]:
        """The subjects. Raises ValueError if the columns contradict each other."""
        if any(len(column) != len(self.sizes) for column in self[3:]) or sum(self.sizes) != len(self.joined):
            raise ValueError(f"{len(self.sizes)} subjects with {len(self.counts)} counts")
        return [self.joined[start:end] for start, end in pairwise(accumulate(self.sizes, initial=0))]


class Table(Protocol):
    """What is needed of a subject table (edged/store/subject_table.py)."""

    numbers: dict[bytes, int]
    counts: array[int]
    firsts: array[int]
    lasts: array[int]
    unsure: bytearray

    def add(self, subject: bytes) -> int: ...

    def append(self, number: int, seq: int) -> None: ...


class CountingTable(Table, Protocol):
    """A subject table that takes in many messages of a subject at once."""

    names: list[bytes | None]

    def add_numbered(self, subjects: list[bytes]) -> None: ...

    def add_counted(self, number: int, count: int, first: int, last: int, is_exact: bool) -> None: ...


def packed_size(frame_bytes: int, message_bytes: int) -> int:
    """The size of a place, for a frame and what its message counts for."""
    overhead = frame_bytes - message_bytes
    if not 0 <= frame_bytes <= SIZE_MASK or not 0 <= overhead <= OVERHEAD_MAX:
        raise AssertionError((frame_bytes, message_bytes))
    return frame_bytes | overhead << SIZE_BITS


def run_of_messages(
    messages: Sequence[Publish], ts_ns: int, start: int, offsets: Sequence[int], tag_bytes: int = 0
) -> Run | None:
    """Messages whose frames are at these offsets behind `start`; None if one of them has headers.

    Frames of an encrypted journal are longer by a tag.
    """
    plain_size = packed_size(FRAME_BYTES + tag_bytes, PLAIN_BYTES)
    subjects: list[bytes] = []
    sizes = array("I")
    total = 0
    for subject, _reply, header_bytes, data in messages:
        if header_bytes > 0:
            return None
        size = len(subject) + len(data)
        if size > BODY_BYTES_MAX:
            raise AssertionError(size)
        subjects.append(subject)
        sizes.append(plain_size + size)
        total += size
    if len(offsets) != len(subjects):
        raise ValueError(f"{len(offsets)} offsets for {len(subjects)} messages")
    places = array("I", [start + offset for offset in offsets])
    count = len(subjects)
    return Run(subjects, [ts_ns] * count, places, sizes, total + PLAIN_BYTES * count)


def run_of_frames(
    data: bytes, frames: Sequence[Frame], position: int, tag_bytes: int = 0, start: int = 0, stop: int = -1
) -> Run | None:
    """The messages of a group from a frame on, as long as their indexes count up and they have no headers.

    None if not even the frame at `position` is one of those. `data` is the file from `start` on; where it
    was encrypted, the bodies in it are plain and tags follow them. Frames from `stop` on, unless it is
    negative, are left out.
    """
    plain_size = packed_size(FRAME_BYTES + tag_bytes, PLAIN_BYTES)
    subjects: list[bytes] = []
    times_ns, offsets, sizes = array("Q"), array("I"), array("I")
    total = 0
    _, _, wanted_group, wanted_index, _, _ = frames[position]
    end = len(frames) if stop < 0 else min(stop, len(frames))
    while position < end:
        offset, kind, group, index, body_start, body_bytes = frames[position]
        if kind != APPEND or group != wanted_group or index != wanted_index:
            break
        if body_bytes < _APPEND.size or body_start + body_bytes > len(data):
            break
        ts_ns, header_bytes, subject_bytes = _APPEND.unpack_from(data, body_start)
        size = body_bytes - _APPEND.size
        if header_bytes or subject_bytes > size:
            break
        subject_start = body_start + _APPEND.size
        subjects.append(data[subject_start : subject_start + subject_bytes])
        times_ns.append(ts_ns)
        offsets.append(start + offset)
        sizes.append(plain_size + size)
        total += size
        wanted_index += 1
        position += 1
    if not subjects:
        return None
    return Run(subjects, times_ns, offsets, sizes, total + PLAIN_BYTES * len(subjects))


def stretch_of(frames: Sequence[Frame], position: int) -> tuple[int, int]:
    """Where the entries of a group that begin with this frame end, as a position, and the last one's index.

    They are appends and commands next to each other whose indexes count up; each may be there twice.
    """
    _, _, wanted_group, last, _, _ = frames[position]
    for stop in range(position + 1, len(frames)):
        _, kind, group, index, _, _ = frames[stop]
        if group != wanted_group or kind not in (APPEND, COMMAND) or not last <= index <= last + 1:
            return stop, last
        last = index
    return len(frames), last


def enter_subjects(table: Table, subjects: list[bytes], seqs: Sequence[int]) -> array[int]:
    """Count messages with these seqs in a subject table; the numbers of their subjects."""
    numbers = array("I")
    get, add, unsure, counts, lasts = table.numbers.get, table.add, table.unsure, table.counts, table.lasts
    for seq, subject in zip(seqs, subjects, strict=True):
        number = get(subject)
        if number is None:
            number = add(subject)
        if unsure[number] or not counts[number]:
            table.append(number, seq)
        else:
            counts[number] += 1
            lasts[number] = seq
        numbers.append(number)
    return numbers


def enter_counted(table: CountingTable, columns: SubjectColumns, is_exact: bool) -> array[int]:
    """Count the messages of a segment behind all others; the numbers of its subjects, as numbers_of() does.

    A subject without messages is left out. If not exact, the seqs are bounds: some messages are gone.
    """
    known, next_number = table.numbers, len(table.names)
    new: list[bytes] = []
    for name, count in zip(columns.names(), columns.counts, strict=True):
        if count and name not in known:
            known[name] = next_number + len(new)
            new.append(name)
    table.add_numbered(new)
    numbers = numbers_of(known, columns)
    first_seq = columns.first_seq
    for number, count, first, span in zip(
        numbers, columns.counts, columns.firsts, columns.spans, strict=True
    ):
        if count:
            table.add_counted(number, count, first_seq + first, first_seq + first + span, is_exact)
    return numbers


def numbers_of(known: dict[bytes, int], columns: SubjectColumns) -> array[int]:
    """The numbers of a segment's subjects, and 0 for one that has none."""
    return array("I", [known.get(name, 0) for name in columns.names()])


def order_of(numbers: array[int]) -> Sequence[int]:
    """The positions of numbers in the order of their size, equal ones as they come; a range if they grow."""
    if not any(map(gt, numbers, numbers[1:])):
        return range(len(numbers))
    return array("I", sorted(range(len(numbers)), key=numbers.__getitem__))


def frames_of_kind(frames: Sequence[Frame], kind: int) -> list[Frame]:
    """Those frames of a scan that are of one kind."""
    return [frame for frame in frames if frame[1] == kind]
