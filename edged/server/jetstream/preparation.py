"""What happens to messages before they are submitted, where the stream or the message asks for something.

Rules: only what follows from the configuration and the message itself is done here: statuses are left out,
subjects are transformed, schedules get the header that lets them replace each other. Members of atomic
batches wait here for their commit. The order of a publisher's messages is kept: where a message of a fast
batch has to wait, so do all that come after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from edged.core import fast_requests, headers, schedules
from edged.core.api_errors import MESSAGE_SCHEDULES_TIME_ZONE_INVALID
from edged.core.atomic_batches import (
    BATCH_ID,
    Abandoned,
    AtomicBatches,
    Rejected,
    Staged,
    ack_fields,
    batch_id,
)
from edged.core.message_ttl import with_ttl_min
from edged.core.publish_headers import TTL
from edged.core.publish_rules import PublishRules
from edged.core.stream_machine import Outcome
from edged.core.transform import SubjectTransform
from edged.core.wire import Publish
from edged.server.jetstream.fast_intake import FastIntake
from edged.server.jetstream.pub_acks import error_of, is_undecided
from edged.server.jetstream.schedule_runner import zone_of
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.ingest import Ingest
    from edged.server.jetstream.stream import Stream

_NO_STATUS = headers.VERSION + b"\r"

WAITING_MAX: Final = 16 * 1024
"""Messages that wait for those of fast batches; with more, answers may come in another order."""


class Preparation:
    """One per stream and configuration. `is_needed` tells that every message has to pass here."""

    def __init__(self, stream: Stream, ingest: Ingest) -> None:
        config = stream.config
        jetstream = stream.jetstream
        self._stream = stream
        self._jetstream = jetstream
        self._ingest = ingest
        self._account = stream.account.account
        self._transform: SubjectTransform | None = None
        if config.subject_transform is not None:
            source, target = config.subject_transform.src or ">", config.subject_transform.dest
            self._transform = SubjectTransform.parse(source.encode(), target.encode())
        self.is_needed = self._transform is not None
        self._allows_atomic = config.allow_atomic
        self._rules = PublishRules.of(config.document())
        self._allows_schedules = config.allow_msg_schedules
        is_raised = config.max_msgs_per_subject != 1
        self._ttl_s_min = config.subject_delete_marker_ttl // 1_000_000_000 if is_raised else 0
        self._atomic = AtomicBatches(jetstream.batch_limits, jetstream.open_batches)
        self._fast = FastIntake(stream, ingest, self._resume)
        self._waiting: list[Publish] = []

    def prepared(self, messages: list[Publish]) -> list[Publish]:
        """The messages that are to be submitted like any other. Those before a batch are submitted first."""
        if self._waiting and len(self._waiting) < WAITING_MAX:
            self._waiting += messages
            return []
        ready: list[Publish] = []
        now_ns = self._jetstream.now_ns()
        self.tick(now_ns)
        for position, message in enumerate(messages):
            _, reply, header_bytes, data = message
            if header_bytes > 0 and not data.startswith(_NO_STATUS):
                message = _without_status(message)
                _, reply, header_bytes, data = message
            if reply is not None and fast_requests.is_fast(reply):
                ready = self._submitted(ready)
                if not self._waiting and self._fast.must_wait(reply, message):
                    self._wait(messages[position:])
                    break
                self._fast.take(reply, self._transformed(message), now_ns)
                continue
            message = self._transformed(message)
            if header_bytes > 0 and BATCH_ID in data and batch_id(data[:header_bytes]):
                ready = self._submitted(ready)
                self._take_member(message, now_ns)
            else:
                if self._allows_schedules and header_bytes > 0:
                    block = schedules.with_rollup(data[:header_bytes])
                    if not schedules.has_known_zone(block, zone_of):
                        self._ingest.refuse(reply, MESSAGE_SCHEDULES_TIME_ZONE_INVALID)
                        continue
                    message = (message[0], reply, len(block), block + data[header_bytes:])
                ready.append(self._long_enough(message))
        return ready

    def _transformed(self, message: Publish) -> Publish:
        if self._transform is None:
            return message
        subject, reply, header_bytes, data = message
        target = self._transform.apply_with_chance(subject, self._account.draw)
        return target or subject, reply, header_bytes, data

    def _long_enough(self, message: Publish) -> Publish:
        """The message with a TTL that is not shorter than that of the marker it may leave behind."""
        subject, reply, header_bytes, data = message
        if not self._ttl_s_min or header_bytes <= 0 or TTL not in data:
            return message
        block = with_ttl_min(data[:header_bytes], self._ttl_s_min)
        return subject, reply, len(block), block + data[header_bytes:]

    def _wait(self, messages: list[Publish]) -> None:
        """Let these wait, and all that come, until what is on its way is stored."""
        self._waiting = list(messages)
        self.is_needed = True

    def _resume(self) -> None:
        """Go on with what has waited."""
        waiting, self._waiting = self._waiting, []
        self.is_needed = self._transform is not None
        if waiting:
            self._ingest.arrived_again(waiting)

    def tick(self, now_ns: int) -> None:
        """Give up batches that have idled for too long."""
        for abandoned in self._atomic.expired(now_ns) if len(self._atomic) else ():
            self._announce(abandoned)
        self._fast.tick(now_ns)

    def close(self) -> None:
        """Forget all open batches."""
        self._atomic.close()
        self._fast.close()
        self._waiting = []

    def _submitted(self, ready: list[Publish]) -> list[Publish]:
        """Submit what came before, so that it is stored before."""
        if ready:
            self._ingest.take(ready)
        return []

    # --- atomic batches ---

    def _take_member(self, message: Publish, now_ns: int) -> None:
        error = self._rules.early_batch_refusal(len(message[3]))
        if error is not None:
            self._ingest.refuse(message[1], error)
            return
        decision = self._atomic.member(message, now_ns, self._allows_atomic)
        reply = message[1]
        if isinstance(decision, Staged):
            if reply is not None and not self._ingest.is_silent:
                self._account.publish(reply, None, b"")
        elif isinstance(decision, Rejected):
            self._ingest.refuse(reply, decision.error)
            if decision.abandoned is not None:
                self._announce(decision.abandoned)
        else:
            self._ingest.submit(decision.messages, partial(self._committed, decision.batch_id, reply))

    def _committed(
        self,
        batch: bytes,
        reply: bytes | None,
        messages: Sequence[Publish],
        values: Sequence[str],
        result: Sequence[Outcome] | StoreError,
    ) -> None:
        if isinstance(result, StoreError):
            if not is_undecided(result):
                self._ingest.refuse(reply, error_of(result))
            return
        self._ingest.answer(reply, result[-1], ack_fields(batch, len(messages)))
        self._ingest.stored(messages, result)

    def _announce(self, abandoned: Abandoned) -> None:
        self._jetstream.advisories.batch_abandoned(self._stream, abandoned.batch_id, abandoned.reason)


def _without_status(message: Publish) -> Publish:
    subject, reply, header_bytes, data = message
    block = headers.without_status(data[:header_bytes])
    return subject, reply, len(block) or -1, block + data[header_bytes:]
