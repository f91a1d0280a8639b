"""The journal: batches of frames go to the end of one file after another, and are made durable.

Rules:
* One thread at a time is in here; what any thread may call says so. A batch is written whole into one file;
  what does not fit goes to the next.
* A file is made ready before it is needed: its space set aside, or taken over from a file that is done with.
  Its header goes out together with the first batch, in one write.
* A file whose write or sync failed is done with: nothing is written to it or synced any more. The batch is
  written once more, to a new file, whose header says where the good part of the old one ends.
* An error says what is known. StoreFull and StoreBroken: nothing of the batch is there. OutcomeUnknown: it
  was written, but whether it will be read after a crash cannot be said.

Invariant: HEADER_BYTES <= synced <= end <= the size of the file; promised <= end.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from edged.store.errors import OutcomeUnknown, StoreBroken, StoreFull
from edged.store.files import File, Files
from edged.store.journal_file import (
    HEADER_BYTES,
    JOURNAL,
    KEY_ID_BYTES,
    SALT_BYTES,
    JournalHeader,
    file_numbers,
    file_path,
    spare_path,
)
from edged.store.sealed_frames import PURPOSE, seal_frames

if TYPE_CHECKING:
    from edged.core.frames import FrameBuffer
    from edged.store.box import Box, Keyring

NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
SPARES_MAX: Final = 2
"""Files kept for another use. More than this are removed, which gives their space back."""
RECORD_BYTES: Final = 4096
"""What a batch record takes at most, but for stores with very many streams."""
FILES_MIN: Final = 2
"""The file in use, and one that the older checkpoint needs: fewer there never are for long."""
SMALL_FILE_BYTES: Final = 256 * 1024
"""The file used when a full disk has no room for a whole one: enough for commands that free space."""


class Position(NamedTuple):
    """Where in the journal: a file and an offset in it. A tuple: there is one per batch."""

    file: int
    offset: int


START: Final = Position(0, 0)
"""Where a journal ends that has no file yet."""


class Journal:
    """The writing end. `draw_nonce` gives a fresh random number of 64 bits, `now_ns` the time of day."""

    def __init__(
        self,
        files: Files,
        file_bytes: int,
        next_number: int,
        draw_nonce: Callable[[], int],
        now_ns: Callable[[], int],
        previous: Position = START,
        previous_nonce: int = 0,
        spares: list[str] | None = None,
        keys: Keyring | None = None,
        store_id: int = 0,
    ) -> None:
        assert file_bytes > HEADER_BYTES, file_bytes
        self._files = files
        self._file_bytes = file_bytes
        self._draw_nonce = draw_nonce
        self._keys = keys
        self._store_id = store_id
        self._box: Box | None = None
        self._now_ns = now_ns
        self._spares = [f"{JOURNAL}/{name}" for name in spares or ()]
        self._file: File | None = None
        self._file_size = 0
        self.nonce = 0
        self._header: bytes | None = None
        self._previous = previous
        self._previous_nonce = previous_nonce
        # The file after this one. Who has the lock may change these and take from the spares.
        self._next_number = next_number
        self._ready: File | None = None
        self._ready_size = 0
        self._ready_lock = threading.Lock()
        self._is_turn_asked = False
        # Syncs that failed with nobody waiting for them; whoever reports such things empties the list.
        self.failed_syncs: list[str] = []
        # Files on which the disk failed. They are never synced again, so they cannot be used again either.
        # Nor are those of an earlier life, of which nobody knows how they fared.
        self._failed: set[int] = set()
        self._first_number = next_number
        self.number = 0
        # In the current file: where writing goes on, what is durable, and what somebody was told is written.
        self.end = self.synced = self._promised = HEADER_BYTES

    @property
    def position(self) -> Position:
        """Where the next batch goes, if it fits."""
        return Position(self.number, self.end)

    def has_room(self, size: int) -> bool:
        """Whether about so many bytes more still go into the current file. Any thread may ask."""
        is_open = self._file is not None and not self._is_turn_asked
        return is_open and self.end + size + RECORD_BYTES <= self._file_size

    def commit(
        self,
        buffer: FrameBuffer,
        sync: bool = True,
        is_small_file_ok: bool = False,
        is_file_new: bool = False,
    ) -> Position:
        """Write a batch, and make it durable if wished; where it is. With `is_file_new` it begins a file.

        With `is_small_file_ok` a full disk gets a small file instead of an error: for what frees space.
        """
        size = len(buffer)
        is_turn_needed = is_file_new or self._is_turn_asked or self._file is None
        if is_turn_needed or self.end + size > self._file_size:
            self._turn(size, is_small_file_ok)
        try:
            return self._write(buffer, sync)
        except OSError as error:
            self._give_up()
            first_error = error
        # The batch may be in the abandoned file. In a new file it is safe, and void in the old one.
        try:
            self._turn(size, is_small_file_ok)
            return self._write(buffer, sync)
        except (OSError, StoreFull, StoreBroken) as error:
            self._give_up()
            raise OutcomeUnknown(f"the disk failed ({first_error}, then {error})", JOURNAL) from error

    def note(self, buffer: FrameBuffer) -> bool:
        """Write something that nobody waits for, if it can be written; it is synced some time."""
        if self._file is None or self.end + len(buffer) > self._file_size:
            return False
        try:
            self._write(buffer, sync=False, is_promised=False)
        except OSError:
            self._give_up()
            return False
        return True

    def take_over(self, buffer: FrameBuffer) -> None:
        """Begin with frames that stand in the last file, behind the end that our header gives for it.

        The header comes last: before it is there the frames count in the old file, afterwards in this one.
        Raises StoreFull, StoreBroken.
        """
        self._turn(len(buffer), is_small_file_ok=True)
        assert self._file is not None and self._header is not None
        try:
            self._file.write_at(HEADER_BYTES, self._finished(buffer))
            self._file.sync()
            self._file.write_at(0, self._header)
            self._file.sync()
        except OSError as error:
            self._give_up()
            _refuse(error, "the end of the journal cannot be made durable")
        self._header = None
        self.end = self.synced = self._promised = HEADER_BYTES + len(buffer)

    def sync(self) -> None:
        """Make durable what was written without a sync. Raises StoreBroken."""
        if self._file is None or self.synced == self.end:
            return
        try:
            self._file.sync()
        except OSError as error:
            self._give_up()
            raise StoreBroken(f"sync failed ({error})", file_path(self.number)) from error
        self.synced = self.end

    def rotate(self) -> None:
        """Let the next batch begin a new file."""
        self._retire_current()

    def ask_to_turn(self) -> None:
        """Let the next batch begin a new file; for those who may not be in here. Any thread may call it."""
        self._is_turn_asked = True

    def has_old_files(self) -> bool:
        """Whether there are files that would go if the journal turned, perhaps more than once."""
        try:
            numbers = file_numbers(self._files.list(JOURNAL))
        except OSError:
            # A disk that does not even say that is not helped by writing to it.
            return False
        return sum(number <= self.number for number in numbers) > FILES_MIN

    @property
    def is_prepared(self) -> bool:
        """Whether the next file is ready. Any thread may ask."""
        return self._ready is not None

    def prepare(self) -> None:
        """Have the next file ready, so that the batch that needs it does not wait. Raises OSError.

        Any thread may do this, beside the one that writes: should that one need the file now, it waits.
        """
        with self._ready_lock:
            if self._ready is None:
                self._ready, self._ready_size = self._obtain(self._next_number, self._file_bytes)

    def reuse(self, number: int) -> None:
        """A file is not needed any more: keep it for another use, or give its space back. Raises OSError.

        May run while other threads are in here: it adds to the list and takes nothing.
        """
        is_good = number >= self._first_number and number not in self._failed
        if is_good and len(self._spares) < SPARES_MAX:
            self._files.rename(file_path(number), spare_path(number))
            self._spares.append(spare_path(number))
        else:
            self._files.remove(file_path(number))

    def let_go(self) -> None:
        """Close the files as they are."""
        for file in (self._file, self._ready):
            if file is not None:
                file.close()
        self._file = self._ready = None

    # --- inside ---

    def _write(self, buffer: FrameBuffer, sync: bool, is_promised: bool = True) -> Position:
        file, offset = self._file, self.end
        assert file is not None
        frames = self._finished(buffer)
        if self._header is not None:
            file.write_at(0, b"".join((self._header, frames)))
        else:
            file.write_at(offset, frames)
        if sync:
            file.sync()
        self._header = None
        self.end = end = offset + len(frames)
        if sync:
            self.synced = end
        if is_promised:
            self._promised = end
        return Position(self.number, offset)

    def _finished(self, buffer: FrameBuffer) -> memoryview:
        """The frames as they are written at the end of the file."""
        if self._box is not None:
            buffer = seal_frames(buffer, self._box, self.end)
        return buffer.finish(self.nonce, self.end)

    def _turn(self, size: int, is_small_file_ok: bool) -> None:
        """Go on in a new file with room for a batch of `size` bytes. Nothing is written to it yet."""
        try:
            self._retire_current()
            with self._ready_lock:
                file, file_size = self._take_ready(HEADER_BYTES + size, is_small_file_ok)
                self.number = self._next_number
                self._next_number += 1
        except OSError as error:
            _refuse(error, "no new journal file")
        self._is_turn_asked = False
        self._file, self._file_size = file, file_size
        self.nonce = self._draw_nonce()
        self.end = self.synced = self._promised = HEADER_BYTES
        salt, label = bytes(SALT_BYTES), bytes(KEY_ID_BYTES)
        if self._keys is not None:
            salt = b"".join(self._draw_nonce().to_bytes(8, "little") for _ in range(SALT_BYTES // 8))
            self._box = self._keys.box(PURPOSE, salt)
            label = self._keys.label
        before = self._previous
        header = JournalHeader(
            self.number,
            self.nonce,
            self._now_ns(),
            before.file,
            before.offset,
            salt if self._box is not None else bytes(SALT_BYTES),
            label,
            self._previous_nonce,
            self._store_id,
        )
        self._header = header.encode()

    def _retire_current(self) -> None:
        """The current file gets no more. All of it must be durable before the next file says so."""
        try:
            self.sync()
        except StoreBroken as error:
            # Nothing in there that waited for a sync was promised to be durable.
            self.failed_syncs.append(str(error))
        else:
            self._promised = self.end
        self._abandon()

    def _give_up(self) -> None:
        """The disk failed on the current file: nothing is written to it or synced any more."""
        self._failed.add(self.number)
        self._abandon()

    def _abandon(self) -> None:
        """Let go of the current file: it is full, or the disk failed on it. What was promised in it stays."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if self._promised > HEADER_BYTES:
            self._previous = Position(self.number, self._promised)
            self._previous_nonce = self.nonce
        # With nothing promised in it the file is as if it never was.

    def _take_ready(self, needed: int, is_small_file_ok: bool) -> tuple[File, int]:
        if self._ready is not None and self._ready_size >= needed:
            taken = self._ready, self._ready_size
            self._ready = None
            return taken
        if self._ready is not None:
            # Larger than any batch before: the file that was ready stays behind unused, and is found as such.
            self._ready.close()
            self._ready = None
            self._next_number += 1
        try:
            return self._obtain(self._next_number, max(self._file_bytes, needed))
        except OSError as error:
            if error.errno not in NO_ROOM or not is_small_file_ok:
                raise
            return self._obtain(self._next_number, max(SMALL_FILE_BYTES, needed))

    def _obtain(self, number: int, size: int) -> tuple[File, int]:
        """A file under its final name, with space set aside and its name durable."""
        path = file_path(number)
        while self._spares:
            taken = self._take_spare(self._spares.pop(), path, size)
            if taken is not None:
                return taken
        file = self._create(path)
        try:
            file.allocate(size)
            file.sync()
            self._files.sync_directory(JOURNAL)
        except OSError:
            file.close()
            self._files.remove(path)
            raise
        return file, size

    def _take_spare(self, spare: str, path: str, size: int) -> tuple[File, int] | None:
        """A file that was used before, under its new name; None if it is too small, and then it goes."""
        file = self._files.open(spare)
        try:
            found = file.size()
            if found >= size:
                self._files.rename(spare, path)
                self._files.sync_directory(JOURNAL)
                return file, found
            self._files.remove(spare)
        except OSError:
            file.close()
            raise
        file.close()
        return None

    def _create(self, path: str) -> File:
        try:
            return self._files.create(path)
        except FileExistsError:
            # Left by an attempt that failed half-way; a file with records has a number below ours.
            self._files.remove(path)
            return self._files.create(path)


def _refuse(error: OSError, what: str) -> NoReturn:
    """Translate an error that came before anything of a batch was written."""
    if error.errno in NO_ROOM:
        raise StoreFull(f"{what}: the disk is full", JOURNAL) from error
    raise StoreBroken(f"{what} ({error})", JOURNAL) from error
