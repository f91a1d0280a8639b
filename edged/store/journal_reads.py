"""Reads frames of journal files that are in use: from memory if they were written lately, else from disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from edged.core.frame_twins import decode_append
from edged.core.frames import HEADER_BYTES, Frame
from edged.store.journal_reader import JournalFile

if TYPE_CHECKING:
    from edged.store.box import Keyring
    from edged.store.files import Files
    from edged.store.tail import Tail


class JournalReads:
    """The files that somebody has read from stay open until they are done with."""

    def __init__(self, files: Files, keys: Keyring | None, tail: Tail) -> None:
        self._files = files
        self._keys = keys
        self._tail = tail
        self._readers: dict[int, JournalFile] = {}

    def read_hot(self, file: int, offset: int, size: int) -> bytes:
        """The frame of a message that is still in the journal, not encrypted. Raises Damaged."""
        found = self._tail.find(file, offset, size)
        return self._reader(file).frame(offset, size) if found is None else found

    def read_span(self, file: int, offset: int, size: int) -> tuple[bytes, Sequence[Frame] | None]:
        """Many bytes of a journal file, not encrypted, and the frames in them; None if memory has them."""
        found = self._tail.find_span(file, offset, size)
        return self._reader(file).frames(offset, size) if found is None else (found, None)

    def _reader(self, file: int) -> JournalFile:
        reader = self._readers.get(file)
        if reader is None:
            reader = self._readers[file] = JournalFile(self._files, file, self._keys)
        return reader

    @staticmethod
    def decode_frame(frame: bytes) -> tuple[int, bytes, int, bytes]:
        """Time, subject, header bytes and data of a message from its frame."""
        return decode_append(frame, HEADER_BYTES, len(frame) - HEADER_BYTES)

    def close(self, numbers: Iterable[int] | None = None) -> None:
        """Let go of these files, or of all."""
        for number in list(self._readers) if numbers is None else numbers:
            reader = self._readers.pop(number, None)
            if reader is not None:
                reader.close()
