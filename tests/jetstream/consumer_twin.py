"""A nats-server and our rules side by side: the same requests go to both, and the answers must be equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edged.core.api_errors import ApiFailure
from edged.core.consumer_config import ConsumerConfig, ConsumerRequest
from edged.core.consumer_defaults import ConsumerBounds, with_server
from edged.core.consumer_rules import CheckedConsumer, ConsumerSubject, check_consumer_create
from edged.core.stream_config import StreamConfig
from tests.jetstream.raw_client import RawClient

ASK_TIMES_MAX = 50
GONE = 10014
CHANCE = b"chance"


def _nobody(subject: str) -> bool:
    return False


class ConsumerTwin:
    """Consumers of some streams, on a real server and as our rules have them."""

    def __init__(
        self, client: RawClient, bounds: ConsumerBounds, version: str, *, strict: bool = True
    ) -> None:
        self._client = client
        self._bounds = bounds
        self.version = version
        self._strict = strict
        self.streams: dict[str, StreamConfig] = {}
        self.consumers: dict[str, dict[str, ConsumerConfig]] = {}
        self.has_interest: Callable[[str], bool] = _nobody

    def add_stream(self, config: dict[str, Any]) -> None:
        """Make a stream on the server; what it answers is what our rules are given."""
        answer = self._client.api(f"STREAM.CREATE.{config['name']}", config)
        assert "error" not in answer, answer
        self.streams[config["name"]] = StreamConfig.stored(answer["config"])
        self.consumers[config["name"]] = {}

    def clear(self) -> None:
        """Remove every consumer."""
        for stream, consumers in self.consumers.items():
            for name in consumers:
                answer = self._client.ask(f"$JS.API.CONSUMER.DELETE.{stream}.{name}").document
                # What nobody uses goes by itself after some seconds.
                assert answer.get("error", {}).get("err_code", GONE) == GONE, answer
            consumers.clear()
        self.has_interest = _nobody

    def create(self, subject: str, request: Any) -> dict[str, Any]:
        """Ask both and compare; what both say. The subject is what follows `$JS.API.CONSUMER.`"""
        payload = _payload(request)
        answer = self._ask(subject, payload)
        theirs = answer["error"] if "error" in answer else answer["config"]
        try:
            checked = self.decide(subject, payload)
        except ApiFailure as failure:
            ours = failure.error.document()
        else:
            ours = with_server(checked.config, self.version).document()
            stored = ConsumerConfig.stored(json.loads(json.dumps(checked.config.document())))
            assert stored == checked.config
            if checked.config.name and not checked.config.is_internal:
                assert checked.name == answer.get("name", checked.name)
        if "error" not in answer:
            # What the server has is what later requests are compared with, whatever we say.
            config = _without_server(ConsumerConfig.stored(theirs))
            self.consumers[answer["stream_name"]][answer["name"]] = config
        # As text, because the order of the fields is part of the answer.
        assert json.dumps(ours) == json.dumps(theirs), (subject, payload[:2000])
        return ours

    def _ask(self, subject: str, payload: bytes) -> dict[str, Any]:
        """Ask the server. It removes the files of a deleted consumer after it has said that it is gone, and a
        new consumer of the same name may come too early.
        """
        for _ in range(ASK_TIMES_MAX):
            answer: dict[str, Any] = self._client.ask(f"$JS.API.CONSUMER.{subject}", b"", payload).document
            words = answer.get("error", {}).get("description")
            if words != "error creating store for consumer" or len(subject) > 255:
                break
        return answer

    def decide(self, subject: str, payload: bytes, **identities: str) -> CheckedConsumer:
        """What our rules say alone."""
        request = ConsumerRequest.parse(payload, self._strict)
        tokens = subject.split(".")
        if tokens[0] == "DURABLE":
            where = ConsumerSubject.durable_create(tokens[2:])
        else:
            where = ConsumerSubject.create(tokens[1:])
        return check_consumer_create(
            request,
            where,
            self.streams.get(where.stream),
            self._bounds,
            self.consumers.get(where.stream, {}),
            chance=CHANCE,
            has_interest=self.has_interest,
            **identities,
        )


def _payload(request: Any) -> bytes:
    """Without blanks and escapes: an error may repeat a value, and how it was written we do not keep."""
    if isinstance(request, bytes):
        return request
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()


def _without_server(config: ConsumerConfig) -> ConsumerConfig:
    added = ("_nats.ver", "_nats.level")
    return replace(config, metadata={key: text for key, text in config.metadata.items() if key not in added})
