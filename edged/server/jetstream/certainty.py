"""Whether a stream that this node leads is led by no other one: asked before anything is told of its state.

A node that was cut off, or stood still, may not know yet that another one leads; what has been acknowledged
there it would deliver again. So who hands out, or answers from what is stored, asks here first. Mostly the
answer is known; if not, a majority is asked, and whoever waits is told.

Rules: `then` is called once, with whether it is certain. What is asked while nobody can tell is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edged.core.limits import UNCERTAIN_WAITING_MAX

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream

Then = Callable[[bool], None]


class Certainty:
    """Of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # Who waits, and what is to be called then.
        self._waiting: dict[object, Then] = {}

    @property
    def is_there(self) -> bool:
        """Whether it is certain by now. Asked for each message, it makes nothing."""
        cluster = self._stream.jetstream.cluster
        return cluster is None or cluster.is_sure(self._stream.group)

    def ask(self, who: object, then: Then) -> None:
        """It is not certain: have a majority asked, and `then` called. Who asks twice is told once."""
        cluster = self._stream.jetstream.cluster
        assert cluster is not None, "a server that stands alone is certain"
        is_first = not self._waiting
        if len(self._waiting) < UNCERTAIN_WAITING_MAX or who in self._waiting:
            self._waiting[who] = then
        if is_first:
            cluster.make_sure(self._stream.group, self._answered)

    def forget(self) -> None:
        """It is not led here any more: nobody is told anything."""
        self._waiting.clear()

    def _answered(self, is_certain: bool) -> None:
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            then(is_certain)
        self._stream.jetstream.server.tasks_waiting = True
