"""The upkeep of a store: old journal files become segments and a checkpoint, and the disk is looked after.

Rules: everything but `look_after_disk()` and a cycle's `run()` happens in the store's thread.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from edged.store.cycle import Border, Cycle

if TYPE_CHECKING:
    from edged.ports import Replication
    from edged.store.journal import Journal
    from edged.store.journal_reads import JournalReads
    from edged.store.options import StoreOptions
    from edged.store.room import Room
    from edged.store.store import Store
    from edged.store.wear import CountedFiles

CYCLE_RETRY_NS: Final = 1_000_000_000


class Upkeep:
    """The part of a store that nobody waits for."""

    files: CountedFiles
    options: StoreOptions
    room: Room
    journal: Journal
    reads: JournalReads
    replication: Replication | None
    condemned: list[Any]
    _sealed_to: int
    _border: Border | None
    _cycle: Cycle | None
    _cycle_not_before_ns: int

    @property
    def is_cycle_due(self) -> bool:
        """Whether a journal file is complete and waits to be sealed."""
        is_free = self._border is not None and self._cycle is None
        return is_free and self.options.now_ns() >= self._cycle_not_before_ns

    def begin_cycle(self) -> Cycle:
        """Take the border that was passed last. Its run() may go on in another thread; then end_cycle()."""
        assert self._border is not None and self._cycle is None
        self._cycle = Cycle(cast("Store", self), self._border)
        self._border = None
        return self._cycle

    def end_cycle(self) -> None:
        """Take over what a cycle made. What it could not make is tried again before long."""
        cycle, self._cycle = self._cycle, None
        assert cycle is not None
        now_ns = self.options.now_ns()
        self.room.governor.changed()
        if not cycle.is_saved:
            self._border = self._border or cycle.border
            self._cycle_not_before_ns = now_ns + CYCLE_RETRY_NS
        if cycle.error is None:
            self._sealed_to = cycle.border.next_file
        freed = cycle.adopt()
        self.reads.close(freed)
        if self.replication is not None and cycle.is_saved:
            self.replication.freed(freed)

    def remove_condemned(self, oldest: int) -> None:
        """Remove the segments that no checkpoint from `oldest` on speaks of. Raises OSError."""
        for entry in list(self.condemned):
            if entry[0] <= oldest:
                with suppress(FileNotFoundError):
                    self.files.remove(entry[1])
                self.condemned.remove(entry)

    def tend(self, now_ns: int) -> None:
        """Whatever is due by the clock; called about every second."""
        self.look_after_disk(now_ns)
        self.turn_if_full(now_ns)

    def is_disk_waiting(self, now_ns: int) -> bool:
        """Whether look_after_disk() has something to do."""
        return not self.journal.is_prepared or self.room.governor.is_tending_due(now_ns)

    def look_after_disk(self, now_ns: int) -> None:
        """Keep the reserve, and have the journal's next file ready. May run in another thread."""
        self.room.governor.tend(now_ns)
        with suppress(OSError):
            # When the file is needed and still cannot be had, whoever needs it is told.
            self.journal.prepare()

    def turn_if_full(self, now_ns: int) -> bool:
        """On a full disk the next batch begins a new file; whether a checkpoint will let older files go."""
        is_waiting = self._border is not None or self._cycle is not None
        if not self.room.governor.is_full or is_waiting or now_ns < self._cycle_not_before_ns:
            return False
        self._cycle_not_before_ns = now_ns + CYCLE_RETRY_NS
        self.journal.ask_to_turn()
        return self.journal.has_old_files()

    def maintain(self) -> None:
        """Run a cycle here and now, if one is due."""
        if self.is_cycle_due:
            self.begin_cycle().run()
            self.end_cycle()
