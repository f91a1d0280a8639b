"""Looks at every byte of a segment and says what is wrong with it. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edged.store.errors import Damaged
from edged.store.files import File
from edged.store.segment_footer import Span
from edged.store.segment_format import EXPIRIES, FOOTER, HEADER_BYTES, Header
from edged.store.segment_rebuild import Contents, Recount, block_of, column_of
from edged.store.segment_sections import SectionFile

# How many bytes were looked at, and of how many.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written. With `costs_nothing`, everything can still be read.

    Otherwise messages from `first_seq` to `last_seq` are concerned; 0 stands for none or not known.
    """

    what: str
    offset: int
    size: int
    costs_nothing: bool
    first_seq: int = 0
    last_seq: int = 0


def check(sections: SectionFile, contents: Contents, progress: Progress | None = None) -> list[Problem]:
    """Everything that is wrong with a segment whose contents were read before."""
    with sections.opened() as file:
        return list(_problems(sections, contents, file, progress or (lambda done, of: None)))


def _problems(sections: SectionFile, contents: Contents, file: File, progress: Progress) -> Iterator[Problem]:
    file_size = file.size()
    header = sections.header(file)
    if header is None or (contents.footer and header != Header(contents.whole, *contents.footer)):
        yield Problem("the header is damaged", 0, HEADER_BYTES, True)
    if contents.footer is None:
        yield Problem("the footer is lost", file_size, 0, True)
    for lost in contents.lost:
        yield Problem(lost.reason, file_size, 0, False, lost.first_seq, lost.last_seq or 0)
    recount: Recount | None = Recount(None)
    for entry in contents.table.entries():
        span = Span(entry.offset, entry.size)
        try:
            section = sections.section(file, span, thorough=True)
            block = block_of(sections, section, entry, contents.whole)
        except Damaged as error:
            yield Problem(f"a block is lost: {error.what}", *span, False, entry.first_seq, entry.last_seq)
            recount = None
        else:
            if section.repaired:
                yield Problem("a block was repaired", *span, True)
            if recount is not None:
                recount.add(block)
        progress(entry.offset + entry.size, file_size)
    yield from _column_problems(sections, contents, file, recount)
    yield from _footer_problems(sections, contents, file)
    yield from _stray_bytes(contents, file_size)
    progress(file_size, file_size)


def _column_problems(
    sections: SectionFile, contents: Contents, file: File, recount: Recount | None
) -> Iterator[Problem]:
    counted = recount.columns() if recount is not None else {}
    for kind, column in contents.columns.items():
        span = Span(0, 0)
        raw = column if isinstance(column, bytes) else b""
        if isinstance(column, Span):
            span = column
            try:
                section = sections.section(file, span, thorough=True)
                raw = column_of(sections, section, kind, contents.whole)
            except Damaged as error:
                # All others are made again from the blocks.
                yield Problem(f"column {kind} is lost: {error.what}", *span, kind != EXPIRIES)
                continue
            if section.repaired:
                yield Problem(f"column {kind} was repaired", *span, True)
        if kind != EXPIRIES and counted and raw != counted[kind]:
            yield Problem(f"column {kind} contradicts the blocks", *span, False)


def _footer_problems(sections: SectionFile, contents: Contents, file: File) -> Iterator[Problem]:
    if contents.footer is None:
        return
    try:
        section = sections.section(file, contents.footer, thorough=True)
    except Damaged as error:
        yield Problem(f"the footer is lost: {error.what}", *contents.footer, True)
        return
    if section.prelude._replace(raw_bytes=0) != contents.whole or section.prelude.kind != FOOTER:
        yield Problem("the footer is not the one that was read before", *contents.footer, False)
    elif section.repaired:
        yield Problem("the footer was repaired", *contents.footer, True)


def _stray_bytes(contents: Contents, file_size: int) -> Iterator[Problem]:
    """Ranges that belong to no section; a rebuilt segment may have them and has said so already."""
    if contents.footer is None:
        return
    spans = [Span(entry.offset, entry.size) for entry in contents.table.entries()]
    spans += [column for column in contents.columns.values() if isinstance(column, Span)]
    position = HEADER_BYTES
    for span in [*sorted(spans), contents.footer, Span(file_size, 0)]:
        if span.offset != position:
            start, end = sorted((span.offset, position))
            yield Problem("bytes that belong to nothing, or to two things", start, end - start, True)
        position = span.offset + span.size
