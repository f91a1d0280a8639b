"""Snapshots: the archive of a stream, sent in chunks to whoever asked, as fast as it takes them.

Rules: the archive has the messages up to the last one at the time of the request; what is removed while it is
sent may be missing. A chunk in flight is answered with an empty message, which lets another one go; no answer
for ACK_TIMEOUT_S ends the snapshot. Whatever was sent, an empty message ends it, with a status if there was
more than one chunk or something went wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import trio

from edged.core import api_errors, headers
from edged.core.api_errors import ApiFailure
from edged.core.archive import ArchiveWriter
from edged.core.gojson_shapes import FLAG, INT, TEXT, Structure
from edged.core.subjects import valid_literal
from edged.core.twins import Subscription
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.consumer_archives import archived
from edged.server.jetstream.stream_info import state

if TYPE_CHECKING:
    from edged.core.archive_parts import ArchivedConsumer
    from edged.core.twins import Outbox
    from edged.core.wire import Publish
    from edged.server.jetstream.stream import Stream

CHUNK_BYTES: Final = 128 * 1024
WINDOW_BYTES: Final = 8 * 1024 * 1024
ACK_TIMEOUT_S: Final = 5.0
INTEREST_POLL_S: Final = 0.01
INTEREST_POLLS_MAX: Final = 200
SLOT_POLL_S: Final = 0.1
"""How often it is looked, while no answers come, whether there is anybody to answer."""
READ_MESSAGES: Final = 1024
READ_BYTES: Final = 256 * 1024

_REQUEST: Final = Structure(
    "server.JSApiStreamSnapshotRequest",
    {"deliver_subject": TEXT, "no_consumers": FLAG, "chunk_size": INT, "window_size": INT, "jsck": FLAG},
)


def snapshot(request: ApiRequest) -> Document:
    """Answer with what the stream is, and begin to send it."""
    request.expect_something()
    stream = request.stream()
    options = request.fields(_REQUEST)
    deliver_subject = options.get("deliver_subject", "").encode()
    if not valid_literal(deliver_subject):
        raise ApiFailure(api_errors.SNAPSHOT_DELIVER_SUBJECT_INVALID)
    consumers = [] if options.get("no_consumers") else stream.consumers.public()
    archives = [archived(consumer, stream.log.last_seq) for consumer in consumers]
    found = {**state(stream), "consumer_count": len(archives)}
    chunk_bytes = _within(options.get("chunk_size") or CHUNK_BYTES, 1024 * 1024)
    window_bytes = _within(options.get("window_size") or WINDOW_BYTES, 32 * 1024 * 1024)
    sender = SnapshotSender(stream, deliver_subject, chunk_bytes, max(1, window_bytes // chunk_bytes))
    sender.holds(found, archives)
    answer = {"config": stream.config.document(), "state": state(stream)}
    request.jetstream.server.nursery.start_soon(_send, sender, stream, answer["state"], request.client())
    return answer


async def _send(sender: SnapshotSender, stream: Stream, found: Document, client: Document) -> None:
    """Send a snapshot, and tell who listens that it begins and ends."""
    advisories, start_ns = stream.jetstream.advisories, stream.jetstream.server.now_ns()
    advisories.snapshot_began(stream, found, client)
    failure = await sender.run()
    advisories.snapshot_ended(stream, start_ns, client, failure)
    stream.jetstream.server.flush()


def _within(size: int, most: int) -> int:
    return min(max(1024, size), most)


class SnapshotFailed(Exception):  # noqa: N818 - says what happened
    """The status says why the snapshot ends before its end."""

    def __init__(self, status: bytes) -> None:
        super().__init__(status)
        self.status = status


class SnapshotSender:
    """Sends one snapshot; `run()` is its task."""

    def __init__(self, stream: Stream, deliver_subject: bytes, chunk_bytes: int, in_flight_max: int) -> None:
        self._stream = stream
        self._account = stream.account.account
        self._server = stream.jetstream.server
        self._deliver_subject = deliver_subject
        self._chunk_bytes = chunk_bytes
        self._slots = trio.Semaphore(in_flight_max, max_value=in_flight_max)
        self._in_flight_max = in_flight_max
        self._found: Document = {}
        self._consumers: list[ArchivedConsumer] = []
        self._last_seq = stream.log.last_seq
        self._was_awaited = False
        self._ack_prefix = b"$JS.SNAPSHOT.ACK.%s.%s" % (
            stream.name.encode(),
            secrets.token_hex(8).encode(),
        )

    def holds(self, found: Document, consumers: list[ArchivedConsumer]) -> None:
        """What is sent besides messages: the state of the stream, and its consumers."""
        self._found, self._consumers = found, consumers

    async def run(self) -> str:
        """Send it all. Why it was given up; nothing when it was not."""
        account, server = self._account, self._server
        subject = self._ack_prefix + b".>"
        acks = Subscription(subject, None, b"snapshot", None, self._acknowledged)
        account.subscribe(acks)
        status, reason = b"", ""
        try:
            await self._await_interest()
            status = b"204" if await self._send_chunks() else b""
        except SnapshotFailed as failure:
            status, reason = failure.status, failure.status.partition(b" ")[2].decode().lower()
        except Exception as error:  # A fault in one snapshot must not end the daemon.
            status, reason = b"500 internal error", "internal error"
            server.log.error("a fault in edged ended a snapshot", stream=self._stream.name, error=repr(error))
        finally:
            account.unsubscribe(acks)
        block = headers.encode((), status) if status else b""
        account.publish(self._deliver_subject, None, block, len(block) or -1)
        server.flush()
        return reason

    async def _await_interest(self) -> None:
        """Whoever asked may subscribe a little later, to this very subject: wildcards are for answers."""
        for _ in range(INTEREST_POLLS_MAX):
            if self._is_awaited():
                self._was_awaited = True
                return
            await trio.sleep(INTEREST_POLL_S)

    def _is_awaited(self) -> bool:
        return self._account.subscriptions.has_literal(self._deliver_subject)

    async def _send_chunks(self) -> bool:
        """True when a chunk was sent that had to be acknowledged."""
        waiting = bytearray()
        index = 0
        for piece in self._pieces():
            waiting += piece
            while len(waiting) >= self._chunk_bytes:
                index += 1
                await self._take_slot()
                chunk = bytes(waiting[: self._chunk_bytes])
                del waiting[: self._chunk_bytes]
                reply = b"%s.%d.%d" % (self._ack_prefix, len(chunk), index)
                self._account.publish(self._deliver_subject, reply, chunk)
                self._server.flush()
            await trio.lowlevel.checkpoint()
        if waiting:
            self._account.publish(self._deliver_subject, None, bytes(waiting))
        return index > 0

    def _pieces(self) -> Iterator[bytes]:
        """The bytes of the archive."""
        log = self._stream.log
        writer = ArchiveWriter()
        now_ns = self._stream.jetstream.now_ns()
        yield writer.begin(self._found, now_ns)
        for consumer in self._consumers:
            yield writer.consumer(consumer, now_ns)
        seq = log.first_seq
        while seq <= self._last_seq:
            batch = log.messages((b">",), seq, READ_MESSAGES, READ_BYTES)
            if batch.unreadable:
                raise SnapshotFailed(b"500 message %d is damaged" % batch.unreadable[0])
            yield writer.messages(message for message in batch.messages if message.seq <= self._last_seq)
            seq = batch.next_seq
        yield writer.finish()

    async def _take_slot(self) -> None:
        patience_ends = trio.current_time() + ACK_TIMEOUT_S
        while trio.current_time() < patience_ends:
            if self._was_awaited and not self._is_awaited():
                raise SnapshotFailed(b"408 No Interest")
            with trio.move_on_after(SLOT_POLL_S) as poll:
                await self._slots.acquire()
            if not poll.cancelled_caught:
                return
        raise SnapshotFailed(b"408 No Flow Response")

    def _acknowledged(
        self, subscription: Subscription, messages: list[Publish], origin: Outbox | None
    ) -> None:
        for _ in messages:
            if self._slots.value < self._in_flight_max:
                self._slots.release()
        self._server.tasks_waiting = True
