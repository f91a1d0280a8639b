"""A nats-server and our rules side by side: the same requests go to both, and the answers must be equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edged.core.api_errors import ApiFailure
from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import StreamConfig, StreamRequest
from edged.core.stream_rules import check_create, with_server
from edged.core.stream_update_rules import ConsumerUse, check_update
from tests.jetstream.raw_client import RawClient

ASK_TIMES_MAX = 50


class StreamTwin:
    """Streams of one account, on a real server and as our rules have them."""

    def __init__(self, client: RawClient, bounds: StreamBounds, version: str, *, strict: bool = True) -> None:
        self._client = client
        self._bounds = bounds
        self._version = version
        self._strict = strict
        self.streams: dict[str, StreamConfig] = {}

    def clear(self) -> None:
        """Remove every stream."""
        for name in self.streams:
            self._client.api(f"STREAM.DELETE.{name}")
        self.streams.clear()

    def create(self, name: str, request: Any) -> dict[str, Any]:
        """Create on both sides and compare; what both say."""
        return self._both("CREATE", name, _payload(request), ())

    def update(self, name: str, request: Any, consumers: Sequence[ConsumerUse] = ()) -> dict[str, Any]:
        """Update on both sides and compare; what both say."""
        return self._both("UPDATE", name, _payload(request), consumers)

    def _both(self, kind: str, name: str, payload: bytes, consumers: Sequence[ConsumerUse]) -> dict[str, Any]:
        answer = self._ask(kind, name, payload)
        theirs = answer["error"] if "error" in answer else answer["config"]
        try:
            config = self._decide(kind, name, payload, consumers)
        except ApiFailure as failure:
            ours = failure.error.document()
        else:
            ours = with_server(config, self._version).document()
            assert StreamConfig.stored(json.loads(json.dumps(config.document()))) == config
        if "error" not in answer:
            # What the server has is what later requests are compared with, whatever we say.
            self.streams[theirs["name"]] = _without_server(StreamConfig.stored(theirs))
        # As text, because the order of the fields is part of the answer.
        assert json.dumps(ours) == json.dumps(theirs), (kind, name, payload[:2000])
        return ours

    def _ask(self, kind: str, name: str, payload: bytes) -> dict[str, Any]:
        """Ask the server. It removes the files of a deleted stream after it has said that it is gone, and a
        new stream of the same name may come too early.
        """
        for _ in range(ASK_TIMES_MAX):
            answer: dict[str, Any] = self._client.ask(f"$JS.API.STREAM.{kind}.{name}", b"", payload).document
            if answer.get("error", {}).get("description") != "error creating store for stream":
                break
        return answer

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


def _payload(request: Any) -> bytes:
    """Without blanks and escapes: an error may repeat a value, and how it was written we do not keep."""
    if isinstance(request, bytes):
        return request
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()


def _without_server(config: StreamConfig) -> StreamConfig:
    added = ("_nats.ver", "_nats.level")
    return replace(config, metadata={key: text for key, text in config.metadata.items() if key not in added})
