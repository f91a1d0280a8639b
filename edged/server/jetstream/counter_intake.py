"""Counters: increments become totals before they are submitted.

Rules: a total depends on all that was stored before, so nothing of the stream may be on its way when it is
computed: the messages of a counter stream go in batches, one at a time. Within a batch a subject is counted
on from its message before, if that one cannot be refused any more; otherwise the batch ends there. What the
machine refuses before it looks at increments is left to it, so that the first fault is the one that is named.
Whatever waits here is known to JetStream, which lets publishers wait when it is too much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from edged.core import counters, headers
from edged.core.api_errors import MESSAGE_COUNTER_BROKEN, STREAM_NOT_FOUND, ApiError
from edged.core.frames import HEADER_SIZE_MASK
from edged.core.publish_headers import STREAM_SOURCE, fields_of
from edged.core.publish_rules import HEADER_BYTES_MAX
from edged.core.stream_machine import Outcome, Refused
from edged.core.wire import Publish
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream

BATCH_MAX: Final = 1024
RETRY_S: Final = 0.001
"""How soon it is tried again when something else of the stream is on its way, such as a purge."""

JOB_BYTES: Final = 400
"""What a message takes in memory while it waits, besides its subject and data."""

# Told the messages as they were submitted, their totals, and what became of them.
Done = Callable[[Sequence[Publish], Sequence[str], Sequence[Outcome] | StoreError], None]
# Called when it is its turn, with what ends that turn.
Guest = Callable[[Callable[[], None]], None]
_Last = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Job:
    """Messages that are submitted together. One that stands alone is a batch of its own in the journal."""

    messages: Sequence[Publish]
    done: Done
    is_alone: bool


class CounterIntake:
    """The increments of one stream that wait for their turn."""

    def __init__(self, stream: Stream) -> None:
        config = stream.config
        self._stream = stream
        self._jetstream = stream.jetstream
        self._waiting: deque[_Job | Guest] = deque()
        # Whether something is on its way, and whether _run() is at work.
        self._is_busy = self._is_running = False
        self._message_bytes_max = config.max_msg_size
        # Limits that can have any message refused when it is applied.
        self._is_refusing = config.discard == "new" or config.max_msg_size > 0 or config.sealed

    def submit(self, messages: Sequence[Publish], done: Done, *, together: bool) -> None:
        """Count these when their turn comes; `together`: all are taken, or none."""
        self._jetstream.hold(_bytes_of(messages))
        if together:
            self._waiting.append(_Job(messages, done, True))
        else:
            self._waiting.extend(_Job([message], done, False) for message in messages)
        self._run()
        self._jetstream.crowd()

    def lend(self, guest: Guest) -> None:
        """Let somebody else count: nothing of the stream is on its way until the turn of the guest ends."""
        self._waiting.append(guest)
        self._run()

    def _run(self) -> None:
        """Begin what waits. Streams in memory finish at once, so this goes round and not deeper."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._waiting and not self._is_busy:
                self._begin()
        finally:
            self._is_running = False

    def _go_on(self) -> None:
        self._is_busy = False
        self._run()

    def _try_again(self) -> None:
        self._go_on()
        self._jetstream.server.flush()

    def _begin(self) -> None:
        group = self._stream.entry.group
        if self._jetstream.store.groups.get(group.number) is not group:
            self._refuse_all()
            return
        self._is_busy = True
        if group.next_index > group.applied + 1:
            self._jetstream.server.deadlines.after(RETRY_S, self._try_again)
            return
        first = self._waiting[0]
        if not isinstance(first, _Job):
            self._waiting.popleft()
            first(self._go_on)
            return
        jobs = self._batch()
        messages = [message for job, _ in jobs for message in job.messages]
        if not messages:
            self._is_busy = False
            return
        done = partial(self._finished, jobs)
        self._jetstream.committer.submit_appends(self._stream.group, messages, self._jetstream.now_ns(), done)
        self._jetstream.crowd()

    def _refuse_all(self) -> None:
        """The stream is gone."""
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            if isinstance(job, _Job):
                self._jetstream.hold(-_bytes_of(job.messages))
                job.done(job.messages, (), [Refused(STREAM_NOT_FOUND)] * len(job.messages))

    def _batch(self) -> list[tuple[_Job, list[str]]]:
        """What is submitted at once, and its totals. What cannot be counted is refused."""
        jobs: list[tuple[_Job, list[str]]] = []
        known: dict[bytes, _Last] = {}
        uncertain: set[bytes] = set()
        while self._waiting and len(jobs) < BATCH_MAX:
            job = self._waiting[0]
            if not isinstance(job, _Job):
                break
            if any(message[0] in uncertain for message in job.messages) or (job.is_alone and jobs):
                break
            self._waiting.popleft()
            self._jetstream.hold(-_bytes_of(job.messages))
            counted = self._counted(job, known)
            if isinstance(counted, ApiError):
                job.done(job.messages, (), [Refused(counted)] * len(job.messages))
                continue
            jobs.append(counted)
            if job.is_alone:
                break
            for subject, _, header_bytes, data in job.messages:
                if self._is_refusing or len(fields_of(data[: max(header_bytes, 0)])) > 1:
                    uncertain.add(subject)
        return jobs

    def _counted(self, job: _Job, known: dict[bytes, _Last]) -> tuple[_Job, list[str]] | ApiError:
        """The job with totals in the place of increments; `known` learns them if all is well."""
        messages: list[Publish] = []
        values: list[str] = []
        new: dict[bytes, _Last] = {}
        for message in job.messages:
            subject, reply, flagged_bytes, data = message
            header_bytes = max(flagged_bytes, 0) & HEADER_SIZE_MASK
            block, payload = data[:header_bytes], data[header_bytes:]
            if self._is_left_to_the_machine(block, len(data)):
                messages.append(message)
                values.append("")
                continue
            last = new.get(subject) or known.get(subject) or self._last(subject)
            if isinstance(last, ApiError):
                return last
            error = counters.refusal(block, len(payload), allowed=True, sourced=False)
            counted = error or counters.counted(subject, block, payload, last)
            if isinstance(counted, ApiError):
                return counted
            new[subject] = (counted.block, counted.payload)
            flags = max(flagged_bytes, 0) & ~HEADER_SIZE_MASK
            messages.append((subject, reply, len(counted.block) | flags, counted.block + counted.payload))
            values.append(counted.value)
        known.update(new)
        return _Job(messages, job.done, job.is_alone), values

    def _is_left_to_the_machine(self, block: bytes, data_bytes: int) -> bool:
        """Whether the message is refused for its size, for lack of an increment, or for its origin."""
        is_too_large = 0 < self._message_bytes_max < data_bytes or len(block) > HEADER_BYTES_MAX
        if is_too_large or not headers.value(block, counters.INCREMENT):
            return True
        return bool(headers.value(block, STREAM_SOURCE))

    def _last(self, subject: bytes) -> _Last | ApiError | None:
        """The total that a subject has. Nobody can count on from one that cannot be read."""
        log = self._stream.log
        seq = log.last_of(subject)
        try:
            message = None if seq is None else log.get(seq)
        except (StoreError, OSError) as error:
            self._jetstream.server.log.error(
                "the total of a counter cannot be read",
                account=self._stream.account.account.name,
                stream=self._stream.name,
                subject=subject.decode("utf-8", "replace"),
                error=str(error),
            )
            return MESSAGE_COUNTER_BROKEN
        if message is None:
            return None
        return message.data[: message.header_bytes], message.data[message.header_bytes :]

    def _finished(self, jobs: list[tuple[_Job, list[str]]], result: Sequence[Outcome] | StoreError) -> None:
        position = 0
        for job, values in jobs:
            end = position + len(job.messages)
            job.done(job.messages, values, result if isinstance(result, StoreError) else result[position:end])
            position = end
        self._go_on()


def _bytes_of(messages: Sequence[Publish]) -> int:
    return sum(JOB_BYTES + len(subject) + len(data) for subject, _, _, data in messages)
