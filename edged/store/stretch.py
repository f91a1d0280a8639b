"""Entries of one group as frames in memory: what came from another node, or was read from the journal.

Rules: the indexes of a stretch count up without gaps; a command may be there twice. The bytes between nodes
have no tags of a cipher, whatever either of them does at rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edged.core.commands import Command, decode
from edged.core.frame_twins import FrameBuffer, block_frames, decode_append
from edged.core.frames import APPEND, HEADER_BYTES, Frame, append_flags
from edged.core.run_twins import run_of_frames
from edged.core.stream_machine import StreamMachine

if TYPE_CHECKING:
    from edged.store.group import Group


def _index_of(frame: Frame) -> int:
    return frame[3]


class Stretch:
    """The entries in `frames[start:stop]` of `data`. It can be cut like a tuple of its entries."""

    __slots__ = ("data", "first", "frames", "last", "start", "stop", "tag_bytes")

    def __init__(
        self,
        data: bytes,
        frames: Sequence[Frame],
        start: int,
        stop: int,
        first: int,
        last: int,
        tag_bytes: int = 0,
    ) -> None:
        self.data = data
        self.frames = frames
        self.start = start
        self.stop = stop
        self.first = first
        self.last = last
        # How much lies between two frames that counts for neither.
        self.tag_bytes = tag_bytes

    @classmethod
    def received(cls, data: bytes, group: int, first: int, count: int) -> Stretch:
        """Of bytes that another node sent. Raises ValueError."""
        frames = block_frames(data, group, first, count)
        return cls(data, frames, 0, len(frames), first, first + count - 1)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __getitem__(self, part: slice) -> Stretch:
        first, stop, _ = part.indices(len(self))
        return self.between(self.first + first, self.first + stop - 1)

    def between(self, first: int, last: int) -> Stretch:
        """The entries from one index to another, which must be there."""
        assert self.first <= first <= last <= self.last, (self.first, first, last, self.last)
        start, stop = self._position(first), self._position(last + 1)
        return Stretch(self.data, self.frames, start, stop, first, last, self.tag_bytes)

    def _position(self, index: int) -> int:
        """Where the first frame from an index on is."""
        if index <= self.first:
            return self.start
        if index > self.last:
            return self.stop
        return bisect_left(self.frames, index, self.start, self.stop, key=_index_of)

    @property
    def offset(self) -> int:
        """Where in the data the first frame begins."""
        return self.frames[self.start][0]

    @property
    def end(self) -> int:
        """Where in the data the last frame ends."""
        _, _, _, _, body_start, size = self.frames[self.stop - 1]
        return body_start + size + self.tag_bytes

    def raw(self) -> bytes:
        """The frames as they are sent to other nodes."""
        if not self.tag_bytes:
            return self.data[self.offset : self.end]
        buffer = FrameBuffer()
        self._add_each(buffer)
        return buffer.bytes_at(0, len(buffer))

    def owned(self) -> Stretch:
        """The same without the data around it. Offsets count from `offset` then."""
        if self.tag_bytes:
            moved = [
                (at - self.offset, kind, group, index, start - self.offset, size)
                for at, kind, group, index, start, size in self.frames[self.start : self.stop]
            ]
            data = self.data[self.offset : self.end]
            return Stretch(data, moved, 0, len(moved), self.first, self.last, self.tag_bytes)
        _, _, group, _, _, _ = self.frames[self.start]
        return Stretch.received(self.raw(), group, self.first, len(self))

    def place(self, buffer: FrameBuffer, tag_bytes: int) -> tuple[int, Stretch]:
        """Write it to a batch; where it starts there, and the stretch whose frames lie as they do there."""
        if tag_bytes == self.tag_bytes:
            return buffer.add_raw(self.data[self.offset : self.end]), self
        start = len(buffer)
        self._add_each(buffer)
        data = buffer.bytes_at(start, len(buffer) - start)
        frames: list[Frame] = []
        position = 0
        for _, kind, group, index, _, size in self.frames[self.start : self.stop]:
            frames.append((position, kind, group, index, position + HEADER_BYTES, size))
            position += HEADER_BYTES + size + tag_bytes
        return start, Stretch(data, frames, 0, len(frames), self.first, self.last, tag_bytes)

    def _add_each(self, buffer: FrameBuffer) -> None:
        for _, kind, group, index, start, size in self.frames[self.start : self.stop]:
            buffer.add(kind, group, index, self.data[start : start + size])


def apply_stretch(
    group: Group, stretch: Stretch, file: int, origin: int, change: Callable[[Group, Command], object]
) -> None:
    """Apply the entries of a stretch that are not applied yet. `data` begins at `origin` of a file."""
    data, frames, position = stretch.data, stretch.frames, stretch.start
    machine = group.machine
    while position < stretch.stop:
        offset, kind, _, index, body_start, size = frames[position]
        position += 1
        if index <= group.applied:
            continue
        assert index == group.applied + 1, (group.number, index, group.applied)
        if kind != APPEND:
            group.applied = index
            change(group, decode(data[body_start : body_start + size]))
            continue
        assert isinstance(machine, StreamMachine), group.number
        if machine.takes_runs:
            run = run_of_frames(data, frames, position - 1, 0, origin, stretch.stop)
            if run is not None:
                count = len(machine.place_run(file, run))
                group.applied += count
                position += count - 1
                continue
        ts_ns, subject, header_bytes, message = decode_append(data, body_start, size)
        place = (file, origin + offset, body_start + size - offset)
        machine.append(ts_ns, subject, header_bytes | append_flags(data, body_start), message, place)
        machine.take_decided()
        group.applied = index
