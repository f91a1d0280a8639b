"""How a node gets back commands that its disk has lost: it asks the others for them by index and checksum.

Rules: while something is missing the node is not fit to lead. An entry that was cut off, or that a snapshot
stands for, is not missing any more. When the others have the entry only as part of their state, that state
is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.sim import disk as records
from tests.sim.machine import State, checksum_of

if TYPE_CHECKING:
    from tests.sim.host import Host

ASK_US: Final = 100_000
ASKED_MAX: Final = 16

# The messages that hosts exchange beside those of the core.
WANT: Final = 1  # ((index, checksum), ...)
HAVE: Final = 2  # ((index, command), ...)
STATE: Final = 3  # a State


class Repair:
    """What one node misses."""

    __slots__ = ("_host", "missing")

    def __init__(self, host: Host) -> None:
        self._host = host
        self.missing: dict[int, int] = {}

    def start(self, now_ms: int) -> None:
        """After a start: see what is missing."""
        host = self._host
        self.missing = dict(host.disk.image.damaged)
        if self.missing:
            assert host.raft is not None
            self.tell_core(is_fit=False, now_ms=now_ms)
            host.world.events.after(1000, self._ask, host.boot)

    def lose(self, indexes: range) -> None:
        """While running: these commands cannot be read any more, if they are there and are commands."""
        host = self._host
        image = host.disk.image
        was_complete = not self.missing
        for index in indexes:
            place = index - host.base_index - 1
            if image.term_at(index) == host.entries[place][0] and image.damage(index):
                self.missing[index] = image.damaged[index]
                host.entries[place] = (host.entries[place][0], None, None)
        if self.missing and was_complete:
            host.world.trace("lost", host.node, sorted(self.missing))
            self.tell_core(is_fit=False, now_ms=host.clock.now_ms())
            host.world.events.after(1000, self._ask, host.boot)
            host.pump()

    def tell_core(self, *, is_fit: bool, now_ms: int) -> None:
        """Whether the node may lead."""
        raft = self._host.raft
        if raft is not None:
            raft.set_fit(is_fit, now_ms)

    def _ask(self, boot: int) -> None:
        host = self._host
        raft = host.raft
        if raft is None or boot != host.boot or not self.missing:
            return
        host.world.events.after(ASK_US, self._ask, boot)
        if not host.is_paused:
            wanted = tuple(list(self.missing.items())[:ASKED_MAX])
            for peer in sorted(raft.members.everyone - {host.node}):
                host.send(peer, (WANT, wanted))

    def receive(self, sender: int, message: tuple[int, Any]) -> None:
        """Another host asks or answers."""
        kind, content = message
        if kind == WANT:
            self._give(sender, content)
        elif kind == HAVE:
            self._take(content)
        else:
            self._take_state(content)

    def _give(self, asker: int, wanted: tuple[tuple[int, int], ...]) -> None:
        host = self._host
        found = []
        for index, checksum in wanted:
            place = index - host.base_index - 1
            if place < 0:
                host.send(asker, (STATE, host.machine.state()))
                return
            if place < len(host.entries):
                command = host.entries[place][1]
                if command and checksum_of(command) == checksum:
                    found.append((index, command))
        if found:
            host.send(asker, (HAVE, tuple(found)))

    def _take(self, found: tuple[tuple[int, int], ...]) -> None:
        host = self._host
        for index, command in found:
            if self.missing.get(index) == checksum_of(command):
                del self.missing[index]
                place = index - host.base_index - 1
                host.entries[place] = (host.entries[place][0], command, None)
                host.disk.write([(records.REPAIR, index, command)])
                if not self.missing:
                    self.tell_core(is_fit=True, now_ms=host.clock.now_ms())
                    host.apply()

    def _take_state(self, state: State) -> None:
        if not self.missing or state.index < min(self.missing):
            return
        host = self._host
        host.stop(keeps_all=True)
        image = host.disk.image
        if image.damaged and state.index >= min(image.damaged) and state.index > image.checkpoint.index:
            image.adopt(state)
        host.start()

    def truncated(self, index: int) -> None:
        """The entries from `index` on are void."""
        if self.missing:
            self._keep(lambda missing: missing < index)

    def forgotten(self, index: int) -> None:
        """The entries up to `index` are in a checkpoint."""
        if self.missing:
            self._keep(lambda missing: missing > index)

    def _keep(self, is_kept: Callable[[int], bool]) -> None:
        self.missing = {index: checksum for index, checksum in self.missing.items() if is_kept(index)}
        if not self.missing:
            self.tell_core(is_fit=True, now_ms=self._host.clock.now_ms())
