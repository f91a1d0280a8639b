"""Reads an origin for a stream, batch by batch: what a mirror and a source have in common.

Rules: one batch is on its way at a time, and whatever is refused of it is the first thing to come again:
so the order of the origin is kept. Nobody asks an origin that has nothing; it wakes its reader. An origin
that is not there is looked for again when a stream is made, and from time to time, because the way to it
may lead through configuration that changes. What the stream refuses is tried again after a while, and if
it is for lack of room, it is not written before there is some.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.core import api_errors
from edged.core.api_errors import ApiError
from edged.core.frames import HEADER_SIZE_MASK
from edged.core.message import Message
from edged.core.publish_headers import ROLLUP, fields_of
from edged.core.source_header import OriginSubjects
from edged.core.transform import SubjectTransform
from edged.core.wire import Publish
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.core.source_config import StreamSource
    from edged.server.deadlines import Deadline
    from edged.server.jetstream.origin import Origin
    from edged.server.jetstream.origins import Origins
    from edged.server.jetstream.stream import Stream

BATCH_MESSAGES: Final = 1024
BATCH_BYTES: Final = 1024 * 1024
"""What one batch takes at most; a message that is larger is a batch of its own."""
RETRY_FIRST_S: Final = 0.05
RETRY_LAST_S: Final = 2.0
"""How soon a message that was refused is tried again, at first and after a while."""
LOOK_FIRST_S: Final = 2.0
LOOK_LAST_S: Final = 60.0
"""How soon an origin that is not there is looked for again."""
HEARTBEAT_NS: Final = 1_000_000_000

Document = dict[str, Any]
Failure = ApiError | StoreError


class OriginReader:
    """One origin of one stream, as the configuration was when this was made."""

    # What the subject that messages are delivered to would have, were the origin elsewhere.
    DELIVERY: bytes

    def __init__(self, origins: Origins, stream: Stream, source: StreamSource) -> None:
        config = stream.config
        self.stream = stream
        self.source = source
        self.origin: Origin | None = None
        # Whether it was read to its end once: a mirror may answer for it then.
        self.has_caught_up = False
        # Whether it waits for its turn already.
        self.is_listed = False
        self._origins = origins
        self._jetstream = stream.jetstream
        self._server = stream.jetstream.server
        self._subjects = OriginSubjects(source)
        self._transform: SubjectTransform | None = None
        if config.subject_transform is not None:
            wanted = config.subject_transform
            self._transform = SubjectTransform.parse(wanted.src, wanted.dest)
        self._is_busy = False
        self._is_resting = False
        self._is_closed = False
        self._rested = trio.Event()
        # The seq at the origin of what was dealt with last, and where to read on.
        self._position = 0
        self._next_seq = 0
        self._count_max = BATCH_MESSAGES
        self._retry: Deadline | None = None
        self._retry_s = 0.0
        self._was_refused = False
        self._error: ApiError | None = None
        self._reported: str | None = None
        self._heard_ns = 0

    # --- for mirrors and sources to say ---

    def _begin(self, origin: Origin) -> int:
        """Where to begin reading."""
        raise NotImplementedError

    def _prepared(self, origin: Origin, messages: Sequence[Message]) -> list[Publish] | Failure:
        """What is to be stored for these messages, or for some of the first; why for none, if so."""
        raise NotImplementedError

    def _submit(self, messages: Sequence[Message], publishes: Sequence[Publish]) -> None:
        """Hand messages to the committer; _finished() must be called when it is done."""
        raise NotImplementedError

    # --- coming and going ---

    def wake(self) -> None:
        """There may be something to read."""
        if self._retry is None and not (self._is_closed or self._is_busy or self._is_resting):
            self._origins.add(self)

    def look(self) -> None:
        """Something has changed that may have let the origin come or go."""
        self._cancel_retry()
        self.wake()

    def close(self) -> None:
        """Read no more. What is on its way arrives, and nobody looks."""
        self._is_closed = True
        self._cancel_retry()
        self._detach()
        self._origins.forget(self)

    async def rest(self) -> None:
        """Read no more, and wait until nothing is on its way."""
        self._is_resting = True
        while self._is_busy:
            self._rested = trio.Event()
            await self._rested.wait()

    def _detach(self) -> None:
        if self.origin is not None:
            self.origin.close()
            self.origin = None

    def _attached(self) -> Origin | None:
        """The origin, if there is one; else it is noted why not."""
        found = self._origins.resolve(self)
        if found is self.origin and self.origin is not None:
            return self.origin
        self._detach()
        if isinstance(found, ApiError):
            # Who leads the origin is asked first, which is no error unless it lasts.
            is_asked = found is api_errors.CLUSTER_NOT_AVAILABLE and not self._retry_s
            self._error = None if is_asked else found
            self._try_later(LOOK_FIRST_S, LOOK_LAST_S)
            return None
        self._error = None
        self._retry_s = 0.0
        self._heard_ns = self._server.now_ns()
        found.open(self.wake)
        self.origin = found
        self._next_seq = self._begin(found)
        self._position = self._next_seq - 1
        found.settle(self._subjects.filters, self._position)
        return found

    def _try_later(self, first_s: float, last_s: float) -> None:
        self._retry_s = min(max(2 * self._retry_s, first_s), last_s)
        if self._retry is None and not self._is_closed:
            self._retry = self._server.deadlines.after(self._retry_s, self.look)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # --- reading ---

    def step(self) -> None:
        """Move one batch. Raises StoreError and OSError."""
        if self._is_closed or self._is_busy or self._is_resting or self.stream.config.sealed:
            return
        origin = self._attached()
        if origin is None:
            return
        batch = origin.read(self._subjects.filters, self._next_seq, self._count_max, BATCH_BYTES)
        if batch is None:
            # It wakes us when it knows.
            return
        if batch.unreadable:
            self._report(f"{len(batch.unreadable)} messages from seq {batch.unreadable[0]} cannot be read")
        self.has_caught_up = self.has_caught_up or len(batch.messages) < self._count_max
        # A start may lie beyond the end of the origin.
        self._next_seq = max(self._next_seq, batch.next_seq)
        if not batch.messages:
            return
        publishes = self._prepared(origin, batch.messages)
        if isinstance(publishes, list):
            publishes = self._with_room(publishes)
        if not isinstance(publishes, list):
            self._refused(batch.messages[0].seq, publishes)
        else:
            self._is_busy = True
            self._submit(batch.messages[: len(publishes)], publishes)

    def _with_room(self, publishes: list[Publish]) -> list[Publish] | ApiError:
        """Those of the messages that are not known to be refused; why, if that is none."""
        machine = self.stream.machine
        for count, (subject, _, header_bytes, data) in enumerate(publishes):
            header_bytes = max(header_bytes, 0) & HEADER_SIZE_MASK
            error = machine.rules.size_refusal(header_bytes, len(data))
            if error is None and self._was_refused and machine.limits.is_new_refused:
                size = machine.log.counted_bytes(len(subject), header_bytes, len(data))
                is_rollup = bool(fields_of(data[:header_bytes]).get(ROLLUP))
                error = machine.limits.refusal(machine.log, subject, size, is_rollup)
            if error is not None:
                return publishes[:count] if count else error
        return publishes

    def _local_subject(self, subject: bytes) -> bytes:
        """The subject here of a message of the origin."""
        subject = self._subjects.apply(subject, random.randrange)
        if self._transform is not None:
            return self._transform.apply_with_chance(subject, random.randrange) or subject
        return subject

    def _finished(self, position: int, failure: Failure | None) -> None:
        """Everything up to a seq of the origin was dealt with; then something failed, or nothing did."""
        self._is_busy = False
        self._rested.set()
        self._server.tasks_waiting = True
        if self._is_closed:
            return
        self._heard_ns = self._server.now_ns()
        if position > self._position and self.origin is not None:
            self._position = position
            self.origin.settle(self._subjects.filters, position)
        if failure is not None:
            if isinstance(failure, StoreError):
                # What became of it is known by where the stream is, and by nothing else.
                self._detach()
            self._refused(self._position + 1, failure)
            return
        self._was_refused = False
        self._reported = None
        self._retry_s = 0.0
        self._next_seq = self._position + 1
        self._count_max = min(2 * self._count_max, BATCH_MESSAGES)
        self.wake()

    def _refused(self, seq: int, failure: Failure) -> None:
        """The stream does not take the message with this seq, or those behind it."""
        self._was_refused = True
        self._next_seq = seq
        # One message finds out whether it goes on.
        self._count_max = 1
        if isinstance(failure, StoreError):
            self._report(str(failure))
        elif not self.stream.machine.limits.is_new_refused:
            self._report(failure.description)
        self._try_later(RETRY_FIRST_S, RETRY_LAST_S)

    def failed(self, error: Exception) -> None:
        """step() raised; it is called again after a while."""
        self._report(repr(error))
        self._try_later(RETRY_FIRST_S, RETRY_LAST_S)

    def _report(self, reason: str) -> None:
        """Tell the log, once."""
        if reason != self._reported:
            self._reported = reason
            account = self.stream.account.account.name
            self._server.log.warn(
                "messages of an origin are not taken",
                account=account,
                stream=self.stream.name,
                origin=self.source.name,
                reason=reason,
            )

    # --- showing ---

    def described(self) -> Document:
        """What STREAM.INFO shows of it."""
        source, origin = self.source, self.origin
        document: Document = {"name": source.name}
        if source.external is not None:
            document["external"] = source.external.document()
        lag = 0 if origin is None else origin.pending(self._subjects.filters, self._position + 1)
        document.update(lag=lag, **self._described_position(), active=self._silent_ns())
        if self._error is not None:
            document["error"] = self._error.document()
        if source.filter_subject:
            document["filter_subject"] = source.filter_subject
        if source.subject_transforms:
            document["subject_transforms"] = [one.document() for one in source.subject_transforms]
        return document

    def _described_position(self) -> Document:
        return {}

    def _silent_ns(self) -> int:
        """How long nothing was heard; -1 if nothing ever was. One that is there is heard every second."""
        if not self._heard_ns:
            return -1
        silent_ns = max(1, self._server.now_ns() - self._heard_ns)
        return silent_ns if self.origin is None else silent_ns % HEARTBEAT_NS or 1
