"""A stream that another node of the cluster leads, as an origin of a mirror or of a sourcing stream here.

One task asks the leader for the next messages, and keeps one batch until the reader has taken it. The leader
answers when it has some, or after a while with none; so nobody polls, and a new leader is found soon.

Rules: a batch is asked for when the one before was taken. A reader that goes on elsewhere than behind what it
was given has everything dropped that was asked for. What the reader has made durable is told with the next
question, and again by who begins to read; an origin that keeps messages for its readers lets them go then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.core.api_errors import ApiFailure
from edged.core.commands import CREATED
from edged.core.message import Message
from edged.core.retention import LIMITS
from edged.core.short_names import stream_identity
from edged.ports import CallFailed
from edged.server.jetstream.cluster_questions import ask_leader
from edged.server.jetstream.origin_hold import terms_of
from edged.server.jetstream.origin_reader import BATCH_BYTES, BATCH_MESSAGES
from edged.store.message_reads import ReadBatch

if TYPE_CHECKING:
    from edged.core.source_config import StreamSource
    from edged.server.jetstream.origin import Filters, Wake
    from edged.server.jetstream.origin_reader import OriginReader

PAUSE_S: Final = 0.5
"""How soon an origin is asked again that did not answer."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RemoteHold:
    """What keeps messages of the origin for the reader."""

    name: str
    release: Callable[[], None]


class RemoteOrigin:
    """Of one reader. `begin()` starts its task, and calls back when it can be read."""

    def __init__(self, reader: OriginReader, group: int, stored: Body) -> None:
        self._reader = reader
        self._jetstream = reader.stream.jetstream
        self.group = group
        self.identity = stream_identity(int(stored.get(CREATED) or 0))
        self.is_ready = False
        self._is_held = stored.get("retention", LIMITS) != LIMITS
        self._terms = terms_of(reader.stream, reader.source, reader.DELIVERY)
        self.hold = RemoteHold(self._terms.name, self._release)
        self._filters: list[bytes] = []
        self._scope = trio.CancelScope()
        self._asking = trio.CancelScope()
        self._wake: Wake | None = None
        self._wanted = trio.Event()
        self._first_seq = self._start_seq = 0
        # What was asked for and not taken yet; nothing matches from `_lowest` on that is below `_next_seq`.
        self._batch: ReadBatch | None = None
        self._lowest = self._next_seq = 0
        self._pending = 0
        self._settled_to: int | None = None

    # --- Origin ---

    def open(self, wake: Wake) -> None:
        self._wake = wake

    def close(self) -> None:
        self._wake = None
        self._scope.cancel()

    def start_seq(self, source: StreamSource) -> int:
        return self._start_seq

    def first_seq(self) -> int:
        return self._first_seq

    def read(self, filters: Filters, from_seq: int, count_max: int, bytes_max: int) -> ReadBatch | None:
        self._filters = list(filters)
        if not self._lowest <= from_seq <= self._next_seq or not self._next_seq:
            self._batch = None
            self._lowest = self._next_seq = from_seq
            self._asking.cancel()
        batch = self._batch
        self._batch = None
        if batch is not None and len(batch.messages) > count_max:
            taken, left = batch.messages[:count_max], batch.messages[count_max:]
            self._lowest = taken[-1].seq + 1
            self._batch = ReadBatch(left, batch.next_seq, [])
            return ReadBatch(taken, self._lowest, batch.unreadable)
        if batch is not None and batch.messages:
            self._lowest = batch.messages[-1].seq + 1
        self._wanted.set()
        return batch

    def pending(self, filters: Filters, from_seq: int) -> int:
        batch = self._batch
        return self._pending + (len(batch.messages) if batch is not None else 0)

    def settle(self, filters: Filters, to_seq: int) -> None:
        self._filters = list(filters)
        self._settled_to = to_seq

    # --- asking ---

    def begin(self, ready: Callable[[], None]) -> None:
        """Find out where it begins, then let it be read."""
        self._jetstream.server.nursery.start_soon(self._run, ready)

    async def _run(self, ready: Callable[[], None]) -> None:
        with self._scope:
            try:
                await self._find(ready)
                while True:
                    await self._go_on()
            except Exception as error:  # A fault in one origin must not end the daemon.
                self._jetstream.server.log.error("a fault in edged failed an origin", error=repr(error))

    async def _find(self, ready: Callable[[], None]) -> None:
        source = self._reader.source
        body = {
            "what": "origin",
            "group": self.group,
            "seq": source.opt_start_seq,
            "time_ns": source.opt_start_time,
        }
        answer = await self._answer(body)
        self._first_seq, self._start_seq = answer["first_seq"], answer["start_seq"]
        self.is_ready = True
        ready()

    async def _go_on(self) -> None:
        """Have the next batch ready."""
        if self._batch is not None or not self._next_seq:
            self._wanted = trio.Event()
            await self._wanted.wait()
            return
        with trio.CancelScope() as self._asking:
            answer = await self._answer(self._question(self._next_seq))
            # What was asked for may not be wanted any more: then this was cancelled, and comes to nothing.
            await trio.lowlevel.checkpoint()
            messages = [Message(*message) for message in answer["messages"]]
            self._batch = ReadBatch(messages, answer["next_seq"], list(answer["unreadable"]))
            self._next_seq = answer["next_seq"]
            self._first_seq, self._pending = answer["first_seq"], answer["pending"]
            if self._wake is not None:
                self._wake()

    def _question(self, from_seq: int) -> Body:
        settled_to, self._settled_to = self._settled_to, None
        is_told = self._is_held and settled_to is not None
        return {
            "what": "read",
            "group": self.group,
            "filters": self._filters,
            "from_seq": from_seq,
            "count": BATCH_MESSAGES,
            "bytes": BATCH_BYTES,
            "settled_to": settled_to if is_told else None,
            "terms": self._terms.document() if is_told else None,
        }

    async def _answer(self, body: Body) -> Body:
        """What the leader says, whoever that is, and however long it takes."""
        while True:
            try:
                return await ask_leader(self._jetstream, self.group, body, "is_led")
            except (ApiFailure, CallFailed):
                await trio.sleep(PAUSE_S)

    def _release(self) -> None:
        """Nobody reads the origin any more."""
        body = {"what": "release", "group": self.group, "terms": self._terms.document()}
        self._jetstream.server.nursery.start_soon(self._tell_release, body)

    async def _tell_release(self, body: Body) -> None:
        try:
            await ask_leader(self._jetstream, self.group, body, "is_led")
        except ApiFailure:
            self._jetstream.server.log.warn("an origin was not told that nobody reads it", group=self.group)
