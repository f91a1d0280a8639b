"""Restore: an archive comes in chunks, and becomes a stream when all of it has proven whole.

Rules: chunks go to a file without a name, and are checked as they come; nothing is believed that the archive
says of itself. The stream is made under a mark that says it is not complete: what has the mark after a crash
is removed. Until all messages are in it is configured like a mirror, which takes everything as it is; its own
limits count afterwards. Seqs and times are those of the archive. Other streams come and go meanwhile, so
whether there is a place for this one is asked once more in the end, with the catalog locked.
"""

from __future__ import annotations

import secrets
import tempfile
import uuid
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, Final

import trio

from edged.core import api_errors
from edged.core.api_errors import ApiError, ApiFailure
from edged.core.archive_parts import ArchiveError, ArchiveLimits
from edged.core.archive_reader import ArchiveContents, ArchiveMessages, ArchiveSurvey
from edged.core.commands import CREATED, PEERS, Configure, PutStream, RemoveStream, Skip, assigned_to
from edged.core.frames import INTERNAL
from edged.core.gojson_shapes import INT, TIME, UINT64, ListOf, Structure
from edged.core.message import Message
from edged.core.stream_config import STREAM, StreamConfig
from edged.core.stream_rules import check_create
from edged.core.twins import Subscription
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.consumer_archives import ConsumerRestore
from edged.server.jetstream.stream import RESTORING
from edged.server.jetstream.stream_info import described
from edged.server.monitoring.gojson import compact
from edged.store.errors import StoreError
from edged.store.group import CATALOG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edged.core.stream_machine import Outcome
    from edged.core.twins import Outbox
    from edged.core.wire import Publish
    from edged.server.jetstream.account_streams import AccountStreams

STALLED_S: Final = 5.0
CHUNKS_MAX: Final = 64
"""Chunks that wait to be looked at; one more ends the restore. Who waits for answers has few on the way."""
READ_BYTES: Final = 256 * 1024
MESSAGES_PER_TURN: Final = 512
CREATE_TYPE: Final = "io.nats.jetstream.api.v1.stream_create_response"


@dataclass(frozen=True, slots=True)
class _Counts:
    """Numbers by subject, which nobody looks at."""

    go_type: str = "map[string]uint64"
    zero: Mapping[str, int] = field(default_factory=dict)

    def read(self, value: Any, place: str, strict: bool) -> dict[str, Any]:
        return {}


_LOST: Final = Structure("server.LostStreamData", {"msgs": ListOf(UINT64), "bytes": UINT64})
# What the client says of the stream is read, for it may be malformed, and left aside: the archive counts.
_STATE: Final = Structure(
    "server.StreamState",
    {
        **dict.fromkeys(("messages", "bytes", "first_seq", "last_seq"), UINT64),
        **dict.fromkeys(("num_subjects", "num_deleted", "consumer_count"), INT),
        "first_ts": TIME,
        "last_ts": TIME,
        "subjects": _Counts(),
        "deleted": ListOf(UINT64),
        "lost": _LOST,
    },
)
_REQUEST: Final = Structure("server.JSApiStreamRestoreRequest", {"config": STREAM, "state": _STATE})


def restore(request: ApiRequest) -> Document:
    """Answer where the archive is to be sent."""
    request.expect_something()
    name = request.arguments[0]
    config = StreamConfig.of(request.fields(_REQUEST).get("config", {}))
    if not config.name:
        config = replace(config, name=name)
    if config.name != name:
        raise ApiFailure(api_errors.STREAM_MISMATCH)
    if set(name) & set("\\/"):
        raise ApiFailure(api_errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS)
    account = request.account
    checked = _checked(account, config)
    if name in account.restoring:
        raise ApiFailure(api_errors.STREAM_NAME_EXIST_RESTORE_FAILED)
    incoming = Restore(account, checked)
    request.jetstream.advisories.restore_began(account.account, name, request.client())
    request.jetstream.server.nursery.start_soon(incoming.run, request.client())
    return {"deliver_subject": incoming.subject.decode()}


def _checked(account: AccountStreams, config: StreamConfig) -> StreamConfig:
    """The configuration as of a new stream, which may be sealed, however. Raises ApiFailure."""
    others = {name: other for name, other in account.configs().items() if name != config.name}
    checked = check_create(replace(config, sealed=False), account.bounds(config.num_replicas), others)
    if account.group_of(config.name):
        raise ApiFailure(api_errors.STREAM_NAME_EXIST_RESTORE_FAILED)
    return replace(checked, sealed=config.sealed)


class Restore:
    """One archive that comes in; `run()` is its task."""

    def __init__(self, account: AccountStreams, config: StreamConfig) -> None:
        self._account = account
        self._jetstream = account.jetstream
        self._server = account.jetstream.server
        self._config = config
        self._send, self._receive = trio.open_memory_channel[tuple[bytes, bytes | None]](CHUNKS_MAX)
        self._is_flooded = False
        self._bytes = 0
        token = secrets.token_hex(8)
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{token}".encode()
        self._limits = ArchiveLimits(self._jetstream.options.max_store, self._server.options.max_payload)
        self._chunks = Subscription(self.subject, None, b"restore", None, self._arrived)
        account.restoring.add(config.name)
        account.account.subscribe(self._chunks)

    async def run(self, client: Document) -> None:
        """Take the archive and make the stream of it."""
        start_ns = self._server.now_ns()
        reply: bytes | None = None
        failed: str | ApiError | None = None
        document: Document = {}
        try:
            with tempfile.TemporaryFile(dir=self._jetstream.directory) as file:
                contents, reply = await self._take(file)
                document = await self._make(file, contents)
        except _RestoreFailed as failure:
            reply, failed = failure.reply, str(failure)
        except ApiFailure as failure:
            failed = failure.error
        except (ArchiveError, StoreError, OSError) as error:
            failed = str(error)
        except Exception as error:  # A fault in one restore must not end the daemon.
            self._server.log.error("a fault in edged ended a restore", error=repr(error))
            failed = "internal error"
        finally:
            self._account.account.unsubscribe(self._chunks)
            self._account.restoring.discard(self._config.name)
        if failed is not None:
            refusal = api_errors.stream_restore(failed) if isinstance(failed, str) else failed
            self._server.log.warn("restore failed", stream=self._config.name, reason=refusal.description)
            document = {"error": refusal.document()}
        account = self._account.account
        self._jetstream.advisories.restore_ended(account, self._config.name, start_ns, self._bytes, client)
        if reply is not None:
            self._answer(reply, {"type": CREATE_TYPE, **document})

    def _arrived(self, subscription: Subscription, messages: list[Publish], origin: Outbox | None) -> None:
        for _, reply, header_bytes, data in messages:
            chunk = data[max(header_bytes, 0) :]
            self._bytes += len(chunk)
            try:
                self._send.send_nowait((chunk, reply))
            except trio.WouldBlock:
                self._is_flooded = True
        self._server.tasks_waiting = True

    async def _take(self, file: IO[bytes]) -> tuple[ArchiveContents, bytes]:
        """Keep the chunks, and look at them on the way. Raises _RestoreFailed."""
        survey = ArchiveSurvey(self._limits)

        def take(chunk: bytes) -> None:
            file.write(chunk)
            survey.feed(chunk)
            while survey.step():
                pass

        while True:
            with trio.move_on_after(STALLED_S) as patience:
                chunk, reply = await self._receive.receive()
            if patience.cancelled_caught:
                raise _RestoreFailed("restore for stream is stalled", None)
            if self._is_flooded:
                raise _RestoreFailed("too many chunks at a time", reply)
            if reply is None:
                raise _RestoreFailed("restore requires a reply subject for each chunk", None)
            try:
                if not chunk:
                    return await trio.to_thread.run_sync(survey.finish), reply
                await trio.to_thread.run_sync(take, chunk)
            except ArchiveError as error:
                raise _RestoreFailed(str(error), reply) from error
            self._answer_chunk(reply)

    def _answer_chunk(self, reply: bytes) -> None:
        self._account.account.publish(reply, None, b"")
        self._server.flush()

    async def _make(self, file: IO[bytes], contents: ArchiveContents) -> Document:
        """The stream, from an archive that is whole. Raises StoreError, ApiFailure; nothing is left then."""
        jetstream, config = self._jetstream, self._config
        if contents.config is not None and contents.config.get("name") != config.name:
            raise ArchiveError("stream names do not match")
        bare: Document = {
            **StreamConfig(config.name, storage=config.storage, num_replicas=1).document(),
            "mirror": {"name": config.name},
            "duplicate_window": config.duplicate_window,
            RESTORING: True,
        }
        cluster = jetstream.cluster
        if cluster is not None:
            # The others get it when it is complete.
            bare[PEERS] = [cluster.node]
        async with jetstream.catalog_lock:
            group = jetstream.store.catalog.highest_group + 1
            identity = (group, uuid.uuid4().bytes, self._account.account.name, config.name)
            await jetstream.commit(CATALOG, PutStream(*identity, bare))
        try:
            if cluster is not None:
                await cluster.serving(group)
            await self._store_messages(file, contents, group)
            async with jetstream.catalog_lock:
                config = _checked(self._account, config)
                consumers = ConsumerRestore(self._account, config, group)
                for consumer in contents.consumers:
                    await consumers.make(consumer, jetstream.store.stream(group).log.last_seq)
                stored = {**config.document(), CREATED: contents.created_ns or jetstream.now_ns()}
                if cluster is not None:
                    stored |= assigned_to(bare, cluster.place(config, bare[PEERS]))
                    await jetstream.commit(group, Configure(stored))
                await jetstream.commit(CATALOG, PutStream(*identity, stored))
                stream = self._account.stream(config.name)
                jetstream.advisories.stream_created(stream.account.account, stream.name)
        except Exception:  # Not when the daemon ends: then the next one removes what has the mark.
            await jetstream.commit(CATALOG, RemoveStream(group))
            raise
        return described(stream, with_cluster=False)

    async def _store_messages(self, file: IO[bytes], contents: ArchiveContents, group: int) -> None:
        jetstream = self._jetstream
        log = jetstream.store.stream(group).log
        reader = ArchiveMessages(contents, self._limits)
        appender = _Appender(self, group)
        file.seek(0)
        seq = turn = 0
        while chunk := await trio.to_thread.run_sync(file.read, READ_BYTES):
            reader.feed(chunk)
            while (message := reader.next_message()) is not None:
                if message.seq != seq + 1:
                    jetstream.committer.submit(group, Skip(message.seq - 1), appender.done)
                appender.append(message)
                seq = message.seq
                turn += 1
                if turn % MESSAGES_PER_TURN == 0:
                    await appender.turn()
            await appender.turn()
        reader.finish()
        last_seq = max(contents.state.last_seq, seq)
        if last_seq > seq:
            await jetstream.commit(group, Skip(last_seq))
        await appender.finished()
        if log.last_seq != last_seq:
            raise ArchiveError(f"the stream cannot go on behind seq {last_seq}")

    def _answer(self, reply: bytes, document: Document) -> None:
        self._account.account.publish(reply, None, compact(document).encode())
        self._server.flush()


class _Appender:
    """Submits messages with their own times, and notices when one could not be stored."""

    def __init__(self, restore: Restore, group: int) -> None:
        self._jetstream = restore._jetstream
        self._group = group
        self._in_flight = 0
        self._error: StoreError | None = None
        self._settled = trio.Event()

    def append(self, message: Message) -> None:
        header_bytes = message.header_bytes | INTERNAL if message.header_bytes else -1
        publish = (message.subject, None, header_bytes, message.data)
        self._in_flight += 1
        self._jetstream.committer.submit_appends(self._group, [publish], message.ts_ns, self._stored)
        self._jetstream.crowd()

    def _stored(self, result: Sequence[Outcome] | StoreError) -> None:
        self._in_flight -= 1
        self.done(result)
        if not self._in_flight:
            self._settled.set()
            self._jetstream.server.tasks_waiting = True

    def done(self, result: Sequence[Outcome] | StoreError) -> None:
        if isinstance(result, StoreError):
            self._error = result
        elif not isinstance(result[0], int):
            self._error = StoreError(f"a message of the archive was refused: {result[0]}")

    async def turn(self) -> None:
        """Let what was submitted go its way, and others have theirs. Raises StoreError."""
        self._jetstream.server.flush()
        await trio.lowlevel.checkpoint()
        await self._jetstream.room()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def finished(self) -> None:
        """Wait until all are stored. Raises StoreError."""
        self._jetstream.server.flush()
        while self._in_flight:
            self._settled = trio.Event()
            await self._settled.wait()
        self._check()


class _RestoreFailed(Exception):  # noqa: N818 - says what happened
    """The archive cannot be taken; whoever sent the chunk with this reply is told."""

    def __init__(self, text: str, reply: bytes | None) -> None:
        super().__init__(text)
        self.reply = reply
