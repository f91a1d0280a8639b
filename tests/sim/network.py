"""The links between nodes: they lose, delay, reorder and repeat, and break in one direction or in both."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.sim.events import Events


class Network:
    """All links. What may happen to a message is the same on each; what is broken is not."""

    __slots__ = ("_delay_us", "_drop", "_events", "_random", "_repeat", "_spread_us", "blocked", "receivers")

    def __init__(self, events: Events, random: Random) -> None:
        self._events = events
        self._random = random.random
        self.receivers: dict[int, Callable[[int, int, Any], None]] = {}
        # (from, to) -> how often it was broken and not yet mended: nothing arrives there.
        self.blocked: dict[tuple[int, int], int] = {}
        self.set_weather(0.0, 0.0, 500, 3000)

    def set_weather(self, drop: float, repeat: float, delay_us: int, spread_us: int) -> None:
        """How likely a message is lost or repeated, how long it takes at least, and how much longer."""
        self._drop = drop
        self._repeat = 1.0 - repeat
        self._delay_us = delay_us
        self._spread_us = spread_us

    def send(self, sender: int, boot: int, to: int, message: Any) -> None:
        """Send a message, which arrives later, if it does."""
        receive = self.receivers.get(to)
        if receive is None or (sender, to) in self.blocked:
            return
        chance = self._random()
        if chance < self._drop:
            return
        late = self._random()
        # Most are fast, a few take long, so that some are overtaken.
        delay_us = self._delay_us + int(self._spread_us * late * late * late)
        self._events.after(delay_us, receive, sender, boot, message)
        if chance >= self._repeat:
            delay_us = self._delay_us + int(self._spread_us * self._random())
            self._events.after(delay_us, receive, sender, boot, message)

    def cut(self, pairs: list[tuple[int, int]]) -> None:
        """Break links, each in one direction."""
        for pair in pairs:
            self.blocked[pair] = self.blocked.get(pair, 0) + 1

    def mend(self, pairs: list[tuple[int, int]]) -> None:
        """What broke these links is over; something else may still break them."""
        for pair in pairs:
            count = self.blocked.pop(pair, 0)
            if count > 1:
                self.blocked[pair] = count - 1

    def mend_all(self) -> None:
        """Every link is whole again."""
        self.blocked.clear()

    def is_cut(self, one: int, other: int) -> bool:
        """Whether something is lost between two nodes for sure."""
        return (one, other) in self.blocked or (other, one) in self.blocked
