"""What is in a segment: from its footer, or, when that is lost, from the blocks themselves.

Rules: only what bears the name of the file is believed; sections of another file that has had the same name
are told apart by their salt. Of a rebuilt segment, everything that is said comes from blocks that were
read, and what must have been there besides is in `lost`. Nothing is written: a damaged segment stays as it
is until its owner writes another one in its place.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from edged.core.message import counted_bytes
from edged.core.rows import pack_column
from edged.store.errors import Damaged
from edged.store.files import File
from edged.store.segment_columns import Block, Column, unpack_block, unpack_column
from edged.store.segment_footer import BlockEntry, BlockTable, Columns, Span, Tally, unpack_footer
from edged.store.segment_format import (
    BLOCK,
    EXPIRIES,
    FOOTER,
    Header,
    MessagesLost,
    NotThisSegment,
    Prelude,
    SegmentName,
)
from edged.store.segment_sections import Section, SectionFile
from edged.store.segment_writer import Expiry, entry_of, whole_of


class Lost(NamedTuple):
    """What was in a segment from `first_seq` to `last_seq` is gone; None: nobody knows how far it went."""

    first_seq: int
    last_seq: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What a segment holds and where."""

    whole: Prelude
    table: BlockTable
    columns: Columns  # of a rebuilt segment, EXPIRIES may be missing
    footer: Span | None = None  # None if the segment was rebuilt
    lost: tuple[Lost, ...] = ()


class _Found(NamedTuple):
    """A section found by searching, without its bytes."""

    span: Span
    prelude: Prelude


def read_contents(sections: SectionFile, name: SegmentName | None, expires_ns: Expiry | None) -> Contents:
    """The contents of a file that should be the segment `name`; Damaged if nothing of it can be read."""
    with sections.opened() as file:
        if not file.size():
            raise Damaged("the file is empty", sections.path)
        header = sections.header(file)
        ends = [section for section in _footers(sections, file, header) if section.prelude.kind == FOOTER]
        ours = [section for section in ends if is_named(section.prelude, name)]
        if header is not None and not is_named(header.prelude, name) and ends and not ours:
            raise _not_this(header.prelude, sections.path)
        for section in ours:
            if (
                header is None
                or not is_named(header.prelude, name)
                or header.prelude.belongs_to(section.prelude)
            ):
                # Otherwise the search decides; it sees which of the two has the blocks.
                with suppress(Damaged):
                    return _from_footer(sections, section)
        return _search(sections, file, name, header, expires_ns)


def rebuilt_contents(sections: SectionFile, contents: Contents, expires_ns: Expiry | None) -> Contents:
    """What the blocks say of a segment whose footer is good and whose columns are not. Raises Damaged."""
    found: list[_Found] = []
    with sections.opened() as file:
        for entry in contents.table.entries():
            span = Span(entry.offset, entry.size)
            with suppress(Damaged):
                found.append(_Found(span, sections.section(file, span).prelude))
        ours = [one for one in found if one.prelude.belongs_to(contents.whole)]
        return _rebuild(sections, file, ours, contents.whole, expires_ns)


def is_named(prelude: Prelude, name: SegmentName | None) -> bool:
    """Whether a section is from a file of this name; any is if no name is given."""
    return name is None or name == (prelude.stream_id, prelude.name_seq, prelude.generation)


def _not_this(prelude: Prelude, path: str) -> NotThisSegment:
    return NotThisSegment(
        f"this is segment {prelude.name_seq}-{prelude.generation} of stream {prelude.stream_id.hex()}", path
    )


def _footers(sections: SectionFile, file: File, header: Header | None) -> Iterator[Section]:
    """What is where the footer should be, by the end of the file and by the header."""
    spans = [sections.footer_span(file)]
    if header is not None:
        spans.append(Span(header.footer_offset, header.footer_size))
    for span in dict.fromkeys(spans):
        if span is not None and 0 <= span.offset < file.size():
            # What is not readable there is searched for.
            with suppress(Damaged):
                yield sections.section(file, span)


def _from_footer(sections: SectionFile, section: Section) -> Contents:
    table, columns = unpack_footer(sections.raw(section))
    return Contents(section.prelude._replace(raw_bytes=0), table, columns, section.span)


def _search(
    sections: SectionFile,
    file: File,
    name: SegmentName | None,
    header: Header | None,
    expires_ns: Expiry | None,
) -> Contents:
    """The contents from whatever sections there are."""
    everything = [_Found(section.span, section.prelude) for section in sections.search(file)]
    found = [one for one in everything if is_named(one.prelude, name)]
    whole = header.prelude if header is not None else None
    if not found:
        others = [one.prelude for one in everything] + ([whole] if whole is not None else [])
        if others and not is_named(others[0], name):
            raise _not_this(others[0], sections.path)
        raise _nothing_left(whole, sections.path)
    first = _of_one_file(found, header)
    found = [one for one in found if one.prelude.belongs_to(first)]
    for one in found:
        if one.prelude.kind == FOOTER:
            # A footer that cannot be understood is as good as none.
            with suppress(Damaged):
                return _from_footer(sections, sections.section(file, one.span))
    if whole is None or not whole.belongs_to(first):
        whole = next((one.prelude for one in found if one.prelude.kind != BLOCK), None)
    return _rebuild(sections, file, found, whole, expires_ns)


def _of_one_file(found: list[_Found], header: Header | None) -> Prelude:
    """A section of the file that most sections are of, or that the header is of."""
    if header is not None and any(one.prelude.belongs_to(header.prelude) for one in found):
        return header.prelude
    salts = Counter(one.prelude.salt for one in found)
    salt = salts.most_common(1)[0][0]
    return next(one.prelude for one in found if one.prelude.salt == salt)


def _nothing_left(whole: Prelude | None, path: str) -> Damaged:
    if whole is None:
        return Damaged("nothing of the segment can be read", path)
    return MessagesLost(whole.first_seq, whole.last_seq, "nothing of the segment can be read", path, 0)


def _rebuild(
    sections: SectionFile,
    file: File,
    found: list[_Found],
    whole: Prelude | None,
    expires_ns: Expiry | None,
) -> Contents:
    """The contents from blocks alone; `whole` has the figures of the segment as it was, if they are known."""
    blocks: list[_Found] = []
    for one in found:
        if one.prelude.kind == BLOCK and (not blocks or _follows(one.prelude, blocks[-1].prelude)):
            blocks.append(one)
    recount = Recount(expires_ns)
    kept = []
    for one in blocks:
        # A block that cannot be opened is lost like one that was not found.
        with suppress(Damaged):
            recount.add(read_block(sections, file, entry_of(one.prelude, one.span), one.prelude))
            kept.append(one)
    if not kept:
        raise _nothing_left(whole, sections.path)
    columns = recount.columns()
    if EXPIRIES not in columns:
        for one in found:
            if one.prelude.kind == EXPIRIES:
                with suppress(Damaged):
                    raw = sections.raw(sections.section(file, one.span))
                    columns[EXPIRIES] = pack_expiries(*unpack_expiries(raw), kept=recount.seqs)
    return Contents(
        whole=whole_of([one.prelude for one in kept])._replace(kind=FOOTER),
        table=BlockTable.of([entry_of(one.prelude, one.span) for one in kept]),
        columns=columns,
        lost=tuple(_lost([one.prelude for one in kept], whole)),
    )


def _follows(prelude: Prelude, before: Prelude) -> bool:
    return prelude.number > before.number and prelude.first_seq > before.last_seq


def _lost(kept: list[Prelude], whole: Prelude | None) -> Iterator[Lost]:
    """The ranges of seqs that missing blocks may have held."""
    next_number = 0
    next_seq = whole.first_seq if whole is not None else kept[0].name_seq
    for prelude in kept:
        if prelude.number > next_number:
            yield Lost(next_seq, prelude.first_seq - 1, "blocks are beyond repair")
        next_number = prelude.number + 1
        next_seq = prelude.last_seq + 1
    if whole is None:
        yield Lost(next_seq, None, "the end of the segment cannot be read")
    elif next_seq <= whole.last_seq:
        yield Lost(next_seq, whole.last_seq, "the end of the segment cannot be read")


# --- blocks and what they add up to ---


def read_block(sections: SectionFile, file: File, entry: BlockEntry, whole: Prelude) -> Block:
    """A block that is what the table says it is; Damaged otherwise."""
    return block_of(sections, sections.section(file, Span(entry.offset, entry.size)), entry, whole)


def block_of(sections: SectionFile, section: Section, entry: BlockEntry, whole: Prelude) -> Block:
    """The block in a section; Damaged if it is not the one that the table has there."""
    check_block(sections, section, entry, whole)
    try:
        return unpack_block(sections.raw(section), section.prelude)
    except Damaged as error:
        raise Damaged(error.what, sections.path, entry.offset) from error


def check_block(sections: SectionFile, section: Section, entry: BlockEntry, whole: Prelude) -> None:
    """Raise Damaged if this is not the block that the table has there."""
    prelude = section.prelude
    if prelude.kind != BLOCK or not prelude.belongs_to(whole) or entry_of(prelude, section.span) != entry:
        raise Damaged("another section than expected", sections.path, entry.offset)


def column_of(sections: SectionFile, section: Section, kind: int, whole: Prelude) -> bytes:
    """The raw column in a section; Damaged if it is not the one expected there."""
    if section.prelude.kind != kind or not section.prelude.belongs_to(whole):
        raise Damaged("another section than expected", sections.path, section.span.offset)
    return sections.raw(section)


class Recount:
    """The columns over all messages again, from blocks."""

    def __init__(self, expires_ns: Expiry | None) -> None:
        self._expires_ns = expires_ns
        self._tally = Tally()
        self._are_expiries_known = True
        self.seqs: set[int] = set()  # of messages that may expire, while nobody can say when

    def add(self, block: Block) -> None:
        """Take in a block; they come in order."""
        subjects = [block.subjects[code] for code in block.codes]
        data_sizes = [end - start for start, end in pairwise(block.bounds)]
        sizes = array("I", map(counted_bytes, map(len, subjects), block.header_sizes, data_sizes))
        self._tally.add(block.seqs, subjects, sizes)
        if not any(block.header_sizes):
            return
        if self._expires_ns is None:
            self._are_expiries_known = False
            self.seqs.update(block.seqs)
            return
        for position, header_size in enumerate(block.header_sizes):
            expires_ns = self._expires_ns(block.message(position)) if header_size else 0
            if expires_ns:
                self._tally.add_expiry(block.seqs[position], expires_ns)

    def columns(self) -> dict[int, bytes]:
        """The raw columns; without EXPIRIES if only the lost column could tell."""
        columns = self._tally.columns()
        if not self._are_expiries_known:
            del columns[EXPIRIES]
        return columns


def unpack_expiries(raw: bytes) -> tuple[Column, Column]:
    """Seqs, and when those messages expire."""
    seqs, offset = unpack_column(raw, 0)
    expiries, offset = unpack_column(raw, offset)
    if len(seqs) != len(expiries) or offset != len(raw):
        raise Damaged("the expiries contradict themselves")
    return seqs, expiries


def pack_expiries(seqs: Iterable[int], expiries: Iterable[int], kept: set[int]) -> bytes:
    """The raw column again, with the messages that are still there."""
    pairs = [pair for pair in zip(seqs, expiries, strict=True) if pair[0] in kept]
    return b"".join(pack_column(array("Q", [pair[side] for pair in pairs])) for side in (0, 1))
