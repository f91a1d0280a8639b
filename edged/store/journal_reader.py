"""Reads the journal after a start: which files count, which frames in them, and what is missing.

Rules:
* The last file's header says where the journal ended before it, that file's header says the same of its own
  predecessor, and so on: only what is on this chain counts.
* What was read back need not be on the disk: a process that was killed leaves bytes in the memory of the
  operating system, and a failed sync leaves them there for good. Only what is proven durable is taken as
  such.
* In a file that has a successor everything up to its end was durable; what is bad there is rot. In the last
  file the batch records say up to where. Behind that line the first bad byte is where a crash cut a batch.
* Memory is bounded by two files at a time: the last one, which is read first, and the one at hand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType

from edged.core.batch_record import BatchRecord
from edged.core.frame_twins import scan
from edged.core.frames import BATCH, Frame
from edged.core.run_twins import frames_of_kind
from edged.store.box import Box, Keyring
from edged.store.errors import Damaged
from edged.store.files import Files
from edged.store.journal_file import HEADER_BYTES, JOURNAL, JournalHeader, file_numbers, file_path
from edged.store.sealed_frames import PURPOSE, TAG_BYTES, open_frames


@dataclass(frozen=True, slots=True)
class Part:
    """What counts in one file, up to `end`. `damage` is rot, `torn_bytes` was cut off behind the end.

    What stands behind `durable_to` may be in the memory of the operating system only.
    """

    number: int
    data: bytes
    frames: Sequence[Frame]
    damage: list[tuple[int, int]]
    end: int
    durable_to: int
    torn_bytes: int


@dataclass(slots=True)
class Chain:
    """The files that count, oldest first, each with its header and, except for the last, its end."""

    files: list[tuple[JournalHeader, int | None]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    unused: list[int] = field(default_factory=list)
    # Files that are neither part of the journal nor known to be free.
    strange: list[int] = field(default_factory=list)
    highest: int = 0
    keys: Keyring | None = None

    @property
    def last(self) -> int:
        """The number of the file the journal ends in; 0 when there is none."""
        return self.files[-1][0].number if self.files else 0

    def tag_bytes(self, number: int) -> int:
        """What lies behind the body of each frame of a file, which is encrypted if that is not 0."""
        is_sealed = any(header.number == number and any(header.key_id) for header, _ in self.files)
        return TAG_BYTES if is_sealed else 0


def read_chain(
    files: Files,
    first: int,
    keys: Keyring | None = None,
    needed_from: int | None = None,
    store_id: int | None = None,
) -> Chain:
    """Find the files that count, from number `first` on. The keys are for those that are encrypted.

    Files from `needed_from` on are needed by some checkpoint; what holds one of them is not free. Those of
    another store than `store_id` are strange.
    """
    chain = Chain(keys=keys)
    numbers = file_numbers(files.list(JOURNAL))
    chain.highest = max(numbers, default=0)
    found = {number: _read_header(files, number) for number in numbers if number >= first}
    headers = {
        number: header
        for number, header in found.items()
        if isinstance(header, JournalHeader) and header.number == number
    }
    foreign = {number for number, header in headers.items() if store_id not in (None, header.store_id)}
    _walk(chain, {number: header for number, header in headers.items() if number not in foreign}, first)
    counted = {header.number for header, _ in chain.files}
    for number, seen in found.items():
        if number not in counted:
            # Void by what a later header says, never used, or taken over from a file that is done with.
            is_free = (number in headers and number not in foreign) or seen is None
            oldest = first if needed_from is None else needed_from
            is_ours = isinstance(seen, JournalHeader) and store_id in (None, seen.store_id)
            is_free = is_free or (isinstance(seen, JournalHeader) and is_ours and seen.number < oldest)
            is_free = is_free and number not in chain.missing
            (chain.unused if is_free else chain.strange).append(number)
    return chain


def _walk(chain: Chain, headers: dict[int, JournalHeader], first: int) -> None:
    """Follow the headers from the last file back to the first."""
    wanted = max(headers, default=0)
    end: int | None = None
    nonce: int | None = None
    while wanted >= first and wanted > 0:
        header = headers.get(wanted)
        if header is None or nonce not in (None, header.nonce):
            # The successor says that there was such a file, and it is gone or its header is.
            chain.missing.append(wanted)
            lower = [number for number in headers if number < wanted]
            wanted, end, nonce = max(lower, default=0), None, None
            continue
        chain.files.append((header, end))
        wanted, end, nonce = header.previous_number, header.previous_end, header.previous_nonce
    chain.files.reverse()


def store_id_of(files: Files) -> int | None:
    """Which store the journal belongs to, by its first file; None without one."""
    for number in file_numbers(files.list(JOURNAL)):
        header = read_header(files, number)
        if header is not None:
            return header.store_id
    return None


def read_parts(
    files: Files, chain: Chain, start_after: int = 0, known: Mapping[int, Part] = MappingProxyType({})
) -> Iterator[Part]:
    """The parts of the journal in order, those of files above `start_after`; `known` were read already."""
    for header, end in chain.files:
        if header.number > start_after:
            found = known.get(header.number)
            if found is not None and end is not None:
                found = _ending_at(found, end)
            yield found or _read_part(files, header, end, chain.keys)


def read_header(files: Files, number: int) -> JournalHeader | None:
    """The header of a file that was used; None if there is no such file, or nothing of the kind in it."""
    try:
        header = _read_header(files, number)
    except FileNotFoundError:
        return None
    return header if isinstance(header, JournalHeader) and header.number == number else None


def is_strange(files: Files, number: int, needed_from: int) -> bool:
    """Whether a file that should be done with holds, by its header, one that is still needed."""
    header = _read_header(files, number)
    return isinstance(header, JournalHeader) and header.number >= needed_from


def read_last(files: Files, chain: Chain) -> Part | None:
    """The last part of the journal, if there is one."""
    return _read_part(files, *chain.files[-1], chain.keys) if chain.files else None


def written_part(number: int, nonce: int, frames: bytes) -> Part:
    """A part as it is read from a file that begins with these frames and holds nothing else."""
    data = bytes(HEADER_BYTES) + frames
    found = scan(data, nonce, HEADER_BYTES)
    return _cut_tail(number, data, found.frames, found.damage, found.tail_start)


def _read_header(files: Files, number: int) -> JournalHeader | Damaged | None:
    """The header in a file, whatever its number; None without one; Damaged when it cannot be read."""
    path = file_path(number)
    file = files.open(path)
    try:
        return JournalHeader.decode(file.read_at(0, HEADER_BYTES), path)
    except Damaged as error:
        # Torn with its first batch, which was not acknowledged; or rot, and then its successor misses it.
        return error
    finally:
        file.close()


def _read_part(files: Files, header: JournalHeader, end: int | None, keys: Keyring | None) -> Part:
    file = files.open(file_path(header.number))
    try:
        data = file.read_at(0, file.size() if end is None else end)
    finally:
        file.close()
    found = scan(data, header.nonce, HEADER_BYTES)
    frames, damage = found.frames, list(found.damage)
    box = box_of(header, keys)
    if box is not None:
        data, frames, sealed = open_frames(data, frames, box, 0)
        damage = sorted(damage + sealed)
    if end is not None:
        if found.tail_start < end:
            damage.append((found.tail_start, end))
        return Part(header.number, data, frames, damage, end, end, 0)
    return _cut_tail(header.number, data, frames, damage, found.tail_start)


class JournalFile:
    """A journal file from which single frames are read."""

    def __init__(
        self, files: Files, number: int, keys: Keyring | None, header: JournalHeader | None = None
    ) -> None:
        self._path = file_path(number)
        header = header or read_header(files, number)
        if header is None:
            raise Damaged("the header of a journal file is gone", self._path, 0)
        self._nonce = header.nonce
        self._box = box_of(header, keys)
        self._file = files.open(self._path)

    def frames(self, offset: int, size: int) -> tuple[bytes, Sequence[Frame]]:
        """Some bytes, as they were before encryption, and the good frames in them."""
        data = self._file.read_at(offset, size + (TAG_BYTES if self._box is not None else 0))
        frames = scan(data, self._nonce, 0, offset).frames
        if self._box is not None:
            data, frames, _ = open_frames(data, frames, self._box, offset)
        return data, frames

    def frame(self, offset: int, size: int) -> bytes:
        """A frame as it was before it was encrypted, of this size then. Raises Damaged."""
        data, frames = self.frames(offset, size)
        if len(frames) != 1 or frames[0][0] != 0:
            raise Damaged("a message cannot be read", self._path, offset)
        return data[:size]

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def box_of(header: JournalHeader, keys: Keyring | None) -> Box | None:
    """What opens the frames of a file; None if it is plain. Raises WrongKey when no key fits."""
    return (keys or Keyring()).box_of(header.key_id, PURPOSE, header.salt)


def frames_before(frames: Sequence[Frame], offset: int) -> int:
    """How many frames begin before this offset."""
    return bisect_left(frames, offset, key=itemgetter(0))


def _ending_at(part: Part, end: int) -> Part | None:
    """A last part, as reading it gives it when it is known to end here; None if it must be read for that."""
    count = frames_before(part.frames, end)
    frames_end = part.frames[count - 1][4] + part.frames[count - 1][5] if count else HEADER_BYTES
    if end > part.end or frames_end > end:
        return None
    damage = [(start, min(stop, end)) for start, stop in part.damage if start < end]
    return Part(part.number, part.data, part.frames[:count], damage, end, end, 0)


def _cut_tail(
    number: int, data: bytes, frames: Sequence[Frame], damage: list[tuple[int, int]], tail_start: int
) -> Part:
    durable_to = HEADER_BYTES
    for _, _, _, _, body_start, size in frames_of_kind(frames, BATCH):
        record = BatchRecord.decode(data[body_start : body_start + size])
        if record.synced_file == number:
            durable_to = max(durable_to, record.synced_to)
    if tail_start < durable_to:
        damage = [*damage, (tail_start, durable_to)]
    cut = min((max(start, durable_to) for start, stop in damage if stop > durable_to), default=None)
    end = max(tail_start, durable_to) if cut is None else cut
    rotten = [(start, min(stop, end)) for start, stop in damage if start < end]
    kept = frames if cut is None else frames[: frames_before(frames, cut)]
    return Part(number, data, kept, rotten, end, durable_to, max(tail_start, end) - end)
