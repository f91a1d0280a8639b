"""The streams of one account, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import RemoveStream
from edged.core.pull_statuses import CONSUMER_DELETED
from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import StreamConfig
from edged.server.jetstream.account_limits import bounds_of, keep_limits
from edged.server.jetstream.consumer_advisories import consumer_action
from edged.server.jetstream.consumers.door import ConsumerDoor
from edged.server.jetstream.resources import is_enabled
from edged.server.jetstream.stream import RESTORING, Stream
from edged.store.errors import StoreError
from edged.store.group import CATALOG

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.jetstream.jetstream import JetStream
    from edged.store.group import StreamEntry


class AccountStreams:
    """What an account has in JetStream. Where that is off it has nothing, and requests are refused."""

    def __init__(self, jetstream: JetStream, account: Account) -> None:
        self.jetstream = jetstream
        self.account = account
        self.streams: dict[str, Stream] = {}
        # Those of them that answer direct gets.
        self.direct: dict[bytes, Stream] = {}
        # What clients say to consumers arrives there.
        self.consumer_door = ConsumerDoor(account, jetstream.options.domain)
        # The names of streams that are about to come from archives.
        self.restoring: set[str] = set()
        # Requests that were answered, and those that were refused.
        self.requests = self.errors = 0

        self._is_serving = False

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
                stream.consumers.stop()
                self.close(stream)
            return
        for entry in self.jetstream.store.catalog.streams.values():
            if entry.account == self.account.name and not entry.config.get(RESTORING):
                self.open(entry).consumers.forget_earlier()

    def open(self, entry: StreamEntry) -> Stream:
        """A stream that the store has, new or from an earlier life, begins to take messages."""
        stream = self.streams[entry.name] = Stream(self, entry)
        stream.start()
        stream.consumers.start()
        self.jetstream.origins.opened(stream)
        return stream

    async def remove(self, stream: Stream) -> None:
        """Remove a stream with everything in it. Raises StoreError."""
        consumers, holds = stream.consumers.stop(CONSUMER_DELETED), stream.origins.holds()
        self.close(stream)
        try:
            await self.jetstream.commit(CATALOG, RemoveStream(stream.group))
        except StoreError:
            # It is still there, and may not stay deaf.
            self.open(stream.entry)
            raise
        for hold in holds:
            hold.release()
        for consumer in consumers:
            consumer_action(consumer, "DELETED", "delete")
        self.jetstream.advisories.stream_action(stream, "DELETED", "delete")

    def close(self, stream: Stream) -> None:
        """A stream goes."""
        stream.stop()
        stream.letter_sender.close()
        del self.streams[stream.name]
        # Whoever reads it finds out that it is gone.
        stream.stored()

    def stream(self, name: str) -> Stream:
        """A stream by name. Raises ApiFailure."""
        found = self.streams.get(name)
        if found is None:
            raise ApiFailure(api_errors.STREAM_NOT_FOUND)
        return found

    def configs(self) -> dict[str, StreamConfig]:
        """The configurations of all streams."""
        return {name: stream.config for name, stream in self.streams.items()}

    def bounds(self, replicas: int) -> StreamBounds:
        """What the configuration of a stream with so many replicas may ask for."""
        return bounds_of(self, replicas)
