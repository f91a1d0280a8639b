"""Fast batches of one stream: their messages are submitted without waiting for each other.

Rules: a message that simply continues its batch is submitted at once. All others (the first of a batch, an
end, a ping, a gap) are answered by how far the batch is, so they wait until everything before them is stored,
and whatever follows a message that its headers may have refused waits for that: what a client hears is then
the same, in the same order, as from a server that stores one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edged.core import fast_requests
from edged.core.atomic_batches import ack_fields
from edged.core.fast_batches import (
    REQUIRED_LEVEL,
    Acknowledge,
    Effect,
    FastBatches,
    Refuse,
    Send,
    Submit,
    may_be_refused,
)
from edged.core.stream_machine import Duplicate, Outcome, Refused, Stored
from edged.core.wire import Publish
from edged.server.jetstream.pub_acks import error_of, is_undecided
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.ingest import Ingest
    from edged.server.jetstream.stream import Stream


class FastIntake:
    """`settled` is called whenever nothing of the batches is on its way any more."""

    def __init__(self, stream: Stream, ingest: Ingest, settled: Callable[[], None]) -> None:
        config = stream.config
        jetstream = stream.jetstream
        self._ingest = ingest
        self._settled = settled
        self._account = stream.account.account
        self._is_allowed = config.allow_batched
        # Limits that can have any message refused when it is applied.
        self._is_refusing = (
            config.discard == "new" or config.max_msg_size > 0 or config.sealed or config.allow_msg_counter
        )
        self._batches = FastBatches(jetstream.batch_limits, jetstream.open_batches)
        self._in_flight = 0
        # Whether one of those is checked against its headers.
        self._is_uncertain = False

    def must_wait(self, reply: bytes, message: Publish) -> bool:
        """Whether a message depends on what became of those before it, which is not known yet."""
        if not self._in_flight:
            return False
        if self._is_uncertain or REQUIRED_LEVEL in message[3][: max(message[2], 0)]:
            return True
        return not self._batches.is_continued_by(fast_requests.parse(reply))

    def take(self, reply: bytes, message: Publish, now_ns: int) -> None:
        """A message of a fast batch, in its turn."""
        is_checked = may_be_refused(message[3][: max(message[2], 0)])
        self._is_uncertain = self._is_uncertain or is_checked
        effects = self._batches.arrived(
            fast_requests.parse(reply),
            message,
            now_ns,
            refusable=self._is_refusing or is_checked,
            allowed=self._is_allowed,
            acks=not self._ingest.is_silent,
        )
        self._carry_out(effects)

    def tick(self, now_ns: int) -> None:
        """Give up batches that have idled for too long."""
        if len(self._batches):
            self._batches.expired(now_ns)

    def close(self) -> None:
        """Forget all open batches."""
        self._batches.close()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._account.publish(effect.reply, None, effect.body)
            elif isinstance(effect, Refuse):
                self._ingest.refuse(effect.reply, effect.error)
            elif isinstance(effect, Acknowledge):
                # Also for a stream that does not answer otherwise: that is how a client knows of the end.
                acks, fields = self._ingest.acks, ack_fields(effect.batch_id, effect.count)
                answer = acks.duplicate if effect.duplicate else acks.stored
                self._account.publish(effect.reply, None, answer(effect.seq, fields))
            else:
                self._submit(effect)

    def _submit(self, submit: Submit) -> None:
        self._in_flight += 1
        self._ingest.submit([submit.message], partial(self._finished, submit))

    def _finished(
        self,
        submit: Submit,
        messages: Sequence[Publish],
        values: Sequence[str],
        result: Sequence[Outcome] | StoreError,
    ) -> None:
        self._in_flight -= 1
        if is_undecided(result):
            # Whoever leads now knows nothing of the batch, and the client begins anew.
            return
        outcome = Refused(error_of(result)) if isinstance(result, StoreError) else result[0]
        if isinstance(outcome, Refused):
            self._carry_out(self._batches.refused(submit, outcome.error))
        elif isinstance(outcome, Duplicate):
            self._carry_out(self._batches.duplicate(submit, outcome.seq))
        else:
            seq = outcome.seq if isinstance(outcome, Stored) else outcome
            self._carry_out(self._batches.stored(submit, seq))
            self._ingest.stored(messages, [outcome])
        if not self._in_flight:
            self._is_uncertain = False
            self._settled()
