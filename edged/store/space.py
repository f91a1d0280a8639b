"""The disk governor: knows how much is free, keeps the reserve file, refuses what does not fit.

The reserve is a file that only takes up room. When the disk is full, or its free space falls below the floor,
it is removed, so that deletes, settings and checkpoints still go through while publishes are refused. When
space has come back it is made again.

Rules: the decisions are in edged.core.space_rules. Time is an argument. admit() touches no file and asks the
file system at most every POLL_NS; who has allocated or removed a file calls changed(), so that the next
question is asked at once. tend() is the only function that makes or removes the reserve (and no_space(),
which only removes it): it may wait for the disk, and belongs into a thread that may. A reserve that cannot be
made or removed is told in `problem` and stops nothing. Any thread may call any of this; only who has to do
with the reserve waits for another who has.
"""

import errno
import threading
from collections.abc import Iterable
from typing import Final

from edged.core.space_rules import Shed, Space, SpaceRules, StreamSpace
from edged.store.errors import StoreFull
from edged.store.files import Files

RESERVE: Final = "reserve"
POLL_NS: Final = 100_000_000


class DiskGovernor:
    """Of one store. start() comes first."""

    def __init__(self, files: Files, rules: SpaceRules) -> None:
        self.rules = rules
        self.free_bytes = 0
        self.is_reserve_held = False
        self.problem: str | None = None  # with the reserve, if there is one
        self._files = files
        self._polled_ns: int | None = None
        self._reserve_lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether publishes are refused for want of disk."""
        return self.rules.is_full

    def start(self, now_ns: int) -> None:
        """Look around, and have the reserve if there is room for it. OSError if there is no file system."""
        self.poll(now_ns)
        self.is_reserve_held = RESERVE in self._files.list("")
        self.tend(now_ns)
        # One of another size, or a torn one, is made anew.
        if self.is_reserve_held and self._reserve_size() != self.rules.limits.reserve_bytes:
            with self._reserve_lock:
                self._release()
            self.tend(now_ns)

    def poll(self, now_ns: int) -> None:
        """Ask the file system now. If it does not answer, what it said last is still the best guess."""
        self._polled_ns = now_ns
        try:
            self.free_bytes = self._files.free_bytes()
        except OSError as error:
            self.problem = f"the file system does not say how much is free: {error}"
            return
        self.rules.observe(self.free_bytes, now_ns)

    def changed(self) -> None:
        """A file was allocated, removed or cut: what is known about free space is old."""
        self._polled_ns = None

    def admit(self, append_bytes: int, used_bytes: int, now_ns: int) -> None:
        """StoreFull when so many bytes cannot be taken now; nothing is changed."""
        self._poll_if_due(now_ns)
        rules, free_bytes = self.rules, self.free_bytes
        if not rules.has_room(append_bytes, free_bytes, used_bytes):
            refusal = rules.refusal(append_bytes, Space(free_bytes, used_bytes))
            assert refusal is not None
            raise StoreFull(refusal)

    def no_space(self, now_ns: int) -> None:
        """A write failed with ENOSPC or EDQUOT: give up the reserve, and refuse until space returns."""
        self.rules.no_space(now_ns)
        with self._reserve_lock:
            if self.is_reserve_held:
                self._release()

    def is_tending_due(self, now_ns: int) -> bool:
        """Whether tend() would give up the reserve or take it back."""
        self._poll_if_due(now_ns)
        if self.rules.is_full:
            return self.is_reserve_held
        wanted = self.rules.limits.reserve_bytes
        fits = self.free_bytes - wanted >= self.rules.limits.free_bytes_min
        return not self.is_reserve_held and wanted > 0 and fits

    def tend(self, now_ns: int) -> bool:
        """Give up the reserve or take it back, as space asks for; whether something was done."""
        with self._reserve_lock:
            if not self.is_tending_due(now_ns):
                return False
            return self._release() if self.rules.is_full else self._take_back()

    def plan(
        self, used_bytes: int, reclaimable_bytes: int, streams: Iterable[StreamSpace], now_ns: int
    ) -> list[Shed]:
        """What to shed now."""
        self._poll_if_due(now_ns)
        return self.rules.plan(Space(self.free_bytes, used_bytes, reclaimable_bytes), streams)

    def _poll_if_due(self, now_ns: int) -> None:
        if self._polled_ns is None or not 0 <= now_ns - self._polled_ns < POLL_NS:
            self.poll(now_ns)

    def _reserve_size(self) -> int:
        file = self._files.open(RESERVE)
        try:
            return file.size()
        finally:
            file.close()

    def _release(self) -> bool:
        try:
            self._files.remove(RESERVE)
            self._files.sync_directory("")
        except FileNotFoundError:
            # Somebody removed it by hand, which has the same effect.
            pass
        except OSError as error:
            self.problem = f"the reserve cannot be removed: {error}"
            return False
        self.problem = None
        self.is_reserve_held = False
        self.changed()
        return True

    def _take_back(self) -> bool:
        self.changed()
        try:
            file = self._files.create(RESERVE)
        except FileExistsError:
            # What a removal that failed halfway has left.
            self.is_reserve_held = True
            return True
        except OSError as error:
            self.problem = f"the reserve cannot be made: {error}"
            return False
        self.is_reserve_held = True
        try:
            file.allocate(self.rules.limits.reserve_bytes)
            file.sync()
            self._files.sync_directory("")
        except OSError as error:
            self._release()
            # The disk being full is no problem of the reserve: it is taken back when there is room.
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self.problem = None if is_full else f"the reserve cannot be made: {error}"
            return False
        finally:
            file.close()
        self.problem = None
        return True
