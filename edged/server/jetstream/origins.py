"""Mirrors and sources of all streams: finds their origins, and gives each reader its turns.

One task moves messages, a batch of one reader at a time, in the order in which the readers have something to
move; so no stream with much to take over keeps the others waiting.

An origin is a stream of the same account, or of another one that lets it be read: the account must import
what `external` names, the API under which a consumer of the origin is made, and the subjects that it would
deliver to. Both are looked up in the imports of the account, so exports decide what can be read, as they do
for clients. `$JS.<domain>.API` with the domain of this server is the account itself.

Rules: what is found is asked for again before each batch, since exports may be taken back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from edged.core import api_errors
from edged.core.api_errors import ApiError
from edged.core.limits import SERVICE_IMPORT_DEPTH_MAX
from edged.core.subjects import is_subset
from edged.server.jetstream.mirroring import MirrorReader
from edged.server.jetstream.origin import Hold, LocalOrigin, Origin
from edged.server.jetstream.origin_hold import OriginHold, hold_name, terms_of
from edged.server.jetstream.origin_reader import Document, OriginReader
from edged.server.jetstream.remote_origin import RemoteOrigin
from edged.server.jetstream.sourcing import SourceReader
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.core.source_config import ExternalStream, StreamSource
    from edged.server.account import Account
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.stream import Stream

_API: Final = "$JS.API"
_CREATE: Final = b"CONSUMER.CREATE."
# Stands for what servers make up: the name of a consumer, and the end of the subject that it delivers to.
_MADE_UP: Final = "_"


class StreamOrigins:
    """Where one stream takes messages from, as its configuration says."""

    def __init__(self, stream: Stream) -> None:
        config = stream.config
        origins = stream.jetstream.origins
        self.mirror = None if config.mirror is None else MirrorReader(origins, stream, config.mirror)
        self.sources = [SourceReader(origins, stream, source) for source in config.sources]

    @property
    def readers(self) -> list[OriginReader]:
        """All of them."""
        return [*self.sources] if self.mirror is None else [self.mirror]

    def start(self) -> None:
        """Begin to read."""
        for reader in self.readers:
            reader.wake()

    async def rest(self) -> None:
        """Take nothing more, and wait until nothing is on its way: the configuration is about to change."""
        for reader in self.readers:
            await reader.rest()

    def close(self) -> None:
        """Take nothing more."""
        for reader in self.readers:
            reader.close()

    def holds(self) -> list[Hold]:
        """What keeps messages of origins for it."""
        return [reader.origin.hold for reader in self.readers if reader.origin is not None]

    def hold_names(self) -> set[str]:
        """The names of what may do so, of origins that are there or not."""
        return {hold_name(reader.stream, reader.source, reader.DELIVERY) for reader in self.readers}

    def described(self) -> Document:
        """The fields of STREAM.INFO about them."""
        if self.mirror is not None:
            return {"mirror": self.mirror.described()}
        return {"sources": [source.described() for source in self.sources]} if self.sources else {}


class Origins:
    """Of one JetStream. `run()` is its task."""

    def __init__(self, jetstream: JetStream) -> None:
        self._jetstream = jetstream
        self._server = jetstream.server
        # Bounded by the number of readers: each is in it once at most.
        self._ready: deque[OriginReader] = deque()
        self._arrival = trio.Event()
        # Readers whose origin was not found, by the name of what they look for.
        self._absent: dict[str, set[OriginReader]] = {}
        # Origins on other nodes that cannot be read yet.
        self._sought: dict[OriginReader, RemoteOrigin] = {}

    # --- turns ---

    def forget(self, reader: OriginReader) -> None:
        """A reader is closed."""
        sought = self._sought.pop(reader, None)
        if sought is not None:
            sought.close()
        waiting = self._absent.get(reader.source.name)
        if waiting is not None:
            waiting.discard(reader)
            if not waiting:
                del self._absent[reader.source.name]

    def add(self, reader: OriginReader) -> None:
        """Let a reader have a turn."""
        if not reader.is_listed:
            reader.is_listed = True
            self._ready.append(reader)
            self._arrival.set()
            self._server.tasks_waiting = True

    def opened(self, stream: Stream) -> None:
        """There is one more stream: whoever waits for it finds it at once."""
        for reader in self._absent.pop(stream.name, ()):
            reader.look()

    def look(self) -> None:
        """Streams may have come or gone on other nodes."""
        for reader in [one for readers in self._absent.values() for one in readers]:
            if reader not in self._sought:
                reader.look()

    async def run(self) -> None:
        """Move messages, forever."""
        while True:
            if not self._ready:
                self._arrival = trio.Event()
                await self._arrival.wait()
                # Whoever made a stream is told how it is before it takes its first messages from others.
                await trio.lowlevel.checkpoint()
                continue
            await self._jetstream.room()
            self._turn(self._ready.popleft())
            self._server.flush()
            await trio.lowlevel.checkpoint()

    def _turn(self, reader: OriginReader) -> None:
        reader.is_listed = False
        try:
            reader.step()
        except (StoreError, OSError) as error:
            reader.failed(error)
        except Exception as error:  # A fault in one origin must not end the others.
            self._server.log.error("a fault in edged failed an origin", error=repr(error))
            reader.failed(error)

    # --- finding ---

    def resolve(self, reader: OriginReader) -> Origin | ApiError:
        """The origin of a reader: the one that it has, if that is still right, or a new one."""
        found = self._stream_of(reader)
        if isinstance(found, ApiError):
            self._absent.setdefault(reader.source.name, set()).add(reader)
            return found
        known = reader.origin
        if isinstance(found, RemoteOrigin):
            return found
        if isinstance(known, LocalOrigin) and known.stream is found:
            return known
        terms = terms_of(reader.stream, reader.source, reader.DELIVERY)
        return LocalOrigin(found, OriginHold(found, terms))

    def _stream_of(self, reader: OriginReader) -> Stream | RemoteOrigin | ApiError:
        account, source = reader.stream.account, reader.source
        external = source.external
        name = source.name
        if external is not None and external.api != self._own_prefix:
            place = self._imported(account.account, _subject_asked(source, external), 0)
            if place is None or not _is_delivered(
                account.account, place[0].account, reader.DELIVERY, external
            ):
                words = f"the JetStream API {external.api} cannot be reached"
                is_mirror = isinstance(reader, MirrorReader)
                if is_mirror:
                    return api_errors.mirror_consumer_setup_failed(words)
                return api_errors.source_consumer_setup_failed(words)
            account, name = place
        stream = account.streams.get(name)
        if stream is not None and stream.is_leading:
            return stream
        group = account.group_of(name)
        if self._jetstream.cluster is None or not group:
            return api_errors.STREAM_NOT_FOUND
        return self._remote(reader, group, account.stored(group))

    def _remote(self, reader: OriginReader, group: int, stored: Document) -> RemoteOrigin | ApiError:
        """The origin of a reader that another node leads, once it can be read."""
        known = reader.origin
        if isinstance(known, RemoteOrigin) and known.group == group:
            return known
        sought = self._sought.get(reader)
        if sought is not None and sought.group == group:
            if not sought.is_ready:
                return api_errors.CLUSTER_NOT_AVAILABLE
            del self._sought[reader]
            return sought
        if sought is not None:
            sought.close()
        sought = self._sought[reader] = RemoteOrigin(reader, group, stored)
        sought.begin(reader.look)
        return api_errors.CLUSTER_NOT_AVAILABLE

    @property
    def _own_prefix(self) -> str | None:
        domain = self._jetstream.options.domain
        return f"$JS.{domain}.API" if domain else None

    def _imported(self, account: Account, subject: bytes, depth: int) -> tuple[AccountStreams, str] | None:
        """Whose API a request would reach that makes a consumer, and the stream that it names there."""
        if depth:
            for prefix in (_API, self._own_prefix):
                created = b"" if prefix is None else prefix.encode() + b"." + _CREATE
                streams = self._jetstream.accounts.get(account.name)
                if created and streams is not None and subject.startswith(created):
                    return streams, subject[len(created) :].split(b".")[0].decode("utf-8", "replace")
        if account.exchange is None or depth >= SERVICE_IMPORT_DEPTH_MAX:
            return None
        for binding in account.exchange.services.match(_literal(subject)).plain:
            if is_subset(subject, binding.transform.source):
                foreign = binding.transform.build(subject.split(b"."), _no_draw)
                found = self._imported(binding.exporter, foreign, depth + 1)
                if found is not None:
                    return found
        return None


def mirror_for(account: AccountStreams, name: bytes) -> Stream | None:
    """A mirror that answers direct gets for its origin."""
    wanted = name.decode("utf-8", "replace")
    for stream in account.streams.values():
        mirror = stream.origins.mirror if stream.config.mirror_direct else None
        if mirror is not None and mirror.source.name == wanted and mirror.has_caught_up:
            return stream
    return None


def _subject_asked(source: StreamSource, external: ExternalStream) -> bytes:
    """Where a server asks for a consumer of the origin."""
    filters = [one.src for one in source.subject_transforms]
    wanted = source.filter_subject or (filters[0] if len(filters) == 1 else "")
    subject = f"{external.api}.CONSUMER.CREATE.{source.name}"
    if wanted:
        subject += f".{_MADE_UP}.{wanted}"
    return subject.replace("..", ".").encode("utf-8", "surrogatepass")


def _is_delivered(account: Account, exporter: Account, letter: bytes, external: ExternalStream) -> bool:
    """Whether what the exporter's consumer would deliver comes to the account."""
    prefix = (external.deliver or "$JS").rstrip(".").encode("utf-8", "surrogatepass")
    subject = b"%b.%b.%b" % (prefix, letter, _MADE_UP.encode())
    if account is exporter:
        return True
    exchange = account.exchange
    return exchange is not None and any(
        binding.exporter is exporter and binding.reverse.apply(subject) == subject
        for binding in exchange.streams
    )


def _literal(subject: bytes) -> bytes:
    """The subject with something in the place of its wildcards."""
    made_up = _MADE_UP.encode()
    return b".".join(made_up if token in (b"*", b">") else token for token in subject.split(b"."))


def _no_draw(bound: int) -> int:
    raise AssertionError(bound)
