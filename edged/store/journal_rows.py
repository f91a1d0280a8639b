"""The messages of one stream in a journal file, as rows for a segment.

A file holds the messages of all streams. Where those of one stream lie far apart, only the stretches are read
in which there are some: otherwise a file would be read and checked as often as there are streams in it.

Rules: every frame is checked once more. Those that went bad are left out, and so are lost: the caller sees by
the seqs what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from edged.core.row_twins import rows_of_frames
from edged.core.rows import Places, Rows
from edged.core.runs import SIZE_MASK
from edged.store.journal_reader import JournalFile
from edged.store.segment_writer import ROW_BYTES

if TYPE_CHECKING:
    from edged.store.box import Keyring
    from edged.store.files import Files
    from edged.store.hot_places import LivePlaces

APART_BYTES: Final = 64 * 1024
"""Frames whose beginnings are farther apart than this are in two stretches."""


def rows_in_journal(
    files: Files, keys: Keyring | None, file: int, places: Sequence[LivePlaces], block_bytes: int
) -> Iterator[Rows]:
    """Rows for one block after the other. Raises Damaged when the file cannot be read at all."""
    held: list[Rows] = []
    room = block_bytes
    reader = JournalFile(files, file, keys)
    try:
        for rows in _rows(reader, places, block_bytes):
            size = len(rows.data) + ROW_BYTES * len(rows.seqs)
            if held and size > room:
                yield Rows.joined(held)
                held, room = [], block_bytes
            held.append(rows)
            room -= size
    finally:
        reader.close()
    if held:
        yield Rows.joined(held)


def _rows(reader: JournalFile, places: Sequence[LivePlaces], block_bytes: int) -> Iterator[Rows]:
    """The rows of each stretch, none of them larger than a block."""
    for one in places:
        for columns, end in _stretches(one):
            first = columns.offsets[0]
            data, frames = reader.frames(first, end - first)
            position = frame = 0
            while position < len(columns.offsets):
                rows, position, frame = rows_of_frames(
                    data, frames, first, columns, position, frame, block_bytes, ROW_BYTES
                )
                if rows is not None:
                    yield rows


def _stretches(places: LivePlaces) -> Iterator[tuple[Places, int]]:
    """Messages that lie close together, and where the last of them ends; those in which one is alive."""
    seqs, offsets, live = places.columns()
    cuts = [place for place, (one, other) in enumerate(pairwise(offsets), 1) if other - one > APART_BYTES]
    for start, stop in pairwise([0, *cuts, len(offsets)]):
        if 1 in live[start:stop]:
            end = offsets[stop - 1] + (places.sizes[stop - 1] & SIZE_MASK)
            yield Places(seqs[start:stop], offsets[start:stop], live[start:stop]), end
