"""Reads the sections of one segment file, repaired where that is possible, and finds them without a footer.

Rules: the file is open only while something is read, as there may be very many segments; a sector that the
disk refuses to give is damage like any other, and repaired like it; a section is given out only if it
belongs to this file. Any thread may read. Searching takes time linear in the file and memory for one
section.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from edged.store.box import LABEL_PLAIN, Box, Keyring
from edged.store.errors import Damaged, StoreBroken
from edged.store.files import File, Files
from edged.store.guard import HEAD_BYTES, measure, search, unguard
from edged.store.segment_footer import Span
from edged.store.segment_format import (
    BOX_PURPOSE,
    HEADER_BYTES,
    MARK,
    Header,
    Prelude,
    unpack_body,
    unpack_header,
    unpack_prelude,
    unpack_section,
)

_SECTOR_BYTES: Final = 512
_WINDOW_BYTES: Final = 1 << 20
# Candidates that turn out to be none may cost this many times the file before the search gives up.
_SEARCH_FACTOR: Final = 8


class Section(NamedTuple):
    """A section as it was found: not yet opened and decompressed."""

    span: Span
    prelude: Prelude
    payload: bytes
    repaired: bool


class SectionFile:
    """The sections of the segment at `path`."""

    def __init__(self, files: Files, path: str, keys: Keyring | None) -> None:
        self._files = files
        self.path = path
        self._keys = keys if keys is not None else Keyring()
        self._boxes: dict[tuple[bytes, bytes], Box | None] = {}
        self._box_lock = threading.Lock()

    @contextmanager
    def opened(self) -> Iterator[File]:
        """The open file."""
        try:
            file = self._files.open(self.path)
        except OSError as error:
            raise StoreBroken(f"a segment cannot be opened ({error.strerror or error})", self.path) from error
        try:
            yield file
        finally:
            file.close()

    def header(self, file: File) -> Header | None:
        """The header, if it is whole."""
        return unpack_header(self._read(file, 0, HEADER_BYTES))

    def footer_span(self, file: File) -> Span | None:
        """Where the footer is by the end of the file; the header may say it too."""
        size = file.size()
        start = max(0, size - HEAD_BYTES)
        place = next(search(self._read(file, start, HEAD_BYTES), 0, MARK), None)
        return Span(start + place.offset, place.size) if place is not None else None

    def section(self, file: File, span: Span, thorough: bool = False) -> Section:
        """The section there; Damaged if there is none or it is beyond repair."""
        blob, is_all = self._read_what_there_is(file, *span)
        try:
            payload, repaired = unguard(blob, MARK, thorough)
            return Section(span, unpack_prelude(payload), payload, repaired)
        except Damaged as error:
            damaged = Damaged(error.what, self.path, span.offset)
            damaged.may_pass = not is_all
            raise damaged from error

    def raw(self, section: Section) -> bytes:
        """What a section holds, decrypted and decompressed."""
        return self._unpacked(section, unpack_section)

    def body(self, section: Section) -> bytes:
        """What a section holds, decrypted and still compressed."""
        return self._unpacked(section, unpack_body)

    def _unpacked(self, section: Section, unpack: Callable[[bytes, Box | None], bytes]) -> bytes:
        box = self._box_of(section.prelude)
        try:
            if box is None:
                return unpack(section.payload, None)
            with self._box_lock:
                return unpack(section.payload, box)
        except Damaged as error:
            raise Damaged(error.what, self.path, section.span.offset) from error

    def search(self, file: File) -> Iterator[Section]:
        """All sections that can be read, in order, without any help from footer or header."""
        file_size = file.size()
        offset = HEADER_BYTES
        allowance = _SEARCH_FACTOR * file_size
        while offset + HEAD_BYTES <= file_size and allowance >= 0:
            section, spent = self._next(file, offset, file_size, allowance)
            allowance -= spent
            if section is None:
                return
            yield section
            offset = section.span.offset + section.span.size

    def _next(self, file: File, offset: int, file_size: int, allowance: int) -> tuple[Section | None, int]:
        """The first section at or after `offset`, and how many bytes were looked at in vain."""
        spent = 0
        tried: set[Span] = set()
        for span in self._candidates(file, offset, file_size):
            # The end of a section may be missing, but not more than could be repaired.
            if span.offset < offset or span.offset >= file_size or span in tried:
                continue
            if span.size > 2 * (file_size - span.offset) + 2 * _SECTOR_BYTES:
                continue
            tried.add(span)
            try:
                return self.section(file, span), spent
            except Damaged:
                spent += span.size
                if spent > allowance:
                    break
        return None, spent

    def _candidates(self, file: File, offset: int, file_size: int) -> Iterator[Span]:
        size = measure(self._read(file, offset, HEAD_BYTES), 0, MARK)
        if size is not None:
            yield Span(offset, size)
        for start in range(offset, file_size, _WINDOW_BYTES):
            window = self._read(file, start, _WINDOW_BYTES + HEAD_BYTES - 1)
            for place in search(window, 0, MARK):
                yield Span(start + place.offset, place.size)

    def _box_of(self, prelude: Prelude) -> Box | None:
        if prelude.label == LABEL_PLAIN:
            return None
        key = prelude.label, prelude.salt
        if key not in self._boxes:
            self._boxes[key] = self._keys.box_of(prelude.label, BOX_PURPOSE, prelude.salt)
        return self._boxes[key]

    def _read(self, file: File, offset: int, size: int) -> bytes:
        return self._read_what_there_is(file, offset, size)[0]

    def _read_what_there_is(self, file: File, offset: int, size: int) -> tuple[bytes, bool]:
        """The bytes there, with zeros for sectors that the disk does not give; whether it gave all."""
        try:
            return file.read_at(offset, size), True
        except OSError as error:
            if error.errno != errno.EIO:
                raise StoreBroken(
                    f"a segment cannot be read ({error.strerror or error})", self.path
                ) from error
        parts: list[bytes] = []
        end = min(offset + size, file.size())
        is_all = True
        while offset < end:
            stop = min(end, (offset // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
            try:
                parts.append(file.read_at(offset, stop - offset))
            except OSError:
                is_all = False
                parts.append(bytes(stop - offset))
            offset = stop
        return b"".join(parts), is_all
