"""A nats-server and our rules side by side: the same requests go to both, and the answers must be equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import StreamConfig, StreamRequest
from edged.core.stream_rules import check_create, with_server
from edged.core.stream_update_rules import ConsumerUse, check_update
from tests.jetstream.config_twin import ask, assert_same, payload_of, said, without_server
from tests.jetstream.raw_client import RawClient


class StreamTwin:
    """Streams of one account, on a real server and as our rules have them."""

    def __init__(self, client: RawClient, bounds: StreamBounds, version: str, *, strict: bool = True) -> None:
        self.client = client
        self._bounds = bounds
        self._version = version
        self._strict = strict
        self.streams: dict[str, StreamConfig] = {}

    def clear(self) -> None:
        """Remove every stream."""
        for name in self.streams:
            self.client.api(f"STREAM.DELETE.{name}")
        self.streams.clear()

    def create(self, name: str, request: Any) -> dict[str, Any]:
        """Create on both sides and compare; what both say."""
        return self._both("CREATE", name, payload_of(request), ())

    def update(self, name: str, request: Any, consumers: Sequence[ConsumerUse] = ()) -> dict[str, Any]:
        """Update on both sides and compare; what both say."""
        return self._both("UPDATE", name, payload_of(request), consumers)

    def _both(self, kind: str, name: str, payload: bytes, consumers: Sequence[ConsumerUse]) -> dict[str, Any]:
        subject = f"STREAM.{kind}.{name}"
        answer = ask(self.client, subject, payload)
        ours = said(lambda: with_server(self._decide(kind, name, payload, consumers), self._version))
        if "error" not in answer:
            theirs = without_server(StreamConfig.stored(answer["config"]))
            self.streams[theirs.name] = theirs
        assert_same(ours, answer, subject, payload)
        return ours

    def _decide(self, kind: str, name: str, payload: bytes, consumers: Sequence[ConsumerUse]) -> StreamConfig:
        request = StreamRequest.parse(payload, self._strict)
        bounds = self._with_reserved()
        if kind == "CREATE":
            return check_create(
                request.config, bounds, self.streams, pedantic=request.pedantic, subject_name=name
            )
        return check_update(
            self.streams.get(name),
            request.config,
            bounds,
            self.streams,
            pedantic=request.pedantic,
            consumers=consumers,
            subject_name=name,
        )

    def _with_reserved(self) -> StreamBounds:
        taken = {"file": 0, "memory": 0}
        for stream in self.streams.values():
            taken[stream.storage] += max(stream.max_bytes, 0)
        return replace(
            self._bounds,
            server_file_bytes_reserved=taken["file"],
            server_memory_bytes_reserved=taken["memory"],
        )
