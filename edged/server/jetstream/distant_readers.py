"""Answers those who read a stream that is led here for mirrors and sourcing streams that other nodes lead.

Rules: who asks for messages is answered when there are some, or after WAIT_S with none. A stream that lets go
of what its consumers have settled has a consumer for each reader, as for those on this node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from edged.server.jetstream.origin_hold import HoldTerms, OriginHold
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream
    from edged.store.message_reads import ReadBatch

WAIT_S: Final = 1.0

Body = dict[str, Any]
_NOT_LED: Final = {"is_led": False}


async def answer_reader(stream: Stream | None, body: Body) -> Body:
    """What a reader on another node asks."""
    if stream is None:
        return dict(_NOT_LED)
    what = body["what"]
    if what == "release":
        _hold(stream, body).release()
        stream.remote_holds.pop(body["terms"]["name"], None)
        return {"is_led": True}
    if what == "origin":
        return {"is_led": True, "first_seq": stream.log.first_seq, "start_seq": _start_seq(stream, body)}
    if body["settled_to"] is not None:
        _hold(stream, body).settle(body["filters"], body["settled_to"])
    try:
        batch = await _messages(stream, body)
        pending = stream.log.count_matching(body["filters"], batch.next_seq)
    except (StoreError, OSError) as error:
        stream.jetstream.server.log.error("an origin cannot be read", stream=stream.name, error=str(error))
        return dict(_NOT_LED)
    return {
        "is_led": stream.is_leading,
        "messages": [list(message) for message in batch.messages],
        "next_seq": batch.next_seq,
        "unreadable": batch.unreadable,
        "first_seq": stream.log.first_seq,
        "pending": pending,
    }


async def _messages(stream: Stream, body: Body) -> ReadBatch:
    """Raises StoreError and OSError."""
    wanted = (body["filters"], body["from_seq"], body["count"], body["bytes"])
    batch = stream.reads.messages(*wanted)
    with trio.move_on_after(WAIT_S):
        while not batch.messages and stream.is_leading:
            more = trio.Event()
            stream.listeners.append(more.set)
            try:
                await more.wait()
            finally:
                stream.listeners.remove(more.set)
            batch = stream.reads.messages(*wanted)
    return batch


def _start_seq(stream: Stream, body: Body) -> int:
    if body["seq"]:
        return max(int(body["seq"]), stream.log.first_seq)
    if body["time_ns"] is not None:
        return stream.log.seq_at_time(body["time_ns"])
    return stream.log.first_seq


def _hold(stream: Stream, body: Body) -> OriginHold:
    terms = HoldTerms.of(body["terms"])
    known = stream.remote_holds.get(terms.name)
    if known is None:
        known = stream.remote_holds[terms.name] = OriginHold(stream, terms)
    return known
