"""Fast batches: many publishes under one flow control, acknowledged every so many messages and at the end.

A message of a fast batch says what it is in its reply subject,
`<prefix>.<batch id>.<flow>.<ok or fail>.<place>.<operation>.$FI`; `ok` and `fail` say whether a gap in the
places ends the batch. Operations: 0 first message, 1 further message, 2 last message, 3 end without a
message, 4 ping, which asks to hear again how far the server is.

Rules: messages and outcomes in, effects out, in the order in which they are to be carried out; time is an
argument, and whoever owns the table asks expired() before it passes a message with the same time. An outcome
comes once for each `Submit`, in their order. When gaps end the batch, nothing may be stored behind a message
that was refused: behind one that could be (`refusable`) the others are held until its outcome is known. What
clients see is what a single nats-server sends, which knows the outcome of a message before it reads the next;
except that a batch there with gaps allowed, whose last message was refused, does not end when an earlier
place comes again, and stays open for ever.
Invariant: flow_place <= stored_place; a batch that ends is gone as soon as nothing of it is pending or held.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from edged.core import header_edits, headers
from edged.core.api_errors import (
    BATCH_PUBLISH_DISABLED,
    BATCH_PUBLISH_INVALID_BATCH_ID,
    BATCH_PUBLISH_INVALID_PATTERN,
    BATCH_PUBLISH_TOO_MANY_INFLIGHT,
    BATCH_PUBLISH_UNKNOWN_BATCH_ID,
    INSUFFICIENT_RESOURCES,
    REQUIRED_API_LEVEL,
    ApiError,
)
from edged.core.batch_limits import BATCH_ID_BYTES_MAX, BatchLimits, OpenBatches, api_level_missing
from edged.core.fast_requests import FastRequest
from edged.core.wire import Publish

REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
# An acknowledgement comes after so many messages at most, shared by the open batches of a stream.
_FLOW_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Send:
    """Send this body to the reply subject: flow control, a gap, an error of one message."""

    reply: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Send the PubAck that ends the batch; behind `seq` it has atomic_batches.ack_fields(batch_id, count).

    `duplicate` is only set when the batch is one message that was stored before.
    """

    reply: bytes
    seq: int
    batch_id: bytes
    count: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Send what a publish that is refused for this reason is answered."""

    reply: bytes
    error: ApiError


@dataclass(eq=False, slots=True)
class _Batch:
    batch_id: bytes
    gaps_allowed: bool
    # The most messages per acknowledgement that the client wants, and how many it is at present.
    flow_max: int
    flow: int = 1
    expires_ns: int = 0
    # Places in the batch: of the last message that came, up to where all is stored, of the last flow control.
    last_place: int = 0
    stored_place: int = 0
    flow_place: int = 0
    # The seq of the message of the batch that was stored last.
    stored_seq: int = 0
    pending: int = 0
    # A message whose outcome decides over what follows is pending; what follows waits.
    is_uncertain: bool = False
    held: deque[Submit] = field(default_factory=deque)
    # Where the PubAck goes once nothing is pending; the batch takes no more messages.
    ending_reply: bytes | None = None
    is_closed: bool = False

    @property
    def is_idle(self) -> bool:
        return not self.pending and not self.held


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit this message to the stream and report its outcome with this object."""

    message: Publish
    request: FastRequest
    refusable: bool
    batch: _Batch = field(repr=False)

    @property
    def reply(self) -> bytes:
        """Where its answers go."""
        return self.message[1] or b""

    @property
    def decides(self) -> bool:
        """Whether it depends on its outcome if what follows may be stored."""
        return self.refusable and not self.request.gaps_allowed


Effect = Send | Acknowledge | Refuse | Submit


class FastBatches:
    """The open fast batches of one stream."""

    __slots__ = ("_batches", "_limits", "_open")

    def __init__(self, limits: BatchLimits, open_batches: OpenBatches) -> None:
        self._limits = limits
        self._open = open_batches
        self._batches: dict[bytes, _Batch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def is_continued_by(self, request: FastRequest | None) -> bool:
        """Whether a message simply follows the last one of its batch, so that it is told nothing yet."""
        batch = None if request is None else self._batches.get(request.batch_id)
        if request is None or batch is None or batch.ending_reply is not None or request.is_ping:
            return False
        return request.place == batch.last_place + 1 and not request.is_end

    def arrived(
        self,
        request: FastRequest | None,
        message: Publish,
        now_ns: int,
        *,
        refusable: bool,
        allowed: bool = True,
        acks: bool = True,
    ) -> list[Effect]:
        """Take a message whose reply subject parsed to `request`, None if it was meant to and is wrong.

        `refusable`: its headers (may_be_refused()) or the limits of the stream could have it refused when it
        is applied; a duplicate is not refused. `allowed` is the stream's `allow_batched`, `acks` that it has
        no `no_ack`.
        """
        reply = message[1] or b""
        if not allowed:
            return _refused(reply, BATCH_PUBLISH_DISABLED, acks)
        if request is None:
            return _refused(reply, BATCH_PUBLISH_INVALID_PATTERN, acks)
        if len(request.batch_id) > BATCH_ID_BYTES_MAX:
            return _refused(reply, BATCH_PUBLISH_INVALID_BATCH_ID, acks)
        batch = self._batches.get(request.batch_id)
        if batch is None:
            error = self._not_opened(request)
            if error is not None:
                return _refused(reply, error, acks)
            batch = self._opened(request)
        block = message[3][: max(message[2], 0)]
        required = headers.value(block, REQUIRED_LEVEL)
        if api_level_missing(required, self._limits.api_level):
            self._close(batch)
            return _refused(reply, REQUIRED_API_LEVEL, acks)
        if required:
            left = header_edits.removed(block, REQUIRED_LEVEL)
            message = (message[0], reply, len(left) or -1, left + message[3][len(block) :])
        self._touch(batch, now_ns)
        if request.is_ping:
            return self._ping(batch, request, reply)
        if batch.ending_reply is not None:
            return []
        return self._message(batch, Submit(message, request, refusable, batch), acks)

    def stored(self, submit: Submit, seq: int) -> list[Effect]:
        """The message was stored."""
        batch = submit.batch
        if not self._settled(submit):
            return self._ended(batch)
        batch.stored_seq = seq
        batch.stored_place = batch.last_place if batch.is_idle else submit.request.place
        return self._ended(batch) or [*self._flow_control(batch, submit.reply), *self._released(batch)]

    def duplicate(self, submit: Submit, seq: int) -> list[Effect]:
        """The message had been stored before, under this seq."""
        batch, request = submit.batch, submit.request
        if not self._settled(submit):
            return self._ended(batch)
        batch.stored_place = batch.last_place if batch.is_idle else request.place
        effects = self._flow_control(batch, submit.reply)
        if request.is_last and not request.gaps_allowed and request.place == 1:
            self._close(batch)
            return [*effects, Acknowledge(submit.reply, seq, batch.batch_id, 1, duplicate=True)]
        return [*effects, *self._ended(batch), *self._released(batch)]

    def refused(self, submit: Submit, error: ApiError) -> list[Effect]:
        """The message was not stored."""
        batch, request = submit.batch, submit.request
        if not self._settled(submit):
            return self._ended(batch)
        if not request.gaps_allowed and request.place == 1:
            # Nothing of the batch is there: the answer is that of any publish.
            return [Refuse(submit.reply, error), *self._close(batch)]
        told = _error(submit.reply, request.place, error)
        if not request.gaps_allowed or request.is_last:
            return [told, *self._end_before(batch, submit)]
        return [told, *self._ended(batch), *self._released(batch)]

    def expired(self, now_ns: int) -> int:
        """Forget the batches that had no message for too long, silently; how many it were."""
        idle = []
        for batch in self._batches.values():
            if batch.expires_ns > now_ns:
                break
            idle.append(batch)
        count = 0
        for batch in idle:
            # Not while the disk makes it wait: it is not the client that idles.
            if batch.is_idle:
                self._close(batch)
                count += 1
            else:
                self._touch(batch, now_ns)
        return count

    def next_ns(self) -> int | None:
        """When to ask expired() again; None while nothing is open."""
        return next((batch.expires_ns for batch in self._batches.values()), None)

    def close(self) -> None:
        """Forget all batches, silently: the stream goes, or allows none any more."""
        for batch in list(self._batches.values()):
            self._close(batch)

    def _not_opened(self, request: FastRequest) -> ApiError | None:
        limits = self._limits
        if request.place != 1 or request.is_ping:
            return BATCH_PUBLISH_UNKNOWN_BATCH_ID
        stream_is_full = len(self._batches) >= limits.fast_per_stream_max
        server_is_full = self._open.fast >= limits.fast_per_server_max
        return BATCH_PUBLISH_TOO_MANY_INFLIGHT if stream_is_full or server_is_full else None

    def _opened(self, request: FastRequest) -> _Batch:
        self._open.fast += 1
        batch = _Batch(request.batch_id, request.gaps_allowed, request.flow)
        self._batches[request.batch_id] = batch
        # A batch alone may go as fast as it likes; among others it starts slowly.
        batch.flow = min(_FLOW_MAX, request.flow) if len(self._batches) == 1 else 1
        return batch

    def _touch(self, batch: _Batch, now_ns: int) -> None:
        """Put off its end, and last in the order of idling."""
        batch.expires_ns = now_ns + self._limits.idle_ns
        self._batches[batch.batch_id] = self._batches.pop(batch.batch_id)

    def _ping(self, batch: _Batch, request: FastRequest, reply: bytes) -> list[Effect]:
        effects: list[Effect] = []
        if request.place > batch.last_place:
            effects.append(_gap(reply, batch.last_place + 1, request.place + 1))
            if batch.gaps_allowed:
                batch.last_place = request.place
                if batch.is_idle:
                    batch.stored_place = batch.last_place
                answer = self._flow_control(batch, reply)
            else:
                batch.ending_reply = batch.ending_reply or reply
                answer = self._ended(batch)
            if answer:
                return effects + answer
        return [*effects, _flow(batch, reply)]

    def _message(self, batch: _Batch, submit: Submit, acks: bool) -> list[Effect]:
        request, reply = submit.request, submit.reply
        effects: list[Effect] = []
        expected = batch.last_place + 1
        if request.place != expected:
            effects.append(_gap(reply, expected, request.place))
        if request.place < expected or (request.place > expected and not batch.gaps_allowed):
            batch.ending_reply = reply
            return effects + self._ended(batch)
        if request.is_end:
            # It takes a place but is no message: what was lost before it counts, as far as gaps are allowed.
            batch.last_place = request.place - 1
            batch.ending_reply = reply
            return effects + self._ended(batch)
        batch.last_place = request.place
        if request.is_last:
            batch.ending_reply = reply
        elif request.place == 1 and acks:
            effects.append(_flow_body(reply, 0, batch.flow))
        return effects + self._submitted(batch, submit)

    def _submitted(self, batch: _Batch, submit: Submit) -> list[Effect]:
        """Submit a message, or hold it while it is not known whether it may be stored."""
        if batch.is_uncertain or batch.held:
            size = len(submit.message[3])
            if self._open.staged_bytes + size > self._limits.staged_bytes_max:
                told = _error(submit.reply, submit.request.place, INSUFFICIENT_RESOURCES)
                return [told, *self._end_before(batch, submit)]
            self._open.staged_bytes += size
            batch.held.append(submit)
            return []
        batch.pending += 1
        batch.is_uncertain = submit.decides
        return [submit]

    def _released(self, batch: _Batch) -> list[Effect]:
        """What was held up to the next message whose outcome must be awaited."""
        effects: list[Effect] = []
        while batch.held and not batch.is_uncertain:
            submit = batch.held.popleft()
            self._open.staged_bytes -= len(submit.message[3])
            batch.pending += 1
            batch.is_uncertain = submit.decides
            effects.append(submit)
        return effects

    def _settled(self, submit: Submit) -> bool:
        """Note that an outcome is known; False when the batch is gone, or ended before the message."""
        batch = submit.batch
        batch.pending -= 1
        if submit.decides:
            batch.is_uncertain = False
        return not batch.is_closed and submit.request.place <= batch.last_place

    def _end_before(self, batch: _Batch, submit: Submit) -> list[Effect]:
        """End the batch with the message before this one; what is held behind it is not known any more."""
        batch.last_place = submit.request.place - 1
        batch.ending_reply = submit.reply
        dropped = self._drop_held(batch, submit.request.place)
        return [*self._ended(batch), *dropped]

    def _drop_held(self, batch: _Batch, from_place: int) -> list[Effect]:
        kept = deque(submit for submit in batch.held if submit.request.place < from_place)
        dropped = [submit for submit in batch.held if submit.request.place >= from_place]
        batch.held = kept
        self._open.staged_bytes -= sum(len(submit.message[3]) for submit in dropped)
        return [Refuse(submit.reply, BATCH_PUBLISH_UNKNOWN_BATCH_ID) for submit in dropped]

    def _ended(self, batch: _Batch) -> list[Effect]:
        """The PubAck, when the batch ends and nothing of it is under way any more; it is gone then."""
        if batch.is_closed or batch.ending_reply is None or not batch.is_idle:
            return []
        self._close(batch)
        return [Acknowledge(batch.ending_reply, batch.stored_seq, batch.batch_id, batch.last_place)]

    def _close(self, batch: _Batch) -> list[Effect]:
        assert not batch.is_closed, batch
        batch.is_closed = True
        del self._batches[batch.batch_id]
        self._open.fast -= 1
        return self._drop_held(batch, 0)

    def _flow_control(self, batch: _Batch, reply: bytes) -> list[Effect]:
        """The acknowledgement that is due, if one is; the next one comes after more or fewer messages."""
        if batch.stored_place < batch.flow_place + batch.flow:
            return []
        batch.flow_place += (batch.stored_place - batch.flow_place) // batch.flow * batch.flow
        flow_max = min(max(_FLOW_MAX // max(len(self._batches), 1), 1), batch.flow_max)
        if batch.flow < flow_max:
            batch.flow = min(batch.flow * 2, flow_max)
        elif batch.flow > flow_max:
            batch.flow = max(batch.flow // 2, flow_max)
        return [_flow(batch, reply)]


def may_be_refused(block: bytes) -> bool:
    """Whether the headers of a message could have it refused when it is applied; its id alone cannot."""
    return block.count(b"\r\nNats-") > block.count(b"\r\nNats-Msg-Id:")


def _refused(reply: bytes, error: ApiError, acks: bool) -> list[Effect]:
    return [Refuse(reply, error)] if acks else []


def _flow(batch: _Batch, reply: bytes) -> Send:
    return _flow_body(reply, batch.flow_place, batch.flow)


def _flow_body(reply: bytes, place: int, flow: int) -> Send:
    return Send(reply, b'{"type":"ack","seq":%d,"msgs":%d}' % (place, flow))


def _gap(reply: bytes, expected: int, place: int) -> Send:
    return Send(reply, b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, place))


def _error(reply: bytes, place: int, error: ApiError) -> Send:
    document = {"type": "err", "seq": place, "error": error.document()}
    return Send(reply, json.dumps(document, separators=(",", ":")).encode())
