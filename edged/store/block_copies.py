"""From segments that are given up to the blocks of a new one.

A block of which every message is alive goes over as it is, compressed: only what is around it is made anew.
Of other blocks the messages that are alive are gathered into new ones, and so are those of small blocks, of
which many would come together otherwise.

Rules: nothing is written here. What cannot be read is left out: the caller sees by the seqs what is missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from edged.core.message import Message
from edged.core.rows import Rows
from edged.store.errors import Damaged
from edged.store.files import File
from edged.store.sealed_part import DeadSeqs
from edged.store.segment import Segment
from edged.store.segment_columns import Column, Seqs
from edged.store.segment_format import MessagesLost
from edged.store.segment_writer import ROW_BYTES, PackedBlock, blocks_of

Parts = Iterable[tuple[Segment, DeadSeqs]]


def blocks_of_segments(parts: Parts, block_bytes: int) -> Iterator[Rows | PackedBlock]:
    """What is alive in some segments, which are neighbours, as blocks of a new one."""
    held: list[Message] = []
    held_bytes = 0
    for segment, dead in parts:
        for found in _found_in(segment, dead, block_bytes):
            if isinstance(found, PackedBlock):
                yield from blocks_of(held, block_bytes)
                held, held_bytes = [], 0
                yield found
                continue
            held += found
            held_bytes += sum([len(message.data) + ROW_BYTES for message in found])
            if held_bytes > block_bytes:
                # What is full can go. The rest waits for what follows.
                *full, last = blocks_of(held, block_bytes)
                yield from full
                held, held_bytes = last.messages(), len(last.data) + ROW_BYTES * len(last.seqs)
    yield from blocks_of(held, block_bytes)


def messages_of_segments(parts: Parts) -> Iterator[Message]:
    """The same, one by one."""
    for segment, dead in parts:
        for position in range(len(segment.table)):
            yield from _alive(segment, position, dead)


def _found_in(segment: Segment, dead: DeadSeqs, block_bytes: int) -> Iterator[list[Message] | PackedBlock]:
    """What each block of a segment has."""
    try:
        columns = _Columns.of(segment)
    except (Damaged, ValueError):
        columns = None
    with segment.opened() as file:
        for position in range(len(segment.table)):
            packed = None
            if columns is not None and dead.is_all_live(*columns.bounds[position]):
                packed = _packed(segment, file, position, columns, block_bytes)
            yield _alive(segment, position, dead) if packed is None else packed


def _alive(segment: Segment, position: int, dead: DeadSeqs) -> list[Message]:
    try:
        messages = segment.messages_of_block(position)
    except MessagesLost:
        # Beyond repair. Without these messages the journal can go on, and they are said to be lost.
        return []
    return [message for message in messages if message.seq not in dead]


def _packed(
    segment: Segment, file: File, position: int, columns: _Columns, block_bytes: int
) -> PackedBlock | None:
    """A block as it is, if it can be had and has about the size that blocks have now."""
    try:
        prelude, body = segment.packed_block(file, position)
    except MessagesLost:
        return None
    is_large = prelude.raw_bytes > 2 * block_bytes and prelude.message_count > 1
    if is_large or 2 * prelude.raw_bytes < block_bytes:
        return None
    start, end = columns.bounds[position]
    seqs, names, expiries = columns.seqs[start:end], columns.names, columns.expiries
    subjects = [names[code] for code in columns.codes[start:end]]
    expiring = [(seq, expiries[seq]) for seq in seqs if seq in expiries] if expiries else []
    return PackedBlock(prelude, body, seqs, subjects, array("I", columns.sizes[start:end]), expiring)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Those of a whole segment, and which part of them each of its blocks has."""

    bounds: list[tuple[int, int]]
    seqs: Seqs
    codes: Column
    names: list[bytes]
    sizes: Column
    expiries: dict[int, int]

    @classmethod
    def of(cls, segment: Segment) -> _Columns:
        """Raises Damaged or ValueError when one of them cannot be had."""
        seqs, codes = segment.codes()
        sizes = segment.sizes()
        bounds = list(pairwise(accumulate(segment.table.counts, initial=0)))
        if not len(seqs) == len(codes) == len(sizes) == bounds[-1][1]:
            raise Damaged("the columns contradict the blocks", segment.path)
        expiries = dict(zip(*segment.expiries(), strict=True))
        return cls(bounds, seqs, codes, segment.subject_columns().names(), sizes, expiries)
