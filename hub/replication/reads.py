"""Reads that have to see what was committed when they were asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hub.replication.replica import Replica

# Told whether the state may be read now; if not, the read has to be asked again.
Done = Callable[[bool], None]


class Reads:
    """Of one group. `asked` wait for the core, by their tokens; others for an entry to be applied."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._asked: dict[int, Done] = {}
        self._due: list[tuple[int, Done]] = []
        self._last_token = 0

    def ask(self, done: Done) -> int:
        """Somebody wants to read; the token for the core."""
        self._last_token += 1
        self._asked[self._last_token] = done
        return self._last_token

    def answer(self, token: int, index: int) -> None:
        """From this entry on a read may be answered; -1: it cannot be."""
        done = self._asked.pop(token, None)
        if done is None:
            return
        if index > self._replica.group.applied:
            self._due.append((index, done))
        else:
            done(index >= 0)

    def answer_due(self) -> None:
        """Entries were applied."""
        if self._due:
            applied, waiting = self._replica.group.applied, self._due
            self._due = [read for read in waiting if read[0] > applied]
            for index, done in waiting:
                if index <= applied:
                    done(True)

    def fail(self) -> None:
        """The core that was asked is gone."""
        asked, self._asked = self._asked, {}
        due, self._due = self._due, []
        for done in (*asked.values(), *(done for _, done in due)):
            done(False)
