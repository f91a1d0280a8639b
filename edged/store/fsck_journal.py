"""Looks at each file of the journal by itself: its header, and its frames if the header is gone.

Rules: nothing is written. A file is in memory while it is looked at, one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from edged.core.batch_record import BatchRecord
from edged.core.frame_twins import scan
from edged.core.frames import BATCH
from edged.store.errors import Damaged
from edged.store.fsck_files import StoreFiles
from edged.store.journal_file import COPY_BYTES, HEADER_BYTES, JOURNAL, JournalHeader, file_numbers, file_path
from edged.store.journal_nonce import recover_nonce


class Use(Enum):
    """What a journal file is."""

    USED = "in use"
    READY = "made ready, not used yet"
    HEADLESS = "without a readable header"


@dataclass(frozen=True, slots=True)
class JournalFile:
    """One file. `bad_copies` are the offsets of copies of the header that are not whole.

    Of a file without a header: the nonce that its frames tell, if they do, how many frames there are with it,
    and whether a batch record among them proves that something before it was durable.
    """

    number: int
    size: int
    use: Use
    header: JournalHeader | None = None
    bad_copies: tuple[int, ...] = ()
    nonce: int | None = None
    frames: int = 0
    is_proven_durable: bool = False

    @property
    def path(self) -> str:
        """Where it is."""
        return file_path(self.number)


def read_journal_files(files: StoreFiles, first: int = 0) -> list[JournalFile]:
    """All files of the journal from a number on."""
    numbers = [number for number in file_numbers(files.list(JOURNAL)) if number >= first]
    found = {number: read_journal_file(files, number) for number in numbers}
    for one in list(found.values()):
        before = found.get(one.header.previous_number) if one.use is Use.USED and one.header else None
        if before is not None and before.use is Use.HEADLESS and one.header and one.header.previous_nonce:
            # The header of the file behind knows it for certain.
            found[before.number] = _read_headless(files, before.number, one.header.previous_nonce)
    return list(found.values())


def read_journal_file(files: StoreFiles, number: int) -> JournalFile:
    """One file."""
    path = file_path(number)
    head, size = files.read_head(path, HEADER_BYTES + 4)
    copies = [_copy(head[start : start + COPY_BYTES], path) for start in (0, COPY_BYTES)]
    header = next((copy for copy in copies if copy is not None), None)
    if header is not None:
        bad = tuple(place * COPY_BYTES for place, copy in enumerate(copies) if copy != header)
        use = Use.USED if header.number == number else Use.READY
        return JournalFile(number, size, use, header, bad if use is Use.USED else ())
    if not any(head):
        return JournalFile(number, size, Use.READY)
    return _read_headless(files, number)


def _copy(half: bytes, path: str) -> JournalHeader | None:
    try:
        return JournalHeader.decode(half, path)
    except Damaged:
        return None


def _read_headless(files: StoreFiles, number: int, nonce: int | None = None) -> JournalFile:
    data = files.read_all(file_path(number))
    nonce = nonce or recover_nonce(data)
    if nonce is None:
        return JournalFile(number, len(data), Use.HEADLESS)
    frames = scan(data, nonce, HEADER_BYTES).frames
    proven = False
    for _, kind, _, _, start, body_bytes in frames:
        if kind == BATCH:
            try:
                record = BatchRecord.decode(data[start : start + body_bytes])
            except (ValueError, TypeError):
                # It was encrypted: the salt is gone with the header, and with it what the frames say.
                return JournalFile(number, len(data), Use.HEADLESS)
            proven = proven or (record.synced_file == number and record.synced_to > HEADER_BYTES)
    return JournalFile(number, len(data), Use.HEADLESS, None, (0, COPY_BYTES), nonce, len(frames), proven)


def restore_headers(files: StoreFiles, journal: list[JournalFile]) -> list[JournalFile]:
    """Let files whose nonce is known be read as if they had their headers; those files.

    Where the journal ended before such a file its own header would say. Without it, everything that is good
    in the file before counts: at worst commands are kept that were never acknowledged.
    """
    restored = []
    for place, one in enumerate(journal):
        if one.use is not Use.HEADLESS or one.nonce is None:
            continue
        before = [other for other in journal[:place] if other.use is Use.USED or other.nonce is not None]
        header = JournalHeader(one.number, one.nonce, 0, 0, 0)
        if before:
            nonce, end = _end_of_frames(files, before[-1])
            header = replace(
                header, previous_number=before[-1].number, previous_end=end, previous_nonce=nonce
            )
        files.patch_head(one.path, header.encode())
        restored.append(one)
    return restored


def _end_of_frames(files: StoreFiles, one: JournalFile) -> tuple[int, int]:
    """The nonce of a file, and where its last frame ends."""
    nonce = one.nonce if one.header is None else one.header.nonce
    assert nonce is not None
    return nonce, scan(files.read_all(one.path), nonce, HEADER_BYTES).tail_start
