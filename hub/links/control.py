"""A control link: messages of consensus, calls and gossip between two nodes.

Rules:
* Nothing here waits to send. What is sent waits in queues and is written by flush(), as much as the socket
  takes; only when it is full does a task exist, which writes the rest.
* Messages of consensus are packed when they are written: those that wait together go as one frame. When too
  many wait the oldest are dropped, because consensus sends anew what is missed and nothing else.
* A call is answered or fails; it fails when the link ends. Bodies are msgpack maps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from edged.server.transport import ConnectionLost, Transport
from hub.limits import (
    CALLS_SERVED_MAX,
    CONTROL_QUEUE_BYTES_MAX,
    FRAME_BYTES_MAX,
    PACKED_BYTES_MAX,
    RAFT_QUEUE_BYTES_MAX,
)
from hub.links import raft_codec
from hub.links.connection import Connection
from hub.links.frames import FrameError, FrameReader, Kind, Part, frame, pack, unpack
from hub.raft.members import NodeId
from hub.raft.messages import Message

if TYPE_CHECKING:
    from edged.server.server import Server
    from hub.links.hello import Introduction

_TIME: Final = Struct("<Q")

Method = Callable[[NodeId, dict[str, Any]], Awaitable[dict[str, Any]]]


class CallFailed(Exception):  # noqa: N818 - says what happened
    """A call was not answered, or was answered with an error; the text says why.

    With `is_unknown` it may have been carried out all the same.
    """

    def __init__(self, text: str, is_unknown: bool = False) -> None:
        super().__init__(text)
        self.is_unknown = is_unknown


class _Waiting:
    """A call whose answer is awaited."""

    __slots__ = ("arrived", "body", "failure")

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.body: dict[str, Any] = {}
        self.failure: CallFailed | None = None


class Owner(Protocol):
    """What a link reports to."""

    methods: dict[str, Method]

    def raft_received(self, node: NodeId, group: int, message: Message) -> None:
        """A message of consensus came in."""

    def gossip_received(self, link: ControlLink, document: object) -> None:
        """The other node tells who else is there."""

    def wants_flush(self, link: ControlLink) -> None:
        """The link has something to write at the end of this turn."""


class ControlLink(Connection):
    """The one control link to another node. `owner` is told what comes in."""

    def __init__(
        self,
        server: Server,
        transport: Transport,
        introduction: Introduction,
        dialler: NodeId,
        owner: Owner,
        write_deadline_s: float,
    ) -> None:
        super().__init__(server, transport, f"control {introduction.name}")
        self.introduction = introduction
        self.node = introduction.node
        # The node that dialled, which decides when there are two links between the same nodes.
        self.dialler = dialler
        self.rtt_ns = 0
        # When something came from the other end, by the clock that only goes forward.
        self.heard_ns = server.monotonic_ns()
        self.raft_dropped = 0
        # Whether it is in the list of those that are flushed at the end of the turn.
        self.is_listed = False
        self._owner = owner
        self._write_deadline_s = write_deadline_s
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._frames: deque[bytes] = deque()
        self._frame_bytes = 0
        self._raft: deque[tuple[int, list[Part]]] = deque()
        self._raft_bytes = 0
        self._outgoing = memoryview(b"")
        self._draining: trio.CancelScope | None = None
        self._calls: dict[int, _Waiting] = {}
        self._calls_made = 0
        self._calls_served = 0

    # --- output ---

    @property
    def pending_bytes(self) -> int:
        """What waits to be written."""
        return len(self._outgoing) + self._frame_bytes + self._raft_bytes

    def send_raft(self, group: int, message: Message) -> None:
        """Queue a message of consensus; it leaves with the next flush, or is dropped."""
        if self.why is not None:
            return
        parts = raft_codec.encode(group, message)
        size = sum(map(len, parts))
        self._raft.append((size, parts))
        self._raft_bytes += size
        while self._raft_bytes > RAFT_QUEUE_BYTES_MAX and len(self._raft) > 1:
            self._raft_bytes -= self._raft.popleft()[0]
            self.raft_dropped += 1

    def send(self, kind: Kind, document: Any) -> None:
        """Queue a frame; it leaves with the next flush. A peer that does not read its frames is given up."""
        self._queue(pack(kind, document))

    def _queue(self, data: bytes) -> None:
        if self.why is not None:
            return
        if self._frame_bytes + len(data) > CONTROL_QUEUE_BYTES_MAX:
            self.close("it does not read what it is sent")
            return
        self._frames.append(data)
        self._frame_bytes += len(data)

    def flush(self) -> None:
        """Write what waits, as much as the socket takes now."""
        if self._draining is not None or self.why is not None:
            return
        try:
            is_done = self._write()
        except ConnectionLost as lost:
            self.close(str(lost))
            return
        if not is_done:
            self._draining = trio.CancelScope()
            self.server.nursery.start_soon(self._drain, self._draining)
            self.server.tasks_waiting = True

    def _write(self) -> bool:
        """Give the socket what it takes; True when nothing is left. Raises ConnectionLost."""
        while True:
            if not self._outgoing:
                self._outgoing = self._next()
                if not self._outgoing:
                    return True
            self._outgoing = self._outgoing[self.transport.send_nowait(self._outgoing) :]
            if self._outgoing:
                return False

    def _next(self) -> memoryview:
        """What is written next, joined once: all frames that wait, and messages of consensus in one frame."""
        parts: list[Part] = list(self._frames)
        self._frames.clear()
        self._frame_bytes = 0
        packed: list[Part] = []
        size = 0
        while self._raft and (size == 0 or size + self._raft[0][0] <= PACKED_BYTES_MAX):
            one, message = self._raft.popleft()
            size += one
            packed.extend(message)
        self._raft_bytes -= size
        if packed:
            parts.extend(frame(Kind.RAFT, packed))
        return memoryview(b"".join(parts))

    async def _drain(self, scope: trio.CancelScope) -> None:
        """Write what the socket did not take at once, until nothing is left."""
        try:
            with scope:
                while not self._write():
                    with trio.move_on_after(self._write_deadline_s) as patience:
                        await self.transport.wait_sendable()
                    if patience.cancelled_caught:
                        self.close("it has taken nothing for too long")
                        return
        except ConnectionLost as lost:
            self.close(str(lost))
        finally:
            self._draining = None

    # --- input ---

    def received(self, chunk: memoryview | bytes) -> None:
        self.heard_ns = self.server.monotonic_ns()
        try:
            for kind, body in self._reader.feed(chunk):
                self._dispatch(kind, body)
                if self.why is not None:
                    return
        except (FrameError, raft_codec.CodecError) as error:
            self.server.log.error("a peer sent what cannot be read", link=self.name, error=error)
            self.close(str(error))

    def _dispatch(self, kind: Kind, body: memoryview) -> None:
        if kind is Kind.RAFT:
            node = self.node
            deliver = self._owner.raft_received
            for group, message in raft_codec.decode_all(body):
                deliver(node, group, message)
        elif kind is Kind.PING:
            self._queue(b"".join(frame(Kind.PONG, [bytes(body[:8])])))
            self._owner.wants_flush(self)
        elif kind is Kind.PONG:
            if len(body) == _TIME.size:
                self.rtt_ns = max(1, self.server.monotonic_ns() - _TIME.unpack(body)[0])
        elif kind is Kind.CALL:
            self._called(unpack(body))
        elif kind is Kind.ANSWER:
            self._answered(unpack(body))
        elif kind is Kind.GOSSIP:
            self._owner.gossip_received(self, unpack(body))
        else:
            raise FrameError(f"{kind.name} in the middle of a link")

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._queue(b"".join(frame(Kind.PING, [_TIME.pack(self.server.monotonic_ns())])))
        self.flush()

    # --- calls ---

    async def call(self, method: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask the other node. CallFailed when it does not answer, or with an error."""
        if self.why is not None:
            raise CallFailed(f"there is no link to {self.introduction.name}")
        self._calls_made += 1
        number = self._calls_made
        waiting = self._calls[number] = _Waiting()
        try:
            self.send(Kind.CALL, [number, method, body])
            self.flush()
            with trio.move_on_after(timeout_s):
                await waiting.arrived.wait()
        finally:
            self._calls.pop(number, None)
        if not waiting.arrived.is_set():
            raise CallFailed(f"{method}: no answer within {timeout_s:g} s", is_unknown=True)
        if waiting.failure is not None:
            raise waiting.failure
        return waiting.body

    def _answered(self, document: Any) -> None:
        match document:
            case [int() as number, None, dict() as body]:
                waiting = self._calls.get(number)
                if waiting is not None:
                    waiting.body = body
                    waiting.arrived.set()
            case [int() as number, str() as error, _]:
                waiting = self._calls.get(number)
                if waiting is not None:
                    waiting.failure = CallFailed(error)
                    waiting.arrived.set()
            case _:
                raise FrameError("an answer has the wrong shape")
        self.server.tasks_waiting = True

    def _called(self, document: Any) -> None:
        match document:
            case [int() as number, str() as method, dict() as body]:
                found = self._owner.methods.get(method)
                if found is None:
                    self._answer(number, f"{method} is not known here", {})
                elif self._calls_served >= CALLS_SERVED_MAX:
                    self._answer(number, "too many calls at once", {})
                else:
                    self._calls_served += 1
                    self.server.nursery.start_soon(self._serve, number, method, found, body)
                    self.server.tasks_waiting = True
            case _:
                raise FrameError("a call has the wrong shape")

    async def _serve(self, number: int, method: str, found: Method, body: dict[str, Any]) -> None:
        """Carry out a call of the other node; to its end, even if nobody is there any more to be answered."""
        error: str | None = None
        result: dict[str, Any] = {}
        try:
            result = await found(self.node, body)
        except CallFailed as failure:
            error = str(failure)
        except Exception as fault:  # a fault of ours is told to the caller and reported here
            self.server.log.error("a call failed", link=self.name, method=method, error=repr(fault))
            error = f"{method} failed: {type(fault).__name__}"
        finally:
            self._calls_served -= 1
        if self.why is None:
            self._answer(number, error, result)
            self.server.flush()

    def _answer(self, number: int, error: str | None, body: dict[str, Any]) -> None:
        self.send(Kind.ANSWER, [number, error, body])
        self._owner.wants_flush(self)

    def closed(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        for waiting in self._calls.values():
            text = f"the link to {self.introduction.name} ended: {self.why}"
            waiting.failure = CallFailed(text, is_unknown=True)
            waiting.arrived.set()
        self._frames.clear()
        self._raft.clear()
        self._frame_bytes = self._raft_bytes = 0
        self._outgoing = memoryview(b"")
