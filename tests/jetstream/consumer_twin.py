"""A nats-server and our rules side by side: the same requests go to both, and the answers must be equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edged.core.consumer_config import ConsumerConfig, ConsumerRequest
from edged.core.consumer_defaults import ConsumerBounds, with_server
from edged.core.consumer_rules import CheckedConsumer, ConsumerSubject, check_consumer_create
from edged.core.stream_config import StreamConfig
from tests.jetstream.config_twin import Document, ask, assert_same, payload_of, said, without_server
from tests.jetstream.raw_client import RawClient

GONE = 10014
CHANCE = b"chance"


def _nobody(subject: str) -> bool:
    return False


class ConsumerTwin:
    """Consumers of some streams, on a real server and as our rules have them."""

    def __init__(
        self, client: RawClient, bounds: ConsumerBounds, version: str, *, strict: bool = True
    ) -> None:
        self.client = client
        self._bounds = bounds
        self.version = version
        self._strict = strict
        self.streams: dict[str, StreamConfig] = {}
        self.consumers: dict[str, dict[str, ConsumerConfig]] = {}
        self.has_interest: Callable[[str], bool] = _nobody

    def add_stream(self, config: Document) -> None:
        """Make a stream on the server; what it answers is what our rules are given."""
        answer = self.client.api(f"STREAM.CREATE.{config['name']}", config)
        assert "error" not in answer, answer
        self.streams[config["name"]] = StreamConfig.stored(answer["config"])
        self.consumers[config["name"]] = {}

    def clear(self) -> None:
        """Remove every consumer."""
        for stream, consumers in self.consumers.items():
            for name in consumers:
                answer = self.client.ask(f"$JS.API.CONSUMER.DELETE.{stream}.{name}").document
                # What nobody uses goes by itself after some seconds.
                assert answer.get("error", {}).get("err_code", GONE) == GONE, answer
            consumers.clear()
        self.has_interest = _nobody

    def create(self, subject: str, request: Any) -> Document:
        """Ask both and compare; what both say. The subject is what follows `$JS.API.CONSUMER.`"""
        payload = payload_of(request)
        answer = ask(self.client, f"CONSUMER.{subject}", payload)
        ours = said(lambda: self._shown(subject, payload, answer))
        if "error" not in answer:
            theirs = without_server(ConsumerConfig.stored(answer["config"]))
            self.consumers[answer["stream_name"]][answer["name"]] = theirs
        assert_same(ours, answer, subject, payload)
        return ours

    def _shown(self, subject: str, payload: bytes, answer: Document) -> ConsumerConfig:
        checked = self.decide(subject, payload)
        if checked.config.name and not checked.config.is_internal:
            assert checked.name == answer.get("name", checked.name)
        return with_server(checked.config, self.version)

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
