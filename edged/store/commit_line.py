"""The line of batches on their way to the journal: what gathers, what was closed, and whether one failed.

Rules:
* A batch may be closed while another is being written. They are written and finished in the order in which
  they were closed.
* A batch ends with its record (edged/core/batch_record.py), which is made just before it is written: so it
  tells how far the batch before got. What it says of the groups is known when the batch is closed.
* When a batch could not be written, neither is what was closed or gathered behind it: its commands follow on
  ones that are missing. All of them are told the same error, in their order, and then the indexes are given
  out anew. A `generation` is what was closed before that, so that the writer knows whom it concerns.
* write() may run in another thread, in one at a time. Everything else happens in the store's thread.
* Where nothing else is reported, all messages were taken: a replay that has lost a record relies on that. So
  what was refused is told, and whatever comes behind it, once the record of a later batch says that it was.

Invariant: closed_bytes is what was gathered in batches that are closed and not finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from edged.core.batch_record import encode_batch_record
from edged.core.frames import BATCH
from edged.store.batch import Batch
from edged.store.errors import StoreError, StoreFull
from edged.store.group import CATALOG, Group
from edged.store.journal import RECORD_BYTES
from edged.store.journal_file import HEADER_BYTES

if TYPE_CHECKING:
    from edged.core.stream_machine import Outcome
    from edged.store.batch import Done
    from edged.store.journal import Journal
    from edged.store.options import StoreOptions
    from edged.store.space import DiskGovernor

SMALL_RECORD_BYTES: Final = 128
"""What the record of a batch for one stream takes."""


class CommitLine:
    """Of one store."""

    def __init__(self, groups: dict[int, Group], options: StoreOptions, governor: DiskGovernor) -> None:
        self._groups = groups
        self._options = options
        self._governor = governor
        self._tag_bytes = options.tag_bytes
        self.gathering = Batch(self._tag_bytes)
        self.batch_number = 0
        # Groups that changed since a record told how far they are.
        self.touched: set[Group] = set()
        self.closed_bytes = 0
        self._closed_count = 0
        self._generation = 0
        # Whether the record of the next batch says of messages that they were refused, and whether somebody
        # who waits for it is promised the disk.
        self.is_report_owed = False
        self._is_owed_durably = False
        # Answers that wait for a record: the number of its batch, whom to tell, and what.
        self._withheld: deque[tuple[int, Done, Sequence[Outcome]]] = deque()
        # The last batch on its way that begins a file, and how much room it and those behind it leave there.
        self._turn: tuple[int, int] | None = None
        # Used in write() only: the generation of which nothing is written any more, and why.
        self._failure: tuple[int, StoreError] | None = None

    def touch_all(self) -> None:
        """Let the next record tell how far every group is."""
        self.touched.update(group for group in self._groups.values() if group.is_reported)

    def close(
        self, journal: Journal, is_sync_needed: bool, carry: Callable[[Batch], None] | None = None
    ) -> Batch:
        """Take what has gathered. `carry` is called with a batch that begins a file, before it is closed."""
        batch = self.gathering
        # The next one will be about as large.
        self.gathering = Batch(self._tag_bytes, len(batch.buffer) + SMALL_RECORD_BYTES)
        # A batch without commands, and without news, is nobody's: so nobody chose a weaker mode for it.
        is_nobodys = not batch.entries and not batch.work and not self.is_report_owed
        batch.is_void = carry is not None and is_nobodys and not is_sync_needed
        if carry is not None and not batch.is_void and not self._has_room(journal, len(batch.buffer)):
            batch.begins_file = True
            carry(batch)
        batch.is_sync_needed |= is_sync_needed or self._is_owed_durably or (is_nobodys and not batch.is_void)
        self.is_report_owed = self._is_owed_durably = False
        batch.gathered_bytes = len(batch.buffer)
        self._end(journal, batch)
        self._closed_count += 1
        self.closed_bytes += batch.gathered_bytes
        if batch.begins_file:
            self._turn = (batch.number, self._options.journal_file_bytes - HEADER_BYTES)
        if self._turn is not None:
            number, room = self._turn
            self._turn = (number, room - batch.gathered_bytes - RECORD_BYTES)
        return batch

    def note(self, journal: Journal) -> None:
        """Write a record without a batch and without a sync, if it tells something. Nobody else writes."""
        if self.touched and journal.number:
            batch = Batch(self._tag_bytes)
            self._end(journal, batch)
            self._add_record(journal, batch)
            if not journal.note(batch.buffer):
                self.batch_number -= 1
                self._tell_later(batch)

    def write(self, journal: Journal, batch: Batch) -> None:
        """Write a batch and make it durable; `error` of the batch says why it could not be."""
        failure = self._failure
        if failure is not None and failure[0] == batch.generation:
            batch.error = failure[1]
            return
        if batch.is_void:
            return
        self._add_record(journal, batch)
        self._try(journal, batch)
        if batch.error is None:
            return
        if isinstance(batch.error, StoreFull):
            had_reserve = self._governor.is_reserve_held
            self._governor.no_space(self._options.now_ns())
            if had_reserve and batch.frees_space:
                # There is a little space now that was kept for this.
                self._try(journal, batch)
        if batch.error is not None:
            self._failure = batch.generation, batch.error

    def finish(self, batch: Batch) -> None:
        """The first of the line is through, whatever it came to."""
        self._closed_count -= 1
        self.closed_bytes -= batch.gathered_bytes
        if self._turn is not None and self._turn[0] == batch.number:
            self._turn = None
        # Also if it could not be written: what they are told is durable, and the next record reports it.
        while self._withheld and self._withheld[0][0] <= batch.number:
            _, done, outcomes = self._withheld.popleft()
            done(outcomes)

    # --- answers that wait for a record ---

    @property
    def is_sync_needed(self) -> bool:
        """Whether what has gathered is to be durable, or who waits for the next record is promised that."""
        return self.gathering.is_sync_needed or self._is_owed_durably

    def owe_report(self, is_durable: bool) -> None:
        """Messages were refused, which the next record says."""
        self.is_report_owed = True
        self._is_owed_durably |= is_durable

    @property
    def is_withholding(self) -> bool:
        """Whether nobody may be told anything just now."""
        return self.is_report_owed or bool(self._withheld)

    def withhold(self, done: Done, outcomes: Sequence[Outcome]) -> None:
        """Tell somebody once it is reported what was refused up to here."""
        number = self.batch_number + 1 if self.is_report_owed else self._withheld[-1][0]
        self._withheld.append((number, done, outcomes))

    # --- when a batch could not be written ---

    def refuse(self, batch: Batch, error: StoreError) -> list[Batch]:
        """Tell everybody in a batch, and, if it was the last one of the line, in what gathered behind it.

        Returns those batches.
        """
        self._tell_later(batch)
        refused = [batch]
        if not self._closed_count:
            later, self.gathering = self.gathering, Batch(self._tag_bytes)
            refused.append(later)
            self._generation += 1
            for group in self._groups.values():
                if group.replica is None:
                    group.next_index = group.applied + 1
        for one in refused:
            for entry in one.entries:
                entry.done(error)
        return refused

    # --- inside ---

    def _tell_later(self, batch: Batch) -> None:
        """A batch was not written: what its record would have told is still to be told."""
        for number, _, _, refused in batch.applied:
            group = self._groups.get(number)
            if group is not None:
                group.refused = sorted([*refused, *group.refused])
                self.touched.add(group)

    def _end(self, journal: Journal, batch: Batch) -> None:
        """Give a batch what is known now for its record."""
        self.batch_number += not batch.is_void
        batch.number, batch.generation = self.batch_number, self._generation
        if batch.is_void:
            return
        touched = self.touched
        if batch.begins_file or not self._has_room(journal, len(batch.buffer)):
            # Each file says first how far all groups are: should the one before be lost, so is known what.
            self.touch_all()
        if touched:
            groups = sorted(touched, key=_number_of) if len(touched) > 1 else touched
            batch.applied = [_report(group) for group in groups]
            touched.clear()

    def _has_room(self, journal: Journal, size: int) -> bool:
        """Whether so many bytes more go into the file that the batches on their way are written to."""
        if self._turn is not None:
            return size + RECORD_BYTES <= self._turn[1]
        return journal.has_room(self.closed_bytes + size)

    def _add_record(self, journal: Journal, batch: Batch) -> None:
        body = encode_batch_record(journal.number, journal.synced, self._options.now_ns(), batch.applied)
        batch.buffer.add(BATCH, CATALOG, batch.number, body)

    @staticmethod
    def _try(journal: Journal, batch: Batch) -> None:
        try:
            batch.position = journal.commit(
                batch.buffer, batch.is_sync_needed, batch.frees_space, batch.begins_file
            )
        except StoreError as error:
            batch.error = error
        else:
            batch.error = None
            batch.nonce = journal.nonce


def _number_of(group: Group) -> int:
    return group.number


def _report(group: Group) -> list[Any]:
    refused, group.refused = group.refused, []
    return [group.number, group.applied, group.last_seq, refused]
