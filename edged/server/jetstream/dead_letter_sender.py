"""Publishes the dead letters that a stream owes, and has them written off when they are taken.

Where a stream of the account takes the subject, a letter is taken when that stream has acknowledged it, as a
new message or as one that it has already. Where nobody but subscribers listens, or the stream says `no_ack`,
it is taken when it was sent. Where nobody listens at all it stays owed, however long that lasts.

Rules: a letter that is sent again has the same id. Of those that an earlier life of the process left behind
some may have been taken without being written off: before they are sent, they are looked for in the stream
that takes them, so its window for duplicates does not matter. What does not work is told once, until it works
again. A refused letter does not keep the others waiting.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from edged.core.commands import LettersTaken
from edged.core.dead_letter_message import letter_id, letter_message
from edged.core.dead_letters import DeadLetter
from edged.core.headers import value
from edged.core.message import Message
from edged.core.publish_headers import MESSAGE_ID
from edged.core.subjects import matches
from edged.core.twins import Subscription
from edged.store.errors import Damaged, StoreError

if TYPE_CHECKING:
    from edged.core.twins import Outbox
    from edged.core.wire import Publish
    from edged.server.jetstream.stream import Stream

UNDER_WAY_MAX: Final = 256
"""So many letters wait for their acknowledgement at most; the others wait until some have it."""
TURN_BYTES: Final = 1024 * 1024
"""What one turn sends, or reads, at most; one letter may have more."""
ANSWER_NS: Final = 10_000_000_000
"""A letter that has no answer after this time is sent again."""
RETRY_NS: Final = 5_000_000_000
"""How soon a letter is sent again that was refused."""
RECALL_MESSAGES: Final = 1024
RECALL_SLACK_NS: Final = 3_600_000_000_000
"""Letters are looked for from so long before their last delivery on: clocks may have been set."""

_ANSWERS: Final = b"$JS.EDGED.LETTER."
_ADVISORY_TYPES: Final = "io.edged.jetstream.advisory.v1."

_Key = tuple[int, int]


class DeadLetterSender:
    """Of one stream, as long as this node leads it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._jetstream = stream.jetstream
        self._account = stream.account.account
        # What is to be sent; what was sent and has no answer, with when and to whom; what was refused.
        letters = stream.machine.letters
        self._queue: deque[_Key] = deque(letters.owed)
        letters.fresh.clear()
        self._under_way: dict[_Key, tuple[int, str]] = {}
        self._refused: dict[_Key, tuple[int, str]] = {}
        # Taken, and the journal is to be told.
        self._taken: list[_Key] = []
        self._prefix = b"%s%d." % (_ANSWERS, stream.group)
        self._subscription: Subscription | None = None
        self._recall: _Recall | None = None
        # What an earlier life has left behind.
        self._has_earlier = bool(letters.owed)
        self._told = ""

    def wake(self) -> None:
        """Messages may have been given up."""
        if self._stream.machine.letters.fresh:
            self._stream.alarm.set(0)

    def close(self) -> None:
        """The stream is not served any more."""
        if self._subscription is not None:
            self._account.unsubscribe(self._subscription)
            self._subscription = None

    def tick(self, now_ns: int) -> None:
        """Send what is to be sent."""
        letters = self._stream.machine.letters
        if letters.fresh:
            self._queue += letters.fresh
            letters.fresh.clear()
        if not letters.owed:
            return
        try:
            self._turn(now_ns)
        except (StoreError, OSError) as error:
            self._tell(str(error))
        self._write_off()

    def _turn(self, now_ns: int) -> None:
        target = self._target()
        if self._has_earlier:
            self._look_for_earlier(target)
            return
        self._take_back(now_ns)
        if not self._queue:
            return
        if target is None and not self._account.has_interest(self._stream.machine.letters.subject):
            self._tell("nobody listens to the subject, and no stream takes it")
            return
        self._send(target, now_ns)

    # --- sending ---

    def _target(self) -> Stream | None:
        """The stream of the account that takes the letters."""
        subject, mappings = self._stream.machine.letters.subject, self._account.mappings
        if mappings is not None:
            subject = mappings.route(subject, self._account.draw)
        for stream in self._stream.account.streams.values():
            if any(matches(subject, one.encode()) for one in stream.config.subjects):
                return stream
        return None

    def _send(self, target: Stream | None, now_ns: int) -> None:
        letters = self._stream.machine.letters
        name = target.name if target is not None and not target.config.no_ack else None
        if name is not None:
            self._listen()
        size = 0
        while self._queue and len(self._under_way) < UNDER_WAY_MAX and size < TURN_BYTES:
            key = self._queue.popleft()
            letter = letters.owed.get(key)
            if letter is None:
                continue
            if name is not None:
                self._under_way[key] = (now_ns, name)
            else:
                self._taken.append(key)
            size += self._publish(letter, None if name is None else self._prefix + b"%d.%d" % key)
        if self._queue and size >= TURN_BYTES:
            self._stream.alarm.set(0)

    def _publish(self, letter: DeadLetter, reply: bytes | None) -> int:
        """Send one; how large it is."""
        stream = self._stream
        message = self._read(letter.seq)
        block, payload = letter_message(letter, stream.entry.stream_id, stream.name, message)
        self._account.publish(stream.machine.letters.subject, reply, block + payload, len(block))
        return len(block) + len(payload)

    def _read(self, seq: int) -> Message | None:
        try:
            return self._stream.log.get(seq)
        except Damaged as error:
            self._jetstream.server.log.error(
                "a message cannot be read, and its dead letter has no payload",
                account=self._account.name,
                stream=self._stream.name,
                seq=seq,
                error=str(error),
            )
            return None

    def _take_back(self, now_ns: int) -> None:
        """Send again what was refused a while ago, and what was not answered. The first are the oldest."""
        for waiting, patience_ns in ((self._refused, RETRY_NS), (self._under_way, ANSWER_NS)):
            due = []
            for key, (since_ns, _) in waiting.items():
                if now_ns - since_ns < patience_ns:
                    break
                due.append(key)
            for key in due:
                del waiting[key]
            self._queue += due

    # --- answers ---

    def _listen(self) -> None:
        if self._subscription is None:
            self._subscription = Subscription(self._prefix + b">", None, b"letters", None, self._answered)
            self._account.subscribe(self._subscription)

    def _answered(self, subscription: Subscription, messages: list[Publish], origin: Outbox | None) -> None:
        """Acknowledgements came. Whatever else somebody says there means nothing."""
        for subject, _, header_bytes, data in messages:
            key = _key_of(subject[len(self._prefix) :])
            document = _document(data[max(header_bytes, 0) :])
            name = document.get("stream")
            if key not in self._under_way or name != self._under_way[key][1]:
                continue
            del self._under_way[key]
            error = document.get("error")
            if error is None:
                self._taken.append(key)
            else:
                self._refused[key] = (self._jetstream.now_ns(), name)
                self._tell(f"stream {name}: {error.get('description')}")
        self._stream.alarm.set(0)

    def _write_off(self) -> None:
        """Tell the journal what was taken."""
        taken, self._taken = self._taken, []
        machine = self._stream.machine
        by_consumer: dict[int, list[int]] = {}
        for consumer, seq in taken:
            letter = machine.letters.owed.get((consumer, seq))
            if letter is None:
                continue
            if machine.letters.is_volatile(letter):
                machine.apply(LettersTaken(consumer, (seq,)))
            else:
                by_consumer.setdefault(consumer, []).append(seq)
        for consumer, seqs in by_consumer.items():
            self._submit(LettersTaken(consumer, tuple(sorted(seqs))))
        if taken and not self._refused:
            self._told = ""

    def _submit(self, command: LettersTaken) -> None:
        def done(result: object) -> None:
            if isinstance(result, StoreError):
                # It is tried again with the next tick.
                self._taken += [(command.consumer, seq) for seq in command.seqs]
            else:
                self._stream.consumers.removed()

        self._jetstream.committer.submit(self._stream.group, command, done)

    def _tell(self, reason: str) -> None:
        """Tell the log and whoever listens why letters are not taken; once."""
        if reason == self._told:
            return
        self._told = reason
        stream, letters = self._stream, self._stream.machine.letters
        self._jetstream.server.log.warn(
            "dead letters of a stream are not taken",
            account=self._account.name,
            stream=stream.name,
            subject=letters.subject.decode(),
            owed=len(letters.owed),
            reason=reason,
        )
        fields = {"stream": stream.name, "subject": letters.subject.decode()}
        self._jetstream.advisories.tell(
            self._account,
            f"STREAM.DEAD_LETTERS.{stream.name}",
            "stream_dead_letters",
            {**fields, "owed": len(letters.owed), "reason": reason},
            types=_ADVISORY_TYPES,
        )

    # --- after a restart ---

    def _look_for_earlier(self, target: Stream | None) -> None:
        """Find out, a slice at a time, which letters were taken in an earlier life of the process."""
        stream = self._stream
        if target is None:
            self._has_earlier = False
        else:
            if self._recall is None or self._recall.target is not target:
                letters = stream.machine.letters
                self._recall = _Recall(letters.owed.values(), stream.entry.stream_id, target, letters.subject)
            self._taken += self._recall.step()
            if self._recall.is_done:
                self._has_earlier = False
                found = set(self._taken)
                self._queue = deque(key for key in self._queue if key not in found)
        stream.alarm.set(0)


class _Recall:
    """Looks for letters in the stream that takes them."""

    def __init__(
        self, letters: Iterable[DeadLetter], stream_id: bytes, target: Stream, subject: bytes
    ) -> None:
        self.target = target
        listed = list(letters)
        self._wanted = {letter_id(letter, stream_id): letter.key for letter in listed}
        # What is stored may have another subject.
        self._filters = (subject,) if target.config.subject_transform is None else ()
        since_ns = min(letter.delivered_ns for letter in listed) - RECALL_SLACK_NS
        self._next_seq = target.log.seq_at_time(since_ns) if since_ns > 0 else target.log.first_seq
        self._last_seq = target.log.last_seq

    @property
    def is_done(self) -> bool:
        """Whether all that may be letters has been looked at."""
        return not self._wanted or self._next_seq > self._last_seq

    def step(self) -> list[_Key]:
        """Look at some messages; the letters that are among them. Raises StoreError and OSError."""
        batch = self.target.reads.messages(self._filters, self._next_seq, RECALL_MESSAGES, TURN_BYTES)
        self._next_seq = batch.next_seq
        found = []
        for message in batch.messages:
            name = value(message.data[: message.header_bytes], MESSAGE_ID)
            key = None if name is None else self._wanted.pop(name, None)
            if key is not None:
                found.append(key)
        return found


def _key_of(text: bytes) -> _Key:
    consumer, _, seq = text.partition(b".")
    return (int(consumer), int(seq)) if consumer.isdigit() and seq.isdigit() else (0, 0)


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
