"""The streams of one account, by name.

Rules: streams come and go because the catalog says so, and at no other time: whoever makes or removes one
commits a command, and the catalog tells of it where that is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.core import api_errors, headers
from edged.core.api_errors import ApiFailure
from edged.core.commands import RemoveStream
from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import StreamConfig
from edged.server.account import unanswered
from edged.server.jetstream.account_limits import bounds_of, keep_limits
from edged.server.jetstream.consumer_advisories import consumer_action
from edged.server.jetstream.consumers.door import ConsumerDoor
from edged.server.jetstream.resources import is_enabled
from edged.server.jetstream.stream import RESTORING, Stream
from edged.store.errors import StoreError
from edged.store.group import CATALOG

if TYPE_CHECKING:
    from edged.core.twins import Outbox
    from edged.core.wire import Publish
    from edged.server.account import Account
    from edged.server.jetstream.jetstream import JetStream
    from edged.store.group import StreamEntry


Stored = dict[str, Any]


class AccountStreams:
    """What an account has in JetStream. Where that is off it has nothing, and requests are refused."""

    def __init__(self, jetstream: JetStream, account: Account) -> None:
        self.jetstream = jetstream
        self.account = account
        self.streams: dict[str, Stream] = {}
        # Those of them that answer direct gets.
        self.direct: dict[bytes, Stream] = {}
        # What clients say to consumers arrives there.
        self.consumer_door = ConsumerDoor(self, jetstream.options.domain)
        # The names of streams that are about to come from archives.
        self.restoring: set[str] = set()
        # Requests that were answered, and those that were refused.
        self.requests = self.errors = 0

        self._is_serving = False
        # In a cluster: configurations by group, each with what it was made of.
        self._known_configs: dict[int, tuple[Stored, StreamConfig]] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether the account may use JetStream."""
        return is_enabled(self.jetstream.server, self.account) and not self.account.is_removed

    def follow(self) -> None:
        """Let the streams take messages, or not, as the account may by now, and keep to its limits."""
        keep_limits(self)
        if self._is_serving == self.is_enabled:
            return
        self._is_serving = not self._is_serving
        if not self._is_serving:
            for stream in list(self.streams.values()):
                stream.follow(None)
                self.close(stream)
            return
        for entry in self.jetstream.store.catalog.streams.values():
            if entry.account == self.account.name and not entry.config.get(RESTORING):
                self._open(entry, is_earlier=True)

    def put(self, entry: StreamEntry) -> None:
        """The catalog has a stream, new or configured otherwise."""
        if not self._is_serving or entry.config.get(RESTORING):
            return
        stream = self.streams.get(entry.name)
        if stream is None:
            self._open(entry)
        elif self.jetstream.cluster is None:
            stream.reconfigure()
        else:
            stream.follow_catalog()

    def _open(self, entry: StreamEntry, is_earlier: bool = False) -> None:
        """A stream that the store has, new or from an earlier life, begins to take messages."""
        stream = self.streams[entry.name] = Stream(self, entry, is_earlier)
        self.jetstream.by_group[stream.group] = stream
        stream.follow_leader()

    async def remove(self, stream: Stream) -> None:
        """Remove a stream with everything in it. Raises StoreError."""
        stream.part()
        try:
            await self.jetstream.commit(CATALOG, RemoveStream(stream.group))
        except StoreError:
            # It is still there, and may not stay deaf.
            stream.parting = None
            stream.follow_leader()
            raise

    def removed(self, stream: Stream) -> None:
        """The catalog has a stream no more."""
        stream.part()
        self.close(stream)
        if stream.parting is None:
            return
        for hold in stream.parting.holds:
            hold.release()
        for consumer in stream.parting.consumers:
            consumer_action(consumer, "DELETED", "delete")
        self.jetstream.advisories.stream_action(stream, "DELETED", "delete")

    def close(self, stream: Stream) -> None:
        """A stream goes, or is not served any more."""
        del self.streams[stream.name]
        del self.jetstream.by_group[stream.group]
        # Whoever reads it finds out that it is gone.
        stream.stored()

    def stream(self, name: str) -> Stream:
        """A stream by name. Raises ApiFailure."""
        found = self.streams.get(name)
        if found is None:
            raise ApiFailure(api_errors.STREAM_NOT_FOUND)
        return found

    def group_of(self, name: str) -> int:
        """The group of a stream by name, be it here or on other nodes only; 0 when there is none."""
        stream = self.streams.get(name)
        if stream is not None:
            return stream.group
        cluster = self.jetstream.cluster
        return 0 if cluster is None else cluster.find(self.account.name, name)

    def pass_on(self, name: bytes, message: Publish) -> bool:
        """Let the leader of the stream with which a name begins have a message; False if there is none."""
        cluster = self.jetstream.cluster
        if cluster is None:
            return False
        group = self.group_of(name.partition(b".")[0].decode("utf-8", "replace"))
        node = cluster.leader(group) if group else 0
        if node in (0, cluster.node):
            return False
        cluster.forward(node, self.account.name, message)
        return True

    def unanswered(self, origin: Outbox | None, message: Publish) -> None:
        """Tell whoever asked that nobody answers, also if another node has passed the message on."""
        subject, reply, _, _ = message
        if origin is not None and origin.is_route and reply is not None:
            block = headers.encode([(b"Nats-Subject", subject)], b"503")
            self.account.publish(reply, None, block, len(block))
        else:
            unanswered(origin, subject, reply)

    def pass_on_direct(self, name: bytes, message: Publish) -> bool:
        """Let a node that can answer a direct get have it; False if none can."""
        if self.jetstream.cluster is None:
            return False
        wanted = name.partition(b".")[0].decode("utf-8", "replace")
        group = self.group_of(wanted)
        if group and self.stored(group).get("allow_direct"):
            return self.pass_on(name, message)
        for one in self.configs().values():
            is_mirror = one.mirror_direct and one.mirror is not None and one.mirror.name == wanted
            if is_mirror and self.pass_on(one.name.encode(), message):
                return True
        return False

    def configs(self) -> dict[str, StreamConfig]:
        """The configurations of all streams, as the catalog has them; of those too that other nodes have."""
        cluster = self.jetstream.cluster
        if cluster is None:
            return {name: stream.config for name, stream in self.streams.items()}
        stored = {stream.group: stream.entry.config for stream in self.streams.values()}
        stored |= {group: one.config for group, one in cluster.assignments(self.account.name).items()}
        self._known_configs = {group: self._known_config(group, one) for group, one in stored.items()}
        return {config.name: config for _, config in self._known_configs.values()}

    def stored(self, group: int) -> Stored:
        """The configuration of a stream, here or elsewhere, as the catalog has it."""
        return self.identity(group)[1]

    def identity(self, group: int) -> tuple[bytes, Stored]:
        """What tells a stream from others, and its configuration as the catalog has it."""
        entry = self.jetstream.store.catalog.streams.get(group)
        if entry is not None:
            return entry.stream_id, entry.config
        cluster = self.jetstream.cluster
        assert cluster is not None
        one = cluster.assignments(self.account.name)[group]
        return one.stream_id, one.config

    def _known_config(self, group: int, stored: Stored) -> tuple[Stored, StreamConfig]:
        """A configuration that is stored, and what was made of it when it was last needed."""
        known = self._known_configs.get(group)
        return known if known is not None and known[0] is stored else (stored, StreamConfig.stored(stored))

    def bounds(self, replicas: int) -> StreamBounds:
        """What the configuration of a stream with so many replicas may ask for."""
        return bounds_of(self, replicas)
