"""Where the entries of a group are in the journal, in pieces of some size: to send them to who lacks them.

Rules: only what is durable is here. Memory grows with bytes, not with entries. Between the frames of a piece
there may be those of other groups.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edged.core.frames import APPEND, COMMAND, HEADER_BYTES, Frame
from edged.store.errors import StoreError
from edged.store.found_log import EXTENT_BYTES
from edged.store.stretch import Stretch

if TYPE_CHECKING:
    from edged.store.journal_reads import JournalReads


# From and to which entry, the file, and where in it their frames begin and end.
Place = tuple[int, int, int, int, int]


@dataclass(slots=True)
class _Piece:
    """Entries whose frames are between `start` and `end` of a file."""

    first: int
    last: int
    file: int
    start: int
    end: int


def _first_of(piece: _Piece) -> int:
    return piece.first


class Places:
    """Of one group."""

    def __init__(self, group: int, reads: JournalReads, tag_bytes: int) -> None:
        self._group = group
        self._reads = reads
        self._tag_bytes = tag_bytes
        self._pieces: list[_Piece] = []
        # Whether the last piece may grow: not after a cut, as what was cut off lies behind it.
        self._is_open = False

    def add(self, first: int, last: int, file: int, start: int, end: int) -> None:
        """Entries are durable there. If they were known, this is where they count from now on."""
        self.cut(first)
        before = self._pieces[-1] if self._pieces else None
        if (
            before is not None
            and self._is_open
            and (before.file, before.last + 1) == (file, first)
            and before.end <= start
            and end - before.start <= EXTENT_BYTES
        ):
            before.last, before.end = last, end
        else:
            self._pieces.append(_Piece(first, last, file, start, end))
            self._is_open = True

    def move(self, moved: Sequence[Place]) -> None:
        """Entries that are known, in their order, are durable there as well; others may follow on them.

        All at once: there may be as many as wait for a majority that is away.
        """
        if not moved:
            return
        last = moved[-1][1]
        behind: list[_Piece] = []
        while self._pieces and self._pieces[-1].last > last:
            piece = self._pieces.pop()
            behind.append(replace(piece, first=max(piece.first, last + 1)))
            if piece.first <= last:
                self._pieces.append(replace(piece, last=last))
        for place in moved:
            self.add(*place)
        if behind:
            self._pieces += reversed(behind)
            self._is_open = False

    def cut(self, index: int) -> None:
        """Entries from here on are void, or come again."""
        while self._pieces and self._pieces[-1].last >= index:
            self._is_open = False
            if self._pieces[-1].first < index:
                self._pieces[-1].last = index - 1
                break
            self._pieces.pop()

    def forget(self, files: Collection[int]) -> int:
        """These files are gone; the last entry that is gone with them, 0 if there is none."""
        count, last = 0, 0
        for piece in self._pieces:
            if piece.file not in files:
                break
            count, last = count + 1, piece.last
        del self._pieces[:count]
        return last

    def clear(self) -> None:
        """Another state takes the place of all entries."""
        self._pieces.clear()
        self._is_open = False

    def file_from(self, index: int) -> int | None:
        """The first file that has this entry or a later one."""
        place = bisect_right(self._pieces, index, key=_first_of) - 1
        return next((piece.file for piece in self._pieces[max(place, 0) :] if piece.last >= index), None)

    def read(self, first: int, last: int) -> bytes | None:
        """Frames of these entries, as they are sent; None if they cannot be read."""
        found = self.stretches(first, last)
        if found is None:
            return None
        parts = [stretch.raw() for _, _, stretch in found]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stretches(self, first: int, last: int) -> list[tuple[int, int, Stretch]] | None:
        """The same with where each is: the file, and where in it the data of the stretch begins."""
        found: list[tuple[int, int, Stretch]] = []
        place = bisect_right(self._pieces, first, key=_first_of) - 1
        while first <= last:
            if not 0 <= place < len(self._pieces):
                return None
            piece = self._pieces[place]
            stop = min(last, piece.last)
            try:
                found += self._stretches_in(piece, first, stop)
            except (StoreError, OSError):
                # Whoever needs it gets a snapshot instead (filling.py).
                return None
            if not found or found[-1][2].last != stop:
                return None
            first, place = stop + 1, place + 1
        return found

    def _stretches_in(self, piece: _Piece, first: int, last: int) -> Iterator[tuple[int, int, Stretch]]:
        """Entries of a piece; none any more behind one that is missing."""
        data, scanned = self._reads.read_span(piece.file, piece.start, piece.end - piece.start)
        run: list[Frame] = []
        end, expected = 0, first
        for frame in walk(data, self._tag_bytes) if scanned is None else scanned:
            offset, kind, group, index, start, size = frame
            if group != self._group or kind not in (APPEND, COMMAND) or not first <= index <= last:
                continue
            if index > expected:
                break
            if run and offset != end:
                yield piece.file, piece.start, self._stretch(data, run)
                run = []
            run.append(frame)
            end, expected = start + size + self._tag_bytes, index + 1
        if run:
            yield piece.file, piece.start, self._stretch(data, run)

    def _stretch(self, data: bytes, frames: list[Frame]) -> Stretch:
        return Stretch(data, frames, 0, len(frames), frames[0][3], frames[-1][3], self._tag_bytes)


def walk(data: bytes, tag_bytes: int) -> Iterator[Frame]:
    """The frames of a batch that is in memory, whose bodies are followed by room for a tag."""
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "little")
        kind_and_group = int.from_bytes(data[position + 12 : position + 16], "little")
        index = int.from_bytes(data[position + 16 : position + 24], "little")
        start = position + HEADER_BYTES
        yield position, kind_and_group & 0xFF, kind_and_group >> 8, index, start, size - tag_bytes
        position = start + size
